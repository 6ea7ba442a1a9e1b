"""Errors that bagwise raises on purpose; each is also the built-in type that a caller would expect."""

from __future__ import annotations

from os import PathLike
from typing import Any


def quoted(value: Any) -> str:
    """Show a bag id or label in a message as a person wrote it, not as NumPy keeps it.

    Examples
    --------
    >>> import numpy as np
    >>> quoted(np.str_("wren")), quoted(np.int64(3))
    ("'wren'", '3')
    """
    return repr(value.item() if hasattr(value, "item") else value)


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
        return (_rebuild_data_error, (type(self), self.message, self.path, self.line))

    def at(self, path: str | PathLike[str], line: int | None = None) -> DataError:
        """Return the same error, placed in a file, unless it already knows its place."""
        if self.path is not None:
            return self
        return type(self)(self.message, path=path, line=self.line if self.line is not None else line)


def _rebuild_data_error(cls, message, path, line):
    return cls(message, path=path, line=line)


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
