"""The grammar of ARFF that its readers share, and the label list that may lie beside such a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from xml.parsers import expat

from bagwise.errors import DataError
from bagwise.io._source import MAX_BYTES, numbered_lines, of_file, read_text

# Possessive repeats (*+) keep these linear on any input.
_QUOTED = r""" "[^"\\]*+(?:\\.[^"\\]*+)*+" | '[^'\\]*+(?:\\.[^'\\]*+)*+' """
_FIELD = re.compile(rf"""\s*+ (?: ({_QUOTED}) \s*+ | ([^,"']*+) ) (,|$)""", re.VERBOSE)
_ATTRIBUTE = re.compile(
    rf"""@attribute \s++ ({_QUOTED} | [^\s"'{{}}]++) \s*+ (.*)""", re.VERBOSE | re.IGNORECASE
)
_RELATION = re.compile(rb"^[ \t]*+@relation\b", re.IGNORECASE | re.MULTILINE)
_RELATIONAL = re.compile(rb"^[ \t]*+@attribute\b[^\n]*\srelational[ \t\r]*+$", re.IGNORECASE | re.MULTILINE)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_PLAIN = re.compile(r"[\w.+/:-]+")
_NUMERIC = ("numeric", "real", "integer")


@dataclass(frozen=True)
class Attribute:
    """One column: its name, kind, declared values (nominal) or inner columns (relational)."""

    name: str
    kind: str
    line: int
    values: tuple[str, ...] = ()
    inner: tuple[Attribute, ...] = ()


@dataclass(frozen=True)
class Header:
    """What stands before ``@data``."""

    relation: str
    attributes: tuple[Attribute, ...]


def is_arff(head: bytes) -> bool:
    """Whether the beginning of a file looks like ARFF."""
    return bool(_RELATION.search(head))


def is_relational(head: bytes) -> bool:
    """Whether the beginning of a file declares a relational attribute."""
    return bool(_RELATIONAL.search(head))


def arff_lines(path: str | Path, max_bytes: int = MAX_BYTES) -> Iterator[tuple[int, str]]:
    """Numbered lines without comments, blank lines and the blanks around them."""
    for line, text in numbered_lines(path, max_bytes):
        text = text.strip()
        if text and not text.startswith("%"):
            yield line, text


def split_fields(text: str) -> list[str]:
    r"""Cut a line at the commas outside quotes; quotes are removed, escapes inside them stay.

    Examples
    --------
    >>> split_fields('7, "1,2\\n3,4", 0')
    ['7', '1,2\\n3,4', '0']
    """
    fields, position = [], 0
    while True:
        match = _FIELD.match(text, position)
        if match is None:
            near = text[position : position + 20]
            raise DataError(f"a quote that is not closed, or text beside a quoted field, near {near!r}")
        quoted, plain, end = match.groups()
        fields.append(plain.rstrip() if quoted is None else quoted[1:-1])
        if not end:
            return fields
        position = match.end()


def unescape(text: str) -> str:
    r"""Resolve the escapes of a quoted field.

    Examples
    --------
    >>> unescape("it\\'s")
    "it's"
    """
    return _ESCAPE.sub(lambda m: _ESCAPED.get(m[1], m[1]), text) if "\\" in text else text


def quote(text: str) -> str:
    r"""Write a name or value so that it is read back as it was.

    Examples
    --------
    >>> quote("wren"), quote("it's")
    ('wren', "'it\\'s'")
    """
    if _PLAIN.fullmatch(text):
        return text
    for char, escaped in (("\\", r"\\"), ("'", r"\'"), ("\n", r"\n"), ("\r", r"\r"), ("\t", r"\t")):
        text = text.replace(char, escaped)
    return f"'{text}'"


def read_header(lines: Iterator[tuple[int, str]]) -> Header:
    """Consume numbered lines up to ``@data``."""
    relation, attributes = None, []
    inner: list[Attribute] = []
    around: Attribute | None = None  # the relational attribute being read
    line = 1
    for line, text in lines:
        word = text.split(None, 1)[0].lower()
        rest = text[len(word) :].strip()
        if word == "@relation" and relation is None:
            relation = unescape(rest[1:-1] if rest[:1] in "'\"" else rest) if rest else ""
        elif relation is None:
            raise DataError(f"expected @relation, found {text[:40]!r}", line=line)
        elif word == "@attribute":
            attribute = _attribute(text, line)
            if around is not None:
                inner.append(attribute)
            if attribute.kind != "relational":
                if around is None:
                    attributes.append(attribute)
            elif around is not None:
                raise DataError("a relational attribute inside another is not a bag", line=line)
            else:
                around, inner = attribute, []
        elif word == "@end" and around is not None:
            attributes.append(Attribute(around.name, "relational", around.line, inner=tuple(inner)))
            around = None
        elif word == "@data" and around is None:
            _check_names(attributes)
            return Header(relation, tuple(attributes))
        else:
            expected = "@attribute or @end" if around is not None else "@attribute or @data"
            raise DataError(f"expected {expected}, found {text[:40]!r}", line=line)
    raise DataError("the file ends before @data; it is truncated or no ARFF file", line=line)


def _attribute(text: str, line: int) -> Attribute:
    match = _ATTRIBUTE.fullmatch(text)
    if match is None:
        raise DataError(f"expected @attribute <name> <type>, found {text[:60]!r}", line=line)
    name, kind = match.groups()
    name = unescape(name[1:-1]) if name[0] in "'\"" else name
    if kind.startswith("{"):
        body = kind.split("%")[0].rstrip() if kind.rstrip()[-1] != "}" else kind.rstrip()
        if not body.endswith("}"):
            raise DataError(f"the values of attribute {name!r} do not end with }}", line=line)
        try:
            values = tuple(unescape(value) for value in split_fields(body[1:-1]))
        except DataError as error:
            raise DataError(error.message, line=line) from None
        return Attribute(name, "nominal", line, values)
    word = kind.split()[0].lower() if kind.split() else ""
    if word in _NUMERIC:
        return Attribute(name, "numeric", line)
    if word in ("string", "relational"):
        return Attribute(name, word, line)
    raise DataError(
        f"attribute {name!r} has the type {kind[:40]!r}; known are numeric, real, integer, string, "
        "relational and {...}",
        line=line,
    )


def _check_names(attributes: list[Attribute]) -> None:
    for group in (attributes, *(a.inner for a in attributes)):
        seen = set()
        for attribute in group:
            if attribute.name in seen:
                raise DataError(f"the attribute {attribute.name!r} is declared twice", line=attribute.line)
            seen.add(attribute.name)


# ----------------------------------------------------------------------
# The label list beside a multi-label ARFF file: ``<labels><label name="..."/></labels>``


NAMESPACE = "http://mulan.sourceforge.net/labels"


@of_file
def read_label_list(path: str | Path, max_bytes: int = MAX_BYTES) -> dict[str, int]:
    """Label names with the line on which each stands; nested labels (hierarchies) are listed flat."""
    text = read_text(path, max_bytes)
    found: dict[str, int] = {}
    parser = expat.ParserCreate(encoding="utf-8")

    def start(tag: str, attributes: dict[str, Any]) -> None:
        if tag != "label":
            return
        line = parser.CurrentLineNumber
        name = attributes.get("name")
        if name is None:
            raise DataError("a <label> without a name", line=line)
        if name in found:
            raise DataError(f"the label {name!r} is listed twice", line=line)
        found[name] = line

    def refuse(*_: Any) -> NoReturn:
        # Document types may define entities, the means of every attack by XML; label lists need none.
        raise DataError("a label list has no DOCTYPE", line=parser.CurrentLineNumber)

    parser.StartElementHandler = start
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        raise DataError(f"not well-formed XML ({error})", line=error.lineno) from None
    if not found:
        raise DataError("no <label> in this label list")
    return found
