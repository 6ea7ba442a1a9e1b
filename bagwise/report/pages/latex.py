"""Reports as LaTeX that needs the package booktabs and no other."""

from __future__ import annotations

import re
import unicodedata

from bagwise.report.pages.parts import SYMBOL, Piece, Report
from bagwise.report.pages.sheets import Sheet, sheets

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
