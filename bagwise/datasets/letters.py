"""Words written with UCI letters: the two letter sets of the literature, and fresh draws of them."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.dataset import Dataset
from bagwise.datasets.draws import generator, to_offsets
from bagwise.errors import DataError
from bagwise.io._source import read_text

_FEATURES = (
    *("x-box", "y-box", "width", "high", "onpix", "x-bar", "y-bar", "x2bar"),
    *("y2bar", "xybar", "x2ybr", "xy2br", "x-ege", "xegvy", "y-ege", "yegvx"),
)


def read_letters(path: str | Path) -> Dataset:
    """Read ``letter-recognition.data``: lines of a capital letter and 16 numbers, each a bag of its own.

    The parts "train" (the first 16,000 lines) and "test" (the last 4,000) are those of its authors.
    """
    text = read_text(path)
    letters = np.array([line[:1] for line in text.splitlines()])
    wrong = np.flatnonzero(~np.isin(letters, list(ascii_uppercase)))
    if wrong.size:
        raise DataError("expected a capital letter and 16 numbers", path=path, line=int(wrong[0]) + 1)
    try:
        X = np.loadtxt(io.StringIO(text), delimiter=",", usecols=range(1, 17), dtype=np.float32, ndmin=2)
    except ValueError as error:
        raise DataError(f"expected a capital letter and 16 numbers ({error})", path=path) from None
    labels = np.searchsorted(list(ascii_uppercase), letters)
    numbers = np.arange(len(X))
    Y = np.zeros((len(X), 26), dtype=np.int8)
    Y[numbers, labels] = 1
    return Dataset(
        Bags(X, np.arange(len(X) + 1), bag_ids=numbers + 1, feature_names=_FEATURES),
        Y,
        tuple(ascii_uppercase),
        instance_Y=labels,
        splits={"train": numbers[:16_000], "test": numbers[16_000:]},
    )


def make_letter_words(text: str | Sequence[str], letters: Dataset, random_state: Any = None) -> Dataset:
    """Write words with letters of the UCI set: a bag is a word, its labels are the letters in it.

    Parameters
    ----------
    text : str or sequence of str
        A text, cut at white space, or the words. Only the letters A to Z count: apostrophes and
        hyphens are dropped, so "snicker-snack" is one word.
    letters : Dataset
        The letters to draw from: ``load_dataset("letter_recognition")``.
    random_state : int, Generator or None, default=None
        Seed of the draw: each letter takes a row of that letter at random, none of them twice. Without
        a seed, the k-th occurrence of a letter takes the k-th row with that letter.

    Returns
    -------
    Dataset
        26 labels, A to Z; bags are called "001_twas", ...; ``bags.instance_info["row"]`` is the line
        of the letter in its file, counted from 1.

    Examples
    --------
    >>> import numpy as np
    >>> alphabet = Dataset(Bags(np.eye(26), np.arange(27)), np.eye(26), instance_Y=np.arange(26))
    >>> data = make_letter_words("Deaf ears", alphabet)
    Traceback (most recent call last):
        ...
    bagwise.errors.DataError: the text needs 2 rows with the letter A, there are 1
    >>> make_letter_words("Deaf crows", alphabet).label_sets
    [['A', 'D', 'E', 'F'], ['C', 'O', 'R', 'S', 'W']]
    """
    words = [re.sub("[^A-Z]", "", word.upper()) for word in (text.split() if isinstance(text, str) else text)]
    words = [word for word in words if word]
    spelled = np.array([ord(letter) - ord("A") for word in words for letter in word], dtype=np.int64)
    offsets = to_offsets(np.array([len(word) for word in words], dtype=np.int64))
    rows = _rows_of(spelled, np.asarray(letters.instance_Y), random_state)
    return _words(words, rows, offsets, spelled, letters)


def _words(
    words: Sequence[str], rows: np.ndarray, offsets: np.ndarray, spelled: np.ndarray, letters: Dataset
) -> Dataset:
    """Words as bags of some rows of the UCI set, which show these letters."""
    assert isinstance(letters.bags, Bags)
    Y = np.zeros((len(words), 26), dtype=np.int8)
    Y[np.repeat(np.arange(len(words)), np.diff(offsets)), spelled] = 1
    width = len(str(len(words)))
    bags = Bags(
        letters.bags.X[rows],
        offsets,
        bag_ids=np.array([f"{k:0{width}d}_{word.lower()}" for k, word in enumerate(words, 1)]),
        instance_info={"row": rows + 1},
        feature_names=letters.bags.feature_names,
    )
    return Dataset(bags, Y, tuple(ascii_uppercase), instance_Y=spelled)


def _rows_of(spelled: np.ndarray, available: np.ndarray, random_state: Any) -> np.ndarray:
    """A row of the right letter for each letter of the text, none of them twice."""
    rng = None if random_state is None else generator(random_state)
    rows = np.empty(len(spelled), dtype=np.int64)
    for letter in np.unique(spelled):
        wanted = np.flatnonzero(spelled == letter)
        pool = np.flatnonzero(available == letter)
        if len(pool) < len(wanted):
            raise DataError(
                f"the text needs {len(wanted)} rows with the letter {ascii_uppercase[letter]}, "
                f"there are {len(pool)}"
            )
        rows[wanted] = pool[: len(wanted)] if rng is None else rng.permutation(pool)[: len(wanted)]
    return rows


def find_letters(bags: Bags, letters: Dataset) -> Dataset:
    """Give bags of UCI letters their 26 labels, by looking every instance up among the letters.

    No two rows of the UCI set with equal features belong to different letters, so a vector names its letter.

    Parameters
    ----------
    bags : Bags
        Words whose instances are rows of the UCI set.
    letters : Dataset
        ``load_dataset("letter_recognition")``.

    Returns
    -------
    Dataset
        As made by `make_letter_words`; "row" is the first line with these features.
    """
    assert isinstance(letters.bags, Bags)
    known: dict[bytes, int] = {}
    for row, vector in enumerate(np.asarray(letters.bags.X, dtype=np.float32)):
        known.setdefault(vector.tobytes(), row)
    rows = np.empty(bags.n_instances, dtype=np.int64)
    for k, vector in enumerate(np.asarray(bags.X, dtype=np.float32)):
        rows[k] = known.get(vector.tobytes(), -1)
    if (rows < 0).any():
        raise DataError(f"instance {np.flatnonzero(rows < 0)[0]} is none of the UCI letters")
    labels = np.asarray(letters.instance_Y)[rows]
    spelled = "".join(np.array(list(ascii_uppercase))[labels])
    words = [spelled[a:b] for a, b in zip(bags.offsets[:-1], bags.offsets[1:])]
    return _words(words, rows, bags.offsets, labels, letters)


def words_of(data: Dataset) -> list[str]:
    """The words that the bags of a letter set spell."""
    return [str(name).partition("_")[2].upper() for name in data.bags.bag_ids]
