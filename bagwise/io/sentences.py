"""Documents as bags of sentences: a folder of ``train``, ``valid`` and ``test`` files (the MLTM format).

=================== ==========================================================================
``S-data.dat``      a document per line: ``<2> <3> 5 0 5 <1> 7``, that is two sentences, the first
                    of the three words 5, 0, 5
``S-label.dat``     a row of 0/1 per document; without it, documents to be predicted
``S-sentlabel.dat`` optional: a group ``<0 1 0>`` per sentence with at most one 1
``vocabs.txt``      ``word, index`` per line, indices from 0
``label_list.dat``  optional: the label names, separated by commas
=================== ==========================================================================
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import sparse

from bagwise.bags import Bags
from bagwise.bags.dataset import UNKNOWN, Dataset
from bagwise.errors import DataError
from bagwise.io._numbers import check_instance_labels
from bagwise.io._source import MAX_BYTES, blame, numbered_lines, of_file, read_bytes, read_text

PARTS = ("train", "valid", "test")

_DATA_FILE = re.compile(rf"({'|'.join(PARTS)})-data\.dat(?:\.gz)?")


def recognises(path: Path, head: bytes) -> bool:
    """Whether this is such a folder, or one of its data files."""
    if path.is_dir():
        return _exists(path, "vocabs.txt") and any(_exists(path, f"{part}-data.dat") for part in PARTS)
    return bool(_DATA_FILE.fullmatch(path.name))


@of_file
def read(
    path: str | Path,
    *,
    max_bytes: int = MAX_BYTES,
    part: str | Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
) -> Dataset:
    r"""Read documents as bags of sentences, each a sparse row of word counts.

    Parameters
    ----------
    path : path
        The folder, or one of its data files; files may be gzip.
    max_bytes : int
        What each file may grow to when unpacked.
    part : str or sequence of str, optional
        ``train``, ``valid``, ``test`` or several of them. By default all parts of a folder are joined and
        ``splits`` says which bags are whose; of a data file its own part alone is read.
    label_names : sequence of str, optional
        Names of the labels; by default those of ``label_list.dat``, where there is one.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "vocabs.txt").write_text("bird, 0\nsings, 1\n")
    >>> _ = (folder / "train-data.dat").write_text("<2> <3> 0 1 0 <1> 1\n<1> <1> 0\n")
    >>> _ = (folder / "train-label.dat").write_text("1 0\n0 0\n")
    >>> data = read(folder, label_names=["nature", "sport"])
    >>> data.bags.X.toarray().tolist(), data.bags.sizes.tolist(), data.label_sets
    ([[2.0, 1.0], [0.0, 1.0], [1.0, 0.0]], [2, 1], [['nature'], []])
    """
    path = Path(path)
    match = None if path.is_dir() else _DATA_FILE.fullmatch(path.name)
    folder = path.parent if match else path
    if not folder.is_dir():
        raise DataError("no such folder, and no file called train-, valid- or test-data.dat")
    parts = _wanted(folder, part if part is not None else match[1] if match else None)
    words = _vocabulary(_file(folder, "vocabs.txt"), max_bytes)
    names = list(label_names) if label_names is not None else _label_list(folder, max_bytes)

    found = [_part(folder, name, words, names, max_bytes) for name in parts]
    bare = [name for name, data in zip(parts, found) if not data.has_labels]
    if 0 < len(bare) < len(parts):
        raise DataError(
            f"the part {bare[0]} has no {bare[0]}-label.dat and others have theirs; read parts one by one "
            "with part=...",
            path=folder,
        )
    if len({data.Y.shape[1] for data in found}) != 1:
        widths = ", ".join(f"{name} {data.Y.shape[1]}" for name, data in zip(parts, found))
        raise DataError(f"the parts have different numbers of labels: {widths}", path=folder)
    ends = np.cumsum([0, *map(len, found)])
    data = Dataset.concat(found)
    if any(part.instance_Y is None for part in found):
        data = replace(data, instance_Y=None)
    splits = {name: np.arange(a, b) for name, a, b in zip(parts, ends[:-1], ends[1:])}
    return replace(data, name=folder.name, splits=splits)


def _part(folder: Path, part: str, words: list[str], names: list[str] | None, max_bytes: int) -> Dataset:
    path = _file(folder, f"{part}-data.dat")
    X, offsets, lines = _counts(path, len(words), max_bytes)
    label_path = _file(folder, f"{part}-label.dat")
    ids = np.array([f"{part}/{k}" for k in range(1, len(lines) + 1)])
    if not _exists(folder, f"{part}-label.dat"):
        with blame(path):
            return Dataset(Bags(X, offsets, bag_ids=ids, feature_names=words))
    Y = _labels(label_path, names, max_bytes)
    if len(Y) != len(lines):
        raise DataError(
            f"{len(Y)} rows of labels for the {len(lines)} documents of {path.name}", path=label_path
        )
    known = None
    if _exists(folder, f"{part}-sentlabel.dat"):
        known = _sentence_labels(_file(folder, f"{part}-sentlabel.dat"), Y, offsets, ids, max_bytes)
    with blame(path):
        bags = Bags(X, offsets, bag_ids=ids, feature_names=words)
        return Dataset(bags, Y, tuple(names or ()), instance_Y=known)


@of_file
def _counts(path: Path, n_words: int, max_bytes: int) -> tuple[sparse.csr_array, np.ndarray, np.ndarray]:
    """Word counts of each sentence, where documents begin, and the line of each document."""
    tokens = Tokens(read_bytes(path, max_bytes))
    values, marked, line = tokens.values, tokens.bracketed, tokens.lines
    if not len(values):
        raise DataError("no documents")
    document = np.flatnonzero(np.concatenate([[True], line[1:] != line[:-1]]))  # first number of each line
    if not marked[document].all():
        k = document[~marked[document]][0]
        raise DataError("a document begins with its number of sentences, such as <2>", line=int(line[k]))
    is_length = marked.copy()
    is_length[document] = False
    # Sentences of a document: bracketed numbers up to the next document.
    upto = np.concatenate([[0], np.cumsum(is_length)])
    ends = np.append(document[1:], len(values))
    sizes = upto[ends] - upto[document]
    wrong = np.flatnonzero(sizes != values[document])
    if wrong.size:
        k = document[wrong[0]]
        raise DataError(f"{values[k]} sentences announced, {sizes[wrong[0]]} found", line=int(line[k]))
    # Words of a sentence: what lies between its length and the next bracket.
    brackets = np.flatnonzero(marked)
    follow = np.diff(np.append(brackets, len(values))) - 1
    announced = np.where(is_length[brackets], values[brackets], 0)
    wrong = np.flatnonzero(follow != announced)
    if wrong.size:
        k = brackets[wrong[0]]
        raise DataError(f"{announced[wrong[0]]} words announced, {follow[wrong[0]]} found", line=int(line[k]))
    words = values[~marked]
    beyond = np.flatnonzero(words >= n_words)
    if beyond.size:
        k = np.flatnonzero(~marked)[beyond[0]]
        raise DataError(f"word {values[k]} is not in the vocabulary of {n_words} words", line=int(line[k]))
    indptr = np.concatenate([[0], np.cumsum(follow[is_length[brackets]])])
    X = sparse.csr_array((np.ones(len(words)), words, indptr), shape=(len(indptr) - 1, n_words))
    X.sum_duplicates()
    return X, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), line[document]


@of_file
def _labels(path: Path, names: list[str] | None, max_bytes: int) -> np.ndarray:
    tokens = Tokens(read_bytes(path, max_bytes), brackets=False)
    tokens.check_binary()
    if not len(tokens.values):
        raise DataError("no labels")
    lines, counts = np.unique(tokens.lines, return_counts=True)
    width = counts[0] if names is None else len(names)
    ragged = np.flatnonzero(counts != width)
    if ragged.size:
        raise DataError(
            f"{counts[ragged[0]]} labels in this row, expected {width}", line=int(lines[ragged[0]])
        )
    return tokens.values.reshape(-1, width).astype(np.int8)


@of_file
def _sentence_labels(
    path: Path, Y: np.ndarray, offsets: np.ndarray, ids: np.ndarray, max_bytes: int
) -> np.ndarray:
    """Label index of each sentence."""
    tokens = Tokens(read_bytes(path, max_bytes), groups=True)
    tokens.check_binary()
    n_labels = Y.shape[1]
    wrong = np.flatnonzero(tokens.group_sizes != n_labels)
    if wrong.size:
        raise DataError(
            f"a sentence with {tokens.group_sizes[wrong[0]]} labels, expected {n_labels}",
            line=int(tokens.group_lines[wrong[0]]),
        )
    lines, sizes = np.unique(tokens.group_lines, return_counts=True)
    expected = np.diff(offsets)[np.diff(offsets) > 0]  # a document without sentences has a blank line
    if len(lines) != len(expected):
        raise DataError(f"{len(lines)} documents, the data have {len(expected)}")
    wrong = np.flatnonzero(sizes != expected)
    if wrong.size:
        raise DataError(
            f"{sizes[wrong[0]]} sentences, the data have {expected[wrong[0]]}", line=int(lines[wrong[0]])
        )
    truth = tokens.values.reshape(-1, n_labels)
    several = np.flatnonzero(truth.sum(axis=1) > 1)
    if several.size:
        raise DataError("a sentence with several labels", line=int(tokens.group_lines[several[0]]))
    known = np.where(truth.any(axis=1), truth.argmax(axis=1), UNKNOWN)
    check_instance_labels(Y, known, offsets, ids, tokens.group_lines)
    return known


@of_file
def _vocabulary(path: Path, max_bytes: int) -> list[str]:
    words: dict[int, str] = {}
    for line, text in numbered_lines(path, max_bytes):
        word, comma, number = text.rpartition(",")
        number = number.strip()
        if not comma or not number.isdecimal() or len(number) > 18:
            raise DataError(f"expected <word>, <index>, found {text[:40]!r}", line=line)
        if int(number) in words:
            raise DataError(f"the word index {number} occurs twice", line=line)
        words[int(number)] = word.strip()
    missing = next((k for k in range(len(words)) if k not in words), None)
    if not words or missing is not None:
        raise DataError(f"no word has the index {missing or 0}; indices run from 0 without gaps")
    return [words[k] for k in range(len(words))]


def _label_list(folder: Path, max_bytes: int) -> list[str] | None:
    if not _exists(folder, "label_list.dat"):
        return None
    return [
        name.strip()
        for name in re.split(r"[,\n]", read_text(_file(folder, "label_list.dat"), max_bytes).strip())
    ]


def _wanted(folder: Path, part: str | Sequence[str] | None) -> list[str]:
    if part is None:
        present = [name for name in PARTS if _exists(folder, f"{name}-data.dat")]
        if not present:
            raise DataError("no train-, valid- or test-data.dat in this folder", path=folder)
        return present
    wanted = [part] if isinstance(part, str) else list(part)
    for name in wanted:
        if name not in PARTS:
            raise ValueError(f"part must be among {', '.join(PARTS)}, got {name!r}")
    return wanted


def _exists(folder: Path, name: str) -> bool:
    return (folder / name).exists() or (folder / f"{name}.gz").exists()


def _file(folder: Path, name: str) -> Path:
    packed = folder / f"{name}.gz"
    return packed if packed.exists() and not (folder / name).exists() else folder / name


# ----------------------------------------------------------------------
# Text of unsigned integers and angle brackets, cut into numbers with array operations alone


_DIGITS = 18  # more would not fit int64


class Tokens:
    r"""The numbers of a text of digits, blanks, line ends and brackets, with what is around each.

    ``brackets`` says whether ``<`` and ``>`` are allowed, ``groups`` whether they enclose several numbers.

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
    >>> tokens = Tokens(b"<2> 15 7\n<1> 3")
    >>> tokens.values.tolist(), tokens.bracketed.tolist(), tokens.lines.tolist()
    ([2, 15, 7, 1, 3], [True, False, False, True, False], [1, 1, 1, 2, 2])
    """

    def __init__(self, content: bytes, brackets: bool = True, groups: bool = False) -> None:
        if strange := content.translate(None, b"0123456789 \t\r\n" + (b"<>" if brackets else b"")):
            line = content.count(b"\n", 0, content.index(strange[:1])) + 1
            raise DataError(f"the character {strange[:1].decode('latin-1')!r} among numbers", line=line)
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
            raise DataError("a number too large to be true", line=int(self.lines[long[0]]))
        plain = content.translate(bytes.maketrans(b"<>", b"  "))
        self.values = np.fromstring(plain, dtype=np.int64, sep=" ") if len(starts) else np.empty(0, np.int64)
        if len(self.values) != len(starts):
            raise DataError("numbers that cannot be told apart")
        opens, closes = np.flatnonzero(letters == ord("<")), np.flatnonzero(letters == ord(">"))
        if groups:
            self._find_groups(opens, closes, starts)
        else:
            self.bracketed = letters[starts - 1] == ord("<")
            closed = letters[ends] == ord(">") if len(ends) else self.bracketed
            stray = np.flatnonzero(self.bracketed != closed)
            if stray.size:
                raise DataError("a bracket without its partner", line=int(self.lines[stray[0]]))
            for found in (opens, closes):
                if len(found) != self.bracketed.sum():
                    beside = starts - 1 if found is opens else ends
                    lost = np.setdiff1d(found, beside)[:1]
                    raise DataError("a bracket without a number", line=int(self._line_of(lost)[0]))

    def check_binary(self) -> None:
        """Refuse numbers other than 0 and 1."""
        wrong = np.flatnonzero(self.values > 1)
        if wrong.size:
            raise DataError(
                f"a label is {self.values[wrong[0]]}, expected 0 or 1", line=int(self.lines[wrong[0]])
            )

    def _line_of(self, places: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._newlines, places) + 1

    def _find_groups(self, opens: np.ndarray, closes: np.ndarray, starts: np.ndarray) -> None:
        """Match brackets; they neither nest nor leave a number outside nor run over a line."""
        n = min(len(opens), len(closes))
        wrong = (opens[:n] > closes[:n]) | (self._line_of(opens[:n]) != self._line_of(closes[:n]))
        wrong[1:] |= opens[1:n] < closes[:n][:-1]
        if wrong.any() or len(opens) != len(closes):
            k = int(np.flatnonzero(wrong)[0]) if wrong.any() else n
            place = opens[k : k + 1] if k < len(opens) else closes[k : k + 1]
            raise DataError("a bracket without its partner", line=int(self._line_of(place)[0]))
        before = np.searchsorted(starts, opens)
        self.group_sizes = np.searchsorted(starts, closes) - before
        self.group_lines = self._line_of(opens)
        if self.group_sizes.sum() != len(starts):
            inside = np.zeros(len(starts) + 1, dtype=np.int64)
            np.add.at(inside, before, 1)
            np.add.at(inside, before + self.group_sizes, -1)
            lost = int(np.flatnonzero(np.cumsum(inside[:-1]) == 0)[0])
            raise DataError("a number outside brackets", line=int(self.lines[lost]))
