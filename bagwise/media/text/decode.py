r"""From bytes to text to its sentences and paragraphs.

The encoding is known by its marks, by UTF-8's own rules, or guessed and said. Line ends become ``\n``, as
Python's own ``open`` does, and lone halves of surrogate pairs become U+FFFD, so places always count
characters of a text that can be written again.

A page loses its tags, comments, scripts and styles; blocks stand apart by an empty line. That takes one pass
from left to right, without recursion and in time proportional to the page whatever is in it: the parser of
older Pythons takes time that grows with the square of the length on pages broken on purpose.

A full stop ends a sentence if blanks follow, unless the next word begins small, the word before is a known
abbreviation, an initial or a dotted acronym (these end a sentence only before a word that often begins one),
or the number of a list item. ``!``, ``?`` and ``...`` end one unless the next word begins small. The marks of
Chinese and Japanese end one with or without blanks. Closing quotes and brackets belong to the sentence
before. An empty line, a heading and a list item begin a new one wherever they stand.
"""

from __future__ import annotations

import codecs
import html
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bagwise.errors import DataError

__all__ = ["Decoded", "clean", "decode", "paragraphs", "sentences", "strip_html"]


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
    r"""Line ends as ``\n`` and no lone half of a surrogate pair."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _HALVES.sub("\ufffd", text) if not text.isascii() else text


def decode(content: bytes, encoding: str | None = None) -> Decoded:
    """Text of the bytes of a whole file.

    Without an encoding a byte order mark decides, then whether the bytes are UTF-8; UTF-16 without a mark is
    known by its zero bytes, a page of HTML by what it declares, and everything else is taken for Windows-1252
    (Latin-1 where that has no character).
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


# ---------------------------------------------------------------------- pages of HTML


_BLOCK_NAMES = """
    address article aside blockquote body caption center dd details dialog div dl dt fieldset figcaption
    figure footer form h1 h2 h3 h4 h5 h6 header hr html legend li main menu nav ol option p pre section select
    summary table tbody tfoot thead title tr ul
"""
_BLOCKS = frozenset(_BLOCK_NAMES.split())
_BREAKS = {"br": "\n", "td": " ", "th": " "}
_DROPPED = ("script", "style", "template", "svg", "noscript", "iframe", "object")
_CLOSING = {name: re.compile(rf"</{name}(?=[\s/>])[^>]*+(?:>|\Z)", re.I) for name in _DROPPED}
_NAME = re.compile(r"</?([A-Za-z][A-Za-z0-9:-]*+)")
_REST_OF_TAG = re.compile(r"""(?:[^>"']++|"[^"]*+"|'[^']*+')*+>""")
_LONGEST_TAG = 1 << 16
_BROKEN_TAGS = 100  # after so many that do not end where their quotes say, quotes are not looked at any more
_BLANKS = re.compile(r"[ \t\n\r\f\v]+")
_AROUND_BREAKS = re.compile(r" *\n[ \n]*")


def strip_html(text: str) -> str:
    """Text of a page of HTML."""
    out: list[str] = []
    at, broken, pre = 0, 0, 0
    last = text.rfind(">")
    while at < len(text):
        start = text.find("<", at)
        if start < 0 or start > last:
            break
        _add(out, text[at:start], pre)
        name = _NAME.match(text, start)
        if name is None:
            at = _after_other(text, start)
            if at == start + 1:  # a sign, not a tag
                out.append("<")
            continue
        word = name[1].lower()
        rest = None
        if broken < _BROKEN_TAGS:
            rest = _REST_OF_TAG.match(text, name.end(), name.end() + _LONGEST_TAG)
            broken += rest is None
        at = rest.end() if rest else text.find(">", name.end()) + 1 or len(text)
        closes = text[start + 1] == "/"
        if word in _CLOSING and not closes and text[at - 2 : at] != "/>":
            end = _CLOSING[word].search(text, at)
            at = end.end() if end else len(text)
        elif word in _BLOCKS:
            out.append("\n\n")
            if word == "pre":
                pre = max(pre + (-1 if closes else 1), 0)
        elif not closes:
            out.append(_BREAKS.get(word, ""))
    _add(out, text[at:], pre)
    page = _AROUND_BREAKS.sub(lambda m: "\n\n" if m[0].count("\n") > 1 else "\n", "".join(out))
    return page.replace("\t", " ").strip().replace("\x00", "\n")


def _add(out: list[str], data: str, pre: int) -> None:
    if not data:
        return
    if "&" in data:
        data = html.unescape(data)
    # a line end inside <pre> is kept under another name, so that it does not count as layout
    out.append(data.replace("\x00", " ").replace("\n", "\x00") if pre else _BLANKS.sub(" ", data))


def _after_other(text: str, start: int) -> int:
    """Where to go on after a comment, a declaration or a bare ``<``."""
    for opening, closing in (("<!--", "-->"), ("<![CDATA[", "]]>"), ("<!", ">"), ("<?", ">"), ("</", ">")):
        if text.startswith(opening, start):
            end = text.find(closing, start + len(opening))
            return len(text) if end < 0 else end + len(closing)
    return start + 1


# ---------------------------------------------------------------------- sentences and paragraphs


