"""The command ``bagwise``: the verbs of `bagwise.actions` with options, tables and errors of one line.

Here is what all commands share; each other file adds those of one kind. The actions, and with them
scikit-learn, numba and matplotlib, are imported when a command runs, so that ``bagwise --help`` answers at
once.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bagwise.cli.completion import names_of_data
from bagwise.cli.console import Commands
from bagwise.cli.typed import assignments
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
PartSize = Annotated[
    float, typer.Option("--part-mb", help="Size of a part of shards, in megabytes of memory.")
]
Packed = Annotated[
    bool, typer.Option("--packed", help="Pack shards (lz4): less room on disk, slower to read.")
]
Where = dict[str, Any]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Debug = Annotated[bool, typer.Option("--debug", "--verbose", help="Show the traceback of an error.")]


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


def where_to_look(
    part: Annotated[
        str | None, typer.Option(help="Only this part of the data set, such as train or test.")
    ] = None,
    view: Annotated[str | None, typer.Option(help="Only this view of several.")] = None,
    format: Annotated[
        str | None, typer.Option("--format", help="Format of the file; recognised by default.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-O", metavar="NAME=VALUE", help="Option of the reader or the set; repeatable."
        ),
    ] = None,
) -> Where:
    """What names the data to read, as the actions take it: options that `takes` puts into commands."""
    return {"part": part, "view": view, "format": format, "options": assignments(option, "--option")}


def main() -> None:
    """Run the command and exit with its code: 0, 2 for a mistake in the input, 130 when interrupted."""
    app(prog_name="bagwise")
