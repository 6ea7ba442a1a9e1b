// One bag: its medium with coloured parts, bars of its labels with thresholds, and the keys that correct.

import { fetchBag, forget, get, post, readOnly } from "./api.js";
import { labelBars } from "./bars.js";
import { swatch } from "./colours.js";
import { count, h, key, notice, replace } from "./dom.js";
import { partPanel } from "./part.js";
import { shownLabel } from "./parts.js";
import { go, stay } from "./place.js";
import { refreshSoon, state } from "./state.js";
import { chooseLabel } from "./typeahead.js";
import { drawView } from "./views.js";

const ORDERS = [["order", "in order"], ["uncertainty", "most uncertain"], ["rarity", "rarest label"], ["label", "of one label"]];

export async function bagPage(place) {
  const params = place.params;
  let number = place.number;
  if (Number.isNaN(number) || number === null) {
    const found = await get("next", { by: params.by || "order", after: -1, label: params.label });
    if (found.number === null) { notice("all bags were looked at"); go("overview"); return null; }
    number = found.number;
    stay("bag", number, params);
  }
  const page = new BagPage(number, params, await fetchBag(number, params.given === "1"));
  return page.handle();
}

class BagPage {
  constructor(number, params, bag) {
    this.number = number;
    this.by = params.by || "order";
    this.label = params.label || null;
    this.given = params.given === "1";
    this.bag = bag;
    const asked = Number(params.part);
    this.part = Number.isInteger(asked) && asked >= 1 && asked <= bag.parts.length ? asked - 1 : null;
    this.row = null; // label in focus
    this.hovered = null;
    this.heat = Number.isInteger(Number(params.heat)) && bag.labels[Number(params.heat)] ? Number(params.heat) : null;
    this.ahead = null;
    this.head = h("div", { class: "baghead" });
    this.tools = h("div", { class: "viewtools" });
    this.view = drawView(bag, { select: (p) => this.select(p), hover: (p) => this.hover(p) });
    this.bars = labelBars(this);
    this.panel = partPanel(this);
    this.element = h("div", { class: "bagpage" },
      this.head,
      h("div", { class: "stage" },
        h("section", { class: "card view", "aria-label": "Parts" }, this.tools, this.view.element),
        h("aside", { class: "panel" }, this.panel.element, this.bars.element)));
    this.draw();
  }

  handle() {
    return {
      element: this.element,
      key: (event) => this.key(event),
      changed: (bag) => { if (bag && bag.number === this.number) { this.bag = bag; this.draw(); } else this.reload(); },
      refresh: () => this.reload(),
      leave: () => { if (this.view.leave) this.view.leave(); },
      shown: () => this.arrived(),
    };
  }

  params() {
    return { by: this.by === "order" ? null : this.by, label: this.label, part: this.part === null ? null : this.part + 1, given: this.given, heat: this.heat === null ? null : String(this.heat) };
  }

  async arrived() {
    window.scrollTo(0, 0);
    if (this.view.arrived) this.view.arrived();
    try {
      if (readOnly) await get(`bag/${this.number}`, { see: true });
      else await post("seen", { number: this.number });
      const next = await get("next", { by: this.by, after: this.number, label: this.label });
      this.ahead = next.number;
      if (next.number !== null) await fetchBag(next.number, this.given);
    } catch { /* said when the next bag is asked for */ }
  }

  async reload() {
    try {
      forget();
      this.bag = await fetchBag(this.number, this.given);
      this.draw();
    } catch (error) { notice(error.message, "bad"); }
  }

  // ------------------------------------------------------------------ drawing

  draw() {
    this.drawHead();
    this.drawTools();
    this.update();
  }

  update() {
    this.view.update(this.bag, { part: this.part, hovered: this.hovered, heat: this.heat });
    this.panel.update();
    this.bars.update();
  }

