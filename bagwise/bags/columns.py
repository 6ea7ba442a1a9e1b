"""What a column of a table is for: rules by name, the roles that were chosen, and a word about doubtful ones.

A number is not a feature because it is a number: row counters, ids, labels, places and times would teach a
model what it cannot know of new bags. Columns with such names become features only when they are named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np

from bagwise.errors import DataError, DataWarning, listed, warn

_COUNTER = "counts rows"
# The first that fits tells; names are compared in lower case, with "_" for blanks, dots and hyphens.
_UNIT = r"(_(s|sec|secs|seconds|ms|min|minutes|h|hours|deg|degrees|x|y|px))?"
_RULES = (
    (
        _COUNTER,
        r"|unnamed:?_*\d+.*|index|level_\d+|__index_level_\d+__|row_?(names?|numbers?)|rows?|instances?",
    ),
    ("an id", r"bag|(.*_)?(id|ids|uuid|guid)"),
    (
        "labels",
        r"(instance_)?labels?|label[:_].*|targets?([:_]\d+)?|class|classes|letter|ground_truth|y_true",
    ),
    ("a place or time", r"(lat|lon|lng|long|latitude|longitude|date|time|datetime|timestamp)" + _UNIT),
    ("a place or time", r"(start|stop|end|begin|onset|offset)(_?(time|date|frame|sample|position))?" + _UNIT),
    ("a part or group", r"folds?|splits?|groups?"),
)
_CAMEL = re.compile(r"[a-z](Id|ID)s?$")
_ORDER = ("bag", "labels", "label", "instance label", "group", "splits", "feature", "fact", "left out")
_SHOWN = 6  # columns of one role that are named in one line
_LIKE_LABELS = "0 and 1 like the labels, the same within each bag"
FEATURE, INFO, LABEL = "feature:", "info:", "label:"  # what a name may begin with to say what it is
NUMBER, TEXT, EMPTY = "number", "text", "empty"  # what a column may hold


def doubt(name: str) -> str | None:
    """Why a column of numbers with this name is no feature unless the user says so; None if it is one.

    Examples
    --------
    >>> doubt("lat"), doubt("patient_id"), doubt("Unnamed: 0"), doubt("mfcc_1")
    ('a place or time', 'an id', 'counts rows', None)
    """
    plain = re.sub(r"[\s.\-()]+", "_", name.strip().lower()).strip("_")
    if _CAMEL.search(name):
        return "an id"
    return next((reason for reason, pattern in _RULES if re.fullmatch(pattern, plain)), None)


def like_labels(values: np.ndarray, offsets: np.ndarray) -> bool:
    """Whether a column (in bag order) holds 0 and 1 alone and never differs within a bag.

    Examples
    --------
    >>> offsets = np.array([0, 2, 3])
    >>> like_labels(np.array([1, 1, 0]), offsets), like_labels(np.array([1, 0, 0]), offsets)
    (True, False)
    """
    filled = np.diff(offsets) > 0
    first = values[offsets[:-1][filled]]
    return bool(np.isin(first, (0, 1)).all() and (values == np.repeat(first, np.diff(offsets)[filled])).all())


@dataclass(eq=False, repr=False)
class Roles(Mapping[str, str]):
    """What each column of a table was taken for: column -> role.

    Roles are ``bag``, ``labels``, ``label`` (0/1), ``instance label``, ``group``, ``splits``, ``feature``,
    ``fact`` and ``left out``.

    Parameters
    ----------
    roles : mapping of str to str
        Column -> role.
    doubtful : mapping of str to str, optional
        Columns of numbers that were not taken as features, with the reason.

    Examples
    --------
    >>> columns = {"rec": "bag", "f1": "feature", "f2": "feature", "lat": "fact"}
    >>> print(Roles(columns, {"lat": "a place or time"}))
    bag: rec; 2 features: f1, f2; fact: lat (a place or time)
    """

    roles: Mapping[str, str]
    doubtful: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, column: str) -> str:
        return self.roles[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self.roles)

    def __len__(self) -> int:
        return len(self.roles)

    def of(self, role: str) -> list[str]:
        """Columns with this role, in the order of the table."""
        return [column for column, its in self.roles.items() if its == role]

    def __str__(self) -> str:
        return "; ".join(self._line(role) for role in _ORDER if role in self.roles.values())

    def __repr__(self) -> str:
        return f"Roles({self})"

    def _line(self, role: str) -> str:
        columns = self.of(role)
        reasons: dict[str, list[str]] = {}
        for column in columns:
            name = column if column.strip() else repr(column)
            reasons.setdefault(self.doubtful.get(column, ""), []).append(name)
        shown = []
        for reason, names in reasons.items():
            few = names if len(names) <= _SHOWN else [*names[: _SHOWN - 2], "...", names[-1]]
            shown.append(", ".join(few) + (f" ({reason})" if reason else ""))
        several = f"{len(columns)} {role}s" if len(columns) > 1 and role != "left out" else role
        return f"{several}: {', '.join(shown)}"

    def warn(self, path: str | PathLike[str] | None = None) -> None:
        """Name the columns of numbers that were not taken as features, if there are any."""
        if not self.doubtful:
            return
        reasons: dict[str, list[str]] = {}
        for column, reason in self.doubtful.items():
            reasons.setdefault(reason, []).append(repr(column))
        what = "; ".join(f"{listed(columns)} ({reason})" for reason, columns in reasons.items())
        place = "" if path is None else f"{path}: "
        warn(
            f"{place}not taken as features: {what}. Say which columns are features with features=[...], or "
            "that these are facts about instances with info=[...]",
            DataWarning,
        )


def warn_of_labels(
    columns: Mapping[str, np.ndarray], offsets: np.ndarray, path: str | PathLike[str] | None = None
) -> None:
    """Where no labels were found: name features (in bag order) that look like labels that nobody named."""
    if not (np.diff(offsets) > 1).any():
        return  # bags of one instance: every column is the same within a bag
    alike = [name for name, v in columns.items() if np.ptp(v) > 0 and like_labels(v, offsets)]
    if alike:
        place = "" if path is None else f"{path}: "
        warn(
            f"{place}no labels were found, and the features {listed(alike, show=repr)} hold 0 and 1, the "
            "same within each bag; if they are labels, say so with labels=[...]",
            DataWarning,
        )


@dataclass
class Columns:
    """Which column of a long table is what, by name."""

    bag: str
    features: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)  # 0/1, one per label
    labels: str | None = None  # names
    instance_label: str | None = None
    group: str | None = None
    splits: str | None = None
    facts: dict[str, str] = field(default_factory=dict)  # name of a fact -> column
    lists: bool = False  # the one column of features holds lists of numbers
    plain_text: set[str] = field(
        default_factory=set
    )  # of the facts, those that are text whatever they look like
    empty: list[str] = field(default_factory=list)  # nothing to be seen in the first rows
    doubtful: dict[str, str] = field(default_factory=dict)  # numbers that are no features, and why

    def drop_like_labels(self, values: Callable[[str], np.ndarray], offsets: np.ndarray) -> None:
        """Beside labels of 0 and 1, further such columns are labels that nobody chose, not features."""
        alike = [n for n in self.features if not n.startswith(FEATURE) and like_labels(values(n), offsets)]
        self.features = [name for name in self.features if name not in alike]
        self.doubtful |= dict.fromkeys(alike, _LIKE_LABELS)

    def roles(self, names: Iterable[str]) -> Roles:
        """What was chosen, for all columns of the table."""
        found: dict[Any, str] = dict.fromkeys(self.features, "feature")
        found |= dict.fromkeys(self.flags, "label") | dict.fromkeys(self.facts.values(), "fact")
        found |= {self.labels: "labels", self.instance_label: "instance label", self.group: "group"}
        found |= {self.splits: "splits", self.bag: "bag"}
        return Roles({name: found.get(name, "left out") for name in names}, self.doubtful)


def choose_columns(
    kinds: Mapping[str, str],
    bag: str | None,
    features: Sequence[str] | None = None,
    labels: str | Sequence[str] | None = None,
    instance_label: str | None = None,
    info: Sequence[str] = (),
    *,
    by_name: bool = True,
    keep: bool = False,
) -> Columns:
    """Take what the caller names, and the names of our layout for the rest.

    ``kinds`` says what each column holds (`NUMBER`, `TEXT`, `EMPTY`, or anything else); ``labels`` is one
    column of names or several of 0 and 1. With ``by_name`` labels, groups, parts and facts are also found by
    their names; with ``keep`` text and doubtful numbers that nobody asked for are kept as facts, as in files
    of ours.
    """
    if bag is None:
        bag = next((name for name in ("bag_id", "bag") if name in kinds), "")
        if not bag:
            check_columns(
                kinds, ["bag_id"], " that says to which bag a row belongs (name another with bag=...)"
            )
    flags = [] if labels is None or isinstance(labels, str) else list(labels)
    named = [labels] if isinstance(labels, str) else flags
    check_columns(kinds, [bag, *(features or ()), *info, *named, *filter(None, [instance_label])])
    found = Columns(bag, list(features or ()), flags, labels if isinstance(labels, str) else None)
    found.facts = {name.removeprefix(INFO): name for name in info}
    free = [name for name in kinds if name not in {bag, *found.features, *info}]
    if by_name and labels is None:
        found.flags = [name for name in free if name.startswith(LABEL)]
        found.labels = "labels" if not found.flags and "labels" in free else None
    free = [name for name in free if name not in found.flags and name != found.labels]
    if by_name and instance_label is None:
        usual = ("instance_label", "label", "letter") if keep else ("instance_label",)
        fit = (name for name in usual if name in free and (name == usual[0] or kinds[name] != NUMBER))
        instance_label = next(fit, None)
    found.instance_label = instance_label
    for name in free:
        if name == instance_label:
            continue
        if by_name and name in ("group", "splits"):
            setattr(found, name, name)
        elif by_name and (name.startswith(INFO) or (keep and name == "row")):
            found.facts.setdefault(name.removeprefix(INFO), name)
        elif keep and (name in ("instance", "labels") or name.startswith(LABEL)):
            continue  # a counter of rows; labels other than those that were asked for
        elif kinds[name] == NUMBER:
            if features is not None:
                continue
            reason = None if name.startswith(FEATURE) else doubt(name)
            if reason is None:
                found.features.append(name)
                continue
            found.doubtful[name] = reason
            if keep and reason != _COUNTER:
                found.facts.setdefault(name, name)
        elif keep and kinds[name] == EMPTY:
            found.empty.append(name)
        elif keep:
            found.facts.setdefault(name, name)
            found.plain_text.add(name)
    return found


def check_columns(there: Iterable[str], names: Iterable[str], advice: str = "") -> None:
    """Refuse a column that the table does not have."""
    there = list(there)
    for name in names:
        if name not in there:
            found = listed(there, 20, show=repr)
            raise DataError(f"no column {name!r}{advice}; the columns are {found}")


def first_of(there: Iterable[str], usual: Sequence[str]) -> str | None:
    """The first of the usual names that a table has, letters in either case.

    Examples
    --------
    >>> first_of(["Review", "ID"], ("text", "review"))
    'Review'
    """
    by_name = {name.lower(): name for name in reversed(list(there))}
    return next((by_name[name] for name in usual if name in by_name), None)


def column_for(there: Iterable[str], given: str | None, usual: Sequence[str], otherwise: str) -> str:
    """The column that the caller names, else the first of the usual names that the table has."""
    there = list(there)
    if given is not None:
        check_columns(there, [given])
        return given
    found = first_of(there, usual)
    if found is None:
        shown = listed(there, 12, show=lambda name: repr(name[:40]))
        raise DataError(f"{otherwise}; the columns are {shown}")
    return found
