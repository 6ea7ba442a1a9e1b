"""A folder anywhere: on this machine, or wherever fsspec reaches (``s3://``, ``gs://``, ``memory://``, ...).

Files appear whole or not at all: a local file is written beside its place and renamed; elsewhere it is made
here, sent under another name and moved.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

from bagwise.errors import DataError, OptionalDependencyError
from bagwise.utils.files import disk_full, replacing
from bagwise.utils.store import file_hash

__all__ = ["Place"]


class Place:
    """A folder, by path or by address.

    Parameters
    ----------
    folder : path or str
        A path, or an address such as ``s3://bucket/birds``.

    Examples
    --------
    >>> place = Place(tempfile.mkdtemp())
    >>> size, checksum = place.write("numbers.txt", lambda path: path.write_text("1 2 3"))
    >>> size, place.read_bytes("numbers.txt"), place.names()
    (5, b'1 2 3', ['numbers.txt'])
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        text = os.fspath(folder)
        self.is_local = "://" not in text
        self.folder = os.path.abspath(text) if self.is_local else text.rstrip("/")

    def __repr__(self) -> str:
        return f"Place({self.folder!r})"

    def __reduce__(self) -> Any:  # without the open file system
        return Place, (self.folder,)

    def join(self, name: str) -> str:
        """Path or address of a file in the folder."""
        return os.path.join(self.folder, name) if self.is_local else f"{self.folder}/{name}"

    @cached_property
    def _remote(self) -> tuple[Any, str]:
        """The file system of an address, and the folder as it calls it."""
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise OptionalDependencyError(
                f"{self.folder} is not on this machine; for such places: pip install 'bagwise[dask]' "
                "(fsspec), and what the place needs, such as s3fs"
            ) from None
        try:
            return url_to_fs(self.folder)
        except ImportError as error:  # fsspec says which package is missing
            raise OptionalDependencyError(f"{self.folder} cannot be reached: {error}") from None
        except ValueError as error:
            raise DataError(f"no such place ({error})", path=self.folder) from None

    def _at(self, name: str) -> str:
        return f"{self._remote[1]}/{name}"

    def exists(self, name: str = "") -> bool:
        """Whether the folder, or a file in it, is there."""
        if self.is_local:
            return os.path.exists(self.join(name) if name else self.folder)
        return bool(self._remote[0].exists(self._at(name) if name else self._remote[1]))

    def names(self) -> list[str]:
        """Names of the files in the folder; none if there is no folder."""
        if self.is_local:
            return sorted(os.listdir(self.folder)) if os.path.isdir(self.folder) else []
        fs, root = self._remote
        if not fs.exists(root):
            return []
        fs.invalidate_cache(root)
        return sorted(Path(path).name for path in fs.ls(root, detail=False))

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        if self.is_local:
            return open(self.join(name), "rb")
        return self._remote[0].open(self._at(name), "rb")

    def read_bytes(self, name: str) -> bytes:
        """Content of a file."""
        with self.open(name) as handle:
            return handle.read()

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""
        if self.is_local:
            Path(self.join(name)).unlink(missing_ok=True)
        elif self.exists(name):
            self._remote[0].rm_file(self._at(name))

    def write(self, name: str, make: Callable[[Path], Any]) -> tuple[int, str]:
        """Let ``make(path)`` write a file, put it in its place in one step; its bytes and SHA-256."""
        if self.is_local:
            os.makedirs(self.folder, exist_ok=True)
            with replacing(self.join(name)) as temporary:
                make(temporary)
                return os.path.getsize(temporary), file_hash(temporary)
        fs, root = self._remote
        with tempfile.TemporaryDirectory() as workshop, disk_full(workshop):
            temporary = Path(workshop) / name
            make(temporary)
            found = os.path.getsize(temporary), file_hash(temporary)
            fs.makedirs(root, exist_ok=True)
            elsewhere = self._at(f".{name}-{secrets.token_hex(4)}")
            fs.put_file(str(temporary), elsewhere)
            fs.mv(elsewhere, self._at(name))
        return found
