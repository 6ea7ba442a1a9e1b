"""The label list beside a multi-label ARFF file: ``<labels><label name="..."/></labels>``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from bagwise.errors import DataError
from bagwise.io._source import MAX_BYTES, read_text

_NAMESPACE = "http://mulan.sourceforge.net/labels"


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
            raise DataError("a <label> without a name", path=path, line=line)
        if name in found:
            raise DataError(f"the label {name!r} is listed twice", path=path, line=line)
        found[name] = line

    def refuse(*_: Any) -> NoReturn:
        # Document types may define entities, the means of every attack by XML; label lists need none.
        raise DataError("a label list has no DOCTYPE", path=path, line=parser.CurrentLineNumber)

    parser.StartElementHandler = start
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        raise DataError(f"not well-formed XML ({error})", path=path, line=error.lineno) from None
    if not found:
        raise DataError("no <label> in this label list", path=path)
    return found


def label_list(names: tuple[str, ...]) -> str:
    """Text of a label list.

    Examples
    --------
    >>> label_list(("wren", "a & b")).splitlines()[2:4]
    ['  <label name="wren"/>', '  <label name="a &amp; b"/>']
    """
    items = "".join(f"  <label name={quoteattr(name)}/>\n" for name in names)
    return f'<?xml version="1.0" encoding="utf-8"?>\n<labels xmlns="{_NAMESPACE}">\n{items}</labels>\n'
