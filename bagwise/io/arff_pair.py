"""A pair of ARFF files: ``<stem>_1.arff`` has a line per instance, ``<stem>_2.arff`` a line per bag.

An instance is its features and a class, a bag the number of its instances and a class; bags take their
instances from the first file in order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.dataset import UNKNOWN, Dataset
from bagwise.errors import DataError
from bagwise.io._arff_grammar import arff_lines, is_arff, is_relational, read_header
from bagwise.io._numbers import classes_to_labels, parse_rows, whole_numbers
from bagwise.io._source import MAX_BYTES, blame, check_finite, of_file

_HALF = re.compile(r"(.+)_[12]\.arff(?:\.gz)?", re.IGNORECASE)
_WHOLE = re.compile(r"(.+?)(?:\.arff)?(?:\.gz)?", re.IGNORECASE)


def recognises(path: Path, head: bytes) -> bool:
    """Whether this is one file of a pair, or the stem of one."""
    if not head:
        return not path.is_dir() and all(half.exists() for half in _halves(path))
    return bool(_HALF.fullmatch(path.name) and is_arff(head) and not is_relational(head))


@of_file
def read(
    path: str | Path, *, max_bytes: int = MAX_BYTES, label_names: Sequence[str] | None = None
) -> Dataset:
    r"""Read a pair of ARFF files.

    Bags of the classes 0 and 1 get one label, ``positive``; more classes get one label each, called by its
    number. The classes of the instances are kept as ``instance_Y`` when they say more than those of the
    bags; with one label that is 0 for a positive instance and -1 for one that does not carry it.

    Parameters
    ----------
    path : path
        Either file of the pair, or their common stem.
    max_bytes : int
        What each file may grow to when unpacked.
    label_names : sequence of str, optional
        Name of class 0, 1, ...; or one name for the positive class.

    Examples
    --------
    >>> import tempfile
    >>> stem = Path(tempfile.mkdtemp()) / "toy"
    >>> lines = ["@relation toy", "@attribute a numeric", "@attribute b numeric", "@data"]
    >>> _ = stem.with_name("toy_1.arff").write_text("\n".join([*lines, "0.5,0", "0.7,1", "0.1,0"]))
    >>> _ = stem.with_name("toy_2.arff").write_text("\n".join([*lines, "2,1", "1,0"]))
    >>> data = read(stem)
    >>> data.bags.sizes.tolist(), data.Y.ravel().tolist(), data.instance_Y.tolist()
    ([2, 1], [1, 0], [-1, 0, -1])
    """
    first, second = _halves(Path(path))
    for half, other in ((first, second), (second, first)):
        if not half.exists():
            raise DataError(f"no such file; {other.name} is one half of a pair and needs it", path=half)
    table, lines, features = _table(first, max_bytes)
    if len(features) < 2:
        raise DataError("expected features and a class, found one column", path=first)
    counts, bag_lines, columns = _table(second, max_bytes)
    with blame(second):
        if len(columns) != 2:
            expected = "expected two: number of instances, class"
            raise DataError(f"{len(columns)} columns, {expected}", line=bag_lines[0])
        sizes = whole_numbers(counts[:, 0], bag_lines, "the number of instances")
        classes = whole_numbers(counts[:, 1], bag_lines, "the class")
        offsets = _offsets(sizes, len(table), first.name, bag_lines)
    with blame(first):
        instance_classes = whole_numbers(table[:, -1], lines, "the class")
        X = np.ascontiguousarray(table[:, :-1])
        check_finite(X, offsets, None, first, lines, features[:-1])
    with blame(second):
        Y, names, known = classes_to_labels(classes, label_names)
    with blame(first):
        instance_Y = None
        if (instance_classes != np.repeat(classes, sizes)).any():
            instance_Y = _instance_labels(instance_classes, classes, offsets, known, lines)
        bags = Bags(X, offsets, feature_names=features[:-1])
        return Dataset(bags, Y, names, instance_Y=instance_Y, name=_stem(first))


def _instance_labels(
    given: np.ndarray,
    classes: np.ndarray,
    offsets: np.ndarray,
    known: np.ndarray,
    lines: Sequence[int],
) -> np.ndarray:
    """Label index of each instance; an instance of another class than its bag has none of the bag's."""
    of_bag = np.repeat(classes, np.diff(offsets))
    if len(known) == 1:
        wrong = np.flatnonzero((given > 1) | ((given == 1) & (of_bag == 0)))
        if wrong.size:
            row = wrong[0]
            bag = int(np.searchsorted(offsets, row, side="right"))
            raise DataError(
                f"an instance of class {given[row]} in bag {bag} of class {of_bag[row]}; a bag with a "
                "positive instance is positive, and instances are 0 or 1",
                line=lines[row],
            )
    named = (given == of_bag) & np.isin(given, known)
    return np.where(named, np.searchsorted(known, given), UNKNOWN)


def _offsets(sizes: np.ndarray, n_instances: int, first: str, lines: Sequence[int]) -> np.ndarray:
    offsets = np.concatenate([[0], np.cumsum(np.minimum(sizes, n_instances + 1))])
    beyond = np.flatnonzero(offsets[1:] > n_instances)
    if beyond.size:
        problem = f"the bags up to here have more than the {n_instances} instances of {first}"
        raise DataError(problem, line=lines[beyond[0]])
    if offsets[-1] != n_instances:
        problem = f"the bags have {offsets[-1]} instances in all, {first} has {n_instances}"
        raise DataError(problem, line=lines[-1])
    return offsets.astype(np.int64)


@of_file
def _table(path: Path, max_bytes: int) -> tuple[np.ndarray, list[int], list[str]]:
    lines = arff_lines(path, max_bytes)
    header = read_header(lines)
    for attribute in header.attributes:
        if attribute.kind not in ("numeric", "nominal"):
            raise DataError(
                f"attribute {attribute.name!r} is {attribute.kind}, expected numeric", line=attribute.line
            )
    if not header.attributes:
        raise DataError("no attributes")
    rows = list(lines)
    if not rows:
        raise DataError("no rows after @data")
    numbers = [line for line, _ in rows]
    table = parse_rows([text for _, text in rows], numbers, len(header.attributes))
    return table, numbers, [attribute.name for attribute in header.attributes]


def _stem(path: Path) -> str:
    match = _HALF.fullmatch(path.name) or _WHOLE.fullmatch(path.name)
    return match[1] if match else path.name


def _halves(path: Path) -> tuple[Path, Path]:
    """Both files of the pair; where a half is missing, its plain name."""
    found = []
    for k in (1, 2):
        plain = path.with_name(f"{_stem(path)}_{k}.arff")
        packed = plain.with_name(plain.name + ".gz")
        found.append(packed if packed.exists() and not plain.exists() else plain)
    return found[0], found[1]
