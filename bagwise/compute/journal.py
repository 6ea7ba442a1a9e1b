"""Going on after the driver was killed: a journal of what the passes over the parts came to.

Training from parts is a sequence of sums over them; all else is arithmetic of the driver, which repeats
itself. So the checkpoint is the list of these sums, each a small file that appears in one step. The next call
asks for the same sums again, takes from the journal those that are there, and goes on with the first that is
not: it ends with the same bits as a fit that was never stopped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from bagwise.errors import DataError
from bagwise.utils.store import Entries, content_hash

__all__ = ["Journal", "checkpoint", "current_journal"]

EMPTIED = "a later sum holds all of this one"
_HEAD = "journal"
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
        self._sums = Entries(self.folder)
        strange = [
            n
            for n in os.listdir(self.folder)
            if not (n == f"{_HEAD}.json" or n.endswith(".npz") or n[0] == ".")
        ]
        if strange:
            raise DataError(f"holds other files ({strange[0]}); give a new folder", path=self.folder)
        self.begin()

    @property
    def n_known(self) -> int:
        """Sums that stand in the folder."""
        return len(self._sums.keys())

    def remove_if_empty(self) -> None:
        """Remove a journal without any sum: a fit that was refused at once leaves no claim on the folder."""
        if not self.n_known:
            Entries(self.folder, ".json").drop(_HEAD)
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
        head = Entries(self.folder, ".json")
        content = {"format": "bagwise checkpoint", "manifest": fingerprint, "model": about}
        try:
            known = head.read(_HEAD)
        except KeyError:
            head.put(_HEAD, content)
            return
        for key, what in (("manifest", "other shards (another manifest)"), ("model", "another model")):
            if known.get(key) != content[key]:
                raise DataError(f"is the checkpoint of {what}; give a new folder", path=self.folder)

    def recall(self, step: str, params: Any, parts: str) -> tuple[Any] | None:
        """What this sum came to, if the journal has it; a sum that was not asked for before is refused."""
        self._step, self._asked = step, content_hash((step, params, parts))
        key = _key(self._next)
        try:
            known = self._sums.read(key)
        except KeyError:
            return None
        if known["asked"] != self._asked:
            raise DataError(
                f"{known['step']} was asked for here, now it is {step} or has other parameters: this is not "
                "the fit that was stopped. Give a new folder (and models a random_state)",
                path=self._sums.path(key),
            )
        self._next += 1
        return (known["value"],)

    def keep(self, value: Any) -> None:
        """Write what the sum that was asked for last came to."""
        self._sums.put(_key(self._next), {"asked": self._asked, "step": self._step, "value": value})
        self._next += 1

    def empty_last_but_one(self) -> None:
        """Make room: the sum kept last holds all that the one before held, which from now on is `EMPTIED`.

        For states of training, each of which is as large as the model.
        """
        key = _key(self._next - 2)
        self._sums.put(key, {**self._sums.read(key), "value": EMPTIED})


def _key(number: int) -> str:
    return f"{number:06d}"
