"""``bagwise compare``: which model to use on one's own data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bagwise.cli.app import AsJson, Data, Debug, Where, app, where_to_look
from bagwise.cli.console import print_json, say, show_table
from bagwise.cli.together import takes
from bagwise.utils.progress import progress


@app.command()
@takes(where=where_to_look)
def compare(
    data: Data,
    models: Annotated[
        str | None,
        typer.Option("--models", "-m", help="Names of estimators, separated by commas; see list."),
    ] = None,
    cv: Annotated[int, typer.Option(min=2, help="Number of folds.")] = 5,
    repeats: Annotated[int, typer.Option(min=1, help="How often bags are dealt into folds anew.")] = 2,
    measure: Annotated[str | None, typer.Option(help="What decides, such as ranking_loss.")] = None,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Folder for fits, table and plot, where a stopped run goes on."),
    ] = Path("bagwise_comparison"),
    n_jobs: Annotated[int, typer.Option("--n-jobs", "-j", help="Fits at the same time; -1: all cores.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of folds and models.")] = 0,
    *,
    where: Where,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Cross-validate models on a data set and say which to use."""
    from bagwise import actions

    names = None if models is None else [name.strip() for name in models.split(",") if name.strip()]
    with progress("comparing") as advance:

        def step(n_new: int, text: str, total: int) -> None:
            advance(n_new, text, total)

        result = actions.compare(
            data,
            names,
            cv=cv,
            repeats=repeats,
            measure=measure,
            seed=seed,
            n_jobs=n_jobs,
            out=out,
            step=step,
            **where,
        )
    if as_json:
        return print_json(result.to_dict())
    say(f"Held-out bags of {data}, {cv} folds, dealt {repeats} times: mean ± standard deviation over folds.")
    say()
    show_table(result.table)
    say()
    if result.differences():
        show_table(result.difference_table)
        say()
    for model, reason in result.failures.items():
        say(f"{model} failed: {reason}")
    say(result.sentence)
    say(f"Table, plot and finished fits are in {out}.")
