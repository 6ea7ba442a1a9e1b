// What the keys do.

import { h, key } from "./dom.js";

const KEYS = [
  ["For the part or label in focus", [
    [["y"], "yes, it carries this label"],
    [["n"], "no, it does not"],
    [["u"], "unsure"],
    [["l"], "another label: type a few letters, Enter takes it"],
    [["x"], "the part carries none of the labels"],
    [["c"], "clear what was said"],
    [["z"], "undo the last correction"],
  ]],
  ["Moving", [
    [["←", "→"], "part before, part after"],
    [["↑", "↓"], "label of the bag above, below"],
    [["Enter"], "the bag is right as shown: accept it and go on"],
    [["j"], "next bag, by the rule chosen"],
    [["k"], "the bag looked at before"],
    [["o"], "overview"],
    [["/"], "search bags (overview)"],
  ]],
  ["Looking", [
    [["p"], "play the part, or stop"],
    [["h"], "heat map of the label in focus, on and off"],
    [["g"], "label parts within the bag's known labels, on and off"],
    [["?"], "this list"],
  ]],
];

export function helpDialog() {
  if (document.querySelector("dialog.help")) return;
  const dialog = h("dialog", { class: "help", "aria-label": "Keys", onclose: () => dialog.remove() },
    h("h2", null, "Keys"),
    h("div", { class: "keys" }, KEYS.map(([title, rows]) => h("section", null, h("h3", null, title),
      h("dl", null, rows.map(([names, text]) => [h("dt", null, names.map(key)), h("dd", null, text)]))))),
    h("form", { method: "dialog" }, h("button", { class: "main" }, "Close")));
  document.body.append(dialog);
  dialog.showModal();
}
