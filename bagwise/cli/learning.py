"""Commands that learn and answer: fit, predict, annotate, score and compare."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import Annotated, Any

import typer

import bagwise
from bagwise import actions
from bagwise.cli.command import (
    AsJson,
    Data,
    Debug,
    Where,
    app,
    print_done,
    print_json,
    print_table,
    say,
    say_aside,
    say_nothing,
    show_table,
    takes,
    where_to_look,
)
from bagwise.cli.gathering import Labels, OnCluster, Raw, end, raw_options
from bagwise.cli.typed import assignments, names_of_data, names_of_models
from bagwise.utils.progress import progress

RawData = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA ...",
        help="A data set; or folders and files, for a model of gathered data.",
        autocompletion=names_of_data,
        show_default=False,
    ),
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file that fit wrote.")]
Kind = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="csv|raven|audacity|label-studio|coco|geojson",
        help="What to write: a table, or what an annotation tool reads; --out is then a folder.",
    ),
]


@app.command()
@takes(where=where_to_look)
def fit(
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Model file to write, by convention .skops.")],
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="Name of the estimator; see list. The default needs no tuning.",
            autocompletion=names_of_models,
        ),
    ] = "BagClassifier",
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=VALUE", help="Parameter of the estimator; repeatable."),
    ] = None,
    cluster: OnCluster = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Shards: where a killed fit goes on from; by default beside the model file."),
    ] = None,
    *,
    where: Where,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Fit a model to a data set and save it."""
    params = assignments(param, "--param")
    with progress(f"fitting {model}") as advance:
        running = {"cluster": cluster, "checkpoint": checkpoint, "step": advance}
        running["say"] = say_nothing if as_json else say_aside
        done = actions.fit(data, model, params, out, running=running, **where)
    if done["columns"] and not as_json:
        say(f"columns of {data}: {done['columns']}")
    if done["recipe"] and not as_json:
        say(f"takes raw files as well: {done['recipe']}")
    end(done, as_json)
    words = f"{done['n_bags']} bags, {done['n_instances']} instances, {len(done['labels'])} labels"
    print_done(done, f"fitted {done['model']} to {words} in {done['seconds']:.1f} s; wrote {out}", as_json)


@app.command()
@takes(raw=raw_options, where=where_to_look)
def predict(
    model: Model,
    data: RawData,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write: .parquet, .csv or .json.")],
    kind: Annotated[
        str | None, typer.Option("--as", metavar="csv|json", help="What to write; by default by the suffix.")
    ] = None,
    *,
    raw: Raw,
    where: Where,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Predict the labels of bags or raw files; one row each with the labels and all scores."""
    with raw(quiet=as_json) as files:
        done = actions.predict(model, data, out, kind=kind, **files, **where)
    print_done(done, f"wrote the labels of {done['rows']} bags to {out}", as_json)
    end(done, as_json)


@app.command()
@takes(raw=raw_options, where=where_to_look)
def annotate(
    model: Model,
    data: RawData,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Table to write (.parquet or .csv), or folder for --as.")
    ],
    kind: Kind = None,
    pictures: Annotated[
        Path | None, typer.Option(help="Folder for a picture of every file with what was found in it.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Mark only parts at least this probable (--as, --pictures).")
    ] = None,
    originals: Annotated[
        Path | None, typer.Option(help="Folder of the files that gathered data came from (--as, --pictures).")
    ] = None,
    no_merge: Annotated[
        bool, typer.Option("--no-merge", help="Keep neighbouring parts with one label apart (--as).")
    ] = False,
    scores: Annotated[
        bool, typer.Option("--scores", help="Write probabilities into Audacity's labels: wren (0.91).")
    ] = False,
    address: Annotated[
        str | None, typer.Option(help="What stands before file names in Label Studio, such as a server.")
    ] = None,
    use_labels: Annotated[
        bool, typer.Option("--use-labels", help="Choose among the labels that each bag is known to carry.")
    ] = False,
    proba: Annotated[bool, typer.Option("--proba", help="Write probabilities in place of scores.")] = False,
    labels: Labels = None,
    *,
    raw: Raw,
    where: Where,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Find the label of every instance; one row each, or files for an annotation tool with --as."""
    style = {"merge": not no_merge, "scores": scores, **({} if address is None else {"address": address})}
    shape: dict[str, Any] = {"kind": kind, "pictures": pictures, "threshold": threshold, "style": style}
    shape |= {"originals": originals, "use_labels": use_labels, "proba": proba}
    with raw(labels=labels, quiet=as_json) as raw_how:
        done = actions.annotate(model, data, out, **shape, **raw_how, **where)
    files = done.get("files")
    if files is None:
        words = f"wrote the labels of {done['rows']} instances to {done['out']}"
    else:
        many = f"{len(files)} files" if len(files) != 1 else "1 file"
        words = f"wrote {done['rows']} labelled places in {many} to {done['out']}"
    if done.get("pictures"):
        words += f", {len(done['pictures'])} pictures"
    notes = [*done.get("notes", ()), *done.get("not_drawn", ())]
    if notes:
        more = f"; and {len(notes) - 3} more" if len(notes) > 3 else ""
        words += f" ({'; '.join(notes[:3])}{more})"
    print_done(done, words, as_json)
    end(done, as_json)


@app.command()
@takes(raw=raw_options, where=where_to_look)
def score(
    model: Model,
    data: RawData,
    labels: Labels = None,
    *,
    raw: Raw,
    where: Where,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Measure a model on bags whose labels are known."""
    with raw(labels=labels, quiet=as_json) as files:
        found = actions.score(model, data, **files, **where)
    if as_json:
        print_json(found)
        return end(found, as_json)
    say(f"{found['model']} on {found['data']}, {found['n_bags']} bags")
    measures = found["measures"].items()
    rows = [
        (bagwise.report.measure_title(name), "–" if isnan(value) else f"{value:.4f}")
        for name, value in measures
    ]
    print_table(["measure", "value"], rows, "lr")
    if found["not_learned"]:
        say(f"left out, never learned by the model: {', '.join(found['not_learned'])}")
    if found["not_in_data"]:
        say(f"counted as absent, not listed in the data: {', '.join(found['not_in_data'])}")
    end(found, as_json)


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
    names = None if models is None else [name.strip() for name in models.split(",") if name.strip()]
    with progress("comparing") as step:
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
