"""How the command line speaks: tables for terminals, plain text for pipes, one line for an error."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

import bagwise
from bagwise.cli.typed import in_options
from bagwise.errors import BagwiseError
from bagwise.utils.tables import table

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
                warnings.showwarning = _warn
                code = super().main(*args, **more) or 0  # type: ignore[misc]
            sys.stdout.flush()
        except BrokenPipeError:
            _hush()
            code = _BROKEN_PIPE
        except typer.Abort:
            code = _say("interrupted", _INTERRUPTED)
        except Exception as error:
            message = _user_mistake(error)
            if message is None:
                raise  # a fault of bagwise: the traceback is what a report needs
            if debug:
                traceback.print_exc()
            code = _say(f"error: {message}", 2)
        if standalone:
            sys.exit(code)
        return code

    def invoke(self, ctx: Any) -> Any:
        """Run a command within its context, where typer would treat these two its own way."""
        try:
            return super().invoke(ctx)  # type: ignore[misc]
        except KeyboardInterrupt:
            raise typer.Exit(_say("interrupted", _INTERRUPTED)) from None
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


def _say(line: str, code: int) -> int:
    typer.echo(line, err=True)
    return code


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning in one line, without the place in the code that gave it."""
    _say(f"warning: {in_options(' '.join(str(message).split()))}", 0)


def _hush() -> None:
    """Keep Python from flushing, at its end, into a pipe that nobody reads."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
    rows = [(name.removeprefix("n_").replace("_", " "), _words(value)) for name, value in known.items()]
    print_table(list(rows[0]), rows[1:])


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={v}" for k, v in value.items())
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def answer_words(done: Mapping[str, Any]) -> str:
    """What annotate wrote, in one line."""
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
    return words
