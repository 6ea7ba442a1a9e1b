// What is said of a part: the label it is shown with, where it lies, and its name for screen readers.

import { state } from "./state.js";

// The label that a part is shown with: what a person said, and else what the model says.
// With `model`, a label that a person denied counts too: it is what yes and no speak about.
export function shownLabel(part, model) {
  const names = state.overview.names;
  const said = part.answer;
  if (said) {
    if (said.label !== null) return { label: names.indexOf(said.label), kind: "yes" };
    if (said.none) return { label: model ? part.label : null, kind: "none" };
    if (said.unsure) return { label: part.label ?? part.known ?? null, kind: "unsure" };
    if (part.label !== null && said.not.includes(names[part.label])) return { label: model ? part.label : null, kind: "no" };
  }
  return { label: part.label ?? part.known ?? null, kind: said ? "no" : "" };
}

export function placeText(bag, at) {
  const { kind, places } = bag.view;
  const round = (value) => Math.round(value).toLocaleString("en");
  if (kind === "audio") return `${places.start[at].toFixed(2)}–${places.end[at].toFixed(2)} s, ${(places.low[at] / 1000).toFixed(1)}–${(places.high[at] / 1000).toFixed(1)} kHz`;
  if (kind === "image" || kind === "slide") return `at ${round(places.x[at])}, ${round(places.y[at])}; ${round(places.width[at])} × ${round(places.height[at])}`;
  if (kind === "text") return `characters ${places.start_char[at]}–${places.end_char[at]}`;
  return "";
}

export function partName(bag, at) {
  const part = bag.parts[at];
  const shown = shownLabel(part);
  const name = shown.label === null ? "no label" : state.overview.names[shown.label];
  const value = shown.label !== null && part.values[shown.label] !== undefined ? `, ${Math.round(100 * part.values[shown.label])} percent` : "";
  return `Part ${at + 1}: ${name}${value}${shown.kind ? ", answered " + shown.kind : ""}`;
}
