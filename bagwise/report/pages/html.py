"""Reports as one HTML page that needs nothing from outside; its looks are in ``templates/``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from typing import Any

from bagwise.report.pages.cells import ResultFigure, ResultTable
from bagwise.report.pages.glossary import terms_of
from bagwise.report.pages.layout import STATES, report, tally
from bagwise.report.pages.parts import SYMBOL, Footnotes, count, title_of
from bagwise.report.pages.plots import critical_difference, curves, svg
from bagwise.report.pages.statistics import Overall

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

    folder = PackageLoader("bagwise.report.pages", "templates")
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
    drawn = drawn.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)
    return Markup(f"<figure>{drawn}</figure>")
