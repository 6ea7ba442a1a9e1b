"""What programs keep on disk so that one that was stopped goes on, and several may work at a time.

Three things, and every store of bagwise is made of them:

- `Entries`: values under keys, each a file that is there whole or not at all, with a checksum inside. A kill
  leaves every entry as it was before or as it is after.
- `AppendOnlyFile`: one JSON object per line, to which several programs may append. A line that was cut off by
  a full disk or a power failure is skipped.
- `locked`: one owner of a folder at a time; who is killed lets go by itself.

Nothing that is read is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bagwise.errors import BagwiseError, DataError, StorageError
from bagwise.utils.files import check_file, disk_full, lock, replacing

__all__ = ["AppendOnlyFile", "Entries", "content_hash", "file_hash", "json_hash", "locked"]

_CHECKSUM = "checksum"
_LONGEST = 64 * 1024  # bytes of a line; a longer one is damaged
_BLOCK = 1 << 20


class Entries:
    """Values by key in a folder.

    Parameters
    ----------
    folder : path
        Made with the first entry.
    suffix : ".npz" or ".json", default=".npz"
        How values are written: as structures of None, numbers, text, arrays, lists, tuples and dicts, which
        come back as they were, or as JSON objects, which people can read.
    durable : bool, default=True
        Whether a value is on the disk when ``put`` is done; else a power failure may damage it, which is seen
        when it is read. For what is made again at little cost.

    Examples
    --------
    >>> import tempfile
    >>> entries = Entries(tempfile.mkdtemp())
    >>> entries.put("a", {"sum": np.ones(2), "size": (2, 3)})
    >>> entries.read("a")
    {'sum': array([1., 1.]), 'size': (2, 3)}
    >>> entries.get("b") is None, "a" in entries, entries.keys()
    (True, True, ['a'])
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        suffix: Literal[".npz", ".json"] = ".npz",
        *,
        durable: bool = True,
    ) -> None:
        self.folder, self.suffix, self.durable = Path(folder), suffix, durable

    def path(self, key: str) -> Path:
        """The file of an entry; a key may have slashes, which are folders."""
        return self.folder / f"{key}{self.suffix}"

    def keys(self) -> list[str]:
        """All keys without slashes, in order."""
        names = os.listdir(self.folder) if self.folder.exists() else []
        return sorted(
            name.removesuffix(self.suffix)
            for name in names
            if name.endswith(self.suffix) and not name.startswith(".")
        )

    def __contains__(self, key: str) -> bool:
        return self.path(key).exists()

    def put(self, key: str, value: Any) -> None:
        """Keep a value; the file appears in one step, in place of an earlier one."""
        with replacing(self.path(key), durable=self.durable) as temporary:
            if self.suffix == ".json":
                content = {**value, _CHECKSUM: json_hash(value)}
                temporary.write_text(json.dumps(content), encoding="utf-8")
            else:
                arrays: dict[str, np.ndarray] = {}
                head = np.array(json.dumps(_encoded(value, arrays)))
                with open(temporary, "wb") as file:
                    np.savez(file, head=head, **arrays)  # type: ignore[arg-type]

    def read(self, key: str) -> Any:
        """The value; a KeyError where there is none, a DataError where its file is damaged."""
        path = self.path(key)
        if not path.exists():
            raise KeyError(key)
        try:
            if self.suffix == ".json":
                return _checked(json.loads(path.read_text(encoding="utf-8")))
            with np.load(path, allow_pickle=False) as content:
                return _decoded(json.loads(str(content["head"])), content)
        except Exception as error:  # what parsers raise over damaged bytes is nobody's contract
            raise DataError(f"damaged ({error}); remove it to go on without it", path=path) from None

    def get(self, key: str) -> Any:
        """The value; None where there is none, or its file is damaged, so that it is made again."""
        try:
            return self.read(key)
        except (KeyError, DataError):
            return None

    def drop(self, key: str) -> None:
        """Remove an entry, if it is there."""
        self.path(key).unlink(missing_ok=True)


def _checked(content: Any) -> dict[str, Any]:
    """An object without its checksum, which those of earlier versions have not."""
    if not isinstance(content, dict):
        raise ValueError("no JSON object")
    kept = content.pop(_CHECKSUM, None)
    if kept is not None and kept != json_hash(content):
        raise ValueError("its checksum differs")
    return content


