
  // The blocks at a level of the tree. A group is a list of clusters that the level has merged;
  // groups stand in the order of the tree.

  const makeModel = ({ blocks, tree, domains }) => {
    const [rows, columns] = blocks.shape;
    const stored = {
      probability: blocks.logit.map((x) => 1 / (1 + Math.exp(-x / blocks.steps))),
      links: blocks.links.map((x) => x / 10),
      cells: blocks.cells,
    };
    const shown = blocks.shape;
    const side = (d) => domains[oneDomain ? 0 : d];
    const model = { domains, tree, blocks, side, level: 0, groups: [], listeners: [] };

    const groupsAt = (d, level) => {
      const { order, sizes, names } = side(d);
      const parent = sizes.map((_, k) => k);
      tree.merges.slice(0, level).forEach(([domain, first, second]) => {
        if (domain !== (oneDomain ? 0 : d)) return;
        parent.forEach((k, i) => {
          if (k === second) parent[i] = first;
        });
      });
      const found = new Map();
      order.forEach((k) => {
        if (k >= shown[d]) return;
        if (!found.has(parent[k])) found.set(parent[k], { clusters: [], size: 0 });
        const group = found.get(parent[k]);
        group.clusters.push(k);
        group.size += sizes[k];
      });
      found.forEach((group) => {
        group.largest = Math.min(...group.clusters); // clusters are numbered by size
        group.label = group.clusters.length > 1 ? `${group.largest}+` : `${group.largest}`;
        group.name = names[group.largest];
      });
      return [...found.values()];
    };

    const sum = (table, row, column) => {
      let total = 0;
      row.clusters.forEach((k) => {
        column.clusters.forEach((l) => {
          if (symmetric && row === column && l < k) return;
          total += table[k * columns + l];
        });
      });
      return total;
    };

    const add = () => {
      const [left, top] = model.groups;
      const [a, b] = blocks.prior;
      model.links = [];
      model.cells = [];
      model.probability = [];
      left.forEach((row, r) => {
        top.forEach((column, c) => {
          const same = symmetric && r === c ? row : column;
          const [links, cells] = [sum(stored.links, row, same), sum(stored.cells, row, same)];
          const single = row.clusters.length === 1 && column.clusters.length === 1;
          const known = stored.probability[row.clusters[0] * columns + column.clusters[0]];
          model.links.push(links);
          model.cells.push(cells);
          model.probability.push(single ? known : (a + links) / (a + b + cells));
        });
      });
      const width = top.length;
      const average = top.map((_, c) => {
        let [links, cells] = [0, 0];
        left.forEach((_row, r) => {
          const weight = symmetric && r === c ? 2 : 1;
          links += weight * model.links[r * width + c];
          cells += weight * model.cells[r * width + c];
        });
        return links / Math.max(cells, 1e-300);
      });
      model.lift = model.probability.map((p, i) => p / Math.max(average[i % width], 1e-300));
    };

    model.cut = (level) => {
      model.level = level;
      model.groups = oneDomain
        ? [groupsAt(0, level), groupsAt(0, level)]
        : [groupsAt(0, level), groupsAt(1, level)];
      add();
      model.listeners.forEach((listener) => listener());
    };
    model.title = (d, i) => {
      const group = model.groups[d][i];
      const several = group.clusters.length > 1 ? `clusters ${group.clusters.join(", ")}` : `cluster ${group.largest}`;
      return `${nouns[d]} ${several}: ${group.name}`;
    };
    model.complete = rows === side(0).sizes.length && columns === side(1).sizes.length;
    model.cut(0);
    return model;
  };

  // The block map is a canvas: each block is a pixel of a bitmap, which is enlarged.

  const startMap = (model) => {
    const map = byId("map");
    const context = map.getContext("2d");
    const bitmap = document.createElement("canvas");
    const frame = { left: 62, top: 26 };
    const state = { row: 0, column: 0, pinned: false, printing: false };
    const sizeOf = () => model.groups.map((side) => side.length);
    const drawn = { width: 0, height: 0 };
    const colours = () => shades[darkScreen.matches && !state.printing ? 1 : 0];
    const style = (name) => getComputedStyle(map).getPropertyValue(name);

    const scales = () => {
      const linked = model.probability.filter((_, i) => model.links[i] >= 0.05);
      const values = linked.length ? linked : model.probability;
      const largest = values.reduce((x, y) => Math.max(x, y), 0);
      const smallest = values.reduce((x, y) => Math.min(x, y), 1);
      const lifts = model.lift.filter((_, i) => model.links[i] >= 0.05).sort((x, y) => x - y);
      const top = Math.max(lifts[Math.floor(0.99 * (lifts.length - 1))] ?? 2, 2);
      return {
        probability: { of: (i) => model.probability[i] / largest, ends: ["0%", percent(largest)] },
        logarithm: {
          of: (i) => Math.log(model.probability[i] / smallest) / Math.log(largest / smallest) || 0,
          ends: [percent(smallest), percent(largest)],
        },
        lift: {
          of: (i) => 0.5 + Math.log(model.lift[i]) / Math.log(top) / 2,
          ends: [`1/${times(top)} average`, `${times(top)} average`],
        },
      };
    };

    const colour = () => {
      const [rows, columns] = sizeOf();
      const scale = scales()[byId("scale").value];
      const palette = colours();
      Object.assign(bitmap, { width: columns, height: rows });
      const paint = bitmap.getContext("2d").createImageData(columns, rows);
      model.shade = model.links.map((links, i) => {
        if (links < 0.05) return -1; // an empty block is blank
        const step = Math.round(clamp(scale.of(i), 0, 1) * (palette.length - 1));
        paint.data.set([...palette[step], 255], 4 * i);
        return step;
      });
      bitmap.getContext("2d").putImageData(paint, 0, 0);
      [byId("legend-low").textContent, byId("legend-high").textContent] = scale.ends;
      byId("legend").replaceChildren();
      palette.forEach((rgb, step) => {
        const x = `${(100 * step) / palette.length}%`;
        addShape(byId("legend"), "rect", { fill: `rgb(${rgb})`, x, width: "5%", height: "100%" });
      });
    };

    // The number in a block: links per 100 cells, or per 1,000 and so on if all are small.
    let unit = 100;
    const numberOf = (p) => {
      const value = unit * p;
      return value >= 9.95 ? value.toFixed(0) : value >= 0.05 ? value.toFixed(1) : "0";
    };

    const layout = () => {
      const [rows, columns] = sizeOf();
      const room = Math.max(map.parentElement.clientWidth - frame.left - 4, 120);
      drawn.width = Math.min(room, Math.max(68 * columns, 60), 760);
      drawn.height = clamp(rows * 42, 40, columns > 60 || rows > 60 ? Math.min(room, 600) : 480);
      const ratio = Math.min(devicePixelRatio || 1, 2);
      const [width, height] = [drawn.width + frame.left + 2, drawn.height + frame.top + 2];
      Object.assign(map, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
      map.style.width = `${width}px`;
      map.style.height = `${height}px`;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      unit = 100;
      while (model.probability.reduce((x, y) => Math.max(x, y), 0) * unit < 10) unit *= 10;
    };

    const cellBox = (row, column) => {
      const [rows, columns] = sizeOf();
      const { view } = zoomed;
      const width = drawn.width / columns / view.size;
      const height = drawn.height / rows / view.size;
      const x = frame.left + column * width - (view.x / view.size) * drawn.width;
      const y = frame.top + row * height - (view.y / view.size) * drawn.height;
      return { x, y, width, height };
    };

    const drawNumbers = (first, last) => {
      const one = cellBox(0, 0);
      if (one.width < 26 || one.height < 15) return false;
      const [, columns] = sizeOf();
      const palette = colours();
      context.textAlign = "center";
      for (let r = first[0]; r < last[0]; r += 1) {
        for (let c = first[1]; c < last[1]; c += 1) {
          const i = r * columns + c;
          const box = cellBox(r, c);
          const [red, green, blue] = model.shade[i] < 0 ? [0, 0, 0] : palette[model.shade[i]];
          const light = 0.3 * red + 0.59 * green + 0.11 * blue > 115;
          context.fillStyle = model.shade[i] < 0 ? style("--soft") : light ? "#020406" : "#ffffff";
          const value = byId("scale").value === "lift" ? times(model.lift[i]) : numberOf(model.probability[i]);
          context.fillText(value, box.x + box.width / 2, box.y + box.height / 2);
        }
      }
      return true;
    };

    const drawAxes = (first, last) => {
      const one = cellBox(0, 0);
      const [everyRow, everyColumn] = [Math.ceil(14 / one.height), Math.ceil(24 / one.width)];
      context.fillStyle = style("--ink");
      context.textAlign = "right";
      for (let r = first[0]; r < last[0]; r += everyRow) {
        const box = cellBox(r, 0);
        context.fillText(model.groups[0][r].label, frame.left - 6, box.y + box.height / 2);
      }
      context.textAlign = "center";
      for (let c = first[1]; c < last[1]; c += everyColumn) {
        const box = cellBox(0, c);
        context.fillText(model.groups[1][c].label, box.x + box.width / 2, frame.top - 10);
      }
      context.fillStyle = style("--soft");
      context.textAlign = "left";
      context.fillText(`${nouns[0]}s`, 0, frame.top - 10);
    };

    const draw = () => {
      const [rows, columns] = sizeOf();
      const { view } = zoomed;
      context.clearRect(0, 0, map.width, map.height);
      context.font = `12px ${style("font-family")}`;
      context.textBaseline = "middle";
      const whole_ = cellBox(0, 0);
      const first = [Math.floor(view.y * rows), Math.floor(view.x * columns)];
      const last = [Math.ceil((view.y + view.size) * rows), Math.ceil((view.x + view.size) * columns)];
      context.save();
      context.beginPath();
      context.rect(frame.left, frame.top, drawn.width, drawn.height);
      context.clip();
      context.imageSmoothingEnabled = whole_.width < 1 || whole_.height < 1;
      context.drawImage(bitmap, whole_.x, whole_.y, whole_.width * columns, whole_.height * rows);
      if (Math.max(last[0] - first[0], last[1] - first[1]) <= borders) {
        context.strokeStyle = style("--paper");
        context.lineWidth = 1;
        for (let r = first[0]; r <= last[0]; r += 1) context.strokeRect(frame.left, cellBox(r, 0).y, drawn.width, 0);
        for (let c = first[1]; c <= last[1]; c += 1) context.strokeRect(cellBox(0, c).x, frame.top, 0, drawn.height);
      }
      const numbered = drawNumbers(first, last);
      const box = cellBox(state.row, state.column);
      context.strokeStyle = style("--border");
      context.lineWidth = state.pinned ? 4 : 2.5;
      if (!state.printing) context.strokeRect(box.x, box.y, Math.max(box.width, 3), Math.max(box.height, 3));
      context.restore();
      context.strokeStyle = style("--rule");
      context.lineWidth = 1;
      context.strokeRect(frame.left - 0.5, frame.top - 0.5, drawn.width + 1, drawn.height + 1);
      drawAxes(first, last);
      const what = byId("scale").value === "lift" ? "lifts" : unit === 100 ? "per cent" : `links per ${whole.format(unit)} cells`;
      byId("unit").textContent = numbered ? `Numbers are ${what}.` : "";
    };

    const zoomed = zoomable(map, byId("map-zoom"), draw);

    const showDetails = () => {
      const readout = byId("readout");
      readout.replaceChildren();
      const i = state.row * sizeOf()[1] + state.column;
      const pair = [state.row, state.column].map((at, d) => model.groups[d][at]);
      addElement(readout, "p", percent(model.probability[i]), "big");
      const cells = model.cells[i];  // a whole number, unlike the links
      const [links, seen] = [Math.min(model.links[i], cells), cells].map((n) => tenths.format(n));
      addElement(readout, "p", `${links} links in ${seen} seen cells`, "quiet");
      addElement(readout, "p", `${times(model.lift[i])} the average of the ${nouns[1]} cluster`, "quiet");
      const list = addElement(readout, "dl");
      pair.forEach((group, d) => {
        const term = addElement(list, "dt");
        linkTo(term, nouns[d], group.largest);
        const more = group.clusters.length - 1;
        if (more) term.append(` and ${more} more`);
        term.append(`, ${count(group.size, nouns[d])}`);
        addElement(addElement(list, "dd"), "bdi", group.name);
      });
      addElement(readout, "p", state.pinned ? "Pinned; Escape releases." : "Click to pin, Enter opens the cluster.", "quiet");
    };

    const select = (row, column) => {
      const [rows, columns] = sizeOf();
      state.row = clamp(row, 0, rows - 1);
      state.column = clamp(column, 0, columns - 1);
      const { view } = zoomed;
      const [across, down] = [(state.column + 0.5) / columns, (state.row + 0.5) / rows];
      const hidden = across < view.x || across > view.x + view.size || down < view.y || down > view.y + view.size;
      if (hidden) zoomed.move(across - view.size / 2, down - view.size / 2, view.size);
      else draw();
      showDetails();
    };

    const pin = (row, column) => {
      state.pinned = true;
      select(row, column);
    };
    const release = () => {
      state.pinned = false;
      select(state.row, state.column);
    };
    model.pin = pin;

    const blockAt = (event) => {
      const box = map.getBoundingClientRect();
      const part = { left: box.left + frame.left, top: box.top + frame.top, width: drawn.width, height: drawn.height };
      const found = zoomed.at(event, part);
      const [rows, columns] = sizeOf();
      return found && [Math.floor(found[1] * rows), Math.floor(found[0] * columns)];
    };

    const KEYS = {
      ArrowUp: () => select(state.row - 1, state.column),
      ArrowDown: () => select(state.row + 1, state.column),
      ArrowLeft: () => select(state.row, state.column - 1),
      ArrowRight: () => select(state.row, state.column + 1),
      Home: () => select(state.row, 0),
      End: () => select(state.row, sizeOf()[1] - 1),
      PageUp: () => select(0, state.column),
      PageDown: () => select(sizeOf()[0] - 1, state.column),
      Enter: () => openPanel(nouns[0], model.groups[0][state.row].largest),
      " ": () => (state.pinned ? release() : pin(state.row, state.column)),
      Escape: () => (state.pinned ? release() : zoomed.reset()),
      "+": () => zoomed.zoom(2),
      "-": () => zoomed.zoom(0.5),
      0: zoomed.reset,
    };

    const refresh = () => {
      colour();
      layout();
      const strongest = model.probability.indexOf(model.probability.reduce((x, y) => Math.max(x, y), 0));
      state.pinned = false;
      select(Math.floor(strongest / sizeOf()[1]), strongest % sizeOf()[1]);
    };
    const repaint = () => {
      colour();
      draw();
    };

    byId("scale").value = model.blocks.logarithmic ? "logarithm" : "probability";
    byId("scale").addEventListener("change", repaint);
    darkScreen.addEventListener("change", repaint);
    [["beforeprint", true], ["afterprint", false]].forEach(([when, printing]) => {
      addEventListener(when, () => {
        state.printing = printing;
        repaint();
      });
    });
    addEventListener("resize", () => {
      layout();
      draw();
    });
    map.addEventListener("pointermove", (event) => {
      const block = state.pinned || zoomed.dragging() ? null : blockAt(event);
      if (block && (block[0] !== state.row || block[1] !== state.column)) select(...block);
    });
    map.addEventListener("click", (event) => {
      const block = blockAt(event);
      if (!block) return;
      const same = state.pinned && block[0] === state.row && block[1] === state.column;
      if (same) release();
      else pin(...block);
    });
    map.addEventListener("keydown", (event) => {
      const act = KEYS[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      act();
    });
    addEventListener("keydown", (event) => {
      if (event.key === "Escape" && state.pinned && byId("panel").hidden) release();
    });
    model.listeners.push(refresh);
    startLevels(model);
    refresh();
  };

  const startLevels = (model) => {
    const slider = byId("level");
    const { cuts } = model.tree;
    const parts = byId("levels");
    if (cuts.length < 2 || !model.complete) {
      parts.hidden = true;
      if (!model.complete) {
        byId("map-note").hidden = false;
        byId("map-note").textContent = `The map shows the largest ${model.blocks.shape.join(" × ")} clusters. All clusters are in the tables below.`;
      }
      return;
    }
    slider.max = String(cuts.length - 1);
    const show = () => {
      const [level, clusters, evidence] = cuts[Number(slider.value)];
      const shown = whole.format(evidence).replace("-", "−");
      const words = `${clusters.join(" × ")} clusters, log evidence ${shown}`;
      const less = evidence - cuts[0][2];
      const than = `${less < 0 ? "−" : "+"}${whole.format(Math.abs(less))} to the clusters found`;
      byId("level-text").textContent = level ? `${words} (${than})` : `${words}, as found`;
      slider.setAttribute("aria-valuetext", words);
      return level;
    };
    slider.addEventListener("input", () => model.cut(show()));
    show();
  };
