"""The command ``bagwise``: the verbs of `bagwise.actions` with options, tables and errors of one line.

The actions, and with them scikit-learn, numba and matplotlib, are imported when a command runs, so that
``bagwise --help`` answers at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import isnan
from pathlib import Path
from typing import Annotated, Any

import typer

from bagwise.cli.completion import names_of_data, names_of_models
from bagwise.cli.console import (
    Commands,
    answer_words,
    print_facts,
    print_json,
    print_table,
    report,
    say,
    show_pages,
    show_table,
)
from bagwise.cli.raw import CachePlace, Jobs, Labels, NoCache, explain, leave, raw_files
from bagwise.cli.typed import assignments
from bagwise.errors import BagwiseError
from bagwise.utils.progress import progress
from bagwise.utils.version import __version__

app = typer.Typer(
    cls=Commands,
    help="Learn from bags: whole objects carry several labels, the parts that cause them carry none.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="A file, or the name of a data set; see list.", autocompletion=names_of_data
    ),
]
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
Table = Annotated[Path, typer.Option("--out", "-o", help="Table to write: .parquet or .csv.")]
Part = Annotated[str | None, typer.Option(help="Only this part of the data set, such as train or test.")]
View = Annotated[str | None, typer.Option(help="Only this view of several.")]
Format = Annotated[str | None, typer.Option("--format", help="Format of the file; recognised by default.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", "-O", metavar="NAME=VALUE", help="Option of the reader or the set; repeatable."),
]
OnCluster = Annotated[
    str | None,
    typer.Option("--cluster", metavar="ADDRESS|local:N", help="Shards: go over the parts on a Dask cluster."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Debug = Annotated[bool, typer.Option("--debug", "--verbose", help="Show the traceback of an error.")]


Kind = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="csv|raven|audacity|label-studio|coco|geojson",
        help="What to write: a table, or what an annotation tool reads; --out is then a folder.",
    ),
]

_FEW_NAMES = 8  # more are counted instead of listed


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bagwise {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Debug = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the picture and the table.")] = Path(
        "bagwise_demo"
    ),
    n_bags: Annotated[int, typer.Option(help="Number of bags, seven tenths for training.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the bags.")] = 0,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Learn to read digits from bags of pictures, in less than a minute."""
    from bagwise import actions

    with progress("starting") as advance:
        result = actions.demo(out, n_bags=n_bags, seed=seed, step=advance)
    if as_json:
        return print_json(result)
    from bagwise.report.tables import comparison_table

    counts = result["counts"]
    say(
        f"A bag is a handful of pictures of handwritten digits. {counts['bags']} bags "
        f"({counts['pictures']} pictures) came with the list of digits that occur in them, but not which "
        f"picture shows which. The {counts['new_bags']} new bags ({counts['new_pictures']} pictures, none "
        "seen before) came without any labels."
    )
    say()
    print_table(["model", "what it sees"], result["saw"].items())
    say()
    say("How well they do on the new bags (an arrow points to where better values lie):")
    say()
    show_table(partial(comparison_table, result["rows"]), transpose=True)
    say()
    say(
        "Instance accuracy is the share of pictures whose digit is found; given labels, when the list of "
        "digits in the new bag is known as well. The other measures judge the list of digits predicted for "
        "each bag."
    )
    say(f"The picture and the table show what {result['shown']} found in the new bags:")
    for file in result["files"]:
        say(f"  {file}")


