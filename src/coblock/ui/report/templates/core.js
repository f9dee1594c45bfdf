  // Shared by all parts. Names are inserted as text only, never as HTML.

  const SVG = "http://www.w3.org/2000/svg";
  const byId = (id) => document.getElementById(id);
  const { nouns, oneDomain, symmetric, shades, borders, charts } = JSON.parse(
    byId("data").textContent,
  );
  const kinds = oneDomain ? nouns.slice(0, 1) : nouns; // of domains
  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
  const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 7 });
  const darkScreen = matchMedia("(prefers-color-scheme: dark)");

  const percent = (share) => {
    const value = 100 * share;
    if (value === 0) return "0%";
    if (value < 9.95) {
      return `${value >= 1e-4 ? Number(value.toPrecision(2)) : value.toExponential(0)}%`;
    }
    return `${value.toFixed(value >= 99.5 && value < 99.95 ? 1 : 0)}%`;
  };

  const times = (lift) => {
    if (lift < 0.005) return "<0.01×";
    return `${lift >= 9.95 ? whole.format(lift) : lift.toFixed(lift < 0.095 ? 2 : 1)}×`;
  };

  const count = (number, noun) => `${tenths.format(number)} ${noun}${number === 1 ? "" : "s"}`;

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

  const addButton = (parent, text, act, style = "") => {
    const button = addElement(parent, "button", text, style);
    button.type = "button";
    button.addEventListener("click", act);
    return button;
  };

  const unpack = async (id) => {
    const bytes = Uint8Array.from(atob(byId(id).textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  };

  // Links to clusters: "#row-3" is a line of a table, and opens the panel of the cluster.

  const linkTo = (parent, noun, cluster, text) => {
    const link = addElement(parent, "a", text ?? `${noun} cluster ${cluster}`);
    link.href = `#${noun}-${cluster}`;
    return link;
  };

  const say = (text) => {
    byId("said").textContent = text;
  };

  const saveFile = (name, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    say(`${name} is saved by the browser.`);
  };

  // A spreadsheet runs a text that begins with one of these as a formula.
  const csvText = (text) => `"${(/^[=+\-@\t\r\n\0]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;

  const copyText = async (text, what) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = addElement(document.body, "textarea", text, "visually-hidden");
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    say(`${what} copied.`);
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
    tip.style.left = `${clamp(event.clientX + 14, 4, Math.max(innerWidth - width - 4, 4))}px`;
    tip.style.top = `${clamp(event.clientY + 16, 4, Math.max(innerHeight - height - 4, 4))}px`;
  };
