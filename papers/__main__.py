"""Repeat published experiments and show our figures beside the published ones.

python -m papers list
python -m papers mimlfast:2 --short
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bagwise.cli import AsJson, Command, Debug, print_json, print_table, rich_console, say
from bagwise.utils.progress import progress
from papers.pages.render import render
from papers.reproduce import list_experiments
from papers.reproduce import reproduce as run

_FEW_NAMES = 8  # more are counted instead of listed


app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None, add_completion=False)


@app.command(cls=Command)
def reproduce(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="list | all | PAPER | PAPER:TABLE ...", help="What to repeat; list shows all there is."
        ),
    ],
    methods: Annotated[
        list[str] | None, typer.Option(help="Only this method, named as in the paper; repeatable.")
    ] = None,
    datasets: Annotated[
        list[str] | None, typer.Option(help="Only this data set, named as in the paper; repeatable.")
    ] = None,
    n_jobs: Annotated[int, typer.Option(help="Fits at the same time; -1 takes all cores.")] = 1,
    short: Annotated[bool, typer.Option("--short", help="Fewer repeats and smaller grids.")] = False,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of results; a later run goes on there.")
    ] = Path("bagwise_results"),
    page: Annotated[Path | None, typer.Option(help="Write all results on one Markdown page.")] = None,
    summary: Annotated[
        Path | None, typer.Option(help="Write what held and what did not, paper by paper, on one page.")
    ] = None,
    against_short: Annotated[
        bool, typer.Option("--against-short", help="Page of what goes beyond --short, and what that changes.")
    ] = False,
    merge: Annotated[
        list[Path] | None, typer.Option(help="Folder of another run whose fits are taken over; repeatable.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run fits again that have failed.")] = False,
    reasons: Annotated[
        bool,
        typer.Option("--reasons", help="Also run what was tried on cells outside the published figures."),
    ] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Fit one of every cell again: does it come out as its row says?"),
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Run nothing; show what there is.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Repeat a paper's experiment and show our figures beside the published ones."""
    if targets[0] == "list":
        return _show_experiments(list_experiments(targets[1:] or ["all"]), as_json)
    try:
        with progress(f"preparing {' '.join(targets)}") as advance:
            done = run(
                targets,
                out,
                methods=methods,
                datasets=datasets,
                short=short,
                n_jobs=n_jobs,
                retry=retry,
                reasons=reasons,
                verify=verify,
                run=not show,
                page=page,
                summary=summary,
                against_short=against_short,
                merge=merge or (),
                step=advance,
            )
    except KeyboardInterrupt:
        typer.echo("stopped; the same command goes on where it was", err=True)
        raise typer.Exit(130) from None
    results = done.pop("results")
    if as_json:
        return print_json(done | {"cells": [row for r in results for row in r.frame().to_pylist()]})
    _show_pages(results)
    if verify:
        _say_changed(done["verified"], done["changed"], retry)
    counts = f"{done['run']} fits run now, {done['known']} known from before, {done['failed']} failed"
    say(f"{counts}; pages in {out / 'pages'} (index.html shows all)")


def _show_pages(results: Sequence[Any]) -> None:
    """Tables and figures of experiments, fitted to the terminal, or plain text in a pipe."""
    for result in results:
        if sys.stdout.isatty():
            terminal = rich_console()
            terminal.print(render(result, "rich", width=terminal.width))
        else:
            typer.echo(render(result, "text"))


def _say_changed(n_cells: int, changed: list[dict[str, Any]], renewed: bool) -> None:
    """A line per method and data set, with the measure that differs most."""
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in changed:
        grouped.setdefault((one["dataset"], one["method"]), []).append(one)
    for (dataset, method), several in grouped.items():
        texts = [(_most(one["measures"]), one["error"]) for one in several]
        (_, text), error = max(texts, key=lambda pair: (bool(pair[1]), pair[0][0]))
        many = f" ({len(several)} settings)" if len(several) > 1 else ""
        say(f"{method} on {dataset}{many}: {error or text}")
    end = "their fits were run anew" if renewed else "--retry runs all their fits anew"
    cells = "1 cell" if n_cells == 1 else f"{n_cells} cells"
    say(f"{cells} fitted again, {len(changed)} came out otherwise" + (f"; {end}" if changed else ""))


def _most(measures: Mapping[str, tuple[float, float]]) -> tuple[float, str]:
    """The measure that differs most, as a share of its size, and what to say of it."""
    found = (0.0, "")
    for name, (kept, now) in measures.items():
        size = max(abs(kept), abs(now), 1e-9)
        share = abs(now - kept) / size if now == now else 1.0  # NaN: it has none any more
        found = max(found, (share, f"{name} {now:.4g} instead of {kept:.4g}"))
    return found


def _show_experiments(found: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        return print_json(found)
    rows = []
    for row in found:
        times = [_minutes(row[name]) for name in ("minutes", "short_minutes")]
        rows.append((row["id"], row["title"], _counted(row["datasets"]), _counted(row["methods"]), *times))
    print_table(["id", "what", "data sets", "methods", "time", "short"], rows, "llllrr")
    say()
    say(
        "Times are for two cores, reckoned from fits that ran beside many others, so rather too long; a "
        "question mark stands where nobody has run the whole protocol."
    )


def _counted(states: Mapping[str, str]) -> str:
    """Names by state, such as "at hand: Scene, Reuters"; many names are only counted."""
    parts = []
    for kind in dict.fromkeys(states.values()):
        names = [name for name, state in states.items() if state == kind]
        parts.append(f"{kind}: {', '.join(names) if len(names) <= _FEW_NAMES else len(names)}")
    return "; ".join(parts) or "-"


def _minutes(value: float | None) -> str:
    if value is None:
        return "?"
    return "< 1 min" if value < 1 else f"{value:.0f} min" if value < 90 else f"{value / 60:.1f} h"


if __name__ == "__main__":
    app(prog_name="python -m papers")
