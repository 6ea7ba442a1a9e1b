"""Small parts of the readers: bounded text, JSON and XML in; numbers, times and names checked by line."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import numpy as np

from bagwise.errors import DataError
from bagwise.io._source import read_bytes
from bagwise.media.labels.span import Rings

MAX_BYTES = 1 << 30  # a file of labels may hold this many bytes, unpacked
_LARGEST = 1e12  # seconds, Hz or pixels: far beyond any file
NOTHING = {"", "nocall", "nan", "none", "null", "n/a", "na", "????"}  # no label, in one tool or another


def text_of(path: Path, max_bytes: int = MAX_BYTES) -> str:
    """Text of a file in UTF-8, or in UTF-16 with its mark, with the line ends of Unix."""
    content = read_bytes(path, max_bytes)
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        try:
            text = content.decode("utf-16")
        except UnicodeDecodeError:
            raise DataError(
                "begins like UTF-16 text, but is not; convert it to UTF-8 first", path=path
            ) from None
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            found = f"byte {content[error.start]:#04x} is not UTF-8 text"
            raise DataError(f"{found}; save the file as UTF-8 first", path=path, line=line) from None
    if "\0" in text[:4096]:
        raise DataError("holds zero bytes, so it is no text", path=path)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def json_of(path: Path, text: str | None = None, line: int | None = None) -> Any:
    """What a JSON file holds."""
    try:
        return json.loads(text_of(path) if text is None else text)
    except json.JSONDecodeError as error:
        raise DataError(f"no JSON: {error.msg}", path=path, line=line or error.lineno) from None
    except RecursionError:
        raise DataError("JSON with too many levels", path=path, line=line) from None
    except ValueError as error:  # a number with thousands of digits
        raise DataError(f"no JSON: {error}", path=path, line=line) from None


def xml_of(path: Path, content: bytes | None = None) -> ElementTree.Element:
    """Root of an XML file; one that declares entities is refused, since they can grow without bound."""
    content = read_bytes(path, MAX_BYTES) if content is None else content
    # read as the parser would: the marks of a declaration are ASCII in UTF-8, and UTF-16 has zeros between
    if re.search(rb"<!(DOCTYPE|ENTITY)", content.replace(b"\0", b"")):
        raise DataError("XML with a DOCTYPE, which files of labels do not need; remove it", path=path)
    try:
        return ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        raise DataError(f"no XML: {error}", path=path, line=error.position[0]) from None
    except (ValueError, LookupError, RecursionError) as error:
        raise DataError(f"no XML: {error}", path=path) from None


class Node:
    """A value inside a JSON file that knows where it is, so that errors can say it."""

    __slots__ = ("line", "path", "value", "where")

    def __init__(self, value: Any, path: Path, where: str = "", line: int | None = None) -> None:
        self.value, self.path, self.where, self.line = value, path, where, line

    def wrong(self, problem: str) -> DataError:
        """The error for this value."""
        place = f"{self.where}: " if self.where else ""
        return DataError(f"{place}{problem}", path=self.path, line=self.line)

    def _expect(self, kind: type | tuple[type, ...], words: str) -> Any:
        if not isinstance(self.value, kind) or (isinstance(self.value, bool) and kind is not bool):
            raise self.wrong(f"expected {words}, found {shown(self.value)}")
        return self.value

    def __getitem__(self, key: str) -> Node:
        if key not in self._expect(dict, "an object"):
            raise self.wrong(f"no {key!r}; its keys: {', '.join(map(str, list(self.value)[:8])) or 'none'}")
        return self._inner(key)

    def get(self, key: str) -> Node | None:
        """The value under a key; None if there is none, or null."""
        value = self._expect(dict, "an object").get(key)
        return None if value is None else self._inner(key)

    def _inner(self, key: str) -> Node:
        return Node(self.value[key], self.path, f"{self.where}.{key}" if self.where else key, self.line)

    def items(self) -> Iterator[Node]:
        """Values of a list."""
        for k, value in enumerate(self._expect(list, "a list")):
            yield Node(value, self.path, f"{self.where}[{k}]", self.line)

    def each(self, key: str) -> Iterator[Node]:
        """Values of the list under a key; none if there is no such key, or null."""
        node = self.get(key)
        return iter(()) if node is None else node.items()

    def pairs(self) -> Iterator[tuple[str, Node]]:
        """Keys and values of an object."""
        for key in self._expect(dict, "an object"):
            yield key, self._inner(key)

    def text(self) -> str:
        """A text, or a whole number as text."""
        return str(self._expect((str, int), "a text")).strip()

    def number(self) -> float:
        """A finite number."""
        return finite(self._expect((int, float), "a number"), self)

    def numbers(self) -> list[float]:
        """A list of finite numbers; each is looked at alone only if one of them is wrong."""
        given = self._expect(list, "a list")
        if all(type(v) in (int, float) and -_LARGEST <= v <= _LARGEST for v in given):
            return [float(v) for v in given]
        return [n.number() for n in self.items()]

    def points(self) -> np.ndarray:
        """A list of pairs of numbers, as an array (n, 2); QuPath may add a third."""
        pairs = []
        for point in self.items():
            values = point.numbers()
            if len(values) < 2:
                raise point.wrong("expected a point [x, y]")
            pairs.append(values[:2])
        return np.array(pairs, dtype=np.float64).reshape(-1, 2)


def finite(value: Any, node: Node) -> float:
    """A number that is neither NaN nor beyond any measure."""
    try:
        number = float(value)
    except (OverflowError, ValueError, TypeError):
        raise node.wrong(f"expected a number, found {shown(value)}") from None
    if not abs(number) <= _LARGEST:
        raise node.wrong(f"expected a finite number, found {shown(value)}")
    return number


def shown(value: Any) -> str:
    """A value in a message, cut short."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    text = repr(value) if not isinstance(value, int) or abs(value) < 1e30 else "a huge number"
    return text if len(text) <= 40 else f"{text[:40]}..."


