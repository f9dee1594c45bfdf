
  // Charts: the values at the sweep next to the pointer.

  const chartValue = (value) => {
    if (value === null) return "unknown";
    return value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(2) : digits.format(value);
  };

  const startCharts = () => {
    document.querySelectorAll(".chart svg").forEach((figure, number) => {
      const { sweeps, names, values } = charts[number];
      const cursor = figure.querySelector(".cursor");
      const [from, to] = [Number(cursor.dataset.left), Number(cursor.dataset.right)];
      const [first, last] = [sweeps[0], sweeps[sweeps.length - 1]];
      const across = (sweep) =>
        last > first ? from + ((sweep - first) / (last - first)) * (to - from) : (from + to) / 2;
      const leave = () => {
        cursor.style.visibility = "hidden";
        hideTip();
      };
      figure.addEventListener("pointerleave", leave);
      figure.addEventListener("pointermove", (event) => {
        const box = figure.getBoundingClientRect();
        const x = ((event.clientX - box.left) / box.width) * figure.viewBox.baseVal.width;
        let near = 0;
        sweeps.forEach((sweep, i) => {
          if (Math.abs(across(sweep) - x) < Math.abs(across(sweeps[near]) - x)) near = i;
        });
        cursor.setAttribute("x1", across(sweeps[near]));
        cursor.setAttribute("x2", across(sweeps[near]));
        cursor.style.visibility = "visible";
        const lines = names.map((name, i) => `${name} ${chartValue(values[i][near])}`);
        showTip(event, `sweep ${sweeps[near]}\n${lines.join("\n")}`);
      });
    });
  };
