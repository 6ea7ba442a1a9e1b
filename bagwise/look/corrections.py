"""Corrections by people, one JSON object per line of a file that only grows: undo is a line too.

    {"id": ..., "time": ..., "author": ..., "data": ..., "model": ..., "bag": ..., "part": 3 or null,
     "before": {"label": ..., "probability": ..., "answer": ...}, "after": {"label": ..., "answer": "yes"}}

An answer is "yes", "no" or "unsure" to one label of a part or of a bag, "none" for a part that carries none
of the labels, "accepted" for a bag that is right as it is shown (with its labels), "cleared" to take back.
"""

from __future__ import annotations

import getpass
import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from bagwise.errors import DataError
from bagwise.utils.store import AppendOnlyFile

ANSWERS = ("yes", "no", "unsure", "none", "accepted", "cleared")


@dataclass
class PartAnswer:
    """What people said of one part: the label it carries, labels it does not, or that nobody can tell."""

    label: str | None = None
    not_labels: set[str] = field(default_factory=set)
    unsure: bool = False
    none: bool = False

    def take(self, after: Mapping[str, Any]) -> None:
        """Add one answer; a later one overrules an earlier one."""
        answer, label = after["answer"], after.get("label")
        if answer == "cleared":
            self.__init__()  # type: ignore[misc]
        elif answer == "yes":
            self.label, self.unsure, self.none = label, False, False
            self.not_labels.discard(str(label))
        elif answer == "no":
            self.not_labels.add(str(label))
            self.label = None if self.label == label else self.label
            self.unsure = False
        elif answer == "unsure":
            self.label, self.unsure, self.none = None, True, False
        elif answer == "none":
            self.label, self.unsure, self.none = None, False, True

    @property
    def given(self) -> bool:
        """Whether anything is said at all."""
        return bool(self.label or self.not_labels or self.unsure or self.none)

    def to_dict(self) -> dict[str, Any]:
        """The answer in plain words, for a page."""
        return {
            "label": self.label,
            "not": sorted(self.not_labels),
            "unsure": self.unsure,
            "none": self.none,
        }


