"""Arrays in NumPy's files, safetensors, HDF5, zarr and torch files: what each holds by name, unread.

What is stored as it is gets mapped into memory.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from typing import Any

import numpy as np
from numpy.lib import format as npy

from bagwise.errors import DataError, optional
from bagwise.media.embeddings.layout import Stored, check_claim, reading_as

__all__ = ["open_h5", "open_npy", "open_npz", "open_pt", "open_safetensors", "open_zarr"]

_LONGEST_HEADER = 100 << 20
_MOST_ARRAYS = 1_000_000  # of an HDF5 file
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1"}
_TYPES |= {"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1", "BF16": "<u2"}


def open_npy(path: str) -> dict[str, Stored]:
    """One array, mapped."""
    with reading_as("a NumPy array"), open(path, "rb") as file:
        shape, fortran, dtype = _header(file)
        at = file.tell()
    if dtype.kind not in "fiub":
        what = "pickled objects, which are not opened" if dtype.hasobject else f"{dtype} in place of numbers"
        raise DataError(f"the array holds {what}")
    check_claim(path, shape, dtype.itemsize, "the array")
    if math.prod(shape) * dtype.itemsize > os.path.getsize(path) - at:
        raise DataError("is truncated: it ends before its array does")
    return {"features": _mapped(path, dtype, at, shape, "F" if fortran else "C")}


def _header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    with reading_as("a NumPy array"):  # the header is a Python literal, which fails in every way there is
        version = npy.read_magic(file)
        if version == (1, 0):
            return npy.read_array_header_1_0(file)
        if version == (2, 0):
            return npy.read_array_header_2_0(file)
    raise DataError(f"is a NumPy array of version {version}, which no file of numbers needs")


def _mapped(path: str, dtype: Any, offset: int, shape: tuple[int, ...], order: Any = "C") -> Stored:
    dtype = np.dtype(dtype)

    def read() -> np.ndarray:
        if 0 in shape:
            return np.zeros(shape, dtype=dtype)
        if offset + math.prod(shape) * dtype.itemsize > os.path.getsize(path):
            raise DataError("ends before its numbers do: it was cut off")
        # a plain array over the map: slices of np.memmap itself are slow to make
        return np.asarray(np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape, order=order))

    return Stored(shape, dtype.kind, read)


def open_npz(path: str) -> dict[str, Stored]:
    """Arrays of an archive; those that are not compressed are mapped."""
    with reading_as("an npz archive"), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        return {m.filename.removesuffix(".npy"): _member(path, archive, m) for m in members}


def _member(path: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Stored:
    what = f"array {member.filename[:60]!r}"
    with archive.open(member) as stream:
        head = io.BytesIO(stream.read(1 << 16))
    shape, fortran, dtype = _header(head)
    if dtype.kind not in "fiub":  # texts and objects beside the numbers are passed over unread
        return Stored(shape, "O" if dtype.hasobject else dtype.kind, lambda: None)
    check_claim(path, shape, dtype.itemsize, what)
    n_bytes = math.prod(shape) * dtype.itemsize
    if head.tell() + n_bytes > member.file_size:
        raise DataError(f"{what} is truncated")
    if member.compress_type == zipfile.ZIP_STORED and not fortran:
        with open(path, "rb") as file:
            file.seek(member.header_offset)
            local = file.read(30)
        if len(local) == 30 and local[:4] == b"PK\x03\x04":
            names = int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
            at = member.header_offset + 30 + names + head.tell()
            if at + n_bytes <= os.path.getsize(path):
                return _mapped(path, dtype, at, shape)

    def read() -> np.ndarray:
        out = np.empty(n_bytes, dtype=np.uint8)
        done = 0
        with reading_as("an npz archive"), zipfile.ZipFile(path) as again, again.open(member) as stream:
            stream.read(head.tell())
            while done < n_bytes:
                block = stream.read(min(1 << 20, n_bytes - done))
                if not block:
                    raise DataError(f"{what} is truncated")
                out[done : done + len(block)] = np.frombuffer(block, dtype=np.uint8)
                done += len(block)
        return out.view(dtype).reshape(shape, order="F" if fortran else "C")

    return Stored(shape, dtype.kind, read)


def open_safetensors(path: str) -> dict[str, Stored]:
    """Tensors, mapped; the format is eight bytes, a header in JSON, and the numbers."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _LONGEST_HEADER):
            raise DataError("cannot be read as safetensors (its header is longer than the file)")
        text = file.read(length)
    with reading_as("safetensors"):
        header = json.loads(text.decode("utf-8"))
        facts = header.pop("__metadata__", {}) or {}
        found = {}
        for name, entry in header.items():
            shape = tuple(int(n) for n in entry["shape"])
            begin, end = (int(n) for n in entry["data_offsets"])
            found[name] = _tensor(
                path, entry["dtype"], shape, (8 + length + begin, 8 + length + end), size, facts
            )
    return found


