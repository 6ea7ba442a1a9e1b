// What people said and models found, as files for other tools.

import { h } from "./dom.js";
import { state } from "./state.js";

export function exportLinks() {
  const kinds = state.overview.exports || [];
  return kinds.length ? h("span", { class: "exports" }, h("span", { class: "quiet" }, "export: "), kinds.map(([kind, title]) => h("a", { class: "button", href: `/export/${kind}`, download: "" }, title))) : null;
}
