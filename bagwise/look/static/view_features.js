// Bare features: a table of those that stand out, and the parts on the plane of the principal components.

import { colour, swatch } from "./colours.js";
import { h, percent, replace, s } from "./dom.js";
import { state } from "./state.js";
import { partName, shownLabel } from "./parts.js";

const SIZE = 340;
const MARGIN = 14;

export function featuresView(bag, { select, hover }) {
  const { features, table, shade, points, cloud, explained, n_features } = bag.view;
  const both = [...points, ...cloud];
  const range = (k) => {
    const values = both.map((point) => point[k]);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return high > low ? [low, high] : [low - 1, low + 1];
  };
  const [across, up] = [range(0), range(1)];
  const x = (point) => MARGIN + ((point[0] - across[0]) / (across[1] - across[0])) * (SIZE - 2 * MARGIN);
  const y = (point) => SIZE - MARGIN - ((point[1] - up[0]) / (up[1] - up[0])) * (SIZE - 2 * MARGIN);
  const enter = (p) => ({ onclick: () => select(p), onpointerenter: () => hover(p), onpointerleave: () => hover(null) });
  const dots = points.map((point, p) => s("circle", { cx: x(point), cy: y(point), r: 6, class: "point", ...enter(p) }));
  const plane = s("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, class: "plane", role: "img", "aria-label": "Parts on the plane of the first two principal components; the table beside it names them" },
    s("rect", { x: 0.5, y: 0.5, width: SIZE - 1, height: SIZE - 1, class: "frame" }),
    cloud.map((point) => s("circle", { cx: x(point), cy: y(point), r: 1.8, class: "cloud" })), dots);
  const rows = bag.parts.map((part, p) => h("tr", enter(p),
    h("th", { scope: "row" }, h("button", { class: "plain rowname", onfocus: (event) => { if (event.target.matches(":focus-visible")) select(p); } }, p + 1)),
    h("td", { class: "label" }), table[p].map((value, k) => h("td", { class: "number shade", style: { "--z": shade[p][k], "--strength": Math.abs(shade[p][k]) / 3, "--side": shade[p][k] < 0 ? "var(--low)" : "var(--high)" } }, value === null ? "–" : String(value)))));
  const note = n_features > features.length ? `the ${features.length} of ${n_features} features that stand out most here` : "all features";
  return {
    element: h("div", { class: "bare" },
      h("div", { class: "scroll" }, h("table", { class: "parts" }, h("caption", { class: "quiet" }, note), h("thead", null, h("tr", null, h("th", { scope: "col" }, "part"), h("th", { scope: "col" }, "label"), features.map((name) => h("th", { scope: "col", class: "number", title: name }, name)))), h("tbody", null, rows))),
      h("figure", null, plane, h("figcaption", { class: "quiet" }, `principal components: ${percent(explained[0])} and ${percent(explained[1])} of the variance; small dots: other parts of the data`))),
    reveal: (p) => rows[p] && rows[p].scrollIntoView({ block: "nearest" }),
    update: (now, { part, hovered, heat }) => now.parts.forEach((one, p) => {
      const shown = shownLabel(one);
      const value = heat === null ? 1 : one.values[heat] ?? 0;
      rows[p].className = [shown.kind, p === part ? "focus" : "", p === hovered ? "hover" : ""].join(" ");
      rows[p].setAttribute("aria-selected", p === part ? "true" : "false");
      rows[p].querySelector("button").setAttribute("aria-label", partName(now, p));
      replace(rows[p].children[1], shown.label === null ? h("span", { class: "quiet" }, shown.kind === "none" ? "none" : "–") : [swatch(h, shown.label), state.overview.names[shown.label], one.values[shown.label] === undefined ? null : h("span", { class: "quiet" }, ` ${percent(one.values[shown.label])}`)]);
      dots[p].style.setProperty("fill", heat === null ? colour(shown.label) : "var(--heat)");
      dots[p].style.setProperty("fill-opacity", heat === null ? 0.9 : 0.08 + 0.9 * value);
      dots[p].setAttribute("r", p === part || p === hovered ? 9 : 6);
      dots[p].setAttribute("class", ["point", shown.kind, p === part ? "focus" : ""].join(" "));
    }),
  };
}