@app.command(name="list")
def list_(
    name: Annotated[str, typer.Argument(help="Only what has this in its name.", show_default=False)] = "",
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List estimators, data sets and file formats."""
    from bagwise import actions

    found = actions.list_all(name)
    if as_json:
        return print_json(found)
    if not any(found.values()):
        raise BagwiseError(f"no estimator, data set or format has {name!r} in its name")
    models = [(row["name"], row["summary"], _trait_words(row["traits"])) for row in found["estimators"]]
    sizes = ("bags", "instances", "features", "labels")
    sets = [
        (row["name"], row["kind"], *(_count(row[size]) for size in sizes), row["status"])
        for row in (found["datasets"] if name else _folded(found["datasets"]))
    ]
    files = [
        (row["name"], " ".join(row["suffixes"]), "yes" if row["writes"] else "no", row["description"])
        for row in found["formats"]
    ]
    tables: list[tuple[list[str], list[Any], str]] = [
        (["estimator", "what it does", "traits"], models, "lll"),
        (["data set", "kind", *sizes, "status"], sets, "llrrrrl"),
        (["format", "suffix", "written", "description"], files, "llll"),
    ]
    filled = [table for table in tables if table[1]]
    for k, (header, rows, align) in enumerate(filled):
        if k:
            say()
        print_table(header, rows, align)


@app.command()
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
    merge: Annotated[
        list[Path] | None, typer.Option(help="Folder of another run whose fits are taken over; repeatable.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run fits again that have failed.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Run nothing; show what there is.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Repeat a paper's experiment and show our figures beside the published ones."""
    from bagwise import actions

    if targets[0] == "list":
        return _show_experiments(actions.list_experiments(targets[1:] or ["all"]), as_json)
    try:
        with progress(f"preparing {' '.join(targets)}") as advance:
            done = actions.reproduce(
                targets,
                out,
                methods=methods,
                datasets=datasets,
                short=short,
                n_jobs=n_jobs,
                retry=retry,
                run=not show,
                page=page,
                summary=summary,
                merge=merge or (),
                step=advance,
            )
    except KeyboardInterrupt:
        typer.echo("stopped; the same command goes on where it was", err=True)
        raise typer.Exit(130) from None
    results = done.pop("results")
    if as_json:
        return print_json(done | {"cells": [row for r in results for row in r.frame().to_pylist()]})
    show_pages(results)
    counts = f"{done['run']} fits run now, {done['known']} known from before, {done['failed']} failed"
    say(f"{counts}; pages in {out / 'pages'} (index.html shows all)")


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


@app.command()
def info(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="A file, a data set, or a model (.skops).", autocompletion=names_of_data
        ),
    ],
    part: Part = None,
    view: View = None,
    format: Format = None,
    option: Options = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Say what a file, a data set or a model holds."""
    from bagwise import actions

    with progress(f"reading {data}"):
        found = actions.info(data, **_where(part, view, format, option))
    if as_json:
        return print_json(found)
    if "model" in found:
        return print_facts(found)
    views = found.pop("views")
    labels = found.pop("labels")
    cardinality = found.pop("cardinality")
    if cardinality is None:
        found["n_labels"] = "none in this file"
    else:
        found["cardinality"] = f"{cardinality:.2f} labels per bag"
    found["parts"] = ", ".join(f"{name} ({count} bags)" for name, count in found["parts"].items())
    print_facts({"data set": found.pop("name"), **found})
    say()
    sides = [
        (v["name"] or "-", v["n_instances"], v["n_features"], v["storage"], _sizes(v), v["empty_bags"])
        for v in views
    ]
    print_table(["view", "instances", "features", "storage", "bag sizes", "empty bags"], sides, "lrrllr")
    rows = [(label["name"], label["bags"], f"{label['share']:.1%}") for label in labels]
    if rows:
        say()
        print_table(["label", "bags", "share"], rows, "lrr")


@app.command()
def convert(
    source: Annotated[
        str,
        typer.Argument(metavar="IN", help="A file, or the name of a data set.", autocompletion=names_of_data),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="OUT",
            help="File to write, the suffix sets the format; a folder (birds/) or an address becomes shards.",
        ),
    ],
    to: Annotated[str | None, typer.Option(help="Format to write, whatever the suffix; or shards.")] = None,
    part_mb: Annotated[float, typer.Option(help="Size of a part of shards, in megabytes of memory.")] = 128.0,
    part: Part = None,
    view: View = None,
    format: Format = None,
    option: Options = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write a data set in another format."""
    from bagwise import actions

    with progress(f"converting {source}"):
        where = _where(part, view, format, option)
        done = actions.convert(source, target, to=to, part_bytes=int(part_mb * 2**20), **where)
    pieces = f" in {done['n_parts']} parts" if "n_parts" in done else ""
    report(done, f"wrote {done['n_bags']} bags, {done['n_instances']} instances to {target}{pieces}", as_json)


