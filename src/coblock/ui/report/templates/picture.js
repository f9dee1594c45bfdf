
  // The relation sorted by cluster: borders, numbers, and what is under the pointer.

  const NUMBER_FROM = 0.045; // size of a cluster whose number is shown, as a share of the side

  const ends = (groups) => {
    const total = groups.reduce((sum, group) => sum + group.size, 0);
    let end = 0;
    return groups.map((group) => (end += group.size) / total);
  };

  const startPicture = (model) => {
    const picture = byId("sorted");
    const inner = byId("sorted-view");
    const lines = picture.querySelector(".borders");
    let edges = [[], []];

    const drawBorders = () => {
      lines.replaceChildren();
      const { view } = zoomed;
      edges = model.groups.map(ends);
      edges.forEach((side, d) => {
        const from = d === 0 ? view.y : view.x;
        const place = (share) => (100 * (share - from)) / view.size;
        side.forEach((end, i) => {
          const at = place(end);
          if (side.length <= borders && i < side.length - 1 && at > 0 && at < 100) {
            const ways = d === 0 ? { x1: 0, x2: "100%", y1: `${at}%`, y2: `${at}%` } : { y1: 0, y2: "100%", x1: `${at}%`, x2: `${at}%` };
            addShape(lines, "line", ways);
          }
          const start = i ? side[i - 1] : 0;
          const middle = place((start + end) / 2);
          if ((end - start) / view.size < NUMBER_FROM || middle < 0 || middle > 100) return;
          const where = d === 0 ? { class: "left", x: -7, y: `${middle}%` } : { class: "top", x: `${middle}%`, y: -7 };
          addShape(lines, "text", where, model.groups[d][i].label);
        });
      });
    };

    const zoomed = zoomable(picture, byId("picture-zoom"), (view) => {
      const window_ = [view.x, view.y, view.size, view.size].map((share) => 100 * share);
      inner.setAttribute("viewBox", window_.join(" "));
      drawBorders();
    });

    const blockAt = (event) => {
      const found = zoomed.at(event, picture.getBoundingClientRect());
      if (!found) return null;
      const index = (side, share) => side.findIndex((end) => share < end);
      return [index(edges[0], found[1]), index(edges[1], found[0])];
    };

    picture.addEventListener("pointerleave", hideTip);
    picture.addEventListener("pointermove", (event) => {
      const block = zoomed.dragging() ? null : blockAt(event);
      if (!block || block[0] < 0 || block[1] < 0) return hideTip();
      const p = model.probability[block[0] * model.groups[1].length + block[1]];
      const names = block.map((i, d) => model.title(d, i));
      return showTip(event, `${names.join("\n× ")}\n${percent(p)} linked`);
    });
    picture.addEventListener("click", (event) => {
      const block = blockAt(event);
      if (block) model.pin(...block);
    });
    model.listeners.push(drawBorders);
  };
