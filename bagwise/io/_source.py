"""Opening files that may be compressed, hostile or broken, and what every reader checks; one clear error."""

from __future__ import annotations

import csv
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bagwise.bags import first_not_finite
from bagwise.errors import BagwiseError, DataError, quoted
from bagwise.utils.files import check_file

# What a file may grow to when unpacked: a guard against decompression bombs, far above any honest set
# that fits a laptop's memory. Larger data are read with read(path, max_bytes=...).
MAX_BYTES = 8 * 2**30
_CHUNK = 1 << 20
_Function = TypeVar("_Function", bound=Callable[..., Any])


def read_bytes(path: str | Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Content of a file, unpacked if it is gzip, refused beyond ``max_bytes``."""
    path = Path(path)
    check_file(path)
    try:
        with open(path, "rb") as handle:
            head = handle.read(2)
            handle.seek(0)
            if head == b"\x1f\x8b":
                return _gunzip(handle, path, max_bytes)
            # As much as there is: Python reserves what it is asked to read, 8 GiB for a small file.
            size = os.fstat(handle.fileno()).st_size
            content = handle.read(min(size, max_bytes) + 1)
            while len(content) > size and len(content) <= max_bytes:  # it grows, or does not know its size
                size = len(content)
                content += handle.read(min(_CHUNK, max_bytes + 1 - size))
    except FileNotFoundError:
        raise DataError("no such file", path=path) from None
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path=path) from None
    if len(content) > max_bytes:
        raise _too_large(path, max_bytes)
    return content


def _gunzip(handle, path: Path, max_bytes: int) -> bytes:
    parts, total = [], 0
    unpack = zlib.decompressobj(wbits=31)
    try:
        while chunk := handle.read(_CHUNK):
            while chunk:
                part = unpack.decompress(chunk, max(max_bytes + 1 - total, 1))
                total += len(part)
                if total > max_bytes:
                    raise _too_large(path, max_bytes)
                parts.append(part)
                chunk = unpack.unconsumed_tail
                if unpack.eof:  # gzip files may be several members end to end
                    chunk = unpack.unused_data
                    unpack = zlib.decompressobj(wbits=31) if chunk or handle.peek(1) else unpack
                    if unpack.eof:
                        break
    except zlib.error as error:
        raise DataError(f"damaged gzip file ({error})", path=path) from None
    if not unpack.eof:
        raise DataError("truncated gzip file: it ends before its data do", path=path)
    return b"".join(parts)


def _too_large(path: Path, max_bytes: int) -> DataError:
    return DataError(
        f"holds more than {max_bytes:,} bytes when unpacked; if that is right, give a larger max_bytes",
        path=path,
    )


def read_text(path: str | Path, max_bytes: int = MAX_BYTES) -> str:
    """Text of a UTF-8 file; the error names the line that is not."""
    content = read_bytes(path, max_bytes)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"byte {content[error.start]:#04x} is not UTF-8 text; convert the file to UTF-8 first",
            path=path,
            line=line,
        ) from None


def numbered_lines(path: str | Path, max_bytes: int = MAX_BYTES) -> Iterator[tuple[int, str]]:
    """Lines of a text file with their numbers from 1, without line ends; blank lines are left out."""
    for number, line in enumerate(read_text(path, max_bytes).split("\n"), 1):
        if line := line.strip("\r\n "):
            yield number, line


def records(
    lines: Iterable[str],
    delimiter: str,
    path: str | PathLike[str] | None = None,
    longest: int = 0,
    **style: Any,
) -> Iterator[tuple[int, list[str]]]:
    """Line on which each record of delimited text begins, and its fields; blank lines are left out.

    ``longest`` is how many letters a field may have, where that is more than usual: it may be a whole text.
    """
    reader = csv.reader(lines, delimiter=delimiter, **style)
    line = 1
    while True:
        usual = csv.field_size_limit(longest) if longest else 0  # for all readers of the process
        try:
            fields = next(reader, None)
        except csv.Error as error:
            raise DataError(f"cannot be cut into fields ({error})", path=path, line=line) from None
        finally:
            if longest:
                csv.field_size_limit(usual)
        if fields is None:
            return
        if fields:
            yield line, fields
        line = reader.line_num + 1


def delimiter_of(name: str | PathLike[str], first_line: str, marks: str = ",;") -> str:
    """What stands between the cells of a table: a tab if there is one, else the mark that occurs most.

    Examples
    --------
    >>> delimiter_of("a.csv", 'file;"first, second, third";n')
    ';'
    """
    if str(name).lower().endswith((".tsv", ".tab")) or "\t" in first_line:
        return "\t"
    return max(marks, key=re.sub(r'"[^"]*"', "", first_line).count)


def json_lines(text: str, path: str | PathLike[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and object of every line of text with one JSON object per line."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
            raise DataError(f"is not JSON ({reason[:100]})", path=path, line=number) from None
        if not isinstance(row, dict):
            found = f"expected an object {{...}} in every line, found {type(row).__name__}"
            raise DataError(found, path=path, line=number)
        yield number, row


def of_file(function: _Function) -> _Function:
    """Errors of a function name the file that is its first argument, so that within none has to.

    Examples
    --------
    >>> @of_file
    ... def read(path):
    ...     raise DataError("no bags", line=3)
    >>> read("birds.csv")
    Traceback (most recent call last):
    ...
    bagwise.errors.DataError: birds.csv, line 3: no bags
    """

    @wraps(function)
    def named(path: Any, *args: Any, **options: Any) -> Any:
        try:
            return function(path, *args, **options)
        except (DataError, MemoryError, OverflowError) as error:
            raise _placed(error, path) from None

    return named  # type: ignore[return-value]


@contextmanager
def blame(path: str | Path) -> Iterator[None]:
    """Place errors of the containers in the file that caused them."""
    try:
        yield
    except (DataError, MemoryError, OverflowError) as error:
        raise _placed(error, path) from None


def _placed(error: DataError | MemoryError | OverflowError, path: str | Path) -> DataError:
    if isinstance(error, DataError):
        return error.at(path)
    return DataError(f"asks for more memory than there is ({error})", path=path)


# ----------------------------------------------------------------------
# What every reader checks before it hands out a data set: finite numbers and one bag per id


def check_finite(
    X: Any,
    offsets: Any,
    bag_ids: Any,
    path: str | PathLike[str],
    line_of_row: Sequence[int] | np.ndarray | None = None,
    feature_names: Sequence[str] | None = None,
) -> None:
    """Refuse NaN and infinite feature values, naming the bag, the feature and the line, where they are known.

    Examples
    --------
    >>> check_finite(np.ones((3, 2)), [0, 1, 3], ["a", "b"], "birds.csv")
    >>> check_finite(np.array([[1.0], [np.nan]]), [0, 1, 2], ["a", "b"], "birds.csv", line_of_row=[2, 3])
    Traceback (most recent call last):
    ...
    bagwise.errors.DataError: birds.csv, line 3: bag 'b', feature 0 is nan; fill or drop such instances first
    """
    place = first_not_finite(X)
    if place is None:
        return
    row, column = place
    bag = int(np.searchsorted(np.asarray(offsets), row, side="right")) - 1
    name = quoted(bag if bag_ids is None else bag_ids[bag])
    feature = column if feature_names is None else str(feature_names[column])
    raise DataError(
        f"bag {name}, feature {feature!r} is {float(X[row, column])}; fill or drop such instances first",
        path=path,
        line=None if line_of_row is None else int(line_of_row[row]),
    )


def check_unique_ids(
    bag_ids: Any, path: str | PathLike[str], line_of_bag: Sequence[int] | np.ndarray | None = None
) -> None:
    """Refuse a bag id that occurs twice, naming the line where it is known; no ids (None) are no problem.

    Examples
    --------
    >>> check_unique_ids(["a", "b"], "birds.csv")
    >>> check_unique_ids(["a", "b", "a"], "birds.csv", line_of_bag=[1, 4, 9])
    Traceback (most recent call last):
    ...
    bagwise.errors.DataError: birds.csv, line 9: the bag id 'a' occurs twice; ids must be unique
    """
    if bag_ids is None:
        return
    ids = np.asarray(bag_ids).tolist()
    if len(set(ids)) == len(ids):
        return
    seen = set()
    for k, bag_id in enumerate(ids):
        if bag_id in seen:
            raise DataError(
                f"the bag id {bag_id!r} occurs twice; ids must be unique",
                path=path,
                line=None if line_of_bag is None else int(line_of_bag[k]),
            )
        seen.add(bag_id)


def check_size(n_bytes: int, max_bytes: int, path: str | PathLike[str], what: str = "holds") -> None:
    """Refuse what would take more memory than allowed, before the memory is asked for.

    Examples
    --------
    >>> check_size(10, 100, "birds.npz")
    >>> check_size(1000, 100, "birds.npz")
    Traceback (most recent call last):
    ...
    bagwise.errors.DataError: birds.npz: holds 1,000 bytes when unpacked, more than the 100 allowed; ...
    """
    if n_bytes > max_bytes:
        raise DataError(
            f"{what} {n_bytes:,} bytes when unpacked, more than the {max_bytes:,} allowed; "
            "if that is right, read it with a larger max_bytes",
            path=path,
        )


@contextmanager
def damaged(path: str | PathLike[str], what: str) -> Iterator[None]:
    """Turn whatever a library raises over a damaged file into one error that names the file.

    Examples
    --------
    >>> with damaged("birds.npz", "an npz file"):
    ...     raise KeyError("offsets")
    Traceback (most recent call last):
    ...
    bagwise.errors.DataError: birds.npz: not an npz file, or damaged (KeyError: 'offsets')
    """
    try:
        yield
    except DataError as error:
        raise error.at(path) from None
    except BagwiseError:
        raise
    except Exception as error:  # what a parser raises over hostile bytes is nobody's contract
        reason = f"{type(error).__name__}: {error}"[:300].replace("\n", " ")
        raise DataError(f"not {what}, or damaged ({reason})", path=path) from error
