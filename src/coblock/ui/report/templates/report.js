"use strict";
// Interactive parts of the report. Names are inserted as text only, never as HTML.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const MAX_MATCHES = 12;
  const byId = (id) => document.getElementById(id);
  const { blocks, charts } = JSON.parse(byId("data").textContent);
  const { steps } = blocks; // shades in the style sheet: classes s0, s1, ...
  const [rows, columns] = blocks.shape;
  const nouns = blocks.oneDomain ? ["object", "object"] : ["row", "column"];
  const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
  const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 7 });

  const percent = (share) => {
    const value = 100 * share;
    if (value === 0) return "0%";
    if (value < 9.95) {
      return `${value >= 1e-4 ? Number(value.toPrecision(2)) : value.toExponential(0)}%`;
    }
    return `${value.toFixed(value >= 99.5 && value < 99.95 ? 1 : 0)}%`;
  };

  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  const addElement = (parent, name, text = "", style = "") => {
    const added = document.createElement(name);
    added.textContent = text;
    if (style) added.className = style;
    parent.append(added);
    return added;
  };

  const addShape = (parent, name, attributes, text = "") => {
    const added = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) added.setAttribute(key, value);
    if (text !== "") added.textContent = text;
    parent.append(added);
    return added;
  };

  // Shades are linear from 0 to the largest probability, or logarithmic between the extremes.

  const largest = Math.max(...blocks.probability);
  const smallest = Math.min(...blocks.probability);
  const shade = (p, logarithmic) => {
    const share = logarithmic
      ? Math.log(p / smallest) / Math.log(largest / smallest) || 0
      : p / largest;
    return Math.round(clamp(share, 0, 1) * (steps - 1));
  };

  // The block map

  const map = byId("map");
  const left = 74;
  const top = 24;
  const available = Math.min(760, map.parentElement.clientWidth - left - 8);
  const cellWidth = clamp(Math.floor(available / columns), 6, 68);
  const cellHeight = clamp(Math.floor(480 / rows), 5, 42);
  const showsNumbers = cellWidth >= 25 && cellHeight >= 15;
  const cells = [];
  const selected = { row: 0, column: 0, frame: null };

  const drawAxes = () => {
    const corner = { class: "size", x: left - 8, y: top / 2, "text-anchor": "end" };
    addShape(map, "text", corner, `${nouns[0]}s`);
    const everyRow = Math.ceil(14 / cellHeight);
    const everyColumn = Math.ceil(22 / cellWidth);
    for (let k = 0; k < rows; k += everyRow) {
      const y = top + (k + 0.5) * cellHeight;
      addShape(map, "text", { class: "axis", x: 0, y }, k);
      const size = tenths.format(blocks.sizes[0][k]);
      addShape(map, "text", { class: "size", x: left - 8, y, "text-anchor": "end" }, size);
    }
    for (let l = 0; l < columns; l += everyColumn) {
      const x = left + (l + 0.5) * cellWidth;
      addShape(map, "text", { class: "axis", x, y: top / 2, "text-anchor": "middle" }, l);
    }
  };

  // The numbers in the cells are links per 100 cells, or per 1,000 and so on if all are small.
  let unit = 100;
  while (largest * unit < 10) unit *= 10;

  const cellText = (p) => {
    const value = unit * p;
    return value >= 9.95 ? value.toFixed(0) : value >= 0.05 ? value.toFixed(1) : "0";
  };

  const drawMap = () => {
    const width = left + columns * cellWidth + 2;
    const height = top + rows * cellHeight + 2;
    map.setAttribute("viewBox", `0 0 ${width} ${height}`);
    map.setAttribute("width", width);
    map.setAttribute("height", height);
    drawAxes();
    blocks.probability.forEach((p, at) => {
      const x = left + (at % columns) * cellWidth;
      const y = top + Math.floor(at / columns) * cellHeight;
      const box = addShape(map, "rect", { x, y, width: cellWidth, height: cellHeight });
      const centre = { x: x + cellWidth / 2, y: y + cellHeight / 2 };
      cells.push([box, showsNumbers ? addShape(map, "text", centre, cellText(p)) : null]);
    });
    const outline = { class: "selected", width: cellWidth, height: cellHeight, rx: 2 };
    selected.frame = addShape(map, "rect", outline);
  };

  const colourMap = () => {
    const logarithmic = byId("logarithmic").checked;
    cells.forEach(([box, value], at) => {
      const step = shade(blocks.probability[at], logarithmic);
      box.setAttribute("class", `${showsNumbers ? "cell" : "fine"} s${step}`);
      if (value) value.setAttribute("class", `value t${step}`);
    });
    byId("legend-low").textContent = logarithmic ? percent(smallest) : "0%";
    byId("legend-high").textContent = percent(largest);
  };

  const drawLegend = () => {
    for (let step = 0; step < steps; step += 1) {
      const x = `${(100 * step) / steps}%`;
      addShape(byId("legend"), "rect", { class: `s${step}`, x, width: "5%", height: "100%" });
    }
  };

  const cardOf = (noun, cluster) => byId(`${noun}-${cluster}`);

  const membersOf = (noun, cluster) => {
    const members = cardOf(noun, cluster)?.querySelector(".members");
    return members ? members.textContent.trim() : "not listed here";
  };

  const linkTo = (parent, noun, cluster) => {
    const text = `${noun} cluster ${cluster}`;
    const card = cardOf(noun, cluster);
    const added = addElement(parent, card ? "a" : "span", text);
    if (card) added.href = `#${card.id}`;
  };

  const showDetails = (row, column) => {
    const at = row * columns + column;
    const readout = byId("readout");
    readout.replaceChildren();
    const which = addElement(readout, "p", "", "which");
    linkTo(which, nouns[0], row);
    which.append(" × ");
    linkTo(which, nouns[1], column);
    addElement(readout, "p", percent(blocks.probability[at]), "big");
    const [links, seen] = [blocks.links[at], blocks.cells[at]].map((n) => tenths.format(n));
    addElement(readout, "p", `${links} links in ${seen} seen cells`, "quiet");
    const list = addElement(readout, "dl");
    [row, column].forEach((cluster, d) => {
      const size = tenths.format(blocks.sizes[d][cluster]);
      addElement(list, "dt", `${size} ${nouns[d]}${size === "1" ? "" : "s"}`);
      addElement(list, "dd", membersOf(nouns[d], cluster));
    });
  };

  const select = (row, column) => {
    selected.row = clamp(row, 0, rows - 1);
    selected.column = clamp(column, 0, columns - 1);
    selected.frame.setAttribute("x", left + selected.column * cellWidth);
    selected.frame.setAttribute("y", top + selected.row * cellHeight);
    showDetails(selected.row, selected.column);
  };

  const selectAtPointer = (event) => {
    const box = map.getBoundingClientRect();
    const scale = map.viewBox.baseVal.width / box.width;
    const column = Math.floor(((event.clientX - box.left) * scale - left) / cellWidth);
    const row = Math.floor(((event.clientY - box.top) * scale - top) / cellHeight);
    if (row < 0 || row >= rows || column < 0 || column >= columns) return;
    if (row !== selected.row || column !== selected.column) select(row, column);
  };

  const focusCard = (noun, cluster) => {
    const card = cardOf(noun, cluster);
    if (!card) return false;
    card.scrollIntoView({ block: "center" });
    card.focus({ preventScroll: true });
    return true;
  };

  const KEYS = {
    ArrowUp: () => select(selected.row - 1, selected.column),
    ArrowDown: () => select(selected.row + 1, selected.column),
    ArrowLeft: () => select(selected.row, selected.column - 1),
    ArrowRight: () => select(selected.row, selected.column + 1),
    Home: () => select(selected.row, 0),
    End: () => select(selected.row, columns - 1),
    PageUp: () => select(0, selected.column),
    PageDown: () => select(rows - 1, selected.column),
    Enter: () => focusCard(nouns[0], selected.row),
  };

  const startMap = () => {
    byId("logarithmic").checked = blocks.logarithmic;
    drawMap();
    drawLegend();
    colourMap();
    const what = unit === 100 ? "per cent" : `links per ${tenths.format(unit)} cells`;
    byId("unit").textContent = showsNumbers ? `Numbers are ${what}.` : "";
    const strongest = blocks.probability.indexOf(largest);
    select(Math.floor(strongest / columns), strongest % columns);
    byId("logarithmic").addEventListener("change", colourMap);
    map.addEventListener("pointermove", selectAtPointer);
    map.addEventListener("pointerdown", selectAtPointer);
    map.addEventListener("keydown", (event) => {
      const act = KEYS[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      act();
    });
    if (rows < blocks.sizes[0].length || columns < blocks.sizes[1].length) {
      const note = byId("map-note");
      const all = blocks.sizes.map((sizes) => sizes.length).join(" × ");
      note.textContent = `The map shows the largest ${rows} × ${columns} of ${all} clusters.`;
      note.hidden = false;
    }
  };

  // Tooltips

  const tip = byId("tip");
  const hideTip = () => {
    tip.hidden = true;
  };
  const showTip = (event, text) => {
    tip.textContent = text;
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${clamp(event.clientX + 14, 4, innerWidth - width - 4)}px`;
    tip.style.top = `${clamp(event.clientY + 16, 4, innerHeight - height - 4)}px`;
  };

  const clusterAt = (sizes, share) => {
    const total = sizes.reduce((sum, size) => sum + size, 0);
    let end = 0;
    return sizes.findIndex((size) => (end += size) > share * total);
  };

  const startPicture = () => {
    const picture = byId("sorted");
    picture.addEventListener("pointerleave", hideTip);
    picture.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect();
      const row = clusterAt(blocks.sizes[0], (event.clientY - box.top) / box.height);
      const column = clusterAt(blocks.sizes[1], (event.clientX - box.left) / box.width);
      if (row < 0 || column < 0) return hideTip();
      const name = `${nouns[0]} cluster ${row} × ${nouns[1]} cluster ${column}`;
      const shown = row < rows && column < columns;
      const p = shown ? `\n${percent(blocks.probability[row * columns + column])} linked` : "";
      return showTip(event, name + p);
    });
  };

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

  // Search

  const unpack = async (text) => {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  };

  const toEntries = (domains) => {
    const all = [];
    domains.forEach(({ names, counts, certainty }, d) => {
      let cluster = 0;
      let clusterEnd = counts[0];
      let run = 0;
      let runEnd = certainty.length ? certainty[0][1] : 0;
      names.forEach((name, i) => {
        while (i >= clusterEnd) clusterEnd += counts[(cluster += 1)];
        while (i >= runEnd) runEnd += certainty[(run += 1)][1];
        const key = name.toLowerCase();
        all.push({ name, key, noun: nouns[d], cluster, certainty: certainty[run][0] });
      });
    });
    return all;
  };

  const findMatches = (all, typed) => {
    const key = typed.trim().toLowerCase();
    if (!key) return { found: [], total: 0 };
    const beginning = [];
    const within = [];
    for (const entry of all) {
      const at = entry.key.indexOf(key);
      if (at === 0) (entry.key === key ? beginning.unshift(entry) : beginning.push(entry));
      else if (at > 0) within.push(entry);
    }
    const found = beginning.concat(within);
    return { found: found.slice(0, MAX_MATCHES), total: found.length };
  };

  const startSearch = () => {
    const input = byId("search");
    const list = byId("matches");
    const answer = byId("answer");
    let names = null;
    let shown = [];
    let active = 0;

    const load = () => {
      names ??= unpack(byId("names").textContent).then(toEntries);
      return names;
    };

    const close = () => {
      list.hidden = true;
      input.setAttribute("aria-expanded", "false");
      input.removeAttribute("aria-activedescendant");
    };

    const highlight = (next) => {
      active = clamp(next, 0, shown.length - 1);
      shown.forEach((_, i) => list.children[i].setAttribute("aria-selected", String(i === active)));
      input.setAttribute("aria-activedescendant", `match-${active}`);
      list.children[active].scrollIntoView({ block: "nearest" });
    };

    const pick = (entry) => {
      answer.replaceChildren();
      addElement(answer, "bdi", entry.name);
      answer.append(" is in ");
      linkTo(answer, entry.noun, entry.cluster);
      answer.append(`, certainty ${entry.certainty}%.`);
      close();
      focusCard(entry.noun, entry.cluster);
    };

    const addOption = (entry, i) => {
      const option = addElement(list, "li");
      option.id = `match-${i}`;
      option.setAttribute("role", "option");
      addElement(option, "bdi", entry.name);
      addElement(option, "span", `${entry.noun} cluster ${entry.cluster}, certainty ${entry.certainty}%`);
      option.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        pick(entry);
      });
    };

    const update = async () => {
      const typed = input.value;
      const all = await load();
      if (typed !== input.value) return;
      const { found, total } = findMatches(all, typed);
      shown = found;
      list.replaceChildren();
      found.forEach(addOption);
      if (!typed.trim()) return close();
      const rest = total - found.length;
      if (!total) addElement(list, "li", "No such name in this file.", "more");
      const more = `${tenths.format(rest)} more; keep typing to narrow the list.`;
      if (rest) addElement(list, "li", more, "more");
      list.hidden = false;
      input.setAttribute("aria-expanded", "true");
      if (found.length) highlight(0);
    };

    if (typeof DecompressionStream === "undefined") {
      input.disabled = true;
      input.placeholder = "Search needs a newer browser";
      return;
    }
    input.addEventListener("focus", load);
    input.addEventListener("input", update);
    input.addEventListener("blur", close);
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return close();
      if (list.hidden || !shown.length) return undefined;
      if (event.key === "ArrowDown") highlight(active + 1);
      else if (event.key === "ArrowUp") highlight(active - 1);
      else if (event.key === "Enter") pick(shown[active]);
      else return undefined;
      return event.preventDefault();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.target.closest("input, pre")) return;
      event.preventDefault();
      input.focus();
    });
  };

  startMap();
  startPicture();
  startCharts();
  startSearch();
})();
