// A picture with boxes or outlines, and a heat map per label.

import { media } from "./api.js";
import { h, s } from "./dom.js";
import { paint, region } from "./regions.js";

export function imageView(bag, tools) {
  const { places, files } = bag.view;
  const shapes = bag.parts.map((_, p) => places.polygon && places.polygon[p]
    ? region("polygon", { points: places.polygon[p] }, p, tools)
    : region("rect", { x: places.x[p], y: places.y[p], width: places.width[p], height: places.height[p] }, p, tools));
  const right = bag.view.width || Math.max(...places.x.map((x, p) => x + places.width[p]));
  const bottom = bag.view.height || Math.max(...places.y.map((y, p) => y + places.height[p]));
  const over = s("svg", { class: shapes.length > 40 ? "over many" : "over", viewBox: `0 0 ${right} ${bottom}`, role: "group", "aria-label": "Parts of the picture", preserveAspectRatio: "none" }, shapes);
  const frame = h("div", { class: "frame" });
  const source = bag.view.at_hand ? media(bag.number, "picture") : null;
  const missing = h("p", { class: "quiet" }, "The picture itself is not at hand (name its folder with --originals); where its parts lie is drawn.");
  if (source) {
    const picture = h("img", { alt: `Picture ${files[0]}`, src: source, onerror: () => { picture.remove(); frame.classList.add("bare"); frame.after(missing); } });
    frame.append(picture, over);
    // small pictures are enlarged, large ones fit the window; the shapes lie exactly over the picture
    frame.style.setProperty("aspect-ratio", `${right} / ${bottom}`);
    frame.style.setProperty("width", `min(100%, ${(72 * right) / bottom}vh, ${Math.max(4 * right, 320)}px)`);
  } else {
    frame.append(over);
    frame.classList.add("bare");
    over.setAttribute("preserveAspectRatio", "xMidYMid meet");
  }
  return {
    element: h("figure", { class: "medium" }, frame, source ? null : missing, h("figcaption", { class: "quiet" }, files.join(", "))),
    update: (now, how) => paint(shapes, now, how, 0.16),
  };
}
