// The table of bags; sorting, filtering and paging happen on the server.

import { get, readOnly } from "./api.js";
import { swatch } from "./colours.js";
import { decimals, h, notice, replace } from "./dom.js";
import { address, go, here, stay } from "./place.js";
import { state } from "./state.js";

const PAGE = 50;
const SHOWN = [["all", "all bags"], ["uncertain", "uncertain"], ["wrong", "wrong"], ["unseen", "not looked at"], ["corrected", "corrected"]];

function columns(hasModel) {
  const found = [["number", "#", "number"], ["id", "bag", ""], ["size", "parts", "number"]];
  if (hasModel) found.push([null, "predicted", ""]);
  found.push([null, "known", ""]);
  if (hasModel) found.push(["score", "score", "number"], ["uncertain", "uncertain", "number"], ["wrong", "wrong", "number"]);
  found.push(["rare", "rarity", "number"], ["corrected", "said", "number"]);
  return found;
}

export async function bagTable(params) {
  let asked = clean(params);
  let current = null;
  let found = await get("bags", { ...asked, limit: PAGE });
  const search = h("input", { type: "search", id: "search", placeholder: "bag id", "aria-label": "Search bags by id", value: asked.q || "", maxlength: 200, oninput: () => later({ q: search.value, offset: 0 }) });
  const body = h("tbody");
  const head = h("tr");
  const status = h("span", { class: "quiet", role: "status" });
  const pager = h("div", { class: "pager" });
  const filters = h("div", { class: "filters", role: "group", "aria-label": "Which bags" });
  const label = h("select", { "aria-label": "Only bags with the label", onchange: () => change({ label: label.value, offset: 0 }, true) });

  function clean(given) {
    const kept = {};
    for (const name of ["show", "label", "q", "sort", "down", "offset"]) if (given[name]) kept[name] = given[name];
    return kept;
  }

  let waiting = 0;
  function later(changes) {
    clearTimeout(waiting);
    waiting = setTimeout(() => change(changes, false), 120);
  }

  function change(changes, step) {
    asked = clean({ ...asked, ...changes });
    if (step) go("overview", null, asked);
    else { stay("overview", null, asked); reload(); }
  }

  let turn = 0;
  async function reload() {
    const mine = ++turn;
    try {
      const answer = await get("bags", { ...asked, limit: PAGE });
      if (mine !== turn) return;
      found = answer;
      draw();
    } catch (error) { notice(error.message, "bad"); }
  }

  function heading([name, text, kind]) {
    const sorted = name !== null && (asked.sort || "number") === name;
    const arrow = sorted ? (asked.down ? " ↓" : " ↑") : "";
    const first = ["score", "uncertain", "wrong", "rare", "corrected", "size"].includes(name);
    const down = sorted ? !asked.down : first;
    return h("th", { scope: "col", class: kind, "aria-sort": sorted ? (asked.down ? "descending" : "ascending") : null },
      name === null ? text : h("a", { href: address("overview", null, { ...asked, sort: name === "number" ? null : name, down, offset: 0 }) }, text, arrow));
  }

  function row(one) {
    const names = state.overview.names;
    const target = address("bag", one.number, asked.label ? { by: "label", label: asked.label } : { by: here().params.by });
    const chips = (labels, other) => h("span", { class: "chips" }, (labels || []).slice(0, 8).map((k) => h("span", { class: other && !other.includes(k) ? "chip off" : "chip" }, swatch(h, k), names[k])), (labels || []).length > 8 ? h("span", { class: "quiet" }, `+${labels.length - 8}`) : null);
    const hasModel = state.overview.model !== null;
    const truth = state.overview.has_truth || one.corrected ? one.known : null;
    return h("tr", { class: one.number === current ? "current" : one.seen ? "seen" : null, "data-number": one.number, onclick: (event) => { if (!event.target.closest("a")) location.hash = target.slice(1); } },
      h("td", { class: "number quiet" }, one.number + 1),
      h("th", { scope: "row" }, h("a", { href: target }, one.id)),
      h("td", { class: "number" }, one.size),
      hasModel ? h("td", null, one.chosen === undefined ? h("span", { class: "quiet" }, "…") : chips(one.chosen, truth)) : null,
      h("td", null, truth === null ? h("span", { class: "quiet" }, "–") : chips(one.known, one.chosen)),
      hasModel ? [h("td", { class: "number" }, decimals(one.score)), h("td", { class: "number" }, decimals(one.uncertain)), h("td", { class: one.wrong ? "number bad" : "number" }, one.wrong === null ? "–" : one.wrong || "")] : null,
      h("td", { class: "number" }, decimals(one.rare, 1)),
      h("td", { class: "number" }, one.corrected || ""));
  }

  function draw() {
    const { overview } = state;
    const shown = columns(overview.model !== null);
    replace(head, shown.map(heading));
    replace(body, found.rows.map(row));
    replace(filters, SHOWN.filter(([name]) => overview.model !== null || !["uncertain", "wrong"].includes(name)).map(([name, text]) => h("a", { class: "tab", href: address("overview", null, { ...asked, show: name === "all" ? null : name, offset: 0 }), "aria-current": (asked.show || "all") === name ? "true" : null }, text)));
    replace(label, h("option", { value: "" }, "any label"), overview.names.map((name) => h("option", { value: name, selected: name === asked.label }, name)));
    const first = found.total ? found.offset + 1 : 0;
    const last = found.offset + found.rows.length;
    status.textContent = found.total ? `${first.toLocaleString("en")}–${last.toLocaleString("en")} of ${found.total.toLocaleString("en")}` : "no bag passes this filter";
    const step = (text, offset, on) => on ? h("a", { class: "button", href: address("overview", null, { ...asked, offset }) }, text) : h("span", { class: "button off", "aria-hidden": "true" }, text);
    replace(pager, step("‹ before", Math.max(0, found.offset - PAGE), found.offset > 0), status, step("more ›", found.offset + PAGE, last < found.total));
  }

  function move(step) {
    const numbers = found.rows.map((one) => one.number);
    if (!numbers.length) return;
    const at = numbers.indexOf(current);
    current = numbers[Math.min(numbers.length - 1, Math.max(0, at === -1 ? 0 : at + step))];
    for (const line of body.children) line.classList.toggle("current", Number(line.dataset.number) === current);
    const line = body.querySelector(".current");
    line.querySelector("a").focus({ preventScroll: true });
    line.scrollIntoView({ block: "nearest" });
  }

  draw();
  return {
    reload,
    element: h("section", { class: "card bags", "aria-label": "Bags" },
      h("div", { class: "toolbar" }, h("h2", null, "Bags"), filters, label, search, readOnly || state.overview.model === null ? null : h("a", { class: "button main", href: address("bag", "next", { by: asked.label ? "label" : "uncertainty", label: asked.label }) }, "Look at the most uncertain")),
      h("div", { class: "scroll" }, h("table", { class: "rows" }, h("thead", null, head), body)), pager),
    key: (event) => {
      if (event.key === "/") { search.focus(); return true; }
      if (event.key === "ArrowDown" || event.key === "j") { move(1); return true; }
      if (event.key === "ArrowUp" || event.key === "k") { move(-1); return true; }
      return false;
    },
  };
}
