"""Pages of results: ours beside the published figures, for terminals, Markdown, LaTeX, CSV and browsers."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv

from bagwise.errors import DataError
from bagwise.utils.files import replacing
from papers.pages.cells import ResultFigure, ResultTable
from papers.pages.layout import report
from papers.pages.plots import curves, svg
from papers.pages.sheets import rich, text
from papers.pages.statistics import marks
from papers.pages.styles import html, latex, markdown

Result = ResultTable | ResultFigure
PageStyle = Literal["text", "rich", "markdown", "latex", "csv", "html"]
_WIDTH = 100
_TITLE = "Published experiments, repeated"


def render(result: Result, style: PageStyle = "text", *, width: int = _WIDTH, image: str = "") -> Any:
    r"""One table or figure as a page.

    Per measure there is a grid of data sets x methods with ours, the published figure, whether ours lies
    inside the published mean ± std, and marks of significance; footnotes say why a figure is missing. Below
    follow times and memory, the comparison of average ranks over data sets, and remarks.

    Parameters
    ----------
    result : ResultTable or ResultFigure
        What to show.
    style : {"text", "rich", "markdown", "latex", "csv", "html"}
        "rich" gives something for ``rich.console.Console.print``, all others give text. LaTeX needs the
        package booktabs; CSV has one row per cell or point with all that is known of it; HTML is a whole
        page.
    width : int, default=100
        Letters in a line, of text and on a terminal: what is wider is stacked, then split.
    image : str, optional
        Address of a picture to show below the heading, in Markdown.

    Examples
    --------
    >>> from papers.pages.cells import Cell
    >>> cells = (
    ...     Cell("Scene", "A", "auc", "higher", 0.7151, 0.02, published_mean=0.71, published_std=0.01),
    ...     Cell("Scene", "B", "auc", "higher", missing="B is not implemented yet", published_mean=0.65),
    ... )
    >>> table = ResultTable("p:1", "Quality", "Ten folds.", "A", ("Scene",), ("A", "B"), ("auc",), cells)
    >>> print("\n".join(render(table).splitlines()[12:18]))
    AUC ↑
    -----
    data set          A  published  verdict       B  published  verdict
    Scene     0.72±0.02  0.71±0.01  ✓ inside  – [1]       0.65
    <BLANKLINE>
    [1] B is not implemented yet
    """
    if style == "csv":
        return _csv(result)
    if style == "html":
        return html([result], f"{result.id}: {result.title}")
    page = report(result)
    if style == "text":
        return text(page, width)
    if style == "rich":
        return rich(page, width)
    if style == "markdown":
        return markdown(page, image=image)
    if style == "latex":
        return latex(page)
    raise DataError(f"a page's style is text, rich, markdown, latex, csv or html, not {style!r}")


def write(
    results: Iterable[Result],
    folder: str | PathLike[str],
    *,
    title: str = _TITLE,
    command: str = "",
    origin: Sequence[str] = (),
) -> list[Path]:
    """Write every result as .md, .tex and .csv, figures also as .svg, and index.html with all of them.

    Files are called by the results' ids; a colon, which file systems refuse, becomes a hyphen.

    Parameters
    ----------
    results : iterable of ResultTable and ResultFigure
        What to write, in order.
    folder : path
        Where to; made if need be.
    title : str, optional
        Heading of the page.
    command : str, optional
        What was typed to make it.
    origin : sequence of str, optional
        Sentences about where the figures come from, for the head of the page.

    Returns
    -------
    list of Path
        The files; the last is the page.

    Examples
    --------
    >>> import tempfile
    >>> from papers.pages.cells import Curve
    >>> curve = Curve("A", (1.0, 2.0), (3.0, 5.0))
    >>> figure = ResultFigure("p:fig1", "Time", "bags", "seconds", curves=(curve,))
    >>> [path.name for path in write([figure], tempfile.mkdtemp())]
    ['p-fig1.md', 'p-fig1.tex', 'p-fig1.csv', 'p-fig1.svg', 'index.html']
    """
    results = list(results)
    files: dict[str, str] = {}
    for result in results:
        name = re.sub(r"[^\w.+-]+", "-", result.id)
        if f"{name}.md" in files:
            raise DataError(f"two results would be written as {name}.md; ids must differ")
        figure = isinstance(result, ResultFigure)
        files[f"{name}.md"] = render(result, "markdown", image=f"{name}.svg" if figure else "")
        files[f"{name}.tex"] = render(result, "latex")
        files[f"{name}.csv"] = render(result, "csv")
        if isinstance(result, ResultFigure):
            files[f"{name}.svg"] = svg(curves(result))
    files["index.html"] = html(results, title, command=command, origin=origin)
    paths = []
    for name, content in files.items():
        paths.append(Path(folder) / name)
        with replacing(paths[-1]) as temporary:
            temporary.write_text(content, encoding="utf-8")
    return paths


def _csv(result: Result) -> str:
    frame = result.frame()
    if isinstance(result, ResultTable):
        found = marks(result)
        places = zip(*(frame.column(name).to_pylist() for name in ("dataset", "method", "measure")))
        at = frame.column_names.index("published_mark")
        changed = frame.column("change").to_pylist()  # what was tried is not tested against the reference
        own = ["" if change else found[place] for place, change in zip(places, changed)]
        frame = frame.add_column(at, "mark", pa.array(own, pa.string()))
        for name in ("values", "keys"):  # a list is one cell, its parts joined by ;
            joined = [";".join(map(str, parts)) for parts in frame.column(name).to_pylist()]
            frame = frame.set_column(frame.column_names.index(name), name, pa.array(joined, pa.string()))
    buffer = io.BytesIO()
    pyarrow.csv.write_csv(frame, buffer)
    return buffer.getvalue().decode()
