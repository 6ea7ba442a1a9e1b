"""Bags in a folder of memory maps: what is written, and what must hold before it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.bags._rows import checked_csr, first_not_finite
from bagwise.errors import DataError, quoted


def save_bags(bags: Any, folder: str | Path) -> None:
    """Write the arrays of the bags; see `Bags.save`."""
    from bagwise.utils.folder import save_arrays

    arrays = {"offsets": bags.offsets}
    if bags.is_sparse:
        arrays |= {"data": bags.X.data, "indices": bags.X.indices, "indptr": bags.X.indptr}
    else:
        arrays["X"] = bags.X
    if bags.has_bag_ids:
        arrays["bag_ids"] = bags.bag_ids
    arrays |= {f"info.{name}": values for name, values in bags.instance_info.items()}
    save_arrays(folder, arrays, {"n_features": bags.n_features, "feature_names": bags.feature_names})


def open_bags(cls: Any, folder: str | Path, check: bool) -> Any:
    """Map the arrays into memory; see `Bags.open`."""
    from bagwise.utils.folder import open_arrays

    arrays, facts = open_arrays(folder)
    try:
        width = facts["n_features"]
        if not isinstance(width, int) or width < 0:
            raise DataError(f"the number of features is {width!r}")
        X = arrays.get("X")
        if X is None:
            parts = arrays["data"], arrays["indices"], arrays["indptr"]
            X = checked_csr(*parts, width) if check else _unchecked_csr(*parts, width)
        bags = cls(
            X,
            arrays["offsets"],
            bag_ids=arrays.get("bag_ids"),
            instance_info={k.removeprefix("info."): v for k, v in arrays.items() if k.startswith("info.")},
            feature_names=facts["feature_names"],
        )
        if bags.n_features != width:
            raise DataError(f"instances have {bags.n_features} features, expected {width}")
        if check:
            _check_values(bags)
        return bags
    except DataError as error:
        raise error.at(folder) from None
    except (KeyError, TypeError, ValueError, OverflowError, SystemError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise DataError(f"not a folder of saved bags, or damaged ({reason})", path=folder) from None


def _check_values(bags: Any) -> None:
    """Refuse what no save has written: numbers that are not finite, text that is none."""
    bad = first_not_finite(bags.X)
    if bad is not None:
        bag = bags.bag_ids[np.searchsorted(bags.offsets, bad[0], side="right") - 1]
        raise DataError(f"bag {quoted(bag)}, feature {bad[1]} is not finite; fill or drop such instances")
    for values in (bags.bag_ids, *bags.instance_info.values()):
        if values.dtype.kind == "U":
            values.tolist()  # a code point that is none must be found here, not by whoever prints it


def _unchecked_csr(data: Any, indices: Any, indptr: Any, n_features: int) -> sparse.csr_array:
    return sparse.csr_array((data, indices, indptr), shape=(len(indptr) - 1, n_features), copy=False)
