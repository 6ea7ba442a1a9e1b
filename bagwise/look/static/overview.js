// The overview: facts, labels with counts and quality, calibration, and the table of bags.

import { colour, swatch } from "./colours.js";
import { decimals, h, percent, replace, s } from "./dom.js";
import { address, here } from "./place.js";
import { state } from "./state.js";
import { bagTable } from "./table.js";

const MOST_LABELS = 12; // shown before one asks for all

export async function overviewPage(place) {
  const table = await bagTable(place.params);
  const labels = h("section", { class: "card labels", "aria-label": "Labels" });
  const facts = h("section", { class: "facts", "aria-label": "What there is" });
  const side = h("div", { class: "side" });
  let all = false;

  function draw() {
    const { overview } = state;
    replace(facts, factCards(overview));
    replace(labels, labelTable(overview, all, () => { all = !all; draw(); }));
    replace(side, overview.calibration ? calibrationCard(overview.calibration) : null);
    side.hidden = !overview.calibration;
  }
  draw();
  return {
    element: h("div", { class: "overview" }, h("h1", { class: "hidden" }, "Overview of ", state.overview.data), facts, h("div", { class: "columns" }, labels, side), table.element),
    key: table.key,
    changed: () => { draw(); table.reload(); },
    refresh: async () => { draw(); await table.reload(); },
  };
}

function fact(value, text) {
  return h("div", { class: "fact" }, h("strong", null, value), h("span", null, text));
}

function factCards(overview) {
  const cards = [
    fact(overview.n_bags.toLocaleString("en"), "bags"),
    fact(overview.n_instances.toLocaleString("en"), "parts"),
    fact(overview.names.length.toLocaleString("en"), "labels"),
  ];
  const model = overview.model;
  if (model) {
    const judged = overview.labels.filter((one) => one.judged);
    const wrong = judged.reduce((sum, one) => sum + one.wrong, 0);
    const total = judged.reduce((sum, one) => sum + one.judged, 0);
    if (total) cards.push(fact(percent(1 - wrong / total), "of label answers right"));
    if (model.failed) cards.push(h("div", { class: "fact bad", role: "alert" }, h("strong", null, "not scored"), h("span", null, model.failed)));
    else if (model.scored < overview.n_bags) cards.push(h("div", { class: "fact" }, h("strong", null, percent(model.scored / overview.n_bags)), h("span", null, "scored so far"), h("progress", { value: model.scored, max: overview.n_bags, "aria-label": "Bags scored" })));
  }
  cards.push(fact(`${overview.n_corrected}`, overview.n_corrected === 1 ? "bag corrected" : "bags corrected"));
  if (overview.n_left_out) cards.push(h("details", { class: "fact" }, h("summary", null, h("strong", null, overview.n_left_out), h("span", null, overview.n_left_out === 1 ? "file left out" : "files left out")), h("ul", null, overview.left_out.map(([file, why]) => h("li", null, `${file}: ${why}`)))));
  if (overview.damaged_lines) cards.push(h("div", { class: "fact bad" }, h("strong", null, overview.damaged_lines), h("span", null, `damaged lines in ${overview.corrections_file}, left alone`)));
  return cards;
}

function labelTable(overview, all, toggle) {
  const hasModel = overview.model !== null;
  const quality = overview.labels.some((one) => one.judged);
  const rows = all ? overview.labels : overview.labels.slice(0, MOST_LABELS);
  const most = Math.max(1, ...overview.labels.map((one) => Math.max(one.known, one.predicted ?? 0)));
  const knownTitle = overview.has_truth ? "known" : "by people";
  const chosen = here().params.label;
  return [
    h("h2", null, "Labels"),
    h("div", { class: "scroll" }, h("table", null,
      h("thead", null, h("tr", null, h("th", { scope: "col" }, "label"), hasModel ? h("th", { scope: "col", class: "number" }, "predicted") : null, h("th", { scope: "col", class: "number" }, knownTitle), h("th", { "aria-hidden": "true", class: "wide" }), quality ? ["precision", "recall", "F1"].map((name) => h("th", { scope: "col", class: "number" }, name)) : null)),
      h("tbody", null, rows.map((one) => h("tr", { class: chosen === one.name ? "current" : null },
        h("th", { scope: "row" }, h("a", { href: address("overview", null, { label: one.name }), title: "Bags with this label" }, swatch(h, one.label), h("span", { class: "name" }, one.name))),
        hasModel ? h("td", { class: "number" }, one.predicted ?? "–") : null,
        h("td", { class: "number" }, one.known),
        h("td", { class: "wide", "aria-hidden": "true" }, pair(one, most, hasModel)),
        quality ? [one.precision, one.recall, one.f1].map((value) => h("td", { class: "number" }, decimals(value))) : null))))),
    overview.labels.length > MOST_LABELS ? h("button", { class: "plain", onclick: toggle }, all ? "fewer labels" : `all ${overview.labels.length} labels`) : null,
  ];
}

function pair(one, most, hasModel) {
  const bar = (kind, value) => h("span", { class: `count ${kind}`, style: { width: `${(100 * value) / most}%`, "--hue": colour(one.label) } });
  return h("span", { class: "pair" }, hasModel ? bar("predicted", one.predicted ?? 0) : null, bar("known", one.known));
}

function calibrationCard(found) {
  const size = 180;
  const at = (value) => 8 + value * (size - 16);
  const largest = Math.max(...found.bins.map((bin) => bin.count));
  const dots = found.bins.filter((bin) => bin.count).map((bin) => s("circle", { cx: at(bin.value), cy: size - at(bin.share), r: 2.5 + 6 * Math.sqrt(bin.count / largest), class: "dot" }, s("title", null, `said ${percent(bin.value)}, true ${percent(bin.share)} (${bin.count} answers)`)));
  return h("section", { class: "card calibration" },
    h("h2", null, "Calibration"),
    s("svg", { viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": `Calibration: expected error ${decimals(found.error, 3)}. ${found.bins.filter((bin) => bin.count).map((bin) => `said ${percent(bin.value)}, true ${percent(bin.share)}`).join("; ")}` },
      s("rect", { x: 8, y: 8, width: size - 16, height: size - 16, class: "frame" }),
      s("line", { x1: at(0), y1: size - at(0), x2: at(1), y2: size - at(1), class: "diagonal" }), dots),
    h("p", { class: "quiet" }, `across: what the model said; up: how often it was true. Expected error ${decimals(found.error, 3)}.`));
}

