
  // The tables of clusters: filter and order.

  const startTables = () => {
    document.querySelectorAll(".clusters").forEach((table) => {
      const body = table.tBodies[0];
      const lines = [...body.rows];
      const controls = table.parentElement.querySelector(".controls");
      const filter = addElement(controls, "input");
      Object.assign(filter, { type: "search", placeholder: "Filter clusters", autocomplete: "off" });
      filter.setAttribute("aria-label", "Filter the clusters");
      filter.addEventListener("input", () => {
        const key = filter.value.trim().toLowerCase();
        lines.forEach((line) => {
          line.hidden = !line.textContent.toLowerCase().includes(key);
        });
      });
      const order = addElement(controls, "select");
      order.setAttribute("aria-label", "Order of the clusters");
      ["by size", "by name", "least certain first"].forEach((name) => addElement(order, "option", name));
      order.addEventListener("change", () => {
        const text = (line) => line.querySelector(".name").textContent;
        const number = (line, key) => Number(line.dataset[key]);
        const by = {
          "by size": (x, y) => number(x, "number") - number(y, "number"),
          "by name": (x, y) => text(x).localeCompare(text(y)),
          "least certain first": (x, y) => number(x, "certainty") - number(y, "certainty"),
        };
        body.append(...[...lines].sort(by[order.value]));
      });
    });
  };

  const start = async () => {
    startTables();
    startCharts();
    if (typeof DecompressionStream === "undefined") {
      byId("search").disabled = true;
      byId("search").placeholder = "Search needs a newer browser";
      byId("map-note").hidden = false;
      byId("map-note").textContent = "The block map and the panels of clusters need a newer browser.";
      return;
    }
    const model = makeModel(await unpack("packed"));
    startMap(model);
    startPicture(model);
    startPanel(model);
    startSearch(model);
    model.listeners.forEach((listener) => listener());
    document.documentElement.dataset.ready = "yes";
  };

  start();
