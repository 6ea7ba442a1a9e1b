"""What every reader checks before it hands out a data set: finite numbers and one bag per id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any

import numpy as np

from bagwise.bags import first_not_finite
from bagwise.bags.labels import KEPT_DENSE
from bagwise.errors import BagwiseError, DataError


def check_finite(
    X: Any,
    offsets: Any,
    bag_ids: Any,
    path: str | PathLike[str],
    line_of_row: Sequence[int] | np.ndarray | None = None,
    feature_names: Sequence[str] | None = None,
) -> None:
    """Refuse NaN and infinite feature values, naming the bag and the feature.

    Parameters
    ----------
    X : array or CSR matrix of shape (n_instances, n_features)
        The instances.
    offsets : array of shape (n_bags + 1,)
        Where bags begin.
    bag_ids : array of shape (n_bags,) or None
        Names of the bags; positions when None.
    path : path
        The file, for the message.
    line_of_row : array of shape (n_instances,), optional
        Line of the file from which each row of ``X`` came.
    feature_names : sequence of str, optional
        Names of the columns of ``X``; positions when left out.

    Examples
    --------
    >>> check_finite(np.ones((3, 2)), [0, 1, 3], ["a", "b"], "birds.csv")
    >>> check_finite(np.array([[1.0], [np.nan]]), [0, 1, 2], ["a", "b"], "birds.csv", line_of_row=[2, 3])
    Traceback (most recent call last):
    ...
    bagwise.errors.DataError: birds.csv, line 3: bag 'b', feature 0 is nan; fill or drop such instances first
    """
    place = first_not_finite(X)
    if place is None:
        return
    row, column = place
    bag = int(np.searchsorted(np.asarray(offsets), row, side="right")) - 1
    name = bag if bag_ids is None else _plain(bag_ids[bag])
    feature = column if feature_names is None else str(feature_names[column])
    raise DataError(
        f"bag {name!r}, feature {feature!r} is {float(X[row, column])}; fill or drop such instances first",
        path=path,
        line=None if line_of_row is None else int(line_of_row[row]),
    )


def check_unique_ids(
    bag_ids: Any, path: str | PathLike[str], line_of_bag: Sequence[int] | np.ndarray | None = None
) -> None:
    """Refuse a bag id that occurs twice.

    Parameters
    ----------
    bag_ids : array of shape (n_bags,) or None
        Names of the bags; nothing to check when None.
    path : path
        The file, for the message.
    line_of_bag : array of shape (n_bags,), optional
        Line of the file on which each bag begins.

    Examples
    --------
    >>> check_unique_ids(["a", "b"], "birds.csv")
    >>> check_unique_ids(["a", "b", "a"], "birds.csv", line_of_bag=[1, 4, 9])
    Traceback (most recent call last):
    ...
    bagwise.errors.DataError: birds.csv, line 9: the bag id 'a' occurs twice; ids must be unique
    """
    if bag_ids is None:
        return
    ids = np.asarray(bag_ids).tolist()
    if len(set(ids)) == len(ids):
        return
    seen = set()
    for k, bag_id in enumerate(ids):
        if bag_id in seen:
            raise DataError(
                f"the bag id {bag_id!r} occurs twice; ids must be unique",
                path=path,
                line=None if line_of_bag is None else int(line_of_bag[k]),
            )
        seen.add(bag_id)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def check_size(n_bytes: int, max_bytes: int, path: str | PathLike[str], what: str = "holds") -> None:
    """Refuse what would take more memory than allowed, before the memory is asked for.

    Examples
    --------
    >>> check_size(10, 100, "birds.npz")
    >>> check_size(1000, 100, "birds.npz")
    Traceback (most recent call last):
    ...
    bagwise.errors.DataError: birds.npz: holds 1,000 bytes when unpacked, more than the 100 allowed; ...
    """
    if n_bytes > max_bytes:
        raise DataError(
            f"{what} {n_bytes:,} bytes when unpacked, more than the {max_bytes:,} allowed; "
            "if that is right, read it with a larger max_bytes",
            path=path,
        )


def check_labels(n_bags: int, n_labels: int, max_bytes: int, path: str | PathLike[str]) -> None:
    """Refuse a label matrix that would be kept dense and takes more memory than allowed."""
    check_size(min(n_bags * n_labels, KEPT_DENSE), max_bytes, path, "has label sets of")


@contextmanager
def damaged(path: str | PathLike[str], what: str) -> Iterator[None]:
    """Turn whatever a library raises over a damaged file into one error that names the file.

    Examples
    --------
    >>> with damaged("birds.npz", "an npz file"):
    ...     raise KeyError("offsets")
    Traceback (most recent call last):
    ...
    bagwise.errors.DataError: birds.npz: not an npz file, or damaged (KeyError: 'offsets')
    """
    try:
        yield
    except DataError as error:
        raise error.at(path) from None
    except BagwiseError:
        raise
    except Exception as error:  # what a parser raises over hostile bytes is nobody's contract
        reason = f"{type(error).__name__}: {error}"[:300].replace("\n", " ")
        raise DataError(f"not {what}, or damaged ({reason})", path=path) from error
