"""Commands that learn and answer: fit, predict, annotate and score."""

from __future__ import annotations

from functools import partial
from math import isnan
from pathlib import Path
from typing import Annotated, Any

import typer

from bagwise.cli.app import AsJson, Data, Debug, Where, app, where_to_look
from bagwise.cli.completion import names_of_data, names_of_models
from bagwise.cli.console import answer_words, print_json, print_table, report, say
from bagwise.cli.raw import Labels, Raw, explain, leave, raw_options
from bagwise.cli.together import takes
from bagwise.cli.typed import assignments
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
OnCluster = Annotated[
    str | None,
    typer.Option("--cluster", metavar="ADDRESS|local:N", help="Shards: go over the parts on a Dask cluster."),
]
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
    from bagwise import actions

    params = assignments(param, "--param")
    with progress(f"fitting {model}") as advance:
        running = _running(cluster, advance, as_json) | {"checkpoint": checkpoint}
        done = actions.fit(data, model, params, out, running=running, **where)
    if done["columns"] and not as_json:
        say(f"columns of {data}: {done['columns']}")
    if done["recipe"] and not as_json:
        say(f"takes raw files as well: {done['recipe']}")
    if not as_json:
        explain(done, partial(typer.echo, err=True))
    words = f"{done['n_bags']} bags, {done['n_instances']} instances, {len(done['labels'])} labels"
    report(done, f"fitted {done['model']} to {words} in {done['seconds']:.1f} s; wrote {out}", as_json)


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
    cluster: OnCluster = None,
    where: Where,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Predict the labels of bags or raw files; one row each with the labels and all scores."""
    from bagwise import actions

    with raw(quiet=as_json) as files:
        running = _running(cluster, files["step"].advance, as_json)
        done = actions.predict(model, data, out, kind=kind, running=running, **files, **where)
    report(done, f"wrote the labels of {done['rows']} bags to {out}", as_json)
    _end(done, as_json)


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
    cluster: OnCluster = None,
    where: Where,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Find the label of every instance; one row each, or files for an annotation tool with --as."""
    from bagwise import actions

    style = {"merge": not no_merge, "scores": scores, **({} if address is None else {"address": address})}
    shape: dict[str, Any] = {
        "kind": kind,
        "pictures": pictures,
        "threshold": threshold,
        "originals": originals,
        "style": style,
    }
    with raw(labels=labels, quiet=as_json) as files:
        shape |= {"use_labels": use_labels, "proba": proba}
        running = _running(cluster, files["step"].advance, as_json)
        done = actions.annotate(model, data, out, running=running, **shape, **files, **where)
    report(done, answer_words(done), as_json)
    _end(done, as_json)


@app.command()
@takes(raw=raw_options, where=where_to_look)
def score(
    model: Model,
    data: RawData,
    labels: Labels = None,
    *,
    raw: Raw,
    cluster: OnCluster = None,
    where: Where,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Measure a model on bags whose labels are known."""
    from bagwise import actions

    with raw(labels=labels, quiet=as_json) as files:
        running = _running(cluster, files["step"].advance, as_json)
        found = actions.score(model, data, running=running, **files, **where)
    if as_json:
        print_json(found)
        return leave(found)
    from bagwise.report.tables import measure_title

    say(f"{found['model']} on {found['data']}, {found['n_bags']} bags")
    measures = found["measures"].items()
    rows = [(measure_title(name), "–" if isnan(value) else f"{value:.4f}") for name, value in measures]
    print_table(["measure", "value"], rows, "lr")
    if found["not_learned"]:
        say(f"left out, never learned by the model: {', '.join(found['not_learned'])}")
    if found["not_in_data"]:
        say(f"counted as absent, not listed in the data: {', '.join(found['not_in_data'])}")
    _end(found, as_json)


def _end(done: dict[str, Any], as_json: bool) -> None:
    """Name the files that gave nothing; the exit code says if any could not be read."""
    if not as_json:
        explain(done, partial(typer.echo, err=True))
    leave(done)


def _running(cluster: str | None, advance: Any, quiet: bool) -> dict[str, Any]:
    """How shards are gone over: where, and who is told of parts and of the cluster."""

    def tell(line: str) -> None:
        if not quiet:
            typer.echo(line, err=True)

    return {"cluster": cluster, "step": advance, "say": tell}
