// Bars of the bag's labels, with the decision threshold to drag and what it does to precision and recall.

import { get } from "./api.js";
import { colour, swatch } from "./colours.js";
import { decimals, h, percent, replace } from "./dom.js";
import { state } from "./state.js";

const MOST = 14;

export function labelBars(page) {
  const list = h("ul", { class: state.overview.model ? "bars" : "bars alone", role: "list" });
  const effect = h("p", { class: "effect quiet", role: "status" });
  const more = h("button", { class: "plain", onclick: () => { all = !all; update(); } });
  const element = h("section", { class: "card", "aria-label": "Labels of the bag" }, h("h2", null, "Labels of the bag"), list, more, effect);
  let all = false;
  let order = null;
  const curves = new Map();

  const strength = (one) => (one.answer || one.known === 1 || one.chosen ? 2 : 0) + (one.value ?? 0);

  function visible() {
    const { labels } = page.bag;
    if (order === null || order.length !== labels.length) order = [...labels.keys()].sort((a, b) => strength(labels[b]) - strength(labels[a]) || a - b);
    return all ? order : order.slice(0, MOST);
  }

  function decided(one) {
    const threshold = state.thresholds.get(one.label);
    return threshold === undefined || one.value === undefined ? one.chosen : one.value >= threshold;
  }

  function update() {
    const { labels } = page.bag;
    const rows = visible();
    if (list.childElementCount !== rows.length || [...list.children].some((row, k) => Number(row.dataset.label) !== rows[k])) replace(list, rows.map((k) => row(labels[k])));
    [...list.children].forEach((element, at) => restyle(element, labels[rows[at]]));
    more.hidden = labels.length <= MOST;
    more.textContent = all ? "fewer labels" : `all ${labels.length} labels`;
  }

  function row(one) {
    const name = state.overview.names[one.label];
    const range = one.value === undefined ? null : h("input", { type: "range", min: 0, max: 1, step: 0.01, tabindex: -1, value: state.thresholds.get(one.label) ?? 0.5, "aria-label": `Threshold of ${name}`, title: "Decision threshold: drag", oninput: (event) => drag(one.label, Number(event.target.value)), onclick: (event) => event.stopPropagation() });
    return h("li", { "data-label": one.label, onclick: () => page.focusRow(one.label), style: { "--hue": colour(one.label) } },
      h("button", { class: "labelname", "aria-label": name, onclick: (event) => { event.stopPropagation(); page.focusRow(one.label); } }, swatch(h, one.label), h("span", { class: "name" }, name)),
      h("span", { class: "track" }, h("span", { class: "bar" }), range),
      h("span", { class: "value" }), h("span", { class: "marks" }));
  }

  function restyle(element, one) {
    const focus = page.row === one.label;
    const held = one.known === 1;
    element.className = [focus ? "focus" : "", (one.value === undefined ? held : decided(one)) ? "chosen" : "", one.known === -1 || one.value === undefined ? "" : held === Boolean(decided(one)) ? "right" : "wrong"].join(" ");
    element.setAttribute("aria-current", focus ? "true" : "false");
    element.querySelector(".bar").style.setProperty("width", one.value === undefined || one.value === null ? "0" : `${100 * one.value}%`);
    element.querySelector(".value").textContent = one.value === undefined ? "" : percent(one.value);
    const range = element.querySelector("input");
    if (range) range.tabIndex = focus ? 0 : -1;
    const words = [];
    if (one.answer) words.push(h("span", { class: `badge ${one.answer}` }, one.answer));
    else if (one.known === 1) words.push(h("span", { class: "mark", title: "the bag is known to carry it" }, "✓"));
    else if (one.known === 0 && decided(one)) words.push(h("span", { class: "mark off", title: "the bag is known not to carry it" }, "✕"));
    replace(element.querySelector(".marks"), words);
  }

  async function drag(label, threshold) {
    state.thresholds.set(label, threshold);
    update();
    const name = state.overview.names[label];
    const kept = `${label}/${state.overview.version.join()}`;
    try {
      if (!curves.has(kept)) curves.set(kept, await get("curve", { label: name }));
      const found = curves.get(kept);
      const at = Math.round(threshold * 100);
      const quality = found.precision ? `, precision ${decimals(found.precision[at])}, recall ${decimals(found.recall[at])} on ${found.judged.toLocaleString("en")} known bags` : "; no truth is known to judge it by";
      effect.textContent = `${name} from ${percent(threshold)}: ${found.predicted[at].toLocaleString("en")} of ${found.n_bags.toLocaleString("en")} bags${quality}`;
    } catch (error) { effect.textContent = error.message; }
  }

  function move(step) {
    const rows = visible();
    if (!rows.length) return;
    const at = rows.indexOf(page.row);
    page.focusRow(rows[Math.min(rows.length - 1, Math.max(0, at === -1 ? (step > 0 ? 0 : rows.length - 1) : at + step))]);
    const element = list.querySelector(`[data-label="${page.row}"]`);
    if (element) element.scrollIntoView({ block: "nearest" });
  }

  return { element, update, move };
}
