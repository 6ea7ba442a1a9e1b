// The address keeps the place: #/bag/17?part=2 and the like, so that back, reload and bookmarks work.

export function here() {
  const text = location.hash.startsWith("#/") ? location.hash.slice(2) : "";
  const [path, query] = text.split("?");
  const [page, number] = path.split("/");
  return { page: page || "overview", number: number === undefined ? null : Number(number), params: Object.fromEntries(new URLSearchParams(query || "")) };
}

export function address(page, number, params) {
  const asked = Object.entries(params || {}).filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false && value !== 0);
  const query = new URLSearchParams(asked.map(([name, value]) => [name, value === true ? "1" : String(value)])).toString();
  const path = page === "overview" ? "" : number === null || number === undefined ? page : `${page}/${number}`;
  return `#/${path}${query ? "?" + query : ""}`;
}

export function go(page, number, params) {
  location.hash = address(page, number, params).slice(1);
}

// Changes the address without a step in the history: small moves such as the part looked at.
export function stay(page, number, params) {
  history.replaceState(null, "", address(page, number, params));
}
