// A text with its sentences marked.

import { colour } from "./colours.js";
import { h } from "./dom.js";
import { partName, shownLabel } from "./parts.js";

export function textView(bag, { select, hover }) {
  const { places } = bag.view;
  const order = bag.parts.map((_, p) => p).sort((a, b) => places.start_char[a] - places.start_char[b]);
  const marks = [];
  const body = h("div", { class: "text", role: "group", "aria-label": "Text" });
  let end = null;
  for (const p of order) {
    // what lies between two parts was left out when the text was cut: a line where it is more than a blank
    if (end !== null) body.append(places.start_char[p] - end > 1 ? h("br") : " ");
    end = places.end_char[p];
    marks[p] = h("mark", { tabindex: 0, role: "button", onclick: () => select(p), onpointerenter: () => hover(p), onpointerleave: () => hover(null), onfocus: (event) => { if (event.target.matches(":focus-visible")) select(p); } }, places.text[p]);
    body.append(marks[p]);
  }
  return {
    element: body,
    reveal: (p) => marks[p] && marks[p].scrollIntoView({ block: "nearest" }),
    update: (now, { part, hovered, heat }) => marks.forEach((mark, p) => {
      const one = now.parts[p];
      const shown = shownLabel(one);
      mark.className = [shown.kind, p === part ? "focus" : "", p === hovered ? "hover" : ""].join(" ");
      mark.style.setProperty("--hue", heat === null ? colour(shown.label) : "var(--heat)");
      const value = heat === null ? (shown.label === null ? 0 : one.values[shown.label] ?? 1) : one.values[heat] ?? 0;
      mark.style.setProperty("--strength", `${Math.round(8 + 34 * value)}%`);
      mark.setAttribute("aria-label", `${partName(now, p)}. ${bag.view.places.text[p]}`);
      mark.setAttribute("aria-pressed", p === part ? "true" : "false");
    }),
  };
}
