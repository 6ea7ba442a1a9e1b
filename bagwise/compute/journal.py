"""Going on after the driver was killed: a journal of what the passes over the parts came to.

Training from parts is a sequence of sums over them; all else is arithmetic of the driver, which repeats
itself. So the checkpoint is the list of these sums, each a small file that appears in one step. The next call
asks for the same sums again, takes from the journal those that are there, and goes on with the first that is
not: it ends with the same bits as a fit that was never stopped.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.errors import DataError
from bagwise.utils.files import replacing

__all__ = ["Journal", "checkpoint", "content_hash", "current_journal"]


EMPTIED = "a later sum holds all of this one"
_HEAD = "journal.json"
_current: ContextVar[Journal | None] = ContextVar("bagwise_journal", default=None)


def current_journal() -> Journal | None:
    """The journal of the innermost `checkpoint`, None outside."""
    return _current.get()


@contextmanager
def checkpoint(folder: str | os.PathLike[str]) -> Iterator[Journal]:
    """Inside the block, fits on shards keep what they have come to; a later call goes on from there.

    Parameters
    ----------
    folder : path
        A new folder, or that of a fit that was stopped. It must be the same fit: the same shards (by the
        manifest's hash), model and settings, else it is refused. Give models a ``random_state``.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp() + "/fit"
    >>> with checkpoint(folder) as journal:
    ...     journal.n_known
    0
    """
    journal = Journal(folder)
    token = _current.set(journal)
    try:
        yield journal
    finally:
        _current.reset(token)
        journal.remove_if_empty()


class Journal:
    """Sums over parts in the order in which a fit asked for them."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._fitting = False
        self.folder.mkdir(parents=True, exist_ok=True)
        strange = [
            n for n in os.listdir(self.folder) if not (n == _HEAD or n.endswith(".npz") or n[0] == ".")
        ]
        if strange:
            raise DataError(f"holds other files ({strange[0]}); give a new folder", path=self.folder)
        self.begin()

    @property
    def n_known(self) -> int:
        """Sums that stand in the folder."""
        return sum(name.endswith(".npz") for name in os.listdir(self.folder))

    def remove_if_empty(self) -> None:
        """Remove a journal without any sum: a fit that was refused at once leaves no claim on the folder."""
        if not self.n_known:
            (self.folder / _HEAD).unlink(missing_ok=True)
            if not os.listdir(self.folder):
                self.folder.rmdir()

    def begin(self) -> None:
        """Read from the first sum again: the next fit is the one that was stopped."""
        self._next, self._step, self._asked = 0, "", ""

    @contextmanager
    def fitting(self, fingerprint: str, about: str) -> Iterator[None]:
        """Inside the block a model is fitted; fits of other models within it are part of its own."""
        if self._fitting:
            yield
            return
        self.open(fingerprint, about)
        self._fitting = True
        try:
            yield
        finally:
            self._fitting = False

    def open(self, fingerprint: str, about: str) -> None:
        """Say which shards and which model the sums are of; those of another are refused."""
        head = self.folder / _HEAD
        content = {"format": "bagwise checkpoint", "manifest": fingerprint, "model": about}
        if head.exists():
            try:
                known = json.loads(head.read_text(encoding="utf-8"))
            except ValueError:
                raise DataError("not a checkpoint of bagwise, or damaged", path=head) from None
            for key, what in (("manifest", "other shards (another manifest)"), ("model", "another model")):
                if known.get(key) != content[key]:
                    raise DataError(f"is the checkpoint of {what}; give a new folder", path=self.folder)
            return
        with replacing(head) as temporary:
            temporary.write_text(json.dumps(content), encoding="utf-8")

    def recall(self, step: str, params: Any, parts: str) -> tuple[Any] | None:
        """What this sum came to, if the journal has it; a sum that was not asked for before is refused."""
        self._step, self._asked = step, content_hash((step, params, parts))
        path = self._path()
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as content:
                head = json.loads(str(content["head"]))
                value = _decoded(head["value"], content)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"damaged ({error}); remove it to go on without it", path=path) from None
        if head["asked"] != self._asked:
            raise DataError(
                f"{head['step']} was asked for here, now it is {step} or has other parameters: this is not "
                "the fit that was stopped. Give a new folder (and models a random_state)",
                path=path,
            )
        self._next += 1
        return (value,)

    def keep(self, value: Any) -> None:
        """Write what the sum that was asked for last came to."""
        arrays: dict[str, np.ndarray] = {}
        head = {"asked": self._asked, "step": self._step, "value": _encoded(value, arrays)}
        self._write(self._path(), head, arrays)
        self._next += 1

    def empty_last_but_one(self) -> None:
        """Make room: the sum kept last holds all that the one before held, which from now on is `EMPTIED`.

        For states of training, each of which is as large as the model.
        """
        path = self._path(self._next - 2)
        with np.load(path, allow_pickle=False) as content:
            head = json.loads(str(content["head"]))
        self._write(path, {**head, "value": _encoded(EMPTIED, {})}, {})

    def _write(self, path: Path, head: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        content = io.BytesIO()
        np.savez(content, head=np.array(json.dumps(head)), **arrays)  # type: ignore[arg-type]
        with replacing(path) as temporary:
            temporary.write_bytes(content.getvalue())

    def _path(self, number: int | None = None) -> Path:
        return self.folder / f"{self._next if number is None else number:06d}.npz"


def _encoded(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Structure for JSON; arrays go beside it."""
    if value is None or isinstance(value, (bool, str)):
        return {"is": value}
    if isinstance(value, (int, float)):
        return {"is": value}
    if isinstance(value, np.generic):
        value = np.asarray(value)
        arrays[name := f"a{len(arrays)}"] = value
        return {"scalar": name}
    if isinstance(value, np.ndarray):
        arrays[name := f"a{len(arrays)}"] = value
        return {"array": name}
    if isinstance(value, dict):
        return {"dict": [[key, _encoded(item, arrays)] for key, item in value.items()]}
    if isinstance(value, (tuple, list)):
        return {type(value).__name__: [_encoded(item, arrays) for item in value]}
    raise TypeError(f"statistics of parts hold a {type(value).__name__}; numbers, arrays and lists are kept")


def _decoded(value: Any, arrays: Any) -> Any:
    ((kind, content),) = value.items()
    if kind == "is":
        return content
    if kind == "array":
        return arrays[content]
    if kind == "scalar":
        return arrays[content][()]
    if kind == "dict":
        return {key: _decoded(item, arrays) for key, item in content}
    items = [_decoded(item, arrays) for item in content]
    return tuple(items) if kind == "tuple" else items


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
        total.update(np.ascontiguousarray(value).tobytes())
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
