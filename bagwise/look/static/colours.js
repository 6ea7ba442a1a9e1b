// Colours that stay apart for the colour-blind (after Okabe and Ito); names always stand beside them.

const HUES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#7a8b00"];

export function colour(label) {
  return label === null || label === undefined || label < 0 ? "var(--faint)" : HUES[label % HUES.length];
}

// The second round of colours is dashed, the third dotted.
export function dashes(label) {
  return ["none", "7 4", "2 4"][Math.floor((label ?? 0) / HUES.length) % 3];
}

export function swatch(h, label) {
  const round = Math.floor((label ?? 0) / HUES.length) % 3;
  return h("span", { class: `swatch round${round}`, "aria-hidden": "true", style: { "--hue": colour(label) } });
}