_EMPTY_LINE = re.compile(r"\n[^\S\n]*\n\s*")
# Both begin with a fixed set of characters, which is what makes the search fast; neither tries a place twice.
# A border: an empty line, or the start of a line that is a heading, an item or a row of a table.
_BORDER = re.compile(r"\n(?:[^\S\n]*+\n\s*+|(?=[ \t]{0,8}(?:#{1,6}[ \t]|[-*+•–][ \t]|\d{1,3}[.)][ \t]|\|)))")
_HEADING = re.compile(r"\s*+#{1,6}[ \t]")
_END = re.compile(r"[.!?…‥。！？｡．][.!?…‥。！？｡．]*+[\"'”’»)\]*_」』）】》〉]*+")
_WIDE = frozenset("。！？｡．")  # end a sentence without a blank after them
_WORD = re.compile(r"[^\W_]")
_OPENING = re.compile(r"[\s\"'“‘«(\[{*_¿¡—–\-„‚]*+")
_ACRONYM = re.compile(r"(?:\w{1,2}\.)+\w{1,2}")
_LETTERS = re.compile(r"[^\W\d_]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A full stop after these ends no sentence.
_NEVER = _words(
    "mr mrs ms mx dr prof rev hon gen col capt lt sgt cmdr pres gov sen rep st mt ft "  # codespell:ignore
    "messrs mme mlle e.g i.e eg ie cf viz vs v al ca approx resp incl esp fig figs eq eqs sec ch vol no nos "
    "nr pp p ed eds trans jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu "
    "thur thurs fri sat "  # codespell:ignore
    "z.b d.h u.a s.o s.u o.ä bzw evtl ggf inkl zzgl abs art bd hrsg str tel hr fr dipl ing "
    "p.ex c.-à-d av env sr sra srta ud uds dott sig"
)
_OFTEN_LAST = _words("st sr jr dec jan v")  # of these: they end one before a word that often begins one
_ALSO_WORDS = _words("no ed art sec mar sat mon fri fig trans sig abs v al")  # written small, words as others
_BEFORE_NUMBER = _words("no nos nr p pp fig figs eq eqs sec ch vol art abs bd v")
_STARTERS = _words(
    "the a an this that these those it he she we they you i there here his her its our their my your in on "
    "at for from with by as when while after before if but and so however then also what why how who where "
    "which no not der die das ein eine es er wir ich am im und aber auch wenn dann "
    "sie als le la les un une il elle nous vous ils elles ce cette et mais el los las y "  # codespell:ignore
    "pero"
)
_MONTHS = _words(
    "januar februar märz april mai juni juli august september "  # codespell:ignore
    "oktober november dezember jänner januari februari maart mei augustus"  # codespell:ignore
)


def paragraphs(text: str) -> np.ndarray:
    """Runs of lines between empty lines, as an int64 array of rows (start, end), end exclusive.

    Parts are without the blanks around; those without a letter or digit are left out.
    """
    return _trimmed(text, _pieces(text, _EMPTY_LINE))


def sentences(text: str) -> np.ndarray:
    """Sentences of a text, as `paragraphs` gives them.

    Examples
    --------
    >>> text = 'Dr. J. Smith paid 3.50 dollars. "Why?" he asked. 你好。再见！'
    >>> [text[a:b] for a, b in sentences(text)]
    ['Dr. J. Smith paid 3.50 dollars.', '"Why?" he asked.', '你好。', '再见！']
    """
    return _trimmed(text, _sentences(text))


def _pieces(text: str, border: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    start = 0
    for match in border.finditer(text):
        yield start, match.start()
        start = match.end()
    yield start, len(text)


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    for start, end in _pieces(text, _BORDER):
        if _HEADING.match(text, start, end):  # a piece of its own, to the end of its line
            line = text.find("\n", start, end)
            if line >= 0:
                yield start, line
                start = line
        yield start, end


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    find = _END.finditer
    for first, last in _blocks(text):
        start = first
        for match in find(text, first, last):
            if _ends(text, match, start, last):
                yield start, match.end()
                start = match.end()
        yield start, last


def _ends(text: str, match: re.Match[str], start: int, last: int) -> bool:
    """Whether the mark that was found ends the sentence that began at ``start``."""
    mark, end = match.span()
    if text[mark] in _WIDE:
        return True
    if end == last or not text[end].isspace():
        return False  # a number, an address, or the end of the block, which needs no mark
    after = _OPENING.match(text, end, last).end()  # type: ignore[union-attr]  # it always matches
    if after == last:
        return False  # the block ends here by itself
    if text[after].islower():
        return False
    if text[mark] != "." or text[mark + 1] in ".!?":
        return True
    before = text[max(start, mark - 24) : mark].rsplit(None, 1)
    word = before[-1].lstrip("\"'“”‘’«([{*_–—-") if before else ""
    if word.isdigit() and len(word) <= 3 and not text[start : mark - len(word)].strip():
        return False  # the number of an item
    return not word or _ends_word(text, word, after, last)


def _ends_word(text: str, word: str, after: int, last: int) -> bool:
    """Whether a full stop after ``word`` ends a sentence; ``after``: where the next word begins."""
    small = word.lower()
    if small.isdigit():
        following = _LETTERS.match(text, after, min(last, after + 24))
        month = following is not None and following[0].lower() in _MONTHS
        return not (month and len(small) <= 2)
    if small in _BEFORE_NUMBER and text[after].isdigit():
        return False
    known = small in _NEVER and not (small in _ALSO_WORDS and word.islower())
    initial = (len(word) == 1 and word.isupper()) or _ACRONYM.fullmatch(word) is not None
    if known and small not in _OFTEN_LAST:
        return False
    if known or initial:
        following = _LETTERS.match(text, after, min(last, after + 24))
        return following is not None and following[0].lower() in _STARTERS
    return True


def _trimmed(text: str, pieces: Iterator[tuple[int, int]]) -> np.ndarray:
    spans = []
    for start, end in pieces:
        piece = text[start:end]
        left = len(piece) - len(piece.lstrip())
        right = len(piece.rstrip())
        if right > left and _WORD.search(piece):
            spans.append((start + left, start + right))
    return np.array(spans, dtype=np.int64).reshape(-1, 2)