  drawHead() {
    const { bag } = this;
    const total = state.overview.n_bags;
    const by = h("select", { "aria-label": "Next bag", onchange: () => this.order(by.value) }, ORDERS.filter(([name]) => state.overview.model || name !== "uncertainty").map(([name, text]) => h("option", { value: name, selected: name === this.by }, text)));
    const label = this.by === "label" ? h("select", { "aria-label": "Label", onchange: () => { this.label = label.value; this.order("label"); } }, state.overview.names.map((name) => h("option", { value: name, selected: name === this.label }, name))) : null;
    replace(this.head,
      h("div", { class: "title" }, h("h1", null, bag.id), h("span", { class: "quiet" }, `bag ${this.number + 1} of ${total.toLocaleString("en")} · ${count(bag.size, "part")}`),
        bag.accepted ? h("span", { class: "badge yes" }, "accepted") : null, bag.corrected ? h("span", { class: "badge" }, count(bag.corrected, "answer")) : null),
      h("div", { class: "steps" },
        h("button", { onclick: () => this.before(), title: "Bag before (k)", "aria-label": "Bag before" }, "‹"),
        h("label", { class: "by" }, h("span", { class: "quiet" }, "next: "), by, label),
        h("button", { onclick: () => this.next(), title: "Next bag (j)" }, "Next ", key("j")),
        readOnly ? null : h("button", { class: "main", onclick: () => this.accept(), title: "All as shown is right (Enter)" }, "Right as shown ", key("Enter"))));
  }

  drawTools() {
    const names = state.overview.names;
    const model = state.overview.model;
    const known = this.bag.labels.some((one) => one.known === 1);
    const heat = h("select", { "aria-label": "Colour of the parts", onchange: () => this.setHeat(heat.value === "" ? null : Number(heat.value)) }, h("option", { value: "" }, "colour: label found"), names.slice(0, model ? model.n_labels : 0).map((name, k) => h("option", { value: k, selected: k === this.heat }, `heat map: ${name}`)));
    const given = h("input", { type: "checkbox", checked: this.given, onchange: () => this.setGiven(given.checked) });
    const present = new Map();
    for (const part of this.bag.parts) {
      const { label } = shownLabel(part);
      present.set(label, (present.get(label) || 0) + 1);
    }
    const legend = [...present].filter(([label]) => label !== null).sort((a, b) => b[1] - a[1]).slice(0, 10);
    replace(this.tools,
      model ? heat : null,
      model && known && !readOnly ? h("label", { class: "check", title: "Parts get labels that the bag is known to carry (g)" }, given, "within known labels") : null,
      h("span", { class: "legend" }, this.heat === null ? legend.map(([label, n]) => h("span", { class: "chip" }, swatch(h, label), names[label], h("span", { class: "quiet" }, `\u00a0× ${n}`))) : [h("span", { class: "quiet" }, "0 %"), h("span", { class: "ramp", style: { "--hue": "var(--heat)" } }), h("span", { class: "quiet" }, "100 %")]),
      this.bag.size > this.bag.parts.length ? h("span", { class: "quiet" }, `the first ${this.bag.parts.length} of ${this.bag.size} parts`) : null);
  }

  // ------------------------------------------------------------------ looking

  select(part) {
    this.part = part;
    this.row = null;
    stay("bag", this.number, this.params());
    this.update();
  }

  hover(part) {
    if (this.hovered === part) return;
    this.hovered = part;
    this.panel.update();
    this.view.update(this.bag, { part: this.part, hovered: part, heat: this.heat });
  }

  focusRow(label) {
    this.row = label;
    this.part = null;
    stay("bag", this.number, this.params());
    this.update();
  }

  setHeat(label) {
    this.heat = label;
    stay("bag", this.number, this.params());
    this.drawTools();
    this.update();
  }

  strongest() {
    const values = this.bag.labels.map((one) => one.value ?? -1);
    return values.indexOf(Math.max(...values));
  }

  setGiven(on) {
    this.given = on;
    stay("bag", this.number, this.params());
    this.reload();
  }

  order(by) {
    this.by = by;
    if (by === "label" && this.label === null) this.label = state.overview.names[0] ?? null;
    if (by !== "label") this.label = null;
    this.ahead = null;
    stay("bag", this.number, this.params());
    this.drawHead();
    this.arrived();
  }

