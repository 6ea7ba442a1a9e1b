"""``bagwise gather``, and what it shares with verbs on raw files: options, a bar, files that gave nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import bagwise
from bagwise import actions
from bagwise.cli.command import AsJson, Debug, Packed, PartSize, app, print_done, say_aside, say_nothing
from bagwise.cli.typed import assignments
from bagwise.utils.progress import progress

Jobs = Annotated[int, typer.Option("--n-jobs", "-j", help="Raw files read at the same time; -1: all cores.")]
CachePlace = Annotated[
    Path | None,
    typer.Option("--cache", help="Folder for what was read before; by default the user's cache folder."),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Keep nothing of what is read.")]
Labels = Annotated[
    str | None,
    typer.Option(
        "--labels", "-l", help="Labels of the raw files: a table, Raven, Audacity, COCO, ...; or: folders."
    ),
]
OnCluster = Annotated[
    str | None,
    typer.Option("--cluster", metavar="ADDRESS|local:N", help="Shards: go over the parts on a Dask cluster."),
]
Raw = Callable[..., AbstractContextManager[dict[str, Any]]]
SOME_UNREADABLE = 1  # exit code when the rest was done
_NAMED = 20  # files of a kind that are listed


@contextmanager
def raw_files(
    n_jobs: int,
    cache: Path | None,
    no_cache: bool,
    cluster: str | None = None,
    *,
    labels: str | None = None,
    quiet: bool = False,
) -> Iterator[dict[str, Any]]:
    """Arguments of an action for raw files and shards, with a bar over the files or over the parts."""
    say = say_nothing if quiet else say_aside
    place: Any = False if no_cache else True if cache is None else cache
    with progress("looking for files") as advance:

        def step(steps: int, name: str, total: int) -> None:
            advance(steps, name if len(name) <= 40 else f"...{name[-37:]}", total)

        found: dict[str, Any] = {"n_jobs": n_jobs, "cache": place, "say": say, "step": step}
        found["running"] = {"cluster": cluster, "step": advance, "say": say}
        yield found if labels is None else found | {"labels": labels}


def raw_options(
    n_jobs: Jobs = 1, cache: CachePlace = None, no_cache: NoCache = False, cluster: OnCluster = None
) -> Raw:
    """Options of commands that answer for raw files or shards, which open `raw_files` with them."""
    return partial(raw_files, n_jobs, cache, no_cache, cluster)


def end(done: dict[str, Any], as_json: bool) -> None:
    """List what was left out, and why; with a code of its own if files could not be read."""
    reasons = [f"{path}: {reason}" for path, reason in done.get("unreadable") or ()]
    titles = {
        "without labels, left out": done.get("without_labels"),
        "with labels, but not there": done.get("without_files"),
        "in which nothing was found": done.get("empty"),
        "could not be read": reasons,
    }
    for title, names in titles.items():
        if as_json or not names:
            continue
        say_aside(f"{len(names)} {'file' if len(names) == 1 else 'files'} {title}:")
        for name in names[:_NAMED]:
            say_aside(f"  {name}")
        if len(names) > _NAMED:
            say_aside(f"  and {len(names) - _NAMED} more (--json lists all)")
    if reasons:
        raise typer.Exit(SOME_UNREADABLE)


@app.command()
def gather(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER ...", help="Folders of files, or files.", show_default=False),
    ],
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            help="Data set to write, by convention .parquet, which keeps all; a folder (birds/): shards.",
        ),
    ],
    labels: Labels = None,
    medium: Annotated[
        str | None,
        typer.Option(help="audio, image, text or embeddings; by default what nearly all files are."),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param", "-p", "-P", metavar="NAME=VALUE", help="How to cut and describe; repeatable."
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-O",
            metavar="NAME=VALUE",
            help="How to read the labels: file_column, label_columns, separator; repeatable.",
        ),
    ] = None,
    n_jobs: Jobs = 1,
    part_mb: PartSize = 128.0,
    packed: Packed = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Stop at the first file that cannot be read or has no labels."),
    ] = False,
    cache: CachePlace = None,
    no_cache: NoCache = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Make a data set from recordings, pictures, documents or embeddings of slides.

    Files that cannot be read are named at the end, with the reason; the rest goes through, and the exit code
    is 1. What was read is kept, so that a stopped run goes on where it was and a new file costs only itself.
    """
    params, options = assignments(param, "--param"), assignments(option, "--option")
    try:
        with raw_files(n_jobs, cache, no_cache, quiet=as_json) as raw:
            del raw["running"]  # shards are written here, not read
            done = actions.gather(
                folders,
                out,
                labels,
                medium=medium,
                params=params,
                strict=strict,
                options=options,
                part_bytes=int(part_mb * 2**20),
                packed=packed,
                **raw,
            )
    except KeyboardInterrupt:
        kept = bagwise.shards.is_shards(out)
        advice = "" if no_cache and not kept else "; the same command goes on where it was"
        typer.echo(f"stopped, {'not all' if kept else 'nothing'} written{advice}", err=True)
        raise typer.Exit(130) from None
    sizes = f"{done['n_bags']} bags, {done['n_instances']} instances, {done['n_features']} features"
    known = f", {len(done['labels'])} labels" if done["labels"] else ", no labels"
    parts = f" in {done['n_parts']} parts" if "n_parts" in done else ""
    print_done(done, f"{done['recipe']}: {sizes}{known}; wrote {out}{parts}", as_json)
    end(done, as_json)
