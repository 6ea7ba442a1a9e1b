r"""Bytes to text: the encoding by its marks, by UTF-8's own rules, or guessed and said.

Line ends become ``\n``, as Python's own ``open`` does, and lone halves of surrogate pairs become U+FFFD, so
places always count characters of a text that can be written again.
"""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from bagwise.errors import DataError

__all__ = ["Decoded", "clean", "decode"]

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is its beginning
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_DECLARED = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.I)
_CONTROL = bytes(range(9)) + bytes(range(14, 27)) + bytes(range(28, 32))  # what no text holds; 27 is ISO-2022
_HALVES = re.compile("[\ud800-\udfff]")


class Decoded(NamedTuple):
    """A text, how it was encoded, and what had to be guessed (None: nothing)."""

    text: str
    encoding: str
    note: str | None


def clean(text: str) -> str:
    r"""Line ends as ``\n`` and no lone half of a surrogate pair.

    Examples
    --------
    >>> clean("one\r\ntwo\rthree \ud800")
    'one\ntwo\nthree \ufffd'
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _HALVES.sub("\ufffd", text) if not text.isascii() else text


def decode(content: bytes, encoding: str | None = None) -> Decoded:
    """Text of some bytes.

    Parameters
    ----------
    content : bytes
        The whole file.
    encoding : str, optional
        Name of the encoding. By default a byte order mark decides, then whether the bytes are UTF-8; UTF-16
        without a mark is known by its zero bytes, a page of HTML by what it declares, and everything else is
        taken for Windows-1252 (Latin-1 where that has no character).

    Returns
    -------
    Decoded
        ``text``, ``encoding`` and ``note``: what was guessed, or None.

    Examples
    --------
    >>> decode("naïve".encode())
    Decoded(text='naïve', encoding='utf-8', note=None)
    >>> decode("naïve".encode("cp1252")).note
    'is not UTF-8; read as Windows-1252'
    """
    if encoding is not None:
        return _strict(content, encoding, None)
    for mark, name in _MARKS:
        if content.startswith(mark):
            return _strict(content[len(mark) :], name, None)
    if b"\0" in content:
        return _zeros(content)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        return _guess(content, error)
    _refuse_binary(content)
    return Decoded(clean(text), "utf-8", None)


def _strict(content: bytes, encoding: str, note: str | None) -> Decoded:
    try:
        if not codecs.lookup(encoding)._is_text_encoding:  # type: ignore[attr-defined]
            raise LookupError
        text = content.decode(encoding)
    except LookupError:
        raise DataError(f"encoding {encoding!r} is not known; give one such as 'utf-8' or 'cp1252'") from None
    except UnicodeError as error:
        start = getattr(error, "start", None)
        where = "" if start is None else f" (byte {start})"
        raise DataError(f"is not {encoding} text{where}; give its encoding by encoding=") from None
    return Decoded(clean(text.removeprefix("\ufeff")), encoding, note)


def _zeros(content: bytes) -> Decoded:
    """UTF-16 without a mark: Latin letters have a zero in every other byte."""
    head = content[: 1 << 16]
    even, odd = head[::2].count(0), head[1::2].count(0)
    half = max(len(head) // 2, 1)
    for name, zeros, others in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        if len(content) % 2 == 0 and zeros > 0.2 * half and others < 0.02 * half:
            return _strict(content, name, f"has no byte order mark; read as {name.upper()}")
    raise DataError("is not text: it holds zero bytes")


def _guess(content: bytes, error: UnicodeDecodeError) -> Decoded:
    if error.reason == "unexpected end of data" and error.start > 0:
        kept = content[: error.start]
        _refuse_binary(kept)
        return Decoded(clean(kept.decode("utf-8")), "utf-8", "ends within a character, which was left out")
    _refuse_binary(content)
    declared = _DECLARED.search(content[:4096])
    if declared:
        try:
            return _strict(content, declared[1].decode("ascii").lower(), None)
        except DataError:
            pass  # a page that does not keep its word is guessed like any other
    try:
        return Decoded(clean(content.decode("cp1252")), "cp1252", "is not UTF-8; read as Windows-1252")
    except UnicodeDecodeError:
        return Decoded(clean(content.decode("latin-1")), "latin-1", "is not UTF-8; read as Latin-1")


def _refuse_binary(content: bytes) -> None:
    head = content[: 1 << 16]
    strange = len(head) - len(head.translate(None, _CONTROL))
    if strange > 0.01 * len(head):
        raise DataError(f"is not text: {strange} of its first {len(head)} bytes are control characters")
