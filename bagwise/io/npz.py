"""NumPy archive (npz) with every fact of a data set and no pickled object.

Holds ``facts`` (one JSON text), ``Y`` (for very many labels ``Y_indices`` and ``Y_indptr``) and, for one
view, ``offsets`` with ``X`` or, if sparse, ``data``, ``indices`` and ``indptr``; optional are ``bag_ids``,
``groups``, ``instance_Y``, ``info0``, ``info1``, ... and ``split0``, ``split1``, ... in the order of the
names in ``facts``. With several views the arrays of view k begin with ``view<k>.``.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from bagwise.bags import Bags, checked_csr, views_of
from bagwise.bags.dataset import Dataset
from bagwise.bags.labels import KEPT_DENSE
from bagwise.errors import DataError
from bagwise.io import _facts
from bagwise.io._source import MAX_BYTES, check_finite, check_size, check_unique_ids, damaged, read_bytes
from bagwise.utils.files import check_file

_HEADER = 1 << 16  # an npy header longer than this was not written by NumPy for plain arrays


def recognises(path: Path, head: bytes) -> bool:
    """Whether the file begins like a zip archive whose first member is an array."""
    name_length = int.from_bytes(head[26:28], "little")
    return head.startswith(b"PK\x03\x04") and head[30 : 30 + name_length].endswith(b".npy")


def write(dataset: Dataset, path: str | Path) -> None:
    """Write an archive that is not compressed, so that it reads at the speed of the disk.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "birds.npz"
    >>> write(Dataset(Bags.from_list([[[1.0, 2.0]], [[3.0, 4.0]]]), [["wren"], []]), path)
    >>> np.load(path)["X"]
    array([[1., 2.],
           [3., 4.]])
    >>> read(path).label_sets
    [['wren'], []]
    """
    facts = _facts.facts_of(dataset)
    known = _facts.instance_labels_of(dataset)
    arrays: dict[str, np.ndarray] = {"facts": np.array(json.dumps(facts))}
    n_bags, n_labels = len(dataset), len(dataset.label_names)
    if n_bags * n_labels <= KEPT_DENSE:
        arrays["Y"] = dataset.Y
    else:
        arrays |= {"Y_indices": dataset.Y_sparse.indices, "Y_indptr": dataset.Y_sparse.indptr}
    if dataset.groups is not None:
        arrays["groups"] = _plain(dataset.groups, "groups")
    for k, which in enumerate(dataset.splits.values()):
        arrays[f"split{k}"] = which
    for k, (view, bags) in enumerate(views_of(dataset.bags).items()):
        front = f"view{k}." if facts["several_views"] else ""
        if bags.is_sparse:
            parts = {"data": bags.X.data, "indices": bags.X.indices, "indptr": bags.X.indptr}
        else:
            parts = {"X": bags.X}
        parts["offsets"] = bags.offsets
        if bags.has_bag_ids:
            parts["bag_ids"] = _plain(bags.bag_ids, "bag ids")
        if view in known:
            parts["instance_Y"] = known[view]
        for j, (name, values) in enumerate(bags.instance_info.items()):
            parts[f"info{j}"] = _plain(values, f"instance_info {name!r}")
            if values.dtype == object:
                parts[f"info{j}.gaps"] = np.frompyfunc(lambda v: v is None, 1, 1)(values).astype(bool)
        arrays |= {front + name: values for name, values in parts.items()}
    with open(path, "wb") as handle:  # a name without .npz would get a second suffix
        np.savez(handle, **arrays)  # type: ignore[arg-type]


def _plain(values: np.ndarray, what: str) -> np.ndarray:
    """Numbers or text of fixed width: no pickles."""
    if values.dtype.kind not in "OT":
        _facts.kind_of(values)
        return values
    flat = values.ravel().tolist()
    if all(v is None or isinstance(v, str) for v in flat):
        return np.array([v or "" for v in flat], dtype=str).reshape(values.shape)
    plain = np.asarray(flat).reshape(values.shape)
    if plain.dtype.kind not in "biuf":
        raise DataError(f"{what} must be all numbers or all text to be written")
    return plain


def read(path: str | Path, *, max_bytes: int = MAX_BYTES) -> Dataset:
    """Read what `write` wrote; never brings a pickled object to life.

    Parameters
    ----------
    path : path
        The file.
    max_bytes : int
        Refuse an archive whose arrays take more than this.
    """
    path = Path(path)
    with damaged(path, "an npz archive of bagwise"):
        check_file(path)
        with open(path, "rb") as handle:
            packed = handle.read(2) == b"\x1f\x8b"
        source: Any = io.BytesIO(read_bytes(path, max_bytes)) if packed else path
        with zipfile.ZipFile(source) as archive:
            arrays = _arrays(archive, max_bytes, path)
        facts = _facts.loads(str(arrays["facts"]))
        views, known = {}, {}
        for k, (view, about) in enumerate(facts["views"].items()):
            front = f"view{k}." if facts["several_views"] else ""
            parts = {
                name.removeprefix(front): values for name, values in arrays.items() if name.startswith(front)
            }
            views[view] = bags = _bags(parts, about)
            check_finite(bags.X, bags.offsets, bags.bag_ids, path, feature_names=bags.feature_names)
            check_unique_ids(bags.bag_ids, path)
            if "instance_Y" in parts:
                known[view] = parts["instance_Y"]
        splits = {str(name): arrays[f"split{k}"] for k, name in enumerate(facts["splits"])}
        Y = arrays.get("Y")
        if Y is None:
            ones = np.ones(len(arrays["Y_indices"]), dtype=np.int8)
            Y = checked_csr(ones, arrays["Y_indices"], arrays["Y_indptr"], len(facts["label_names"]))
        return _facts.rebuild(facts, views, Y, known, arrays.get("groups"), splits)


def _arrays(archive: zipfile.ZipFile, max_bytes: int, path: Path) -> dict[str, np.ndarray]:
    members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
    check_size(sum(info.file_size for info in members), max_bytes, path)
    arrays = {}
    for info in members:
        with archive.open(info) as member:
            arrays[info.filename.removesuffix(".npy")] = _array(member, info)
    return arrays


def _array(member: Any, info: zipfile.ZipInfo) -> np.ndarray:
    """One array, allocated only if its header claims no more than the directory says is there."""
    version = npy.read_magic(member)
    read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if read_header is None:
        raise DataError(
            f"array {info.filename!r} has version {version} of the npy format; known are 1.0, 2.0"
        )
    shape, fortran, dtype = read_header(member, max_header_size=_HEADER)
    if dtype.hasobject or dtype.kind not in "biufMmU":
        raise DataError(f"array {info.filename!r} holds {dtype}; only numbers, times and text are read")
    n_values = 1
    for length in shape:
        n_values *= length  # Python integers do not overflow
    if min(shape, default=0) < 0 or n_values * dtype.itemsize > info.file_size:
        raise DataError(f"array {info.filename!r} claims the shape {shape}, more than the archive holds")
    content = member.read(n_values * dtype.itemsize + 1)
    if len(content) != n_values * dtype.itemsize:
        raise DataError(f"array {info.filename!r} has {len(content)} bytes, not what its shape {shape} needs")
    flat = np.frombuffer(bytearray(content), dtype=dtype)  # writable
    if dtype.kind == "U":
        flat.tolist()  # a code point that is none must be found here, not by whoever prints it
    return flat.reshape(shape, order="F" if fortran else "C")


def _bags(parts: dict[str, np.ndarray], about: dict[str, Any]) -> Bags:
    X = parts.get("X")
    if X is None:
        X = checked_csr(parts["data"], parts["indices"], parts["indptr"], about["n_features"])
    elif X.ndim != 2 or X.shape[1] != about["n_features"]:
        raise DataError(f"instances have shape {X.shape}, expected {about['n_features']} columns")
    info = {}
    for j, (name, kind) in enumerate(about["info"].items()):
        values = parts[f"info{j}"]
        if f"info{j}.gaps" in parts:
            values = values.astype(object)
            values[parts[f"info{j}.gaps"]] = None
        info[name] = values
        if list(values.shape[1:]) != kind["shape"]:
            raise DataError(
                f"instance_info {name!r} has shape {values.shape}, expected (..., {kind['shape']})"
            )
    return Bags(
        X,
        parts["offsets"],
        bag_ids=parts.get("bag_ids"),
        instance_info=info,
        feature_names=about["feature_names"],
    )
