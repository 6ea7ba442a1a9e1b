// The part looked at: the values of all labels, and the buttons that correct it (or the label in focus).

import { readOnly } from "./api.js";
import { colour, swatch } from "./colours.js";
import { h, key, percent, replace } from "./dom.js";
import { state } from "./state.js";
import { placeText, shownLabel } from "./parts.js";

const MOST = 8;

export function partPanel(page) {
  const title = h("h2");
  const place = h("span", { class: "quiet place" });
  const said = h("p", { class: "said" });
  const rows = Math.min(MOST, page.bag.parts.length ? page.bag.parts[0].values.length : 0);
  const values = h("ul", { class: "values", style: { "--rows": rows } });
  const buttons = h("div", { class: "buttons", role: "group", "aria-label": "Correct" });
  const element = h("section", { class: "card part", "aria-label": "Part" }, h("div", { class: "parthead" }, title, place), said, values, buttons);

  function update() {
    const names = state.overview.names;
    const at = page.hovered ?? page.part;
    const part = at === null ? null : page.bag.parts[at];
    drawButtons();
    if (part === null || part === undefined) {
      title.textContent = page.row === null ? "Part" : `Bag: ${names[page.row]}`;
      place.textContent = "";
      said.textContent = page.row === null ? "Point at a part to see its labels; a click keeps it. Keys ← → go through the parts, ↑ ↓ through the labels." : bagWords(page.bag.labels[page.row]);
      replace(values);
      return;
    }
    title.textContent = `Part ${at + 1} of ${page.bag.size}`;
    place.textContent = placeText(page.bag, at);
    replace(said, words(part, names));
    const order = [...part.values.keys()].sort((a, b) => part.values[b] - part.values[a]).slice(0, MOST);
    replace(values, order.map((k) => h("li", { style: { "--hue": colour(k) } }, swatch(h, k), h("span", { class: "name" }, names[k]), h("span", { class: "track" }, h("span", { class: "bar", style: { width: `${100 * part.values[k]}%` } })), h("span", { class: "value" }, percent(part.values[k])))));
  }

  function bagWords(one) {
    const bits = [];
    if (one.value !== undefined) bits.push(`the model says ${percent(one.value)}${one.chosen ? ", predicted" : ", not predicted"}`);
    bits.push(one.known === 1 ? "known to be there" : one.known === 0 ? "known not to be there" : "nothing is known");
    if (one.answer) bits.push(`answer: ${one.answer}`);
    return bits.join("; ") + ".";
  }

  function words(part, names) {
    const shown = shownLabel(part);
    const bits = [];
    if (part.answer) bits.push(h("span", { class: `badge ${shown.kind}` }, shown.kind === "yes" ? `yes: ${part.answer.label}` : shown.kind === "none" ? "none of the labels" : shown.kind === "unsure" ? "unsure" : `not ${part.answer.not.join(", ")}`), " ");
    if (part.label !== null) bits.push("model: ", h("strong", null, names[part.label]), " ");
    else if (part.values.length) bits.push("model: no label ");
    if (part.known !== undefined) bits.push(part.values.length ? "· known: " : "known: ", h("strong", { class: part.label === null || part.known === part.label ? null : "bad" }, names[part.known]));
    return bits;
  }

  function drawButtons() {
    if (readOnly) return;
    const off = page.part === null && page.row === null;
    const button = (name, text, act, disabled) => h("button", { onclick: act, disabled: disabled ?? off, class: name === "y" ? "yes" : name === "n" ? "no" : null }, text, " ", key(name));
    replace(buttons, button("y", "Yes", () => page.say("yes")), button("n", "No", () => page.say("no")), button("u", "Unsure", () => page.say("unsure")),
      button("l", "Another label", () => page.other(), false), button("x", "None", () => page.say("none"), page.part === null), button("c", "Clear", () => page.say("clear")));
  }

  return { element, update };
}
