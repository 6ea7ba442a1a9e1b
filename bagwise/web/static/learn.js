// Corrections so far.

import { get } from "./api.js";
import { h } from "./dom.js";
import { address } from "./place.js";
import { state } from "./state.js";

export async function learnPage() {
  const { entries } = await get("history");
  const rows = entries.map((entry) => h("tr", null,
    h("td", { class: "quiet" }, entry.time.slice(0, 19).replace("T", " ")), h("td", null, entry.author),
    h("td", null, h("a", { href: address("overview", null, { q: entry.bag }) }, entry.bag), entry.part === null ? "" : `, part ${entry.part + 1}`),
    h("td", null, entry.after.answer, entry.after.label ? ` – ${entry.after.label}` : "")));
  return { element: h("section", { class: "card" }, h("h1", null, `${state.overview.n_corrections} corrections`), h("table", { class: "rows" }, h("tbody", null, rows))) };
}
