// Learning again: what it learns from, how far it is, what changed; and the corrections themselves.

import { forget, get, post } from "./api.js";
import { count, decimals, h, notice, percent, replace } from "./dom.js";
import { exportLinks } from "./exports.js";
import { address } from "./place.js";
import { refresh, state } from "./state.js";

const WORDS = { starting: "starting", preparing: "reading the data", fitting: "fitting", scoring: "scoring all bags" };

export async function learnPage() {
  const panel = h("section", { class: "card learn", "aria-label": "Learn again" });
  const diff = h("div", { class: "diff" });
  const history = h("section", { class: "card", "aria-label": "Corrections" });
  let now = state.overview.model ? await get("learn") : null;
  let gone = false;

  async function act(what, words) {
    try {
      const found = await post("learn", { do: what });
      if (words) notice(words);
      if (what === "use") { forget(); await refresh(); notice(`now looking through ${found.model}`, "good"); }
      await watch();
    } catch (error) { notice(error.message, "bad"); }
  }

  function progress() {
    if (now.stage === "scoring") return 0.8 + 0.2 * now.share;
    if (now.stage === "fitting") return 0.1 + 0.7 * (1 - Math.exp(-(now.seconds || 0) / (now.expected || 30)));
    return now.stage === "preparing" ? 0.06 : 0.02;
  }

  function draw() {
    const { overview } = state;
    const running = now && now.stage in WORDS;
    replace(panel, h("h1", null, overview.model ? "Learn again" : "Corrections"),
      overview.model ? [
        h("p", null, `${overview.model.name} is fitted again, with ${count(overview.n_corrections, "correction")} of ${count(overview.n_corrected, "bag")}: labels that were corrected replace those of their bags. `, now.how),
        h("p", { class: "quiet" }, now.train ? `It learns from ${now.train} and the corrected bags of ${overview.data}.` : overview.has_truth ? `It learns from the bags of ${overview.data}. If the model was fitted to other data, name them with --train.` : `These data have no labels of their own: it learns from the ${overview.n_corrected} corrected bags alone. Name the data that the model was fitted to with --train.`),
        running ? h("div", { class: "running" }, h("progress", { value: progress(), max: 1, "aria-label": "Progress of learning" }), h("p", { role: "status" }, `${WORDS[now.stage]} … ${Math.round(now.seconds || 0)} s`), h("button", { onclick: () => act("stop", "stopped; nothing was kept") }, "Stop"))
          : h("button", { class: "main", id: "learn", onclick: () => act("start"), disabled: overview.n_corrections === 0 && !overview.has_truth }, now.result ? "Learn once more" : "Learn again"),
        now.error ? h("p", { class: "bad", role: "alert" }, now.error) : null,
      ] : null);
    replace(diff, now && now.result ? changes(now.result) : null);
  }

  function changes(result) {
    const { corrected, known } = result;
    const share = ([right, all]) => all ? `${right} of ${all}` : "–";
    const pair = (title, before, after, better) => h("div", { class: "fact" }, h("strong", null, before, h("span", { class: "arrow" }, " → "), h("span", { class: better > 0 ? "good" : better < 0 ? "bad" : null }, after)), h("span", null, title));
    const parts = [corrected.before.parts, corrected.after.parts];
    const labels = [corrected.before.labels, corrected.after.labels];
    return [
      h("section", { class: "facts", "aria-label": "Before and after" },
        parts[0][1] ? pair("corrected parts right", share(parts[0]), share(parts[1]), parts[1][0] - parts[0][0]) : null,
        labels[0][1] ? pair("corrected labels of bags right", share(labels[0]), share(labels[1]), labels[1][0] - labels[0][0]) : null,
        known.judged ? pair("of all known label answers right", percentFine(known.right_before / known.judged), percentFine(known.right_after / known.judged), known.right_after - known.right_before) : null,
        h("div", { class: "fact" }, h("strong", null, result.n_changed_bags), h("span", null, "bags changed labels"))),
      h("p", { class: "quiet" }, `Fitted to ${count(result.learned_from.n_bags, "bag")}, ${result.learned_from.n_corrected} corrected, ${count(result.learned_from.n_parts, "part")} known, in ${decimals(result.seconds, 1)} s. The new model was shown what was corrected: only bags that it did not learn from tell how well it does elsewhere.`),
      h("div", { class: "steps" }, h("button", { class: "main", onclick: () => act("use") }, "Use the new model"), h("button", { onclick: () => act("leave", "the new model was discarded") }, "Discard it")),
      result.changes.length ? h("section", { class: "card" }, h("h2", null, `Labels that changed (${result.n_changed}${result.n_changed > result.changes.length ? `, the largest ${result.changes.length}` : ""})`), h("div", { class: "scroll" }, h("table", { class: "rows" },
        h("thead", null, h("tr", null, ["bag", "label", "change", "before", "after", "known"].map((title, k) => h("th", { scope: "col", class: k > 2 && k < 5 ? "number" : null }, title)))),
        h("tbody", null, result.changes.map((one) => h("tr", null, h("th", { scope: "row" }, h("a", { href: address("bag", one.number) }, one.id)), h("td", null, one.label), h("td", null, one.added ? "added" : "removed"), h("td", { class: "number" }, percent(one.before)), h("td", { class: "number" }, percent(one.after)), h("td", { class: one.known === -1 ? "quiet" : (one.known === 1) === one.added ? "good" : "bad" }, one.known === -1 ? "not known" : (one.known === 1) === one.added ? "now right" : "now wrong"))))))) : null,
    ];
  }

  async function drawHistory() {
    const { entries } = await get("history");
    replace(history, h("div", { class: "toolbar" }, h("h2", null, "Corrections"), h("span", { class: "quiet" }, `kept in ${state.overview.corrections_file}`), exportLinks()),
      entries.length ? h("div", { class: "scroll" }, h("table", { class: "rows plainrows" }, h("tbody", null, entries.map((entry) => h("tr", null,
        h("td", { class: "quiet" }, entry.time.slice(0, 19).replace("T", " ")), h("td", null, entry.author),
        h("td", null, h("a", { href: entry.number === null ? "#/" : address("bag", entry.number, { part: entry.part === null ? null : entry.part + 1 }) }, entry.bag), entry.part === null ? "" : `, part ${entry.part + 1}`),
        h("td", null, h("span", { class: `badge ${entry.after.answer}` }, entry.after.answer), entry.after.label ? ` ${entry.after.label}` : ""),
        h("td", { class: "number" }, h("button", { class: "plain", onclick: () => undoOne(entry) }, "undo"))))))) : h("p", { class: "quiet" }, "None yet. Open a bag, choose a part and press y, n, u or l."));
  }

  async function undoOne(entry) {
    try {
      await post("undo", { id: entry.id });
      forget();
      await refresh();
      draw();
      await drawHistory();
    } catch (error) { notice(error.message, "bad"); }
  }

  async function watch() {
    if (gone || !state.overview.model) return;
    now = await get("learn");
    draw();
    if (now.stage in WORDS) setTimeout(() => watch().catch((error) => notice(error.message, "bad")), 400);
  }

  draw();
  await drawHistory();
  if (now && now.stage in WORDS) watch();
  return {
    element: h("div", { class: "overview" }, panel, diff, history),
    changed: () => { draw(); drawHistory(); },
    refresh: async () => { draw(); await drawHistory(); },
    leave: () => { gone = true; },
  };
}

function percentFine(value) {
  return `${(100 * value).toFixed(1)} %`;
}
