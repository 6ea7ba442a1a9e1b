"""Commands that show what there is: demo, list, info and convert."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import bagwise
from bagwise import actions
from bagwise.cli.command import (
    AsJson,
    Debug,
    Packed,
    PartSize,
    Where,
    app,
    print_done,
    print_facts,
    print_json,
    print_table,
    say,
    show_table,
    takes,
    where_to_look,
)
from bagwise.cli.typed import names_of_data
from bagwise.errors import BagwiseError
from bagwise.utils.progress import progress


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
    with progress("starting") as advance:
        result = actions.demo(out, n_bags=n_bags, seed=seed, step=advance)
    if as_json:
        return print_json(result)
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
    show_table(partial(bagwise.report.comparison_table, result["rows"]), transpose=True)
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
    found = actions.list_all(name)
    if as_json:
        return print_json(found)
    if not any(found.values()):
        raise BagwiseError(f"no estimator, data set or format has {name!r} in its name")
    models = [(row["name"], row["summary"], _trait_words(row["traits"])) for row in found["estimators"]]
    sizes = ("bags", "instances", "features", "labels")
    sets = [
        (row["name"], row["kind"], *("" if row[s] is None else row[s] for s in sizes), row["status"])
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
@takes(where=where_to_look)
def info(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="A file, a data set, or a model (.skops).", autocompletion=names_of_data
        ),
    ],
    *,
    where: Where,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Say what a file, a data set or a model holds."""
    with progress(f"reading {data}"):
        found = actions.info(data, **where)
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
    sides = []
    for view in views:
        spread = "{min} to {max}, median {median:g}".format(**view["sizes"])
        kept = (view["n_instances"], view["n_features"], view["storage"], spread, view["empty_bags"])
        sides.append((view["name"] or "-", *kept))
    print_table(["view", "instances", "features", "storage", "bag sizes", "empty bags"], sides, "lrrllr")
    rows = [(label["name"], label["bags"], f"{label['share']:.1%}") for label in labels]
    if rows:
        say()
        print_table(["label", "bags", "share"], rows, "lrr")


@app.command()
@takes(where=where_to_look)
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
    part_mb: PartSize = 128.0,
    packed: Packed = False,
    *,
    where: Where,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write a data set in another format."""
    with progress(f"converting {source}") as advance:
        size = int(part_mb * 2**20)
        done = actions.convert(
            source, target, to=to, part_bytes=size, packed=packed, advance=advance, **where
        )
    pieces = f" in {done['n_parts']} parts" if "n_parts" in done else ""
    print_done(
        done, f"wrote {done['n_bags']} bags, {done['n_instances']} instances to {target}{pieces}", as_json
    )


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
    found = [words[name] for name in words if traits[name]]
    return ", ".join([*found, "GPU"] if "cuda" in traits["device"] else found)


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
