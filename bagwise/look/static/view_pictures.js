// Parts that are small grey pictures, such as the digits of the demonstration.

import { colour } from "./colours.js";
import { h, percent } from "./dom.js";
import { state } from "./state.js";
import { partName, shownLabel } from "./parts.js";

export function picturesView(bag, { select, hover }) {
  const { width, height, grey } = bag.view;
  const cells = bag.parts.map((part, p) => {
    const canvas = h("canvas", { width, height, "aria-hidden": "true" });
    const context = canvas.getContext("2d");
    const pixels = context.createImageData(width, height);
    grey[p].forEach((value, k) => pixels.data.set([255 - value, 255 - value, 255 - value, 255], 4 * k));
    context.putImageData(pixels, 0, 0);
    return h("button", { class: "tile", onclick: () => select(p), onpointerenter: () => hover(p), onpointerleave: () => hover(null), onfocus: (event) => { if (event.target.matches(":focus-visible")) select(p); } }, canvas, h("span", { class: "caption" }));
  });
  return {
    element: h("div", { class: cells.length <= 12 ? "tiles few" : "tiles" }, cells),
    reveal: (p) => cells[p] && cells[p].scrollIntoView({ block: "nearest" }),
    update: (now, { part, hovered, heat }) => cells.forEach((cell, p) => {
      const shown = shownLabel(now.parts[p]);
      const value = now.parts[p].values[heat ?? shown.label];
      cell.className = ["tile", shown.kind, p === part ? "focus" : "", p === hovered ? "hover" : ""].join(" ");
      cell.style.setProperty("--hue", heat === null ? colour(shown.label) : "var(--heat)");
      cell.style.setProperty("--heat-value", heat === null ? 1 : value ?? 0);
      cell.setAttribute("aria-label", partName(now, p));
      cell.setAttribute("aria-pressed", p === part ? "true" : "false");
      const name = heat !== null ? percent(value) : shown.label === null ? (shown.kind === "none" ? "none" : "–") : state.overview.names[shown.label];
      cell.lastChild.textContent = name;
    }),
  };
}
