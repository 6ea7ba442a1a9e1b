"""What a column of a table is for: rules by name, the roles that were chosen, and a word about doubtful ones.

A number is not a feature because it is a number: row counters, ids, labels, places and times would teach a
model what it cannot know of new bags. Columns with such names become features only when they are named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from os import PathLike

import numpy as np

from bagwise.errors import DataWarning, listed, warn

# The first that fits tells; names are compared in lower case, with "_" for blanks, dots and hyphens.
_UNIT = r"(_(s|sec|secs|seconds|ms|min|minutes|h|hours|deg|degrees|x|y|px))?"
_RULES = (
    (
        "counts rows",
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
LIKE_LABELS = "0 and 1 like the labels, the same within each bag"
_SHOWN = 6  # columns of one role that are named in one line


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

    def __init__(self, roles: Mapping[str, str], doubtful: Mapping[str, str] | None = None) -> None:
        self._roles = dict(roles)
        self.doubtful = dict(doubtful or {})

    def __getitem__(self, column: str) -> str:
        return self._roles[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self._roles)

    def __len__(self) -> int:
        return len(self._roles)

    def of(self, role: str) -> list[str]:
        """Columns with this role, in the order of the table."""
        return [column for column, its in self._roles.items() if its == role]

    def __str__(self) -> str:
        return "; ".join(self._line(role) for role in _ORDER if role in self._roles.values())

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
        message = (
            f"not taken as features: {what}. Say which columns are features with features=[...], or that "
            "these are facts about instances with info=[...]"
        )
        warn(_at(path, message), DataWarning)


def warn_of_labels(
    columns: Mapping[str, np.ndarray], offsets: np.ndarray, path: str | PathLike[str] | None
) -> None:
    """Where no labels were found: name features (in bag order) that look like labels that nobody named."""
    if not (np.diff(offsets) > 1).any():
        return  # bags of one instance: every column is the same within a bag
    alike = [name for name, v in columns.items() if np.ptp(v) > 0 and like_labels(v, offsets)]
    if alike:
        message = (
            f"no labels were found, and the features {listed(map(repr, alike))} hold 0 and 1, the same "
            "within each bag; if they are labels, say so with labels=[...]"
        )
        warn(_at(path, message), DataWarning)


def _at(path: str | PathLike[str] | None, message: str) -> str:
    return message if path is None else f"{path}: {message}"