@app.command()
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
    part: Part = None,
    view: View = None,
    format: Format = None,
    option: Options = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Fit a model to a data set and save it."""
    from bagwise import actions

    params = assignments(param, "--param")
    with progress(f"fitting {model}") as advance:
        running = _running(cluster, advance, as_json) | {"checkpoint": checkpoint}
        done = actions.fit(data, model, params, out, running=running, **_where(part, view, format, option))
    if done["columns"] and not as_json:
        say(f"columns of {data}: {done['columns']}")
    if done["recipe"] and not as_json:
        say(f"takes raw files as well: {done['recipe']}")
    if not as_json:
        explain(done, partial(typer.echo, err=True))
    words = f"{done['n_bags']} bags, {done['n_instances']} instances, {len(done['labels'])} labels"
    report(done, f"fitted {done['model']} to {words} in {done['seconds']:.1f} s; wrote {out}", as_json)


@app.command()
def predict(
    model: Model,
    data: RawData,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write: .parquet, .csv or .json.")],
    kind: Annotated[
        str | None, typer.Option("--as", metavar="csv|json", help="What to write; by default by the suffix.")
    ] = None,
    n_jobs: Jobs = 1,
    cache: CachePlace = None,
    no_cache: NoCache = False,
    cluster: OnCluster = None,
    part: Part = None,
    view: View = None,
    format: Format = None,
    option: Options = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Predict the labels of bags or raw files; one row each with the labels and all scores."""
    from bagwise import actions

    where = _where(part, view, format, option)
    with raw_files(n_jobs, cache, no_cache, quiet=as_json) as raw:
        running = _running(cluster, raw["step"].advance, as_json)
        done = actions.predict(model, data, out, kind=kind, running=running, **raw, **where)
    report(done, f"wrote the labels of {done['rows']} bags to {out}", as_json)
    _end(done, as_json)


@app.command()
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
    n_jobs: Jobs = 1,
    cache: CachePlace = None,
    no_cache: NoCache = False,
    cluster: OnCluster = None,
    part: Part = None,
    view: View = None,
    format: Format = None,
    option: Options = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Find the label of every instance; one row each, or files for an annotation tool with --as."""
    from bagwise import actions

    where = _where(part, view, format, option)
    style = {"merge": not no_merge, "scores": scores, **({} if address is None else {"address": address})}
    shape: dict[str, Any] = {
        "kind": kind,
        "pictures": pictures,
        "threshold": threshold,
        "originals": originals,
        "style": style,
    }
    with raw_files(n_jobs, cache, no_cache, labels, quiet=as_json) as raw:
        shape |= {"use_labels": use_labels, "proba": proba}
        running = _running(cluster, raw["step"].advance, as_json)
        done = actions.annotate(model, data, out, running=running, **shape, **raw, **where)
    report(done, answer_words(done), as_json)
    _end(done, as_json)


@app.command()
def score(
    model: Model,
    data: RawData,
    labels: Labels = None,
    n_jobs: Jobs = 1,
    cache: CachePlace = None,
    no_cache: NoCache = False,
    cluster: OnCluster = None,
    part: Part = None,
    view: View = None,
    format: Format = None,
    option: Options = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Measure a model on bags whose labels are known."""
    from bagwise import actions

    with raw_files(n_jobs, cache, no_cache, labels, quiet=as_json) as raw:
        running = _running(cluster, raw["step"].advance, as_json)
        found = actions.score(model, data, running=running, **raw, **_where(part, view, format, option))
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


# ---------------------------------------------------------------------- what was typed


def _running(cluster: str | None, advance: Any, quiet: bool) -> dict[str, Any]:
    """How shards are gone over: where, and who is told of parts and of the cluster."""

    def tell(line: str) -> None:
        if not quiet:
            typer.echo(line, err=True)

    return {"cluster": cluster, "step": advance, "say": tell}


def _where(part: Any, view: Any, format: Any, option: list[str] | None) -> dict[str, Any]:
    return {"part": part, "view": view, "format": format, "options": assignments(option, "--option")}


# ---------------------------------------------------------------------- words


def _trait_words(traits: Mapping[str, Any] | None) -> str:
    if traits is None:
        return "those of the estimator inside"
    words = {
        "instance_labels": "needs instance labels",
        "probabilities": "probabilities",
        "sparse": "sparse",
        "views": "several views",
        "sample_weight": "weights",
        "shards": "shards",
    }
    return ", ".join(words[name] for name in words if traits[name])


def _folded(sets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line for sets with a common folder, such as ``newsgroups/*``."""
    folders: dict[str, list[dict[str, Any]]] = {}
    for row in sets:
        folder, slash, _ = row["name"].partition("/")
        folders.setdefault(folder + slash, []).append(row)
    sizes = dict.fromkeys(("bags", "instances", "features", "labels"))
    return [
        rows[0] if len(rows) == 1 else {**rows[0], **sizes, "name": f"{name}*", "kind": f"{len(rows)} sets"}
        for name, rows in folders.items()
    ]


def _count(number: int | None) -> str:
    return "" if number is None else str(number)


def _sizes(view: Mapping[str, Any]) -> str:
    sizes = view["sizes"]
    return f"{sizes['min']} to {sizes['max']}, median {sizes['median']:g}"


def main() -> None:
    """Run the command and exit with its code: 0, 2 for a mistake in the input, 130 when interrupted."""
    app(prog_name="bagwise")
