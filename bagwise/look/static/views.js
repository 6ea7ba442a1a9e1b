// Which view draws a bag; each kind is a module of its own with the same three functions.

import { audioView } from "./view_audio.js";
import { featuresView } from "./view_features.js";
import { imageView } from "./view_image.js";
import { picturesView } from "./view_pictures.js";
import { slideView } from "./view_slide.js";
import { textView } from "./view_text.js";
import { h } from "./dom.js";

const VIEWS = { audio: audioView, image: imageView, text: textView, slide: slideView, pictures: picturesView, features: featuresView };

// A view is {element, update(bag, {part, hovered, heat})} and may have arrived(), leave(), play(part), reveal(part).
export function drawView(bag, tools) {
  if (bag.size === 0) return { element: h("p", { class: "empty" }, "This bag has no parts."), update: () => {} };
  return VIEWS[bag.view.kind](bag, tools);
}
