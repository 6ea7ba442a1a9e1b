"""Errors that bagwise raises on purpose; each is also the built-in type that a caller would expect."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from os import PathLike
from typing import Any

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn of the first line outside bagwise that led here: that is where a user can change something."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def quoted(value: Any) -> str:
    """Show a bag id or label in a message as a person wrote it, not as NumPy keeps it.

    Examples
    --------
    >>> import numpy as np
    >>> quoted(np.str_("wren")), quoted(np.int64(3))
    ("'wren'", '3')
    """
    return repr(value.item() if hasattr(value, "item") else value)


def listed(
    items: Iterable[Any], most: int = 8, *, show: Callable[[Any], str] = str, also: str = "more"
) -> str:
    """The first few of many names, and how many more there are.

    Examples
    --------
    >>> listed("abcd", most=2), listed([7, "b"], show=quoted), listed("abc", most=2, also="other labels")
    ('a, b and 2 more', "7, 'b'", 'a, b and 1 other labels')
    """
    names = list(items)
    more = f" and {len(names) - most} {also}" if len(names) > most else ""
    return ", ".join(map(show, names[:most])) + more


def in_one_line(what: object, most: int = 200, *, named: bool = False) -> str:
    r"""Words, or what an error says, in one line of at most so many letters.

    An error that says nothing is called by its kind, one that is to be ``named`` in any case.

    Examples
    --------
    >>> in_one_line(ValueError("no\n thing")), in_one_line(KeyError(3), named=True), in_one_line("aaaa", 3)
    ('no thing', 'KeyError: 3', 'aaa...')
    """
    kind = type(what).__name__
    words = " ".join((f"{kind}: {what}" if named else str(what)).split()) or kind
    return words if len(words) <= most else f"{words[:most]}..."


class BagwiseError(Exception):
    """Anything that bagwise refuses to do; the message says what was expected, what came, and what to do."""


class DataError(BagwiseError, ValueError):
    """Data that cannot be what they claim to be.

    Parameters
    ----------
    message : str
        What is wrong and, where known, what to do.
    path : path, optional
        The file at fault.
    line : int, optional
        Line of that file, counted from 1.

    Examples
    --------
    >>> print(DataError("expected 4 columns, found 3", path="birds.csv", line=17))
    birds.csv, line 17: expected 4 columns, found 3
    """

    def __init__(
        self, message: str, *, path: str | PathLike[str] | None = None, line: int | None = None
    ) -> None:
        self.message = message
        self.path = None if path is None else str(path)
        self.line = line
        place = "" if path is None else str(path)
        if line is not None:
            place = f"{place}, line {line}" if place else f"line {line}"
        super().__init__(f"{place}: {message}" if place else message)

    def __reduce__(self):  # keyword arguments survive pickling between worker processes
        return partial(type(self), path=self.path, line=self.line), (self.message,)

    def at(self, path: str | PathLike[str], line: int | None = None) -> DataError:
        """Return the same error, placed in a file, unless it already knows its place."""
        if self.path is not None:
            return self
        return type(self)(self.message, path=path, line=self.line if self.line is not None else line)


class DataWarning(UserWarning):
    """Data were taken in a way that may not be meant, or not all could be kept; the message says what."""


class StorageError(BagwiseError, OSError):
    """A file could not be written: the disk is full, or the place is not to be written to."""


class DownloadError(BagwiseError, OSError):
    """A public data set could not be fetched, or what came is not what was published."""


class UnsafeFileError(BagwiseError, ValueError):
    """A model file that holds types which bagwise will not bring to life."""


class OptionalDependencyError(BagwiseError, ImportError):
    """A feature needs a package that is not installed."""


def optional(module: str, advice: str) -> Any:
    """Import a library that not everybody has; where it is missing, the error says how to get it.

    Examples
    --------
    >>> optional("a_library", "this needs a library: pip install a_library")
    Traceback (most recent call last):
    ...
    bagwise.errors.OptionalDependencyError: this needs a library: pip install a_library
    """
    try:
        return import_module(module)
    except (ImportError, OSError):  # OSError: the package is there, what it is made of is not
        raise OptionalDependencyError(advice) from None
