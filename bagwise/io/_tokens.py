"""Text of unsigned integers and angle brackets, cut into numbers with array operations alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bagwise.errors import DataError

_DIGITS = 18  # more would not fit int64


class Tokens:
    r"""The numbers of a text, with what is around each.

    Parameters
    ----------
    content : bytes
        Digits, blanks, line ends and brackets.
    path : path
        The file, for messages.
    brackets : bool, default=True
        Whether ``<`` and ``>`` are allowed.
    groups : bool, default=False
        Whether brackets enclose several numbers instead of one.

    Attributes
    ----------
    values : array of int64
        The numbers.
    lines : array of int64
        The line of each, from 1.
    bracketed : array of bool
        Which stand in brackets of their own (not with ``groups``).
    group_sizes, group_lines : arrays of int64
        Numbers in each pair of brackets, and its line (with ``groups``).

    Examples
    --------
    >>> tokens = Tokens(b"<2> 15 7\n<1> 3", "toy.dat")
    >>> tokens.values.tolist(), tokens.bracketed.tolist(), tokens.lines.tolist()
    ([2, 15, 7, 1, 3], [True, False, False, True, False], [1, 1, 1, 2, 2])
    """

    def __init__(self, content: bytes, path: str | Path, brackets: bool = True, groups: bool = False) -> None:
        self.path = path
        self._check_letters(content, b"0123456789 \t\r\n" + (b"<>" if brackets else b""))
        # a blank at both ends spares special cases for the first and the last number
        letters = np.frombuffer(b" " + content + b" ", dtype=np.uint8)
        digit = letters >= ord("0")
        digit &= letters <= ord("9")
        edges = np.flatnonzero(digit[1:] != digit[:-1]) + 1
        starts, ends = edges[::2], edges[1::2]  # a number is letters[start:end]
        self._newlines = np.flatnonzero(letters == ord("\n"))
        self.lines = self._line_of(starts)
        long = np.flatnonzero(ends - starts > _DIGITS)
        if long.size:
            raise DataError("a number too large to be true", path=path, line=int(self.lines[long[0]]))
        plain = content.translate(bytes.maketrans(b"<>", b"  "))
        self.values = np.fromstring(plain, dtype=np.int64, sep=" ") if len(starts) else np.empty(0, np.int64)
        if len(self.values) != len(starts):
            raise DataError("numbers that cannot be told apart", path=path)
        opens, closes = np.flatnonzero(letters == ord("<")), np.flatnonzero(letters == ord(">"))
        if groups:
            self._find_groups(opens, closes, starts)
        else:
            self.bracketed = letters[starts - 1] == ord("<")
            closed = letters[ends] == ord(">") if len(ends) else self.bracketed
            stray = np.flatnonzero(self.bracketed != closed)
            if stray.size:
                raise DataError("a bracket without its partner", path=path, line=int(self.lines[stray[0]]))
            for found in (opens, closes):
                if len(found) != self.bracketed.sum():
                    beside = starts - 1 if found is opens else ends
                    lost = np.setdiff1d(found, beside)[:1]
                    raise DataError("a bracket without a number", path=path, line=int(self._line_of(lost)[0]))

    def check_binary(self) -> None:
        """Refuse numbers other than 0 and 1."""
        wrong = np.flatnonzero(self.values > 1)
        if wrong.size:
            raise DataError(
                f"a label is {self.values[wrong[0]]}, expected 0 or 1",
                path=self.path,
                line=int(self.lines[wrong[0]]),
            )

    def _line_of(self, places: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._newlines, places) + 1

    def _check_letters(self, content: bytes, allowed: bytes) -> None:
        if strange := content.translate(None, allowed):
            line = content.count(b"\n", 0, content.index(strange[:1])) + 1
            raise DataError(
                f"the character {strange[:1].decode('latin-1')!r} among numbers", path=self.path, line=line
            )

    def _find_groups(self, opens: np.ndarray, closes: np.ndarray, starts: np.ndarray) -> None:
        """Match brackets; they neither nest nor leave a number outside nor run over a line."""
        n = min(len(opens), len(closes))
        wrong = (opens[:n] > closes[:n]) | (self._line_of(opens[:n]) != self._line_of(closes[:n]))
        wrong[1:] |= opens[1:n] < closes[:n][:-1]
        if wrong.any() or len(opens) != len(closes):
            k = int(np.flatnonzero(wrong)[0]) if wrong.any() else n
            place = opens[k : k + 1] if k < len(opens) else closes[k : k + 1]
            raise DataError(
                "a bracket without its partner", path=self.path, line=int(self._line_of(place)[0])
            )
        before = np.searchsorted(starts, opens)
        self.group_sizes = np.searchsorted(starts, closes) - before
        self.group_lines = self._line_of(opens)
        if self.group_sizes.sum() != len(starts):
            inside = np.zeros(len(starts) + 1, dtype=np.int64)
            np.add.at(inside, before, 1)
            np.add.at(inside, before + self.group_sizes, -1)
            lost = int(np.flatnonzero(np.cumsum(inside[:-1]) == 0)[0])
            raise DataError("a number outside brackets", path=self.path, line=int(self.lines[lost]))
