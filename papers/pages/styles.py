"""Reports as Markdown, as one HTML page that needs nothing from outside, and as LaTeX."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from html import escape as html_escape
from typing import Any

from bagwise.utils.tables import table
from papers.pages.cells import ResultFigure, ResultTable
from papers.pages.layout import STATES, report, tally
from papers.pages.parts import NONE, SYMBOL, Footnotes, Grid, Piece, Report, count, terms_of, title_of
from papers.pages.plots import critical_difference, curves, svg
from papers.pages.sheets import Sheet, sheets
from papers.pages.statistics import Overall

_SPECIAL = re.compile(r"([\\`*_\[\]~$])")
_SIDE_BY_SIDE = 2  # columns up to which an entry's lines become columns of their own


def escape(line: str) -> str:
    r"""Make text that Markdown shows as it is; bars are left to the table that they would break.

    Examples
    --------
    >>> escape("a_b <c> & d*")
    'a\\_b &lt;c&gt; &amp; d\\*'
    """
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", " ".join(line.split()))


def markdown(report: Report, level: int = 2, image: str = "") -> str:
    """The report as Markdown under a heading of that level, with a picture below it if one is named."""
    parts = [f"{'#' * level} {escape(report.title)} ({escape(report.id)})"]
    parts += [escape(line) for line in (*report.opening, report.legend) if line]
    parts += [f"![{escape(report.title)}]({image})"] if image else []
    for grid in report.grids:
        parts.append(f"{'#' * (level + 1)} {escape(grid.title)}")
        parts += [escape(grid.lead)] if grid.lead else []
        parts.append(_side_by_side(grid) if len(grid.columns) <= _SIDE_BY_SIDE else _broken(grid))
        if grid.footnotes:
            notes = (f"<sup>{k}</sup> {escape(line)}" for k, line in enumerate(grid.footnotes, 1))
            parts.append("<br>\n".join(notes))
    parts += [escape(line) for line in report.statistics]
    if report.remarks:
        parts.append("\n".join(f"- {escape(line)}" for line in report.remarks))
    return "\n\n".join(parts) + "\n"


def _side_by_side(grid: Grid) -> str:
    header = [grid.corner]
    for name in grid.columns:
        header += [name] if len(grid.lines) == 1 else [f"{name} {line}" for line in grid.lines]
    rows = [
        [escape(name), *(text for j in range(len(grid.columns)) for text in _texts(grid, i, j))]
        for i, name in enumerate(grid.rows)
    ]
    one = "".join("l" if line == "verdict" else "r" for line in grid.lines)
    return str(table(_header(header), rows, style="markdown", align="l" + one * len(grid.columns)))


def _broken(grid: Grid) -> str:
    """Lines of an entry below each other, and their names in a column of their own."""
    several = len(grid.lines) > 1
    labels = ["<br>".join(map(escape, grid.lines))] if several else []
    rows = [
        [f"**{escape(name)}**", *labels, *("<br>".join(_texts(grid, i, j)) for j in range(len(grid.columns)))]
        for i, name in enumerate(grid.rows)
    ]
    header = _header([grid.corner, *([""] if several else []), *grid.columns])
    return str(table(header, rows, style="markdown"))


def _header(names: list[str]) -> list[str]:
    return [escape(name).replace("|", "\\|") for name in names]


def _texts(grid: Grid, i: int, j: int) -> list[str]:
    texts = [_text(piece) for piece in grid.entries[i][j]]
    notes = ",".join(map(str, grid.notes[i][j]))
    return [texts[0] + (f" <sup>{notes}</sup>" if notes else ""), *texts[1:]]


def _text(piece: Piece) -> str:
    text = escape(piece.text)
    if text in ("", NONE) or piece.kind not in ("ours", "better", "worse"):
        return text
    # the mark of significance stays outside of the bold figure
    figure, space, mark = text.partition(" ") if piece.kind == "ours" else (text, "", "")
    return f"**{figure}**{space}{mark}"


# ----------------------------------------------------------------------
# Reports as one HTML page that needs nothing from outside; its looks are in ``templates/``


Result = ResultTable | ResultFigure


def html(results: Sequence[Result], title: str, *, command: str = "", origin: Sequence[str] = ()) -> str:
    """A page with everything on it; with several results, an overview comes first.

    Parameters
    ----------
    results : sequence of ResultTable and ResultFigure
        In the order of the page.
    title : str
        Heading.
    command : str, optional
        What was typed to make the page.
    origin : sequence of str, optional
        Sentences about where the figures come from: effort, versions, machines.
    """
    return (
        _templates()
        .get_template("page.html.jinja")
        .render(
            title=title,
            command=command,
            origin=origin,
            overview=len(results) > 1,
            states=STATES,
            verdicts=tuple(SYMBOL),
            sections=[_section(result, f"r{k}") for k, result in enumerate(results)],
            notes=Footnotes(),
            terms=terms_of(results),
        )
    )


@cache
def _templates() -> Any:
    from jinja2 import Environment, PackageLoader  # only pages for browsers need it

    folder = PackageLoader("papers.pages", "templates")
    return Environment(loader=folder, autoescape=True, trim_blocks=True, lstrip_blocks=True)


def _section(result: Result, key: str) -> dict[str, Any]:
    """What the template shows of one table or figure."""
    page = report(result)
    own: dict[str, Any]
    if isinstance(result, ResultTable):
        own = {"counts": tally(result), "plot": ""}
    else:
        own = {"counts": None, "curves": f"figure, {count(len(result.curves), 'curve')} of ours"}
        own["plot"] = _figure(svg(curves(result)), result.title, key)
    return own | {
        "key": key,
        "page": page,
        "best": any(grid.best for grid in page.grids),
        "ranks": [_ranks(one, result, f"{key}-{i}") for i, one in enumerate(page.comparisons)],
    }


def _ranks(one: Overall, result: Result, key: str) -> Any:
    direction = result.direction(one.measure) if isinstance(result, ResultTable) else "none"
    title = f"{title_of(one.measure, direction)}, {one.source}: average ranks"
    drawn = critical_difference(one.ranks, float(one.cd or 0), str(one.reference), title)
    return _figure(svg(drawn), title, key)


def _figure(drawn: str, title: str, key: str) -> Any:
    from markupsafe import Markup  # our own drawing: the one thing that is not escaped

    # Plots share one page, so that every id in them gets a name of its own.
    drawn = re.sub(r'\bid="', f'id="{key}-', drawn)
    drawn = re.sub(r'(href="#|url\(#)', rf"\g<1>{key}-", drawn)
    drawn = drawn.replace("<svg ", f'<svg role="img" aria-label="{html_escape(title)}" ', 1)
    return Markup(f"<figure>{drawn}</figure>")


# ----------------------------------------------------------------------
# Reports as LaTeX that needs the package booktabs and no other


_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",  # the straight one needs another font encoding
    **{letter: f"\\{letter}" for letter in "&%$#_"},
    "±": r"$\pm$",
    "•": r"$\bullet$",
    "◦": r"$\circ$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "→": r"$\rightarrow$",
    "×": r"$\times$",
    "−": "$-$",
    "–": "--",
    "—": "---",
    "…": r"\dots{}",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≈": r"$\approx$",
    "∞": r"$\infty$",
    "²": r"$^2$",
    "³": r"$^3$",
    "°": r"$^\circ$",
    "µ": r"$\mu$",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "\u00a0": "~",
    "\0": "{}",
}
_LONE_HYPHEN = re.compile("-(?=-)")  # two together would become a dash
# No check mark or triangles without a further package: words say it.
_VERDICT = re.compile("([✓▲▼])(?: (inside|better|worse))?")
_WORD = {symbol: f"({word})" for word, symbol in SYMBOL.items()}
_WIDTH_LATEX = 92  # letters that fit a page at this size
_GREEK_LIKE_LATIN = {"omicron": "o"}


def latex_escape(line: str) -> str:
    r"""Make text that LaTeX shows as it is, with no package but the standard ones.

    Examples
    --------
    >>> latex_escape("R&D_2 50% ±1, α")
    'R\\&D\\_2 50\\% $\\pm$1, $\\alpha$'
    >>> latex_escape("--short: 0.5 ✓, ▼ worse")
    '-{}-short: 0.5 (inside), worse'
    """
    line = _VERDICT.sub(lambda found: found[2] or _WORD[found[1]], line)
    line = _LONE_HYPHEN.sub("-\0", line)
    return "".join(_LATEX[letter] if letter in _LATEX else _latex_letter(letter) for letter in line)


def _latex_letter(letter: str) -> str:
    if letter.isascii():
        return letter if letter.isprintable() else " "
    words = unicodedata.name(letter, "").lower().split()
    if words[:2] == ["greek", "small"] and len(words) == 4:
        return _GREEK_LIKE_LATIN.get(words[3], f"$\\{words[3].replace('lamda', 'lambda')}$")
    if "\u00c0" <= letter <= "\u017f":
        return letter  # Latin letters with accents, known to every engine
    return unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode() or "?"


def latex(report: Report) -> str:
    """The report as LaTeX tables that need the package booktabs."""
    lines = [
        f"% {report.id}: {' '.join(report.title.split())}",
        r"% \usepackage{booktabs}",
        rf"\paragraph{{{latex_escape(report.title)}}}",
        *(f"{latex_escape(line)}" for line in (*report.opening, report.legend) if line),
    ]
    for grid in report.grids:
        caption = f"{latex_escape(report.title)}: {latex_escape(grid.title)}"
        lines += ["", r"\begin{table}[htbp]", r"\centering\footnotesize\setlength{\tabcolsep}{3pt}"]
        lines.append(rf"\caption{{{caption}}}")
        lines += [rf"{latex_escape(grid.lead)}\par\medskip"] if grid.lead else []
        for k, sheet in enumerate(sheets(grid, _WIDTH_LATEX)):
            lines += [*([r"\par\medskip"] if k else []), *_latex_sheet(sheet)]
        if grid.footnotes:
            notes = (rf"[{k}]~{latex_escape(line)}" for k, line in enumerate(grid.footnotes, 1))
            lines += [r"\par\medskip\raggedright", "\\par\n".join(notes)]
        lines.append(r"\end{table}")
    for line in (*report.statistics, *report.remarks):
        lines += ["", latex_escape(line)]
    return "\n".join(lines) + "\n"


def _latex_sheet(sheet: Sheet) -> list[str]:
    lines = [rf"\begin{{tabular}}{{{sheet.align}}}", r"\toprule"]
    lines += [" & ".join(_latex_piece(Piece(title)) for title in row) + r" \\" for row in sheet.header_lines]
    lines.append(r"\midrule")
    for i, group in enumerate(sheet.groups):
        lines += [r"\addlinespace"] if i and sheet.stacked else []
        lines += [" & ".join(map(_latex_piece, row)) + r" \\" for row in group]
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _latex_piece(piece: Piece) -> str:
    text = latex_escape(piece.text).strip()
    # A row that began with [1] would be read as the argument of the line break before it.
    text = f"{{{text}}}" if text.startswith(("[", "*")) else text
    if not text or piece.kind not in ("better", "worse"):
        return text
    return rf"\textbf{{{text}}}" if piece.kind == "better" else rf"\textit{{{text}}}"
