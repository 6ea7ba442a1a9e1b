"""Arrays in HDF5, zarr and torch files: what each holds by name, unread."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.errors import DataError, OptionalDependencyError
from bagwise.media.embeddings.stored import Stored, check_claim, refused

__all__ = ["open_h5", "open_pt", "open_zarr"]

_MOST_ARRAYS = 1_000_000


def open_h5(path: str) -> dict[str, Stored]:
    """Datasets of an HDF5 file by their path; those stored in one piece are mapped."""
    try:
        import h5py
    except ImportError:
        raise OptionalDependencyError("HDF5 files need h5py: pip install 'bagwise[slides]'") from None
    found: dict[str, Stored] = {}
    try:
        with h5py.File(path, "r") as file:
            root = _attrs(file)

            def visit(name: str, item: Any) -> None:
                if isinstance(item, h5py.Dataset) and len(found) < _MOST_ARRAYS:
                    inherited = {**root, **_attrs(item.parent)}
                    found[name] = _dataset(h5py, path, name, item, inherited)

            file.visititems(visit)
    except DataError:
        raise
    except Exception as error:  # HDF5 fails in many ways on damaged files
        raise refused(error, "HDF5") from None
    return found


def _attrs(item: Any) -> dict[str, Any]:
    """Facts kept with a group or dataset; what cannot be read is passed over."""
    facts = {}
    for name in item.attrs:
        try:
            facts[name] = item.attrs[name]
        except Exception:  # types that h5py does not know
            continue
    return facts


def _dataset(h5py: Any, path: str, name: str, item: Any, facts: dict[str, Any]) -> Stored:
    facts = {**facts, **_attrs(item)}
    dtype, shape = item.dtype, item.shape
    if shape is None or dtype.kind not in "fiub" or item.is_virtual or item.external:
        return Stored(shape or (), "V", lambda: None, facts)
    check_claim(path, shape, dtype.itemsize, f"dataset {name[:60]!r}")
    at = item.id.get_offset() if item.chunks is None and 0 not in shape else None
    if at is not None:  # None also where nothing was written yet: HDF5 then gives its fill value
        from bagwise.media.embeddings.archives import _mapped

        return Stored(shape, dtype.kind, _mapped(path, dtype, at, shape).read, facts)

    def read() -> np.ndarray:
        try:
            with h5py.File(path, "r") as file:
                return file[name][()]
        except Exception as error:
            raise refused(error, "HDF5") from None

    return Stored(shape, dtype.kind, read, facts)


def open_zarr(path: str) -> dict[str, Stored]:
    """Arrays of a zarr folder by their path."""
    try:
        import zarr
    except ImportError:
        raise OptionalDependencyError("zarr folders need zarr: pip install zarr") from None
    try:
        opened = zarr.open(path, mode="r")
        if isinstance(opened, zarr.Array):
            return {"features": _zarr_array(path, opened, {})}
        root = dict(opened.attrs)
        found = {}
        for name, item in opened.members(max_depth=None):
            if isinstance(item, zarr.Array):
                above = name.rpartition("/")[0]
                group = dict(opened[above].attrs) if above else {}
                found[name] = _zarr_array(path, item, {**root, **group})
        return found
    except DataError:
        raise
    except Exception as error:  # zarr and its codecs fail in many ways
        raise refused(error, "zarr") from None


def _zarr_array(path: str, item: Any, facts: dict[str, Any]) -> Stored:
    kind = np.dtype(item.dtype).kind
    facts = {**facts, **dict(item.attrs)}
    if kind not in "fiub":
        return Stored(item.shape, "V", lambda: None, facts)
    check_claim(path, item.shape, np.dtype(item.dtype).itemsize, f"array {item.name or 'features'!r}")

    def read() -> np.ndarray:
        try:
            return np.asarray(item[...])
        except Exception as error:
            raise refused(error, "zarr") from None

    return Stored(item.shape, kind, read, facts)


def open_pt(path: str) -> dict[str, Stored]:
    """Tensors of a torch file, read with ``weights_only=True``: nothing in it is ever run."""
    try:
        import torch
    except ImportError:
        raise OptionalDependencyError(".pt files need torch: pip install 'bagwise[torch]'") from None
    content = _load(torch, path)
    if not isinstance(content, dict):
        content = {"features": content}
    found = {}
    for name, value in content.items():
        if isinstance(value, (torch.Tensor, np.ndarray)):
            found[str(name)] = _tensor(torch, path, str(name), value)
    return found


def _load(torch: Any, path: str) -> Any:
    try:
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:  # of before torch 1.6: no zip, cannot be mapped
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            if "numpy" not in str(error) or not hasattr(torch.serialization, "safe_globals"):
                raise
            with torch.serialization.safe_globals(_numpy_parts()):  # an array saved with torch.save
                return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise refused(error, "a torch file with weights_only=True") from None


def _numpy_parts() -> list[Any]:
    """What an array of numbers is made of in a pickle, and nothing else."""
    core = getattr(np, "_core", None) or np.core  # type: ignore[attr-defined]
    kinds = [type(np.dtype(name)) for name in ("f2", "f4", "f8", "i4", "i8")]
    rebuild = core.multiarray._reconstruct
    return [np.ndarray, np.dtype, *kinds, rebuild, (rebuild, "numpy.core.multiarray._reconstruct")]


def _tensor(torch: Any, path: str, name: str, value: Any) -> Stored:
    shape = tuple(int(n) for n in value.shape)
    if isinstance(value, np.ndarray):
        return Stored(shape, value.dtype.kind, lambda: value)
    if value.layout is not torch.strided or value.is_complex() or value.is_quantized or value.is_meta:
        return Stored(shape, "V", lambda: None)
    check_claim(
        path, shape, value.element_size(), f"tensor {name[:60]!r}"
    )  # a stride of 0 repeats one number
    kind = "f" if value.is_floating_point() else "i"

    def read() -> np.ndarray:
        whole = value.detach()
        if kind == "f" and (whole.dtype == torch.bfloat16 or whole.element_size() == 1):
            whole = whole.float()
        return whole.contiguous().numpy()

    return Stored(shape, kind, read)
