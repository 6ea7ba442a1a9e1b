"""Where sentences and paragraphs begin and end in a text.

Every function returns an int64 array of rows (start, end), end exclusive, in order, without the blanks
around: ``text[start:end]`` is the part itself. Parts without a letter or digit are left out.

A full stop ends a sentence if blanks follow, unless the next word begins small, the word before is a known
abbreviation, an initial or a dotted acronym (these end a sentence only before a word that often begins one),
or the number of a list item. ``!``, ``?`` and ``...`` end one unless the next word begins small. The marks of
Chinese and Japanese end one with or without blanks. Closing quotes and brackets belong to the sentence
before. An empty line, a heading and a list item begin a new one wherever they stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

__all__ = ["paragraphs", "sentences", "spans_of"]

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


def spans_of(pairs: Iterator[tuple[int, int]] | list[tuple[int, int]]) -> np.ndarray:
    """Pairs as an array of two columns, also where there is none."""
    return np.array(list(pairs), dtype=np.int64).reshape(-1, 2)


def paragraphs(text: str) -> np.ndarray:
    r"""Runs of lines between empty lines.

    Examples
    --------
    >>> text = "One.\nStill one.\n\n  Two.\n"
    >>> [text[a:b] for a, b in paragraphs(text)]
    ['One.\nStill one.', 'Two.']
    """
    return spans_of(_trimmed(text, _pieces(text, _EMPTY_LINE)))


def sentences(text: str) -> np.ndarray:
    """Sentences of a text.

    Examples
    --------
    >>> text = 'Dr. J. Smith paid 3.50 dollars. "Why?" he asked. 你好。再见！'
    >>> [text[a:b] for a, b in sentences(text)]
    ['Dr. J. Smith paid 3.50 dollars.', '"Why?" he asked.', '你好。', '再见！']
    """
    return spans_of(_trimmed(text, _sentences(text)))


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


def _trimmed(text: str, pieces: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for start, end in pieces:
        piece = text[start:end]
        left = len(piece) - len(piece.lstrip())
        right = len(piece.rstrip())
        if right > left and _WORD.search(piece):
            yield start + left, start + right