class Corrections(AppendOnlyFile):
    """The corrections of one data set, read from and appended to a file.

    Parameters
    ----------
    path : path
        The file, usually ``corrections.jsonl`` beside the data; made with the first correction.
    data : str
        Name of the data set; lines about other sets in the same file are left alone.
    author, model : str, optional
        Written into every line.

    Attributes
    ----------
    entries : list of dict
        All lines about this data set, undone ones too.
    damaged : int
        Lines that are no corrections.
    version : int
        Grows with every line read.

    Examples
    --------
    >>> import tempfile
    >>> kept = Corrections(tempfile.mkdtemp() + "/corrections.jsonl", "birds", author="ada")
    >>> line = kept.add("a.wav", part=2, answer="yes", label="wren")
    >>> kept.part("a.wav", 2).label
    'wren'
    >>> _ = kept.undo()
    >>> kept.part("a.wav", 2).label is None, len(kept.entries)
    (True, 2)
    """

    def __init__(
        self, path: str | os.PathLike[str], data: str, *, author: str | None = None, model: str | None = None
    ) -> None:
        self.data, self.model = data, model
        if author is None:
            try:
                author = getpass.getuser()
            except Exception:  # no name in the environment and none in the system's list
                author = "unknown"
        self.author = author
        super().__init__(path)

    def _forget(self) -> None:
        super()._forget()
        self.entries: list[dict[str, Any]] = []
        self.damaged = 0
        self._undone: set[str] = set()
        self._by_bag: dict[str, list[dict[str, Any]]] = {}

    def _take(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
            if entry["data"] != self.data:
                return
            if "undo" in entry:
                self._undone.add(str(entry["undo"]))
            else:
                part, after = entry["part"], entry["after"]
                well = isinstance(entry["id"], str) and isinstance(entry["bag"], str)
                well &= part is None or (type(part) is int and part >= 0)
                well &= after["answer"] in ANSWERS
                if after["answer"] in ("yes", "no"):
                    well &= isinstance(after["label"], str)
                if not well:
                    raise ValueError
                self._by_bag.setdefault(entry["bag"], []).append(entry)
            self.entries.append(entry)
        except (ValueError, KeyError, TypeError, RecursionError):
            self.damaged += 1

    # ------------------------------------------------------------------ saying and taking back

    def add(
        self,
        bag: str,
        *,
        answer: str,
        part: int | None = None,
        label: str | None = None,
        before: Mapping[str, Any] | None = None,
        labels: list[str] | None = None,
    ) -> dict[str, Any]:
        """Append one correction and return it as written.

        Parameters
        ----------
        bag : str
            Id of the bag.
        answer : {"yes", "no", "unsure", "none", "accepted", "cleared"}
            What is said.
        part : int, optional
            Place of the part in its bag, from 0; None speaks of the whole bag.
        label : str, optional
            The label that the answer is about.
        before : mapping, optional
            What was shown when the answer was given.
        labels : list of str, optional
            With "accepted", the labels that the bag carries.
        """
        if answer not in ANSWERS:
            raise DataError(f"an answer is one of {', '.join(ANSWERS)}; got {answer!r}")
        if answer in ("yes", "no") and not label:
            raise DataError(f"the answer {answer!r} needs the label that it is about")
        if (answer == "none" and part is None) or (answer == "accepted" and part is not None):
            raise DataError(f"{answer!r} is an answer for a {'part' if part is None else 'bag'}")
        after: dict[str, Any] = {"answer": answer, "label": label}
        if labels is not None:
            after["labels"] = list(labels)
        entry = {
            **self._signed(),
            "bag": str(bag),
            "part": None if part is None else int(part),
            "before": dict(before or {}),
            "after": after,
        }
        self._append(entry)
        return entry

    def undo(self, which: str | None = None) -> dict[str, Any] | None:
        """Take back a correction, by default the last that stands; None if there is none.

        Parameters
        ----------
        which : str, optional
            Id of the correction.
        """
        with self._mutex:
            self.refresh()
            standing = [entry for entry in self.standing() if which is None or entry["id"] == which]
            if not standing:
                return None
            self._append({**self._signed(), "undo": standing[-1]["id"]})
            return standing[-1]

    def _signed(self) -> dict[str, Any]:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        about = {"data": self.data, "model": self.model}
        return {"id": uuid.uuid4().hex, "time": now, "author": self.author, **about}

    # ------------------------------------------------------------------ what holds now

    def standing(self) -> list[dict[str, Any]]:
        """Corrections that were not undone, in the order in which they were made."""
        with self._mutex:
            return [e for e in self.entries if "undo" not in e and e["id"] not in self._undone]

    def bags(self) -> list[str]:
        """Ids of the bags about which something is said."""
        with self._mutex:
            return [bag for bag in self._by_bag if self.of(bag)]

    def count(self, bag: str) -> int:
        """Number of corrections of a bag that stand."""
        return len(self.of(bag))

    def part(self, bag: str, part: int) -> PartAnswer:
        """What holds for one part."""
        return self.parts(bag).get(part, PartAnswer())

    def parts(self, bag: str) -> dict[int, PartAnswer]:
        """What holds for the parts of a bag that somebody spoke about."""
        found: dict[int, PartAnswer] = {}
        for entry in self.of(bag):
            if entry["part"] is not None:
                found.setdefault(entry["part"], PartAnswer()).take(entry["after"])
        return {part: answer for part, answer in found.items() if answer.given}

    def bag(self, bag: str) -> dict[str, str]:
        """Answer for each label of a bag that somebody spoke about: "yes", "no" or "unsure"."""
        found: dict[str, str] = {}
        for entry in self.of(bag):
            after = entry["after"]
            if entry["part"] is not None:
                continue
            if after["answer"] == "accepted":
                shown = after.get("labels") or []
                found.update({str(name): "yes" for name in shown if found.get(str(name)) != "unsure"})
            elif after["answer"] == "cleared":
                if after.get("label") is None:
                    found.clear()
                else:
                    found.pop(after["label"], None)
            elif after.get("label") is not None:
                found[after["label"]] = after["answer"]
        return found

    def accepted(self, bag: str) -> bool:
        """Whether somebody said that the bag is right as it is shown, and nobody cleared it since."""
        held = False
        for entry in self.of(bag):
            if entry["part"] is None and entry["after"]["answer"] in ("accepted", "cleared"):
                held = entry["after"]["answer"] == "accepted"
        return held

    def labels(self) -> list[str]:
        """Names of all labels that answers speak of, in the order of their first mention."""
        names: dict[str, None] = {}
        for entry in self.standing():
            if entry["after"].get("label"):
                names[entry["after"]["label"]] = None
        return list(names)

    def of(self, bag: str) -> list[dict[str, Any]]:
        """Corrections of a bag and its parts that stand."""
        with self._mutex:
            return [e for e in self._by_bag.get(bag, ()) if e["id"] not in self._undone]
