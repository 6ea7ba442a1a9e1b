"""``bagwise gather``: a data set from folders of recordings, pictures, documents or embeddings."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bagwise.cli.app import AsJson, Debug, Packed, PartSize, app
from bagwise.cli.console import print_json, say
from bagwise.cli.raw import CachePlace, Jobs, Labels, NoCache, explain, leave, raw_files
from bagwise.cli.typed import assignments


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
    from bagwise import actions
    from bagwise.shards import is_shards

    params, options = assignments(param, "--param"), assignments(option, "--option")
    try:
        with raw_files(n_jobs, cache, no_cache, quiet=as_json) as raw:
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
        kept = is_shards(out)
        advice = "" if no_cache and not kept else "; the same command goes on where it was"
        typer.echo(f"stopped, {'not all' if kept else 'nothing'} written{advice}", err=True)
        raise typer.Exit(130) from None
    if as_json:
        print_json(done)
        return leave(done)
    sizes = f"{done['n_bags']} bags, {done['n_instances']} instances, {done['n_features']} features"
    known = f", {len(done['labels'])} labels" if done["labels"] else ", no labels"
    parts = f" in {done['n_parts']} parts" if "n_parts" in done else ""
    say(f"{done['recipe']}: {sizes}{known}; wrote {out}{parts}")
    explain(done, partial(typer.echo, err=True))
    leave(done)
