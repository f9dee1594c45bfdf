
  // Search among the names of objects and clusters.

  const MAX_MATCHES = 12;

  const findMatches = (all, typed) => {
    const key = typed.trim().toLowerCase();
    if (!key) return { found: [], total: 0 };
    const exact = [];
    const beginning = [];
    const within = [];
    for (const entry of all) {
      const at = entry.key.indexOf(key);
      if (at === 0) (entry.key === key ? exact : beginning).push(entry);
      else if (at > 0) within.push(entry);
    }
    const found = exact.concat(beginning, within);
    return { found: found.slice(0, MAX_MATCHES), total: found.length };
  };

  const startSearch = (model) => {
    const input = byId("search");
    const list = byId("matches");
    const answer = byId("answer");
    let entries = null;
    let shown = [];
    let active = 0;

    const load = async () => {
      entries ??= loadMembers().then((domains) => {
        const objects = domains.flatMap((clusters, d) =>
          clusters.flatMap((members) => members.map((member) => ({ ...member, noun: kinds[d] }))),
        );
        const named = model.domains.flatMap(({ names }, d) =>
          names.map((name, cluster) => ({ name, key: name.toLowerCase(), cluster, noun: kinds[d] })),
        );
        return objects.concat(named);
      });
      return entries;
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
      answer.append(entry.certainty === undefined ? " is " : " is in ");
      linkTo(answer, entry.noun, entry.cluster);
      answer.append(entry.certainty === undefined ? "." : `, certainty ${entry.certainty}%.`);
      close();
      openPanel(entry.noun, entry.cluster, entry.name);
    };

    const addOption = (entry, i) => {
      const option = addElement(list, "li");
      option.id = `match-${i}`;
      option.setAttribute("role", "option");
      addElement(option, "bdi", entry.name);
      const sure = entry.certainty === undefined ? "" : `, certainty ${entry.certainty}%`;
      addElement(option, "span", `${entry.noun} cluster ${entry.cluster}${sure}`);
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
      if (!typed.trim()) {
        close();
        return;
      }
      const rest = total - found.length;
      if (!total) addElement(list, "li", "No such name in this file.", "more");
      if (rest) addElement(list, "li", `${tenths.format(rest)} more; keep typing to narrow the list.`, "more");
      list.hidden = false;
      input.setAttribute("aria-expanded", "true");
      if (found.length) highlight(0);
    };

    input.addEventListener("focus", load);
    input.addEventListener("input", update);
    input.addEventListener("blur", close);
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !list.hidden) {
        event.stopPropagation();
        close();
        return;
      }
      if (list.hidden || !shown.length) return;
      if (event.key === "ArrowDown") highlight(active + 1);
      else if (event.key === "ArrowUp") highlight(active - 1);
      else if (event.key === "Enter") pick(shown[active]);
      else return;
      event.preventDefault();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.target.closest("input, select, pre")) return;
      event.preventDefault();
      input.focus();
    });
  };
