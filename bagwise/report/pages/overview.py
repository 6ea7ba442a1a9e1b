"""One Markdown page with every result of a reproduction, and a count of how the cells fared."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bagwise.report.pages.cells import ResultFigure, ResultTable
from bagwise.report.pages.layout import STATES, tally
from bagwise.report.pages.plots import curves, svg
from bagwise.report.pages.render import render
from bagwise.utils.tables import table

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
    "bagwise reproduce mimlfast:2 --short --datasets 'Letter Frost'"
    """
    words = [
        "bagwise",
        "reproduce",
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
