"""The command ``bagwise``: the verbs of `bagwise.actions` with options, tables and errors of one line.

Here is what all commands share; each other file adds those of one kind. The actions, and with them
scikit-learn, numba and matplotlib, are imported when a command runs, so that ``bagwise --help`` answers at
once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from bagwise.cli.console import Commands
from bagwise.cli.typed import assignments, names_of_data
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


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    debug: Debug = False,
) -> None:
    if version:
        typer.echo(f"bagwise {__version__}")
        raise typer.Exit
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


# ---------------------------------------------------------------------- options of several commands


def takes(**groups: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Put the parameters of functions into a command, which gets what each returns, under its name.

    Examples
    --------
    >>> def size(width: int = 2, height: int = 3):
    ...     return width * height
    >>> @takes(area=size)
    ... def show(name: str, *, area: int, loud: bool = False):
    ...     print(name, area, loud)
    >>> inspect.signature(show)
    <Signature (*, name: str, width: int = 2, height: int = 3, loud: bool = False)>
    >>> show(name="room", height=5)
    room 10 False
    """
    inner = {name: _parameters(function) for name, function in groups.items()}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            for name, function in groups.items():
                given[name] = function(**{p.name: given.pop(p.name) for p in inner[name] if p.name in given})
            return command(**given)

        flat = [one for own in _parameters(command) for one in inner.get(own.name, [own])]
        run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in flat}
        return run

    return decorate


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    found = inspect.signature(function, eval_str=True).parameters.values()
    return [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in found]
