"""The zip archive of a model file: its size when unpacked, its parts, and a fingerprint of them.

What a file claims about itself is checked before anything of that size is made: zip entries say how large
they will be, array files say how many numbers they hold.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bagwise.errors import DataError

SCHEMA, FACTS = "schema.json", "bagwise.json"
_FLOOR = 256 << 20  # bytes that any file may take unpacked
_TEXT_FLOOR = 16 << 20  # the same for descriptions, which take many times that as Python objects
_TIMES = 4  # and else so many times the size of the file: our own are stored as they are
_FACTS_LIMIT = 1 << 20
_BLOCK = 1 << 20
_ARRAY, _ZIP = b"\x93NUMPY", b"PK"


def open_file(path: str | PathLike[str]) -> BinaryIO:
    """Open what must be a plain file."""
    if not Path(path).exists():
        raise DataError("no such file", path=path)
    if not Path(path).is_file():
        raise DataError("not a model file, but a folder or a device", path=path)
    return open(path, "rb")


def check_sizes(archive: zipfile.ZipFile, size: int, max_bytes: int | None) -> None:
    """Refuse a file that would take far more memory than its size on disk explains."""
    limit = max(_FLOOR, _TIMES * size) if max_bytes is None else max_bytes
    total = sum(entry.file_size for entry in archive.infolist())
    if total <= limit:
        for entry in archive.infolist():
            with archive.open(entry) as part:
                head = part.read(len(_ARRAY))
            if head == _ARRAY:
                _check_array(archive, entry)
            elif head.startswith(_ZIP):  # a sparse matrix is an archive of its own
                total += _inner_size(archive.read(entry), entry.filename)
    if total > limit:
        raise DataError(
            f"would take {total / 1e9:.1f} GB of memory, though the file has {size / 1e6:.1f} MB, and the "
            f"limit is {limit / 1e9:.1f} GB; if you trust it, load it with max_bytes={total}"
        )
    if max_bytes is None:
        for name in (SCHEMA, FACTS):
            if name in archive.namelist() and archive.getinfo(name).file_size > max(_TEXT_FLOOR, size):
                raise DataError(f"its {name} is larger than the whole file")


def _inner_size(content: bytes, name: str) -> int:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as inner:
            total = sum(entry.file_size for entry in inner.infolist())
            if total > max(_FLOOR, 100 * len(content)):
                return total  # refused by the caller, without looking further
            for entry in inner.infolist():
                _check_array(inner, entry)
            return total
    except zipfile.BadZipFile as error:
        raise DataError(f"its part {name} is damaged ({error})") from None


def _check_array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    """An array must hold as many numbers as it says: it is made before its numbers are read."""
    with archive.open(entry) as part:
        try:
            version = np.lib.format.read_magic(part)
            read = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            shape, _, dtype = read(part)
        except ValueError as error:
            raise DataError(f"its array {entry.filename} is damaged ({error})") from None
        held = entry.file_size - part.tell()
    needed = int(np.prod([int(n) for n in shape], dtype=object)) * dtype.itemsize
    if dtype.hasobject or needed != held or any(n < 0 for n in shape):
        raise DataError(f"its array {entry.filename} says shape {shape} of {dtype}, but holds {held} bytes")


def fingerprint(archive: zipfile.ZipFile) -> str:
    """SHA-256 over names and contents of all parts but the facts, whatever their order."""
    whole = hashlib.sha256()
    for entry in sorted(archive.infolist(), key=lambda entry: entry.filename):
        if entry.filename == FACTS:
            continue
        part = hashlib.sha256(entry.filename.encode())
        with archive.open(entry) as content:
            while block := content.read(_BLOCK):
                part.update(block)
        whole.update(part.digest())
    return whole.hexdigest()


def copied(source: zipfile.ZipFile, target: zipfile.ZipFile, schema: dict[str, Any]) -> None:
    """Copy all parts, with another description, and sparse matrices stored as they are."""
    for entry in source.infolist():
        if entry.filename in (SCHEMA, FACTS):
            continue
        if entry.filename.endswith(".npz"):
            target.writestr(entry.filename, _stored(source.read(entry)))
            continue
        with source.open(entry) as content, target.open(entry.filename, "w", force_zip64=True) as out:
            while block := content.read(_BLOCK):
                out.write(block)
    target.writestr(SCHEMA, json.dumps(schema))


def _stored(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(buffer, "w") as target:
        for entry in source.infolist():
            target.writestr(entry.filename, source.read(entry))
    return buffer.getvalue()


def read_facts(archive: zipfile.ZipFile) -> dict[str, Any]:
    """What the file says about itself, or nothing if it does not say it in the form that we write."""
    if FACTS not in archive.namelist():
        return {}
    if archive.getinfo(FACTS).file_size > _FACTS_LIMIT:
        raise DataError(f"its {FACTS} is larger than any that bagwise writes")
    try:
        facts = json.loads(archive.read(FACTS))
    except RecursionError:
        raise DataError(f"its {FACTS} is nested too deeply") from None
    except ValueError as error:
        raise DataError(f"its {FACTS} is not JSON ({error})") from None
    versions = facts.get("versions", {}) if isinstance(facts, dict) else None
    if not isinstance(versions, dict) or not all(isinstance(v, str) for v in versions.values()):
        raise DataError(f"its {FACTS} should name the model and the versions that wrote it, and does not")
    return facts