def number_in(text: str, what: str, path: Path, line: int | None) -> float:
    """A number that stands in a cell."""
    try:
        value = float(text)
    except ValueError:
        hint = "; write decimals with a dot" if re.fullmatch(r"\s*-?\d+,\d+\s*", text) else ""
        raise DataError(
            f"{what}: expected a number, found {shown(text)}{hint}", path=path, line=line
        ) from None
    if not abs(value) <= _LARGEST:
        raise DataError(f"{what}: expected a finite number, found {shown(text)}", path=path, line=line)
    return value


def check_order(first: float, last: float, what: str, path: Path, line: int | None = None) -> None:
    """Refuse a span that ends before it begins."""
    if last < first:
        raise DataError(f"{what} ends at {last:g}, before it begins at {first:g}", path=path, line=line)


def split_labels(cell: str, separator: str | None) -> list[str]:
    """Labels in one cell: a Python or JSON list, or names with a separator; empty names are left out.

    Examples
    --------
    >>> split_labels("wren; robin", ";"), split_labels("['a', 'b, c', '']", None)
    (['wren', 'robin'], ['a', 'b, c'])
    """
    cell = cell.strip()
    parts: Sequence[Any]
    if cell[:1] == "[" and cell[-1:] == "]":
        try:
            parts = ast.literal_eval(cell)
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            parts = cell[1:-1].split(",")
        if not isinstance(parts, list):
            parts = [cell]
    else:
        parts = [cell] if separator is None else cell.split() if separator == " " else cell.split(separator)
    names = [str(part).strip() for part in parts]
    return [name for name in names if name.lower() not in NOTHING]


def is_label(text: str) -> bool:
    """Whether a cell names a label, not that there is none."""
    return text.strip().lower() not in NOTHING


def plain_name(name: str) -> str:
    r"""The name of a file in whatever form a tool wrote it: URL, Windows path, path with a leading dot.

    Examples
    --------
    >>> plain_name("C:\\data\\a.wav"), plain_name("/data/local-files/?d=birds/a%20b.wav")
    ('C:/data/a.wav', 'birds/a b.wav')
    """
    name = name.strip().replace("\\", "/")
    if "local-files/?d=" in name:
        name = unquote(name.split("local-files/?d=", 1)[1])
    elif re.match(r"[a-z][a-z0-9+]+://", name, re.IGNORECASE):
        try:
            parts = urlsplit(name)
            name = unquote(parts.path) or parts.netloc
        except ValueError:
            pass
    while name.startswith("./"):
        name = name[2:]
    return name.rstrip("/") if len(name) > 1 else name


def beside(path: Path, root: Path | None, endings: Sequence[str] = ()) -> str:
    """The file that a file of labels is named after: ``x/a`` of ``x/a.Table.1.selections.txt``."""
    relative = path.name if root is None else PurePosixPath(path.relative_to(root)).as_posix()
    lower = relative.lower()
    for ending in endings:
        found = re.search(ending, lower)
        if found and found.start():
            return relative[: found.start()]
    return relative[: len(relative) - len(path.suffix)]


def polygon(points: np.ndarray, node: Node) -> Rings:
    """One ring of at least three points."""
    if len(points) < 3:
        raise node.wrong(f"a polygon needs three points, found {len(points)}")
    return [points]
