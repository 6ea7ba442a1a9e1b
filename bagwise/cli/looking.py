"""``bagwise look``: a page in the browser to look, correct and learn again."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from bagwise import actions, look
from bagwise.cli.command import Debug, Where, app, say, takes, where_to_look
from bagwise.cli.typed import names_of_data
from bagwise.errors import BagwiseError
from bagwise.utils.progress import progress


@app.command(name="look")
@takes(where=where_to_look)
def look_(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] DATA",
            help="A model file, if there is one, and a file, a folder of originals or a data set.",
            autocompletion=names_of_data,
        ),
    ],
    corrections: Annotated[
        Path | None, typer.Option(help="File of corrections; by default corrections.jsonl beside the data.")
    ] = None,
    author: Annotated[str | None, typer.Option(help="Who corrects; by default who is logged in.")] = None,
    originals: Annotated[
        Path | None, typer.Option(help="Folder of the originals; by default that of the data.")
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="Labels of raw files, as for gather.")] = None,
    train: Annotated[
        str | None,
        typer.Option(help="Data that the model was fitted to; learning again uses them as well."),
    ] = None,
    static: Annotated[
        Path | None, typer.Option(help="Write one page for reading that needs no server, and end.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Bags on that page, the most uncertain ones.")] = 200,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    *,
    where: Where,
    debug: Debug = False,
) -> None:
    """Open a page to look at bags and parts, correct them and learn again; Ctrl-C ends it."""
    if len(targets) > 2 or (len(targets) == 1 and targets[0].lower().endswith(".skops")):
        raise BagwiseError(f"look takes MODEL DATA, or DATA alone; got {' '.join(targets)}")
    # what the page needs and where it goes is asked before the data are read
    if static is None:
        serve = look.serve
    else:
        actions.check_target(static)
    *model, data = targets
    with progress(f"opening {data}") as advance:
        session = look.open_session(
            data,
            model[0] if model else None,
            corrections=corrections,
            author=author,
            originals=originals,
            labels=labels,
            step=advance,
            **where,
        )
    if static is not None:
        with progress("writing the page"):
            done = look.write_page(session, static, limit=limit)
        return say(f"wrote {done['n_bags']} bags to {static}, {done['bytes'] / 2**20:.1f} MB")

    def ready(address: str) -> None:
        say(f"looking at {data}: {address}")
        say(f"corrections go to {session.corrections.path}; Ctrl-C ends")
        sys.stdout.flush()
        if browser and sys.stdout.isatty():
            webbrowser.open(address)

    serve(session, port=port, train=train, ready=ready)
