// Shapes over a medium: boxes, outlines and tiles that can be pointed at, clicked and reached by keyboard.

import { colour, dashes } from "./colours.js";
import { s } from "./dom.js";
import { partName, shownLabel } from "./parts.js";

export function region(tag, attributes, p, { select, hover }) {
  return s(tag, { ...attributes, class: "region", tabindex: 0, role: "button", onclick: () => select(p), onpointerenter: () => hover(p), onpointerleave: () => hover(null), onfocus: (event) => { if (event.target.matches(":focus-visible")) select(p); } }, s("title"));
}

// Thousands of tiles: when only the focus moved, only what it left and what it came to is painted anew.
export function paint(regions, bag, { part, hovered, heat }, filled) {
  const last = regions.last;
  regions.last = { bag, part, hovered, heat };
  const moved = last && last.bag === bag && last.heat === heat;
  const which = moved ? new Set([last.part, last.hovered, part, hovered].filter((p) => p !== null)) : regions.keys();
  for (const p of which) {
    const shape = regions[p];
    const one = bag.parts[p];
    const shown = shownLabel(one);
    const value = heat === null ? null : one.values[heat] ?? 0;
    shape.setAttribute("class", ["region", shown.kind, p === part ? "focus" : "", p === hovered ? "hover" : ""].join(" "));
    shape.setAttribute("aria-label", partName(bag, p));
    shape.setAttribute("aria-pressed", p === part ? "true" : "false");
    shape.querySelector("title").textContent = partName(bag, p);
    const hue = heat === null ? colour(shown.label) : "var(--heat)";
    shape.style.setProperty("--hue", hue);
    shape.style.setProperty("fill", hue);
    shape.style.setProperty("fill-opacity", heat !== null ? (filled > 0.5 ? 0.95 : 0.6) * value : p === hovered ? Math.max(filled, 0.35) : shown.label === null ? 0 : filled);
    shape.style.setProperty("stroke-dasharray", dashes(heat === null ? shown.label : 0));
  }
}