def _tensor(
    path: str, kind: str, shape: tuple[int, ...], span: tuple[int, int], size: int, facts: Any
) -> Stored:
    if kind not in _TYPES:
        return Stored(shape, "V", lambda: None, facts)
    dtype = np.dtype(_TYPES[kind])
    if any(n < 0 for n in shape) or math.prod(shape) * dtype.itemsize != span[1] - span[0] or span[1] > size:
        raise DataError(
            f"a tensor of shape {shape} lies outside of the file, or has another size than declared"
        )
    mapped = _mapped(path, dtype, span[0], shape)
    if kind != "BF16":
        return Stored(shape, dtype.kind, mapped.read, facts)
    # the upper half of float32
    return Stored(shape, "f", lambda: (mapped.read().astype(np.uint32) << 16).view(np.float32), facts)


def open_h5(path: str) -> dict[str, Stored]:
    """Datasets of an HDF5 file by their path; those stored in one piece are mapped."""
    h5py = optional("h5py", "HDF5 files need h5py: pip install 'bagwise[slides]'")
    found: dict[str, Stored] = {}
    with reading_as("HDF5"), h5py.File(path, "r") as file:
        root = _attrs(file)

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset) and len(found) < _MOST_ARRAYS:
                inherited = {**root, **_attrs(item.parent)}
                found[name] = _dataset(h5py, path, name, item, inherited)

        file.visititems(visit)
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
        return Stored(shape, dtype.kind, _mapped(path, dtype, at, shape).read, facts)

    def read() -> np.ndarray:
        with reading_as("HDF5"), h5py.File(path, "r") as file:
            return file[name][()]

    return Stored(shape, dtype.kind, read, facts)


def open_zarr(path: str) -> dict[str, Stored]:
    """Arrays of a zarr folder by their path."""
    zarr = optional("zarr", "zarr folders need zarr: pip install zarr")
    with reading_as("zarr"):
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


def _zarr_array(path: str, item: Any, facts: dict[str, Any]) -> Stored:
    kind = np.dtype(item.dtype).kind
    facts = {**facts, **dict(item.attrs)}
    if kind not in "fiub":
        return Stored(item.shape, "V", lambda: None, facts)
    check_claim(path, item.shape, np.dtype(item.dtype).itemsize, f"array {item.name or 'features'!r}")

    def read() -> np.ndarray:
        with reading_as("zarr"):
            return np.asarray(item[...])

    return Stored(item.shape, kind, read, facts)


def open_pt(path: str) -> dict[str, Stored]:
    """Tensors of a torch file, read with ``weights_only=True``: nothing in it is ever run."""
    torch = optional("torch", ".pt files need torch: pip install 'bagwise[torch]'")
    content = _load(torch, path)
    if not isinstance(content, dict):
        content = {"features": content}
    found = {}
    for name, value in content.items():
        if isinstance(value, (torch.Tensor, np.ndarray)):
            found[str(name)] = _torch_tensor(torch, path, str(name), value)
    return found


def _load(torch: Any, path: str) -> Any:
    with reading_as("a torch file with weights_only=True"):
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:  # of before torch 1.6: no zip, cannot be mapped
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            if "numpy" not in str(error) or not hasattr(torch.serialization, "safe_globals"):
                raise
            # an array saved with torch.save: what it is made of in a pickle, and nothing else
            rebuild = (getattr(np, "_core", None) or np.core).multiarray._reconstruct  # type: ignore
            known = [rebuild, (rebuild, "numpy.core.multiarray._reconstruct"), np.ndarray, np.dtype]
            known += [type(np.dtype(name)) for name in ("f2", "f4", "f8", "i4", "i8")]
            with torch.serialization.safe_globals(known):
                return torch.load(path, map_location="cpu", weights_only=True)


def _torch_tensor(torch: Any, path: str, name: str, value: Any) -> Stored:
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
