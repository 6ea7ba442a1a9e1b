// What the whole page shares: the overview as last asked for, and the corrections made in this window.

import { get } from "./api.js";

export const state = { overview: null, stack: [], page: null, thresholds: new Map(), redraw: () => {} };

let waiting = 0;

// After a correction: the count at once, the rest when the keys rest.
export function refreshSoon() {
  state.overview.n_corrections += 1;
  state.redraw();
  clearTimeout(waiting);
  waiting = setTimeout(() => refresh().catch(() => {}), 600);
}

export async function refresh() {
  clearTimeout(waiting);
  state.overview = await get("overview");
  state.redraw();
  return state.overview;
}
