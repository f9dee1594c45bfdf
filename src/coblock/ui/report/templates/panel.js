
  // The panel of a cluster is built when it is opened.

  let openPanel = () => {};

  const addFeatures = (parent, title, help, features, named) => {
    if (!features.length) return;
    addElement(parent, "h4", title);
    const table = addElement(parent, "table", "", "features");
    const head = addElement(addElement(table, "thead"), "tr");
    [help, "linked", "lift", "share"].forEach((text) => {
      addElement(head, "th", text).scope = "col";
    });
    const body = addElement(table, "tbody");
    features.forEach(([what, p, lift, share]) => {
      const line = addElement(body, "tr");
      named(addElement(line, "td"), what);
      [percent(p), times(lift), percent(share)].forEach((text) => addElement(line, "td", text, "number"));
    });
  };

  const startPanel = (model) => {
    const panel = byId("panel");
    let before = null; // focused before the panel was opened
    let current = null;

    const nameOf = (d, k) => model.domains[d].names[k];
    const partnerOf = (d) => (oneDomain ? 0 : 1 - d);
    const clusterLink = (parent, d, k) => {
      linkTo(parent, kinds[d], k, `${k}`).setAttribute("aria-label", `${kinds[d]} cluster ${k}`);
      parent.append(" ");
      addElement(parent, "bdi", nameOf(d, k));
    };

    // Probabilities of links with all partner clusters on the map, one list per direction.
    const profileOf = (d, k) => {
      const [rows, columns] = model.blocks.shape;
      const p = (r, c) => 1 / (1 + Math.exp(-model.blocks.logit[r * columns + c] / model.blocks.steps));
      const sends = oneDomain || d === 0;
      const profiles = [];
      if (sends && k < rows) profiles.push(Array.from({ length: columns }, (_, l) => p(k, l)));
      const receives = d === 1 || (oneDomain && !symmetric);
      if (receives && k < columns) profiles.push(Array.from({ length: rows }, (_, r) => p(r, k)));
      return profiles;
    };

    const addHead = (d, k) => {
      const domain = model.domains[d];
      const head = addElement(panel, "header");
      const title = addElement(head, "h2");
      title.id = "panel-title";
      title.tabIndex = -1;
      addElement(title, "span", `${kinds[d]} cluster ${k}`, "kind");
      const shown = addElement(title, "bdi", nameOf(d, k));
      addButton(head, "Close", close, "close");
      const total = domain.sizes.reduce((sum, size) => sum + size, 0);
      const facts = addElement(panel, "p", "", "facts");
      facts.append(`${count(domain.sizes[k], kinds[d])} (${percent(domain.sizes[k] / total)} of all), certainty ${domain.certainty[k]}%`);
      if (domain.classes.length) addElement(panel, "p", `Known classes: ${domain.classes[k]}`);
      const steps = addElement(panel, "p", "", "controls");
      if (k > 0) linkTo(steps, kinds[d], k - 1, "Previous");
      if (k < domain.sizes.length - 1) linkTo(steps, kinds[d], k + 1, "Next");
      const naming = addElement(panel, "details");
      addElement(naming, "summary", "Rename");
      const controls = addElement(naming, "div", "", "controls");
      const field = addElement(controls, "input");
      Object.assign(field, { value: nameOf(d, k), autocomplete: "off", maxLength: 120 });
      field.setAttribute("aria-label", "Name of the cluster");
      field.addEventListener("input", () => {
        domain.names[k] = field.value.trim() || `${kinds[d]} cluster ${k}`;
        shown.textContent = domain.names[k];
        byId(`${kinds[d]}-${k}`).querySelector(".name").textContent = domain.names[k];
        model.groups.flat().forEach((group) => {
          if (model.domains.length === 1 || model.groups[d].includes(group)) group.name = domain.names[group.largest];
        });
      });
      addButton(controls, "Save names.csv", () => {
        const lines = model.domains.flatMap((each, e) => each.names.map((name, g) => `${kinds[e]},${g},${csvText(name)}`));
        saveFile("names.csv", `${["side,cluster,name", ...lines].join("\n")}\n`);
      });
      addElement(naming, "p", "coblock report MODEL --names names.csv keeps the names.", "quiet");
    };

    const addPartners = (d, k) => {
      const e = partnerOf(d);
      model.domains[d].profiles[k].ways.forEach((way, i) => {
        const part = addElement(panel, "section", "", "part");
        const verb = model.domains[d].verbs[i];
        addElement(part, "h3", verb === "links to" ? "Links to, more than others" : "Linked from, more than others");
        const object = (cell, name) => addElement(cell, "bdi", name);
        const any = way.clusters.length + way.objects.length + way.exclusive.length + way.shared.length;
        if (!any) addElement(part, "p", "Nothing more than others.", "quiet");
        addFeatures(part, `${kinds[e]} clusters`, "cluster", way.clusters, (cell, l) => clusterLink(cell, e, l));
        addFeatures(part, `single ${kinds[e]}s`, kinds[e], way.objects, object);
        addFeatures(part, `exclusive: most of their links are with this cluster`, kinds[e], way.exclusive, object);
        addFeatures(part, `shared: probable, but hardly more than on average`, kinds[e], way.shared, object);
      });
      addElement(panel, "p", "Linked: probability of a link. Lift: this over the average of all. Share: fraction of the partner's links that this cluster has.", "quiet");
    };

    const addComparison = (parent, d, k, g) => {
      const box = parent.querySelector(".comparison");
      box.replaceChildren();
      if (Number.isNaN(g)) return;
      const [one, other] = [profileOf(d, k), profileOf(d, g)];
      if (!one.length || !other.length) {
        addElement(box, "p", "One of the two is too small to be on the map.", "quiet");
        return;
      }
      const e = partnerOf(d);
      one.forEach((mine, way) => {
        const order = mine.map((_, l) => l).sort((x, y) => Math.abs(mine[y] - other[way][y]) - Math.abs(mine[x] - other[way][x]));
        const table = addElement(box, "table", "", "features");
        const head = addElement(addElement(table, "thead"), "tr");
        const verb = model.domains[d].verbs[way] ?? "links to";
        [`largest differences, ${verb}`, `cluster ${k}`, `cluster ${g}`].forEach((text) => {
          addElement(head, "th", text).scope = "col";
        });
        const body = addElement(table, "tbody");
        order.slice(0, 10).forEach((l) => {
          const line = addElement(body, "tr");
          clusterLink(addElement(line, "td"), e, l);
          [mine[l], other[way][l]].forEach((p) => addElement(line, "td", percent(p), "number"));
        });
      });
    };

    const addNear = (d, k) => {
      const { near, unsure } = model.domains[d].profiles[k];
      const part = addElement(panel, "section", "", "part");
      addElement(part, "h3", "Similar clusters");
      if (!near.length) addElement(part, "p", "There is no other cluster.", "quiet");
      const list = addElement(part, "ol", "", "members");
      near.forEach(([g, cosine]) => {
        const item = addElement(list, "li");
        clusterLink(addElement(item, "span"), d, g);
        addElement(item, "span", cosine.toFixed(2), "number");
      });
      if (near.length) {
        addElement(part, "p", "The number is the cosine of the link probabilities: 1 is the same direction.", "quiet");
        const label = addElement(part, "label", "Compare with ");
        const select = addElement(label, "select");
        addElement(select, "option", "…").value = "";
        const others = [...near.map(([g]) => g), ...model.domains[d].sizes.keys()].filter((g, i, all) => g !== k && all.indexOf(g) === i);
        others.forEach((g) => {
          addElement(select, "option", `${g} ${nameOf(d, g)}`.slice(0, 60)).value = String(g);
        });
        addElement(part, "div", "", "comparison");
        select.addEventListener("change", () => addComparison(part, d, k, parseInt(select.value, 10)));
      }
      if (!unsure.length) return;
      addElement(part, "h3", "Unsure members");
      const doubts = addElement(part, "ol", "", "members");
      unsure.forEach(([name, certainty, g]) => {
        const item = addElement(doubts, "li");
        const text = addElement(item, "span");
        addElement(text, "bdi", name);
        text.append(" or ");
        linkTo(text, kinds[d], g, `cluster ${g}`);
        addElement(item, "span", `${certainty}%`, "number");
      });
    };

    const close = () => {
      panel.hidden = true;
      document.body.classList.remove("with-panel");
      current = null;
      if (location.hash.match(/^#(row|column|object)-\d+$/)) history.replaceState(null, "", location.pathname + location.search);
      if (before?.isConnected) before.focus({ preventScroll: true });
    };

    const open = (noun, k, highlight = "") => {
      const d = kinds.indexOf(noun);
      if (d < 0 || !(k < model.domains[d].sizes.length)) return;
      if (panel.hidden) before = document.activeElement;
      current = `#${noun}-${k}`;
      if (location.hash !== current) history.pushState(null, "", current);
      panel.replaceChildren();
      panel.hidden = false;
      document.body.classList.add("with-panel");
      addHead(d, k);
      const members = addElement(panel, "div");
      addPartners(d, k);
      addNear(d, k);
      addMembers(members, noun, k, model.domains[d].sizes[k], highlight);
      panel.scrollTop = 0;
      byId("panel-title").focus({ preventScroll: true });
    };
    openPanel = open;

    const fromAddress = () => {
      const found = location.hash.match(/^#(row|column|object)-(\d+)$/);
      if (found && location.hash !== current) open(found[1], Number(found[2]));
      else if (!found && !panel.hidden) close();
    };
    document.addEventListener("click", (event) => {
      const link = event.target.closest("a[href^='#']");
      const found = link?.getAttribute("href").match(/^#(row|column|object)-(\d+)$/);
      if (!found || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      open(found[1], Number(found[2]));
    });
    addEventListener("popstate", fromAddress);
    addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !panel.hidden) close();
    });
    fromAddress();
  };
