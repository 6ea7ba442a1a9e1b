// A slide as a map of its tiles.

import { h, s } from "./dom.js";
import { paint, region } from "./regions.js";

export function slideView(bag, tools) {
  const { places, files } = bag.view;
  const right = Math.max(...places.x.map((x, p) => x + places.width[p]));
  const bottom = Math.max(...places.y.map((y, p) => y + places.height[p]));
  const [left, top] = [Math.min(...places.x), Math.min(...places.y)];
  const tiles = bag.parts.map((_, p) => region("rect", { x: places.x[p], y: places.y[p], width: places.width[p], height: places.height[p] }, p, tools));
  const map = s("svg", { viewBox: `${left} ${top} ${right - left} ${bottom - top}`, class: "slide", role: "group", "aria-label": "Tiles of the slide", preserveAspectRatio: "xMidYMid meet" }, tiles);
  return {
    element: h("figure", { class: "medium" }, map, h("figcaption", { class: "quiet" }, `${files.join(", ")}: ${bag.parts.length} tiles, ${Math.round(right - left).toLocaleString("en")} × ${Math.round(bottom - top).toLocaleString("en")} pixels`)),
    update: (now, how) => paint(tiles, now, how, 0.85),
  };
}
