// The page that needs no server: all answers lie in a block of JSON inside it.

const block = document.getElementById("inlined");
export const inlined = block === null ? null : JSON.parse(block.textContent);

const TESTS = {
  all: () => true,
  uncertain: (row) => (row.uncertain ?? -1) > 0.5,
  wrong: (row) => (row.wrong ?? 0) > 0,
  unseen: (row) => !row.seen,
  corrected: (row) => row.corrected > 0,
};

function rows(asked) {
  const label = asked.label === undefined ? null : inlined.overview.names.indexOf(asked.label);
  const wanted = (asked.q || "").toLowerCase();
  const found = inlined.rows.filter((row) => TESTS[asked.show || "all"](row)
    && (label === null || row.known.includes(label) || (row.chosen || []).includes(label))
    && row.id.toLowerCase().includes(wanted));
  const by = asked.sort || "number";
  const sign = asked.down ? -1 : 1;
  found.sort((a, b) => {
    if (by === "id") return sign * (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);
    const [x, y] = [a[by], b[by]];
    if (x === null || x === undefined) return 1;
    if (y === null || y === undefined) return -1;
    return sign * (x - y) || a.number - b.number;
  });
  const offset = Number(asked.offset || 0);
  return { total: found.length, offset, rows: found.slice(offset, offset + Number(asked.limit || 50)), version: [0, 0, 0] };
}

function next(asked) {
  const after = Number(asked.after ?? -1);
  const left = inlined.rows.filter((row) => !row.seen && row.number !== after);
  if (asked.by === "order" || asked.by === undefined) {
    const later = inlined.rows.map((row) => row.number).filter((number) => number > after).sort((a, b) => a - b);
    return { number: later.length ? later[0] : null };
  }
  const by = asked.by === "rarity" ? "rare" : "uncertain";
  left.sort((a, b) => (b[by] ?? -1) - (a[by] ?? -1));
  return { number: left.length ? left[0].number : null };
}

export async function answerFromPage(path, asked) {
  if (path === "overview") return inlined.overview;
  if (path === "bags") return rows(asked);
  if (path === "next") return next(asked);
  if (path === "version") return { version: [0, 0, 0] };
  if (path === "history") return { entries: [] };
  if (path === "curve" && inlined.curves[asked.label]) return inlined.curves[asked.label];
  if (path.startsWith("bag/")) {
    const number = Number(path.slice(4));
    const row = inlined.rows.find((one) => one.number === number);
    if (row && asked.see) row.seen = true;
    if (inlined.bags[number]) return inlined.bags[number];
  }
  throw new Error("this is not on the page; open the data with bagwise look");
}
