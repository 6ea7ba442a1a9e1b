"""Writing files and folders so that a reader never meets a half-written one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary name beside ``path``; on success it takes the place of ``path``, else it goes away.

    Works for files and for folders (the body may create either under the name that it is given).

    Examples
    --------
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "numbers.txt"
    >>> with replacing(target) as temporary:
    ...     _ = temporary.write_text("1 2 3")
    >>> target.read_text()
    '1 2 3'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays, because some writers choose a format by it.
    workshop = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    temporary = workshop / path.name
    try:
        yield temporary
        if temporary.is_dir():
            if path.exists():
                os.replace(path, workshop / "replaced")
            os.replace(temporary, path)
        else:
            with open(temporary, "rb+") as handle:
                os.fsync(handle.fileno())
            os.replace(temporary, path)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
