// What the whole page shares: the overview as last asked for, and the corrections made in this window.

import { get } from "./api.js";

export const state = { overview: null, stack: [], page: null, thresholds: new Map(), redraw: () => {} };

export async function refresh() {
  state.overview = await get("overview");
  state.redraw();
  return state.overview;
}
