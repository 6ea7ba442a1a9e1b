"""The command ``bagwise``: the verbs of `bagwise.actions` with options, tables and errors of one line.

Here is what all commands share; each other file adds those of one kind. The actions, and with them
scikit-learn, numba and matplotlib, are imported when a command runs, so that ``bagwise --help`` answers at
once.
"""

from __future__ import annotations

import inspect
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import bagwise
from bagwise.cli.typed import assignments, in_options, names_of_data
from bagwise.errors import BagwiseError
from bagwise.utils.tables import table
from bagwise.utils.version import __version__

# ---------------------------------------------------------------------- mistakes in one line


_INTERRUPTED, _BROKEN_PIPE = 130, 141  # what a shell reports for the signals INT and PIPE


class _MistakesInOneLine:
    """Turns what goes wrong into one line on standard error and an exit code."""

    def main(self, *args: Any, **more: Any) -> Any:
        """Run a command; exit with its code, or return it if not ``standalone_mode``."""
        standalone = more.get("standalone_mode", True)
        more["standalone_mode"] = False
        # Looked up by hand, because some mistakes come before any option is parsed.
        typed = args[0] if args else more.get("args")
        debug = not {"--debug", "--verbose"}.isdisjoint(sys.argv[1:] if typed is None else typed)
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")  # an arrow must not stop a terminal without arrows
        code = 0
        try:
            with warnings.catch_warnings():
                # one line, without the place in the code that gave it
                warnings.showwarning = lambda message, *_, **__: say_aside(
                    f"warning: {in_options(' '.join(str(message).split()))}"
                )
                code = super().main(*args, **more) or 0  # type: ignore[misc]
            sys.stdout.flush()
        except BrokenPipeError:
            _hush()
            code = _BROKEN_PIPE
        except typer.Abort:
            say_aside("interrupted")
            code = _INTERRUPTED
        except Exception as error:
            message = _user_mistake(error)
            if message is None:
                raise  # a fault of bagwise: the traceback is what a report needs
            if debug:
                traceback.print_exc()
            say_aside(f"error: {message}")
            code = 2
        if standalone:
            sys.exit(code)
        return code

    def invoke(self, ctx: Any) -> Any:
        """Run a command within its context, where typer would treat these two its own way."""
        try:
            return super().invoke(ctx)  # type: ignore[misc]
        except KeyboardInterrupt:
            say_aside("interrupted")
            raise typer.Exit(_INTERRUPTED) from None
        except BrokenPipeError:
            _hush()
            raise typer.Exit(_BROKEN_PIPE) from None


class Commands(_MistakesInOneLine, TyperGroup):
    """Several commands under one name."""


class Command(_MistakesInOneLine, TyperCommand):
    """A command on its own."""


def _user_mistake(error: Exception) -> str | None:
    """One line for what a user can put right, None for what only a programmer can."""
    if hasattr(error, "format_message"):  # typer's own: a missing argument, an unknown option
        return " ".join(error.format_message().split())
    if isinstance(error, BagwiseError):
        return in_options(" ".join(str(error).split()))
    if isinstance(error, OSError):
        where = "" if error.filename is None else f"{error.filename}: "
        return " ".join(f"{where}{error.strerror or error}".split())
    if isinstance(error, MemoryError):
        return f"not enough memory {error}".strip()
    return None


def _hush() -> None:
    """Keep Python from flushing, at its end, into a pipe that nobody reads."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# ---------------------------------------------------------------------- the application


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


# ---------------------------------------------------------------------- how the command line speaks


def say(line: str = "") -> None:
    """A paragraph, broken at the width of a terminal; in a pipe one line."""
    if sys.stdout.isatty():
        rich_console().print(line, markup=False, highlight=False)
    else:
        typer.echo(line)


def say_aside(line: str) -> None:
    """A line beside the result, on standard error."""
    typer.echo(line, err=True)


def say_nothing(line: str) -> None:
    """Where nobody wants to hear it."""


def print_table(header: list[str], rows: Any, align: str | None = None) -> None:
    """Cells under a header."""
    cells = [[str(cell) for cell in row] for row in rows]
    show_table(partial(table, header, cells, align=align))


def show_table(make: Callable[..., Any], **narrow: Any) -> None:
    """A table that fits the terminal, or plain text of whatever width in a pipe.

    ``make(style=...)`` makes it; ``narrow`` are further arguments for when the terminal is too narrow.
    """
    if not sys.stdout.isatty():
        typer.echo(make(style="text"))
        return
    terminal = rich_console()
    made = make(style="rich")
    needed = terminal.measure(made, options=terminal.options.update(width=1000)).maximum
    if narrow and needed > terminal.width:
        made = make(style="rich", **narrow)
    terminal.print(made)


def rich_console() -> Any:
    """The terminal, as rich draws on it."""
    from rich.console import Console  # pipes do without

    return Console()


def print_json(result: Any) -> None:
    """JSON and nothing else."""
    typer.echo(bagwise.report.as_json(result))


def print_done(result: dict[str, Any], sentence: str, as_json: bool) -> None:
    """What was done, as a sentence or as JSON."""
    print_json(result) if as_json else say(sentence)


def print_facts(facts: Mapping[str, Any]) -> None:
    """Two columns, what and how much; what is empty or unknown is left out."""
    known = {name: value for name, value in facts.items() if value not in (None, "", [], {})}
    rows = []
    for name, value in known.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{k}={v}" for k, v in value.items())
        elif isinstance(value, (list, tuple)):
            value = ", ".join(map(str, value))
        rows.append((name.removeprefix("n_").replace("_", " "), value))
    print_table(list(rows[0]), rows[1:])
