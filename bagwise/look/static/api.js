// Asking the server; on a page without one, asking the data that the page carries.

import { inlined, answerFromPage } from "./inlined.js";

export const readOnly = inlined !== null;
const kept = new Map();

async function parsed(response) {
  let body = null;
  try { body = await response.json(); } catch { /* no JSON: the server is gone or refuses */ }
  if (!response.ok) throw new Error((body && body.error) || `the server answered ${response.status}`);
  return body;
}

async function reach(address, options) {
  try {
    return await fetch(address, options);
  } catch {
    throw new Error("the server does not answer; was bagwise look ended?");
  }
}

export async function get(path, params) {
  const asked = Object.entries(params || {}).filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  if (readOnly) return answerFromPage(path, Object.fromEntries(asked));
  const query = new URLSearchParams(asked.map(([name, value]) => [name, value === true ? "1" : String(value)]));
  return parsed(await reach(`/api/${path}${asked.length ? "?" + query : ""}`, { headers: { accept: "application/json" } }));
}

export async function post(path, body) {
  if (readOnly) throw new Error("this page is for reading; corrections need bagwise look");
  return parsed(await reach(`/api/${path}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) }));
}

// A bag fetched in advance, so that the next one is there when the key is pressed.
export function fetchBag(number, given) {
  const name = `${number}/${given ? 1 : 0}`;
  if (!kept.has(name)) {
    if (kept.size > 40) kept.clear();
    kept.set(name, get(`bag/${number}`, { given }).catch((error) => { kept.delete(name); throw error; }));
  }
  return kept.get(name);
}

export function shownCount() {
  return readOnly ? inlined.rows.length : 0;
}

export function forget() {
  kept.clear();
}

export function media(number, what) {
  return readOnly ? (inlined.media[number] || {})[what] || null : `/media/${number}/${what}`;
}
