
  // Names of all objects in the file, by cluster. They are unpacked when they are needed first.

  let loaded = null;

  const toMembers = (domains) =>
    domains.map(({ names, counts, certainty }) => {
      const clusters = counts.map(() => []);
      let [cluster, end, run] = [0, counts[0], 0];
      let runEnd = certainty.length ? certainty[0][1] : 0;
      names.forEach((name, i) => {
        while (i >= end) end += counts[(cluster += 1)];
        while (i >= runEnd) runEnd += certainty[(run += 1)][1];
        clusters[cluster].push({ name, key: name.toLowerCase(), cluster, certainty: certainty[run][0] });
      });
      return clusters;
    });

  const loadMembers = () => {
    loaded ??= byId("names").textContent ? unpack("names").then(toMembers) : Promise.resolve(kinds.map(() => []));
    return loaded;
  };

  const MEMBER_STEP = 200; // members that are listed at first

  const ORDERS = {
    "most certain first": (x, y) => y.certainty - x.certainty,
    "least certain first": (x, y) => x.certainty - y.certainty,
    "by name": (x, y) => (x.key < y.key ? -1 : x.key > y.key ? 1 : 0),
  };

  // All members of a cluster with filter, order, copy and CSV.
  const addMembers = async (parent, noun, cluster, size, highlight) => {
    const part = addElement(parent, "section", "", "part");
    addElement(part, "h3", "Members");
    const controls = addElement(part, "div", "", "controls");
    const filter = addElement(controls, "input");
    Object.assign(filter, { type: "search", placeholder: "Filter", autocomplete: "off" });
    filter.setAttribute("aria-label", "Filter the members");
    const order = addElement(controls, "select");
    order.setAttribute("aria-label", "Order of the members");
    Object.keys(ORDERS).forEach((name) => addElement(order, "option", name));
    const note = addElement(part, "p", "", "quiet");
    note.setAttribute("role", "status");
    const list = addElement(part, "ol", "", "members");
    list.id = "member-list";
    let limit = MEMBER_STEP;
    const all = (await loadMembers())[kinds.indexOf(noun)][cluster] ?? [];

    const matching = () => {
      const key = filter.value.trim().toLowerCase();
      const found = key ? all.filter((member) => member.key.includes(key)) : [...all];
      return found.sort(ORDERS[order.value]); // stable
    };
    const show = () => {
      const found = matching();
      list.replaceChildren();
      found.slice(0, limit).forEach((member) => {
        const item = addElement(list, "li", "", member.name === highlight ? "found" : "");
        addElement(item, "bdi", member.name);
        addElement(item, "span", `${member.certainty}%`, "number");
      });
      const left = size - all.length;
      const missing = left ? ` ${count(left, noun)} more ${left === 1 ? "is" : "are"} in the tables of the result, not in this file.` : "";
      note.textContent = `${tenths.format(found.length)} of ${count(size, noun)}; the number is the certainty.${missing}`;
      more.hidden = found.length <= limit;
      more.textContent = `Show all ${tenths.format(found.length)}`;
    };
    const more = addButton(part, "", () => {
      limit = Infinity;
      show();
    });
    filter.addEventListener("input", show);
    order.addEventListener("change", show);
    addButton(controls, "Copy", () => copyText(matching().map((member) => member.name).join("\n"), "Names"));
    addButton(controls, "CSV", () => {
      const lines = matching().map((member) => `${csvText(member.name)},${cluster},${member.certainty / 100}`);
      saveFile(`${noun}-cluster-${cluster}.csv`, `${["name,cluster,probability", ...lines].join("\n")}\n`);
    });
    show();
    const at = list.querySelector(".found");
    if (at) at.scrollIntoView({ block: "nearest" });
  };
