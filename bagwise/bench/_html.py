"""Reports as one HTML page that needs nothing from outside."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from bagwise.bench._layout import report, tally
from bagwise.bench._parts import Grid, Piece, title_of
from bagwise.bench.cells import ResultFigure, ResultTable
from bagwise.bench.plots import critical_difference, curves, svg
from bagwise.bench.statistics import Overall

_CSS = """
:root { color-scheme: light dark; --ink: #1f2328; --muted: #59636e; --page: #fff; --line: #d1d9e0;
  --head: #f6f8fa; --link: #0969da; --inside: #1a7f37; --better: #0550ae; --worse: #b42318;
  --inside-bg: #dafbe1; --better-bg: #ddf4ff; --worse-bg: #ffe5e2; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --muted: #9ba6b1; --page: #0d1117;
  --line: #3d444d; --head: #161b22; --link: #6cb0ff; --inside: #56d364; --better: #79c0ff; --worse: #ff8f84;
  --inside-bg: #12331d; --better-bg: #0f2d4d; --worse-bg: #4a1a17; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 90rem; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .5rem; }
h2 { font-size: 1.25rem; margin: 3rem 0 .5rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.75rem 0 .5rem; }
p, ol, ul { max-width: 60rem; margin: .5rem 0; }
a { color: var(--link); }
.id { color: var(--muted); font-weight: 400; font-size: .85em; }
.legend, .notes { color: var(--muted); font-size: .87rem; }
.notes { padding-left: 1.6rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .75rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
thead th { background: var(--head); border-top: 1px solid var(--line); vertical-align: bottom; }
tbody th { font-weight: 600; position: sticky; left: 0; background: var(--page); }
thead th:first-child { position: sticky; left: 0; }
td { white-space: nowrap; line-height: 1.45rem; }
td.number, th.number { text-align: right; }
.ours { font-weight: 650; }
.published, .label { color: var(--muted); font-size: .87rem; }
.verdict { display: inline-block; line-height: 1.2rem; padding: 0 .45rem; border-radius: 1rem;
  font-size: .8rem; font-weight: 600; }
.verdict.inside { color: var(--inside); background: var(--inside-bg); }
.verdict.better { color: var(--better); background: var(--better-bg); }
.verdict.worse { color: var(--worse); background: var(--worse-bg); }
sup { font-size: .7rem; line-height: 0; }
.plots { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1rem 0; }
figure { margin: 0; padding: .5rem; background: #fff; border: 1px solid var(--line); border-radius: .5rem; }
figure svg { display: block; max-width: 100%; height: auto; }
"""


def html(results: Sequence[ResultTable | ResultFigure], title: str) -> str:
    """A page with everything on it; with several results, an overview comes first."""
    sections = [_section(result, k) for k, result in enumerate(results)]
    body = [f"<h1>{escape(title)}</h1>"]
    if len(results) > 1:
        body.append(_overview(results))
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            '<head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_CSS}</style></head>",
            "<body>",
            *body,
            *sections,
            "</body></html>\n",
        ]
    )


def _overview(results: Sequence[ResultTable | ResultFigure]) -> str:
    names = ("inside", "better", "worse", "without comparison", "missing")
    head = "".join(f'<th class="number">{name}</th>' for name in names)
    rows = []
    for k, result in enumerate(results):
        link = f'<a href="#r{k}">{escape(result.title)}</a> <span class="id">{escape(result.id)}</span>'
        if isinstance(result, ResultTable):
            counts = tally(result)
            cells = "".join(f'<td class="number">{counts[name]}</td>' for name in names)
        else:
            n = len(result.curves)
            cells = f'<td colspan="{len(names)}">figure, {n} curve{"" if n == 1 else "s"} of ours</td>'
        rows.append(f"<tr><th>{link}</th>{cells}</tr>")
    return (
        "<p>Cells of ours against the published mean ± std: inside it, better or worse than it, with nothing "
        "published to compare, or missing (footnotes say why).</p>\n"
        f'<div class="scroll"><table><thead><tr><th>result</th>{head}</tr></thead>\n'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _section(result: ResultTable | ResultFigure, k: int) -> str:
    page = report(result)
    parts = [f'<h2 id="r{k}">{escape(page.title)} <span class="id">{escape(page.id)}</span></h2>']
    parts += [f"<p>{escape(line)}</p>" for line in page.opening]
    parts += [f'<p class="legend">{escape(page.legend)}</p>'] if page.legend else []
    if isinstance(result, ResultFigure):
        parts.append(f'<div class="plots">{_figure(svg(curves(result)), result.title, f"r{k}")}</div>')
    parts += [_grid(grid) for grid in page.grids]
    if page.statistics:
        parts.append("<h3>Over all data sets</h3>")
        parts += [f"<p>{escape(line)}</p>" for line in page.statistics]
    plots = [_ranks(one, result, f"r{k}-{i}") for i, one in enumerate(page.comparisons)]
    parts += [f'<div class="plots">{"".join(plots)}</div>'] if plots else []
    if page.remarks:
        parts.append(
            "<h3>Remarks</h3>\n<ul>" + "".join(f"<li>{escape(line)}</li>" for line in page.remarks) + "</ul>"
        )
    return f"<section>\n{chr(10).join(parts)}\n</section>"


def _ranks(one: Overall, result: ResultTable | ResultFigure, key: str) -> str:
    direction = result.direction(one.measure) if isinstance(result, ResultTable) else "none"
    title = f"{title_of(one.measure, direction)}, {one.source}: average ranks"
    drawn = critical_difference(one.ranks, float(one.cd or 0), str(one.reference), title)
    return _figure(svg(drawn), title, key)


def _figure(drawn: str, title: str, key: str) -> str:
    # Plots share one page, so that every id in them gets a name of its own.
    drawn = re.sub(r'\bid="', f'id="{key}-', drawn)
    drawn = re.sub(r'(href="#|url\(#)', rf"\g<1>{key}-", drawn)
    drawn = drawn.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)
    return f"<figure>{drawn}</figure>"


def _grid(grid: Grid) -> str:
    several = len(grid.lines) > 1
    head = "".join(f"<th>{escape(name)}</th>" for name in grid.columns)
    rows = []
    for i, name in enumerate(grid.rows):
        cells = "".join(f"<td>{_entry(grid, i, j)}</td>" for j in range(len(grid.columns)))
        label = f'<td class="label">{"<br>".join(map(escape, grid.lines))}</td>' if several else ""
        rows.append(f"<tr><th>{escape(name)}</th>{label}{cells}</tr>")
    notes = "".join(f"<li>{escape(line)}</li>" for line in grid.footnotes)
    corner = f"<th>{escape(grid.corner)}</th>" + ("<th></th>" if several else "")
    return (
        f'<h3>{escape(grid.title)}</h3>\n<div class="scroll"><table><thead><tr>{corner}{head}</tr></thead>\n'
        f"<tbody>{chr(10).join(rows)}</tbody></table></div>"
        + (f'\n<ol class="notes">{notes}</ol>' if notes else "")
    )


def _entry(grid: Grid, i: int, j: int) -> str:
    notes = ",".join(map(str, grid.notes[i][j]))
    first, *others = (_piece(piece) for piece in grid.entries[i][j])
    return "<br>".join([first + (f"<sup>{notes}</sup>" if notes else ""), *others])


def _piece(piece: Piece) -> str:
    text = escape(piece.text)
    if not piece.kind or not text:
        return text
    kind = f"verdict {piece.kind}" if piece.kind in ("inside", "better", "worse") else piece.kind
    return f'<span class="{kind}">{text}</span>'
