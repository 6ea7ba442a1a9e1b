"""Bags in a folder of memory maps: what is written, and what must hold before it is used."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from scipy import sparse

from bagwise.bags._rows import checked_csr, first_not_finite
from bagwise.errors import DataError, in_one_line, quoted
from bagwise.utils.files import check_file, disk_full, lock


def save_bags(bags: Any, folder: str | Path) -> None:
    """Write the arrays of the bags; see `Bags.save`."""
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
    arrays, facts = open_arrays(folder)
    try:
        width = facts["n_features"]
        if not isinstance(width, int) or width < 0:
            raise DataError(f"the number of features is {width!r}")
        X = arrays.get("X")
        if X is None:
            parts = arrays["data"], arrays["indices"], arrays["indptr"]
            shape = len(parts[2]) - 1, width
            X = checked_csr(*parts, width) if check else sparse.csr_array(parts, shape=shape, copy=False)
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


# ----------------------------------------------------------------------
# A folder of ``.npy`` files and one JSON file of facts; opens as memory maps
#
# ``facts.json`` names the files that belong together. A later save writes files under new names, then puts a
# new ``facts.json`` in place of the old one in a single step, and only then removes the old files: whoever
# opens the folder at any moment, even after a kill, finds one whole state.


_FACTS = "facts.json"
_OURS = re.compile(r"([0-9a-f]{8}-)?([0-9]{2,}\.npy|facts\.json)")


def save_arrays(folder: str | Path, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
    """Write the arrays and the facts; an earlier state is replaced only when all is written."""
    folder = Path(os.path.realpath(folder))
    if folder.exists() and not folder.is_dir():
        raise DataError("is a file; give the name of a folder", path=folder)
    with disk_full(folder):
        folder.mkdir(parents=True, exist_ok=True)
        strange = next((name for name in os.listdir(folder) if not _OURS.fullmatch(name)), None)
        if strange is not None and not (folder / _FACTS).exists():
            raise DataError(f"holds other files ({strange}); give the name of a new folder", path=folder)
        with _locked(folder):
            token = secrets.token_hex(4)
            try:
                _write_state(folder, token, arrays, facts)
            finally:
                _remove_others(folder)


def _write_state(folder: Path, token: str, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
    names = {}
    for k, (name, array) in enumerate(arrays.items()):
        if array.dtype == object:  # text; pickles are never written
            array = array.astype(str)
        names[name] = f"{token}-{k:02d}.npy"
        with open(folder / names[name], "wb") as handle:
            np.save(handle, array, allow_pickle=False)
            _to_disk(handle)
    fresh = folder / f"{token}-{_FACTS}"
    with open(fresh, "w", encoding="utf-8") as text:
        json.dump({"arrays": names, "facts": facts}, text)
        _to_disk(text)
    os.replace(fresh, folder / _FACTS)


def _remove_others(folder: Path) -> None:
    """Remove files of earlier states and of saves that were killed; nobody else's."""
    try:
        kept = {_FACTS, *json.loads((folder / _FACTS).read_text(encoding="utf-8"))["arrays"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        kept = {_FACTS}
    for name in os.listdir(folder):
        if name not in kept and _OURS.fullmatch(name):
            with suppress(OSError):  # Windows does not remove what is mapped; the next save will
                os.unlink(folder / name)


def _to_disk(handle: Any) -> None:
    handle.flush()
    os.fsync(handle.fileno())


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One save at a time: the second would remove what the first has begun to write."""
    if os.name == "nt":
        yield
        return
    place = os.open(folder, os.O_RDONLY)
    try:
        lock(place, wait=True)
        yield
    finally:
        os.close(place)


def open_arrays(folder: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Map the arrays of `save_arrays` into memory, read-only."""
    folder = Path(folder)
    try:
        return _open(folder)
    except DataError:
        try:
            return _open(folder)  # it may have been replaced while we looked
        except DataError as error:
            raise error.at(folder) from None


def _open(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    try:
        check_file(folder / _FACTS)
        content = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        arrays = {}
        for name, file in content["arrays"].items():
            place = folder / Path(file).name  # never leaves the folder
            check_file(place)
            arrays[name] = _load(place)
        facts = content["facts"]
        if not isinstance(facts, dict):
            raise TypeError("no facts")
        return arrays, facts
    except DataError:
        raise
    except Exception as error:  # what a parser raises over hostile bytes is nobody's contract
        raise DataError(
            f"not a folder of saved bags ({in_one_line(error, named=True)})", path=folder
        ) from None


def _load(path: Path) -> np.ndarray:
    with open(path, "rb") as handle:
        version = npy.read_magic(handle)
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read_header(handle)
    if dtype.hasobject or dtype.kind not in "biufMmU":
        raise ValueError(f"{path.name} holds {dtype}; only numbers, times and text are opened")
    if 0 in shape:  # an empty array cannot be mapped
        return np.empty(shape, dtype)
    return np.load(path, mmap_mode="r", allow_pickle=False)
