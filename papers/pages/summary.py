"""One page to cite: per paper what held, what did not, and why, with a picture of all compared cells."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bagwise.utils.tables import table
from papers.pages.cells import Cell, ResultFigure, ResultTable
from papers.pages.layout import STATES, tally, tried_sentence
from papers.pages.parts import SYMBOL, count, figure_text, listed, order_of, title_of
from papers.pages.plots import INK, MUTED, curves, new_figure, svg
from papers.pages.render import render
from papers.pages.styles import escape

_COLOURS = {"inside": "#56b4e9", "better": "#009e73", "worse": "#d55e00"}  # Okabe and Ito
_PICTURE = "verdicts.png"
_NAMED = 4  # turned pairs that are named per paper


def summary(
    tables: Sequence[ResultTable], papers: Mapping[str, tuple[str, str]], folder: str, introduction: str = ""
) -> tuple[str, dict[str, bytes]]:
    """Text of the page, and its picture by file name.

    Parameters
    ----------
    tables : sequence of ResultTable
        All tables; those without a compared cell are counted as not compared.
    papers : mapping of str to (str, str)
        What stands before the colon of the tables' ids: title and reference of the paper.
    folder : str
        Where the picture will lie, as the page sees it.
    introduction : str, optional
        Paragraphs under the title.

    Examples
    --------
    >>> theirs = {"published_std": 0.02, "note": "Why."}
    >>> cells = (
    ...     Cell("Scene", "A", "auc", "higher", 0.72, 0.02, published_mean=0.71, **theirs),
    ...     Cell("Scene", "B", "auc", "higher", 0.60, 0.02, published_mean=0.65, **theirs),
    ... )
    >>> found = ResultTable("p:1", "Quality", "Ten folds.", "A", ("Scene",), ("A", "B"), ("auc",), cells)
    >>> text, pictures = summary([found], {"p": ("P", "Somebody: Something. 2012.")}, "summary")
    >>> list(pictures), "1 of 2 compared cells" in text, "Why." in text
    (['verdicts.png'], True, True)
    """
    by_paper: dict[str, list[ResultTable]] = defaultdict(list)
    for one in tables:
        by_paper[one.id.partition(":")[0]].append(one)
    by_paper = {name: by_paper[name] for name in papers if name in by_paper}
    compared = [one for found in by_paper.values() for one in found if _compared(one)]
    parts = ["# Published experiments, repeated: what held, what did not, and why", introduction, _reading()]
    pictures = {}
    if compared:
        pictures[_PICTURE] = _png(verdicts(compared, {name: title for name, (title, _) in papers.items()}))
        parts.append(f"![Verdicts, table by table]({folder}/{_PICTURE})")
    parts.append(_overview(by_paper, papers))
    for name, found in by_paper.items():
        parts += _paper(found, *papers[name])
    return "\n\n".join(part.strip() for part in parts if part) + "\n", pictures


def _reading() -> str:
    return (
        "A cell is one measure of one method on one data set. It is *inside* if our mean lies within the "
        "published mean ± one standard deviation (our own, where none is published), else *better* or "
        "*worse*. A pair is two methods in one measure on one data set; it is *clear* if the published means "
        "differ by more than a standard deviation of either (ours, where none is published); one that is "
        "equal with us counts as found again."
    )


def _compared(one: ResultTable) -> int:
    return sum(tally(one)[state] for state in _COLOURS)


def _overview(by_paper: Mapping[str, list[ResultTable]], papers: Mapping[str, tuple[str, str]]) -> str:
    lines: list[list[Any]] = []
    totals = [0] * 8
    for name, found in by_paper.items():
        counts = [sum(tally(one)[state] for one in found) for state in (*_COLOURS, "missing")]
        orders = [order_of(one) for one in found]
        pairs = [
            sum(getattr(o, key) for o in orders) for key in ("n_same", "n_pairs", "n_clear_same", "n_clear")
        ]
        lines.append([papers[name][0], *_line([*counts, *pairs])])
        totals = [a + b for a, b in zip(totals, [*counts, *pairs])]
    lines.append(["**all**", *_line(totals)])
    header = ["paper", "compared", "inside", "better", "worse", "inside or better", "not run"]
    header += ["pairs in the published order", "clear pairs"]
    return str(table(header, lines, style="markdown", align="l" + "r" * 8))


def _line(numbers: Sequence[int]) -> list[str]:
    inside, better, worse, missing, same, pairs, clear_same, clear = numbers
    n = inside + better + worse
    share = f"{100 * (inside + better) / n:.1f} %" if n else "–"
    order = f"{same} of {pairs}" if pairs else "–"
    return [*map(str, (n, inside, better, worse)), share, str(missing), order, f"{clear_same} of {clear}"]


def _paper(found: Sequence[ResultTable], title: str, reference: str) -> list[str]:
    """What held, what did not, why, and what could not be run."""
    cells = [(one, cell) for one in found for cell in one.cells]
    judged = [(one, cell) for one, cell in cells if cell.inside]
    parts = [f"## {title}", escape(reference)]
    if judged:
        good = sum(cell.inside != "worse" for _, cell in judged)
        whole = [one.id for one in found if _compared(one) and not tally(one)["worse"]]
        held = f"**Held.** {good} of {count(len(judged), 'compared cell')} are inside or better"
        held += f"; all of {listed(whole)}." if whole else "."
        own = [cell for one, cell in judged if cell.method == one.reference]
        if own:
            fine = sum(cell.inside != "worse" for cell in own)
            held += f" Of the proposed method {fine} of {len(own)}."
        parts.append(held)
        parts.append(_order(found))
    worse = [(one, cell) for one, cell in judged if cell.inside == "worse"]
    if worse:
        reasons: dict[str, list[tuple[ResultTable, Cell]]] = defaultdict(list)
        for one, cell in worse:
            reasons[cell.note].append((one, cell))
        lines = [_reason(note, places) for note, places in reasons.items()]
        parts += [f"**Did not hold.** {count(len(worse), 'cell')} {SYMBOL['worse']} worse:", "\n".join(lines)]
    elif judged:
        parts.append("**Did not hold.** No compared cell is worse.")
    absent: dict[str, int] = defaultdict(int)
    for _, cell in cells:
        if cell.mean is None:
            absent[cell.reason] += 1
    if absent:
        said = "; ".join(f"{escape(reason)} ({n})" for reason, n in absent.items())
        parts.append(f"**Not run**, with the number of cells: {said}.")
    return parts


def _reason(note: str, places: Sequence[tuple[ResultTable, Cell]]) -> str:
    """Cells that one reason explains, the reason, and what was tried for each of them."""
    text = f"- {'; '.join(_said(*place) for place in places)}. {escape(note)}"
    tried: dict[str, list[str]] = defaultdict(list)
    for one, cell in places:
        if sentence := tried_sentence(one, cell):
            tried[sentence].append(f"{cell.dataset}, {title_of(cell.measure)}")
    for sentence, cells in tried.items():
        of = f" ({'; '.join(cells)})" if len(cells) < len(places) else ""
        text += f"\n  - {escape(sentence.replace('Tried:', f'Tried{of}:', 1))}"
    return text


def _said(one: ResultTable, cell: Cell) -> str:
    """Place and figures of a cell."""
    ours = figure_text(cell.mean, cell.std, cell.shown_decimals)
    theirs = figure_text(cell.published_mean, cell.published_std, cell.shown_decimals)
    what = title_of(cell.measure)
    return escape(f"{one.id}, {cell.dataset}, {cell.method}, {what}: {ours} against {theirs}")


def _order(found: Sequence[ResultTable]) -> str:
    orders = [(one, order_of(one)) for one in found]
    pairs, same = sum(o.n_pairs for _, o in orders), sum(o.n_same for _, o in orders)
    clear, clear_same = sum(o.n_clear for _, o in orders), sum(o.n_clear_same for _, o in orders)
    if not pairs:
        return ""
    text = (
        f"**Order of methods.** As published in {same} of {count(pairs, 'pair')}, and in {clear_same} of "
        f"{count(clear, 'clear one')}"
    )
    turned = [(one, *pair) for one, o in orders for pair in o.turned]
    if turned:
        said = [
            f"{a.method} before {b.method} on {a.dataset} ({one.id}, {title_of(a.measure)})"
            for one, a, b in turned[:_NAMED]
        ]
        more = f" and {len(turned) - _NAMED} more" if len(turned) > _NAMED else ""
        text += f"; not found again: {escape('; '.join(said))}{more}"
    return f"{text}."


def verdicts(tables: Sequence[ResultTable], papers: Mapping[str, str]) -> Any:
    """Compared cells of every table, one bar each: inside, better, worse; a worse cell is never unsaid.

    Examples
    --------
    >>> cells = (Cell("S", "A", "auc", "higher", 0.7, published_mean=0.7, published_std=0.1),)
    >>> found = ResultTable("p:1", "", "", "A", ("S",), ("A",), ("auc",), cells)
    >>> [text.get_text() for text in verdicts([found], {"p": "Paper"}).axes[0].get_yticklabels()]
    ['Paper, Table 1']
    """
    figure = new_figure((7.6, 0.9 + 0.27 * len(tables)), "constrained")
    axes = figure.add_subplot()
    for row, one in enumerate(tables):
        counts, left = tally(one), 0.0
        n = _compared(one)
        for state, colour in _COLOURS.items():
            share = 100.0 * counts[state] / n
            axes.barh(row, share, left=left, color=colour, height=0.72, label=state if row == 0 else None)
            words = {"va": "center", "fontsize": 8}
            if share >= 4.0:
                axes.text(left + share / 2, row, str(counts[state]), ha="center", color=INK, **words)
            elif share and state == "worse":  # too narrow for its number, and what people look for
                axes.text(101.0, row, str(counts[state]), ha="left", color=colour, weight="bold", **words)
            left += share
    ids = [one.id.partition(":") for one in tables]
    names = [f"{papers[paper]}, Table {number}".replace("Table fig", "Figure ") for paper, _, number in ids]
    axes.set_yticks(range(len(tables)), names, fontsize=8.5, color=INK)
    axes.set_ylim(len(tables) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the compared cells, %; numbers are cells", fontsize=8.5, color=INK)
    axes.tick_params(axis="x", labelsize=8.5, colors=INK)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
    axes.legend(ncols=3, loc="lower left", bbox_to_anchor=(0.0, 1.0), frameon=False, fontsize=8.5)
    return figure


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


# ----------------------------------------------------------------------
# One Markdown page with every result of a reproduction, and a count of how the cells fared


Result = ResultTable | ResultFigure


def overview(
    results: Sequence[Result],
    folder: str,
    introduction: str = "",
    title: str = "Published experiments, repeated",
) -> tuple[str, dict[str, str]]:
    """Text of the page, and the pictures that it shows, by file name.

    Parameters
    ----------
    results : sequence of ResultTable and ResultFigure
        In the order of the page.
    folder : str
        Where the pictures will lie, as the page sees it.
    introduction : str, optional
        Paragraphs under the title.
    title : str
        Of the page.
    """
    pictures = {}
    parts = []
    for result in results:
        image = ""
        if isinstance(result, ResultFigure):
            name = re.sub(r"[^\w.+-]+", "-", result.id) + ".svg"
            pictures[name] = svg(curves(result))
            image = f"{folder}/{name}"
        parts.append(render(result, "markdown", image=image))
    tables = [result for result in results if isinstance(result, ResultTable)]
    head = [f"# {title}", introduction, _summary(tables)]
    return "\n\n".join(part.strip() for part in [*head, *parts] if part) + "\n", pictures


def introduction(
    rows: Sequence[Mapping[str, Any]], command: str, folder: str = "", *, whole: bool = True
) -> str:
    """How the Markdown page was made: command, effort, versions, machines, and the folder with the rows.

    ``whole`` says that all rows are in the folder, not only those that the short run lacks.
    """
    effort, *versions = origin(rows)
    made = f"Made by `{command}`: {effort} "
    told = "[reproduce.md](reproduce.md) tells how to read and how to repeat it."
    return "\n\n".join([made + told, *versions, *([rows_at(folder, whole)] if folder else [])])


def rows_at(folder: str, whole: bool = True) -> str:
    """Where the rows behind a page are, and what they are good for."""
    which = "Every fit behind this page" if whole else "Every fit behind this page that the short run lacks"
    return (
        f"{which} is a row of [rows.parquet]({folder}/rows.parquet): settings, what a "
        "search chose, measures, times. A run with `--merge` and that folder goes on from there."
    )


def command_of(
    targets: Sequence[str], short: bool, reasons: bool = False, **only: Iterable[str] | None
) -> str:
    """What was typed.

    Examples
    --------
    >>> command_of(["mimlfast:2"], True, datasets=["Letter Frost"])
    "python -m papers mimlfast:2 --short --datasets 'Letter Frost'"
    """
    words = [
        "python",
        "-m",
        "papers",
        *targets,
        *(["--short"] if short else []),
        *(["--reasons"] if reasons else []),
    ]
    for option, names in only.items():
        for name in names or ():
            words += [f"--{option}", name]
    return shlex.join(words)


def origin(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Effort, versions and machines of the rows behind a page, as sentences."""
    unique = {row["hash"]: row for row in rows}.values()
    seconds = sum(row["fit_cpu_seconds"] or 0.0 for row in unique)
    parts = [f"{len(unique)} fits, {seconds / 3600:.1f} hours of CPU time in all."]
    for origin in sorted({row["versions"] for row in unique if row.get("versions")}):
        facts = json.loads(origin)
        machine = facts.pop("machine", "")
        count = sum(row.get("versions") == origin for row in unique)
        versions = ", ".join(f"{name} {version}" for name, version in facts.items())
        parts.append(f"{count} fits with {versions}; {machine}.")
    return parts


def _summary(tables: Sequence[ResultTable]) -> str:
    """How many cells lie where, table by table."""
    lines: list[list[Any]] = []
    for found in tables:
        counts = tally(found)
        lines.append([found.id, len(found.cells), *(counts[state] for state in STATES)])
    total = ["all", *(sum(numbers) for numbers in zip(*(line[1:] for line in lines)))]
    header = ["table", "cells", "inside", "better", "worse", "no verdict", "unfinished", "not run"]
    return "\n\n".join(
        [
            "## How the cells fared",
            "Inside, better and worse are meant of our mean against the published mean ± one standard "
            "deviation (our own, where none is published). Cells that only describe data, or have no "
            "published figure, get no verdict; nor does an unfinished one, of which some fits are missing. "
            "A cell that was not run says why in its table.",
            table(header, [*lines, total], style="markdown", align="l" + "r" * (len(STATES) + 1)),
        ]
    )
