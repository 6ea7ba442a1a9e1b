"""An append-only file of one JSON object per line, safe against kills and company.

A line is written by one call, under a lock, and reaches the disk before anybody is told that it was kept. A
line that was cut off by a full disk or a power failure is skipped. Several programs may append to one file;
each reads what the others wrote.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bagwise.errors import DataError, StorageError
from bagwise.utils.files import check_file, disk_full, lock

_LONGEST = 64 * 1024  # bytes of a line; a longer one is damaged


class LineLog:
    """Lines read from and appended to a file; a subclass says in `_take` what a line means.

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