def _encoded(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Structure for JSON; arrays go beside it."""
    if value is None or (isinstance(value, (bool, str, int, float)) and not isinstance(value, np.generic)):
        return value
    if isinstance(value, (np.generic, np.ndarray)):
        name = f"a{len(arrays)}"
        arrays[name] = np.asarray(value)
        return {"array" if isinstance(value, np.ndarray) else "scalar": name}
    if isinstance(value, dict):
        return {"dict": [[key, _encoded(item, arrays)] for key, item in value.items()]}
    if isinstance(value, (tuple, list)):
        return {type(value).__name__: [_encoded(item, arrays) for item in value]}
    raise TypeError(f"entries hold numbers, text, arrays, lists, tuples and dicts, no {type(value).__name__}")


def _decoded(value: Any, arrays: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "array":
        return arrays[content]
    if kind == "scalar":
        return arrays[content][()]
    if kind == "dict":
        return {key: _decoded(item, arrays) for key, item in content}
    items = [_decoded(item, arrays) for item in content]
    return tuple(items) if kind == "tuple" else items


# ---------------------------------------------------------------------- keys


def content_hash(value: Any) -> str:
    """SHA-256 of what a value holds, not of how it happens to lie in memory.

    Examples
    --------
    >>> content_hash((1, "a", np.ones(2))) == content_hash((1, "a", np.ones(4)[::2]))
    True
    """
    total = hashlib.sha256()
    _feed(total, value)
    return total.hexdigest()


def _feed(total: Any, value: Any) -> None:
    total.update(type(value).__name__.encode() + b":")
    if isinstance(value, np.ndarray) and value.dtype != object:
        total.update(f"{value.dtype.str}{value.shape}".encode())
        total.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)  # without a copy
    elif isinstance(value, dict):
        for key, item in value.items():
            _feed(total, key)
            _feed(total, item)
    elif isinstance(value, (tuple, list, np.ndarray)):
        for item in value:
            _feed(total, item)
    elif hasattr(value, "func") and hasattr(value, "keywords"):  # a partial
        _feed(total, [value.func, value.args, value.keywords])
    elif callable(value) and hasattr(value, "__qualname__"):
        total.update(f"{value.__module__}.{value.__qualname__}".encode())
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        _feed(total, vars(value))
    else:
        total.update(repr(value).encode())
    total.update(b";")


def json_hash(value: Any) -> str:
    """SHA-256 of a value as JSON says it, whatever the order of the keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def file_hash(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's bytes; of a folder (zarr), of names and bytes of all files in it.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "empty"
    >>> path.touch()
    >>> file_hash(path)[:8]
    'e3b0c442'
    """
    total = hashlib.sha256()
    if not os.path.isdir(path):
        _feed_file(total, path)
        return total.hexdigest()
    for folder, inner, files in os.walk(path):
        inner.sort()
        for name in sorted(files):
            place = os.path.join(folder, name)
            total.update(os.path.relpath(place, path).encode() + b"\0")
            total.update(str(os.path.getsize(place)).encode() + b"\0")
            _feed_file(total, place)
    return total.hexdigest()


def _feed_file(total: Any, path: str | os.PathLike[str]) -> None:
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            total.update(block)


# ---------------------------------------------------------------------- lines


class AppendOnlyFile:
    """One JSON object per line, read and appended to; a subclass says in ``_take`` what a line means.

    A line is written by one call, under a lock, and reaches the disk before anybody is told that it was kept.
    Each program reads what the others wrote.

    Attributes
    ----------
    version : int
        Grows with every line read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._mutex = threading.RLock()
        self._forget()
        self.version = 0
        self.refresh()

    def _forget(self) -> None:
        """Begin anew: the file is gone, or another one."""
        self._position = 0
        self._identity: tuple[int, int] | None = None

    def _take(self, line: bytes) -> None:
        raise NotImplementedError

    def refresh(self) -> bool:
        """Read what was appended since; whether there was anything."""
        with self._mutex:
            try:
                found = os.stat(self.path)
            except FileNotFoundError:
                if self._position:
                    self._forget()
                    self.version += 1
                    return True
                return False
            identity = (found.st_dev, found.st_ino)
            if self._identity not in (None, identity) or found.st_size < self._position:
                self._forget()  # another file by this name
                self.version += 1
            if found.st_size == self._position:
                self._identity = identity
                return False
            check_file(self.path)
            with open(self.path, "rb") as file:
                self._identity = identity
                return self._read(file)

    def _read(self, file: Any) -> bool:
        before = self.version
        file.seek(self._position)
        while line := file.readline(_LONGEST + 1):
            if not line.endswith(b"\n"):
                if len(line) <= _LONGEST:
                    break  # still being written, or cut off: read again with what follows
                while line and not line.endswith(b"\n"):  # nothing that was written here is as long
                    line = file.readline(_LONGEST)
                line = b"too long\n"
            self._position = file.tell()
            if line.strip():
                self._take(line)
                self.version += 1
        return self.version != before

    def _append(self, entry: Mapping[str, Any]) -> None:
        line = json.dumps(entry, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        if len(line) > _LONGEST:
            raise DataError(f"a line of {len(line):,} bytes; at most {_LONGEST:,} are kept")
        with self._mutex, disk_full(self.path):
            check_file(self.path)
            fresh = not self.path.exists()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "ab+", buffering=0) as file:
                lock(file, wait=True)
                if file.seek(0, os.SEEK_END):
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        line = b"\n" + line  # what a killed writer left stays a line of its own
                if file.write(line) != len(line):
                    raise StorageError(f"{self.path}: the line could not be written whole")
                os.fsync(file.fileno())
            if fresh:
                _sync_folder(self.path.parent)
            self.refresh()


def _sync_folder(folder: Path) -> None:
    """Let the name of a new file reach the disk, where the system allows it."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


# ---------------------------------------------------------------------- owners


@contextmanager
def locked(folder: str | os.PathLike[str], busy: str | None = None) -> Iterator[None]:
    """Own a folder; where somebody else does, refuse in the words of ``busy``, or wait without them.

    Where there are no locks (Windows, some network file systems) two owners at a time are the user's care.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with locked(folder), locked(folder, busy="at work there already"):
    ...     pass
    Traceback (most recent call last):
    bagwise.errors.BagwiseError: at work there already
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    with open(Path(folder) / ".lock", "wb") as handle:
        if not lock(handle, wait=busy is None):
            raise BagwiseError(busy)
        yield
