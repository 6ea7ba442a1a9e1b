// Choosing a label by a few letters; a name that nobody used yet makes a new label.

import { colour, swatch } from "./colours.js";
import { h, replace } from "./dom.js";

const MOST = 12;

function ranked(names, text) {
  const wanted = text.trim().toLowerCase();
  const score = (name) => {
    const low = name.toLowerCase();
    if (low === wanted) return 0;
    if (low.startsWith(wanted)) return 1;
    if (low.split(/[\s_-]+/).some((word) => word.startsWith(wanted))) return 2;
    return low.includes(wanted) ? 3 : 9;
  };
  return names.map((name, label) => ({ name, label, rank: score(name) })).filter((one) => one.rank < 9)
    .sort((a, b) => a.rank - b.rank || a.label - b.label).slice(0, MOST);
}

// Resolves to a name, or null when nothing was chosen.
export function chooseLabel(title, names) {
  return new Promise((resolve) => {
    let options = [];
    let at = 0;
    let chosen = null;
    const list = h("ul", { id: "options", role: "listbox", "aria-label": "Labels" });
    const input = h("input", {
      type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "options", "aria-label": title,
      autocomplete: "off", spellcheck: "false", maxlength: 200, placeholder: "type a label",
      oninput: () => { at = 0; draw(); },
      onkeydown: (event) => {
        if (event.key === "ArrowDown" || event.key === "ArrowUp") {
          at = (at + (event.key === "ArrowDown" ? 1 : options.length - 1)) % Math.max(options.length, 1);
          draw();
          event.preventDefault();
        } else if (event.key === "Enter") {
          event.preventDefault();
          if (options.length) take(options[at].name);
        }
      },
    });
    const dialog = h("dialog", { class: "chooser", "aria-label": title, onclose: () => { dialog.remove(); resolve(chosen); } },
      h("h2", null, title), input, list);
    function take(name) { chosen = name; dialog.close(); }
    function draw() {
      options = ranked(names, input.value);
      const fresh = input.value.trim().replace(/\s+/g, " ");
      if (fresh && !names.includes(fresh)) options.push({ name: fresh, label: null });
      replace(list, options.map((one, k) => h("li", { role: "option", id: `option${k}`, "aria-selected": k === at ? "true" : "false", onclick: () => take(one.name), style: { "--hue": colour(one.label) } },
        one.label === null ? h("span", { class: "new" }, "new label ") : swatch(h, one.label), one.name)));
      input.setAttribute("aria-activedescendant", options.length ? `option${at}` : "");
    }
    document.body.append(dialog);
    dialog.showModal();
    draw();
    input.focus();
  });
}
