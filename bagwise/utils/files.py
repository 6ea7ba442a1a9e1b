"""Writing files so that a reader never meets a half-written one, and opening only what is a file."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bagwise.errors import DataError, StorageError

_LOCK = ".lock"  # held open in a workshop while its owner lives
_OLD = 24 * 3600.0  # seconds after which a workshop that nobody can lock is taken for abandoned
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def check_file(path: str | os.PathLike[str]) -> None:
    """Refuse what exists but is no plain file: to open a pipe waits for somebody to write, a device is worse.

    Examples
    --------
    >>> check_file("/dev/null")
    Traceback (most recent call last):
    ...
    bagwise.errors.DataError: /dev/null: is a device, not a file
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # whoever opens it will say why not
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "folder", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
        raise DataError(f"is a {kinds.get(stat.S_IFMT(mode), 'device')}, not a file", path=path)


@contextmanager
def replacing(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[Path]:
    """Give a temporary name beside ``path``; on success that file takes the place of ``path``, else it goes.

    A link is followed, and permissions of an older file are kept. What earlier runs left behind when they
    were killed is removed. The file reaches the disk before it takes its place, unless it need not be
    ``durable``, which is several times as fast for small files: after a power failure it may be damaged.

    Examples
    --------
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "numbers.txt"
    >>> with replacing(target) as temporary:
    ...     _ = temporary.write_text("1 2 3")
    >>> target.read_text()
    '1 2 3'
    """
    check_file(path)
    path = Path(os.path.realpath(path))
    with disk_full(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        ours = re.compile(rf"\.{re.escape(path.name)}-[a-z0-9_]{{8}}")
        for name in os.listdir(path.parent):  # workshops whose owners were killed
            if ours.fullmatch(name) and _abandoned(path.parent / name):
                shutil.rmtree(path.parent / name, ignore_errors=True)
        workshop = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
        temporary = workshop / path.name  # the suffix stays, because some writers choose a format by it
        try:
            with open(workshop / _LOCK, "wb") as alive:
                lock(alive)
                yield temporary
                if durable:
                    with open(temporary, "rb+") as handle:
                        os.fsync(handle.fileno())
                if path.exists():
                    os.chmod(temporary, stat.S_IMODE(path.stat().st_mode))
                os.replace(temporary, path)
        finally:
            shutil.rmtree(workshop, ignore_errors=True)


@contextmanager
def disk_full(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say in one line that there is no room for a file."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        if error.errno not in _FULL:
            raise
        reason = os.strerror(error.errno or 0)
        raise StorageError(
            f"{path}: cannot be written ({reason}); make room or choose another place"
        ) from None


def _abandoned(workshop: Path) -> bool:
    try:
        if workshop.is_symlink() or not workshop.is_dir():
            return False
        with open(workshop / _LOCK, "rb+") as handle:
            return lock(handle, certain=True)
    except FileNotFoundError:  # of an earlier version, or made a moment ago
        try:
            return time.time() - workshop.stat().st_mtime > _OLD
        except OSError:
            return False
    except OSError:
        return False


def lock(handle: IO[bytes] | int, *, certain: bool = False, wait: bool = False) -> bool:
    """Lock an open file or folder until it is closed; False if somebody else has it.

    Where there are no locks (Windows, some network file systems) the answer is ``not certain``.
    """
    try:
        import fcntl
    except ImportError:
        return not certain
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return not certain
    return True
