// The frame of the page: header, addresses, keys that work everywhere.

import { forget, get, post, readOnly, shownCount } from "./api.js";
import { bagPage } from "./bag.js";
import { count, h, key, notice, replace } from "./dom.js";
import { helpDialog } from "./help.js";
import { learnPage } from "./learn.js";
import { overviewPage } from "./overview.js";
import { address, here } from "./place.js";
import { refresh, state } from "./state.js";

const PAGES = { overview: overviewPage, bag: bagPage, learn: learnPage };
let drawn = 0;

function header() {
  const { overview } = state;
  const at = here().page;
  const tab = (page, text) => h("a", { href: address(page), "aria-current": at === page ? "page" : null }, text);
  document.title = `${overview.data} – bagwise look`;
  replace(document.getElementById("top"),
    h("a", { class: "brand", href: "#/", "aria-label": "bagwise look, overview" }, h("span", { class: "mark", "aria-hidden": "true" }), "bagwise look"),
    h("span", { class: "about" }, overview.data, overview.model ? h("span", { class: "quiet" }, ` · ${overview.model.file}`) : h("span", { class: "quiet" }, " · no model")),
    h("nav", { "aria-label": "Pages" }, tab("overview", "Overview"), readOnly ? null : tab("learn", overview.model ? "Learn again" : "Corrections")),
    h("span", { class: "spacer" }),
    readOnly ? h("span", { class: "quiet" }, `for reading: ${shownCount().toLocaleString("en")} of ${count(overview.n_bags, "bag")}`) : h("button", { class: "plain", onclick: undo, title: "Undo (z)", disabled: overview.n_corrections === 0 }, "Undo ", key("z")),
    readOnly ? null : h("a", { class: "pill", href: address("learn") }, count(overview.n_corrections, "correction")),
    h("button", { class: "plain", onclick: helpDialog, "aria-label": "Keys", title: "Keys (?)" }, key("?")));
}

async function undo() {
  if (readOnly) return;
  try {
    const found = await post("undo", { id: state.stack.pop() ?? null });
    if (!found.undone) { notice("nothing to undo"); return; }
    const { bag, part, after } = found.undone;
    notice(`undone: ${after.answer}${after.label ? " " + after.label : ""} for ${part === null ? "" : `part ${part + 1} of `}${bag}`);
    forget();
    await refresh();
    if (state.page && state.page.changed) state.page.changed(found.bag);
  } catch (error) { notice(error.message, "bad"); }
}

async function show() {
  const mine = ++drawn;
  const place = here();
  const make = PAGES[place.page] || overviewPage;
  try {
    if (state.overview === null) await refresh();
    const page = await make(place, state);
    if (mine !== drawn || page === null) return; // somewhere else by now
    if (state.page && state.page.leave) state.page.leave();
    state.page = page;
    const main = document.getElementById("main");
    if (page.element) replace(main, page.element);
    header();
    if (page.shown) page.shown();
  } catch (error) {
    if (mine === drawn) replace(document.getElementById("main"), h("section", { class: "card" }, h("h1", null, "This cannot be shown"), h("p", null, error.message), h("p", null, h("a", { href: "#/" }, "To the overview"))));
  }
}

function typing(target) {
  return target.closest && target.closest("input:not([type=range]):not([type=checkbox]), textarea, select, dialog[open]") !== null;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  if (event.target.type === "range" && event.key.startsWith("Arrow")) return;
  if (event.key === "?") { event.preventDefault(); helpDialog(); return; }
  if (event.key === "z") { event.preventDefault(); undo(); return; }
  if (event.key === "o") { event.preventDefault(); location.hash = "#/"; return; }
  if (state.page && state.page.key && state.page.key(event)) event.preventDefault();
});

state.redraw = header;
window.addEventListener("hashchange", show);

// Another window, another person at the same file, or bags scored meanwhile.
async function watch() {
  if (!readOnly && document.visibilityState === "visible" && state.overview) {
    try {
      const { version } = await get("version");
      if (version.join() !== state.overview.version.join()) {
        forget();
        await refresh();
        if (state.page && state.page.refresh) await state.page.refresh();
      }
    } catch (error) { notice(error.message, "bad"); }
  }
  const busy = state.overview && state.overview.model && state.overview.model.scored < state.overview.n_bags && !state.overview.model.failed;
  setTimeout(watch, busy ? 700 : 4000);
}

show().then(() => setTimeout(watch, 500));