  async next() {
    try {
      const found = this.ahead !== null ? this.ahead : (await get("next", { by: this.by, after: this.number, label: this.label })).number;
      if (found === null) { notice(this.by === "order" ? "this is the last bag" : "all bags were looked at"); return; }
      go("bag", found, { ...this.params(), part: null });
    } catch (error) { notice(error.message, "bad"); }
  }

  before() {
    if (this.by !== "order" && history.length > 1) history.back();
    else if (this.number > 0) go("bag", this.number - 1, { ...this.params(), part: null });
    else notice("this is the first bag");
  }

  movePart(step) {
    const n = this.bag.parts.length;
    if (n) this.select(this.part === null ? (step > 0 ? 0 : n - 1) : Math.min(n - 1, Math.max(0, this.part + step)));
    if (this.view.reveal) this.view.reveal(this.part);
  }

  // ------------------------------------------------------------------ correcting

  async say(answer, label) {
    if (readOnly) { notice("this page is for reading"); return; }
    const part = this.part;
    let about = label ?? null;
    if (about === null && answer !== "none" && answer !== "accepted") {
      if (part !== null) about = shownLabel(this.bag.parts[part], true).label;
      else about = this.row;
      if (about === null && answer !== "unsure" && answer !== "clear") {
        notice(part === null ? "choose a part (← →) or a label (↑ ↓) first" : "no label is shown for this part; press l to name one");
        return;
      }
      if (part === null && about === null && answer !== "accepted") { notice("choose a part (← →) or a label (↑ ↓) first"); return; }
      about = about === null ? null : state.overview.names[about];
    }
    if (answer === "none" && part === null) { notice("choose a part first (← →)"); return; }
    try {
      const found = await post("correct", { number: this.number, part: answer === "accepted" ? null : part, answer: answer === "clear" ? "cleared" : answer, label: about, given: this.given });
      state.stack.push(found.id);
      this.bag = found.bag;
      state.overview.names = found.names;
      forget();
      if (this.ahead !== null) fetchBag(this.ahead, this.given).catch(() => {});
      const words = { yes: "yes", no: "no", unsure: "unsure", none: "none of the labels", clear: "cleared", accepted: "right as shown" }[answer];
      notice(answer === "accepted" ? `${this.bag.id}: right as shown` : `${part === null ? this.bag.id : `part ${part + 1}`}: ${words}${about && answer !== "none" ? " – " + about : ""}`, "good");
      if (part !== null && answer !== "clear" && part + 1 < this.bag.parts.length) this.part = part + 1;
      this.draw();
      refreshSoon();
    } catch (error) { notice(error.message, "bad"); }
  }

  async other() {
    if (readOnly) return;
    const about = this.part === null ? "Label that the bag carries" : `Label of part ${this.part + 1}`;
    const name = await chooseLabel(about, state.overview.names);
    if (name !== null) await this.say("yes", name);
  }

  async accept() {
    await this.say("accepted");
    await this.next();
  }

  key(event) {
    const act = {
      y: () => this.say("yes"), n: () => this.say("no"), u: () => this.say("unsure"), x: () => this.say("none"), c: () => this.say("clear"), l: () => this.other(),
      ArrowRight: () => this.movePart(1), ArrowLeft: () => this.movePart(-1), ArrowDown: () => this.bars.move(1), ArrowUp: () => this.bars.move(-1),
      j: () => this.next(), k: () => this.before(), g: () => this.setGiven(!this.given),
      h: () => this.setHeat(this.heat !== null ? null : this.row ?? (this.part === null ? null : shownLabel(this.bag.parts[this.part]).label) ?? this.strongest()),
      p: () => this.view.play && this.view.play(this.part),
      Escape: () => { this.part = null; this.row = null; this.update(); },
    }[event.key];
    const button = event.target.closest("a, button, summary, [role=button]");
    if (event.key === "Enter" && !button) { this.accept(); return true; }
    if ((event.key === "Enter" || event.key === " ") && button && button.getAttribute("role") === "button") {
      button.dispatchEvent(new MouseEvent("click", { bubbles: true })); // shapes are no real buttons
      return true;
    }
    if (act === undefined) return false;
    act();
    return true;
  }
}

