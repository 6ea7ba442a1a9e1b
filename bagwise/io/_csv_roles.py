"""Which column of a long CSV file is what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from bagwise.errors import DataError, listed
from bagwise.io._csv_table import EMPTY, NUMBER, CsvText, natural
from bagwise.utils import columns as by_name
from bagwise.utils.arrow import to_numpy

BAG_COLUMNS = ("bag_id", "bag")
INSTANCE_LABEL_COLUMNS = ("instance_label", "label", "letter")
FEATURE, INFO, LABEL = "feature:", "info:", "label:"  # what a name may begin with to say what it is
ROW_COUNTERS = "counts rows"


def is_plain(name: str) -> bool:
    """Whether a column of numbers with this name is read as a feature without further words."""
    return not name.startswith((FEATURE, INFO, LABEL)) and by_name.doubt(name) is None


@dataclass
class Roles:
    """Positions of the columns."""

    bag: int
    features: list[int] = field(default_factory=list)
    feature_names: list[str] | None = None
    flags: list[int] = field(default_factory=list)  # 0/1 columns, one per label
    labels: int | None = None
    instance_label: int | None = None
    group: int | None = None
    splits: int | None = None
    info: dict[str, tuple[int, Callable[[pa.Array], np.ndarray]]] = field(default_factory=dict)
    empty: list[int] = field(default_factory=list)  # nothing to be seen in the first rows
    doubtful: dict[str, str] = field(default_factory=dict)  # numbers that are no features, and why

    @property
    def texts(self) -> list[int]:
        """Columns to be read as text."""
        single = [self.bag, self.labels, self.instance_label, self.group, self.splits]
        return [k for k in [*single, *(k for k, _ in self.info.values()), *self.empty] if k is not None]

    def drop_features(self, which: dict[int, str], names: Sequence[str]) -> None:
        """Take columns out of the features, each for a reason."""
        self.features = [k for k in self.features if k not in which]
        self.doubtful |= {names[k]: reason for k, reason in which.items()}

    def name_features(self, names: Sequence[str]) -> None:
        """Set the names of the features; f1, f2, ... in order count as none."""
        chosen = [names[k].removeprefix(FEATURE) for k in self.features]
        unnamed = chosen == [f"f{k}" for k in range(1, len(chosen) + 1)]
        self.feature_names = None if unnamed else chosen

    def public(self, names: Sequence[str]) -> by_name.Roles:
        """What was chosen, by the names of the columns."""
        single = {
            self.bag: "bag",
            self.labels: "labels",
            self.instance_label: "instance label",
            self.group: "group",
            self.splits: "splits",
        }
        found = dict.fromkeys(self.features, "feature") | dict.fromkeys(self.flags, "label")
        found |= dict.fromkeys((k for k, _ in self.info.values()), "fact")
        found |= {k: role for k, role in single.items() if k is not None}
        roles = {name: found.get(k, "left out") for k, name in enumerate(names)}
        return by_name.Roles(roles, self.doubtful)


def find_roles(
    text: CsvText,
    bag: str | None,
    labels: str | Sequence[str] | None,
    instance_label: str | None,
    features: Sequence[str] | None,
    info: Sequence[str],
) -> Roles:
    """Take what the caller names, and the names of our layout for the rest."""
    names = text.first
    position = {name: k for k, name in enumerate(names)}
    if len(position) != len(names):
        twice = next(name for k, name in enumerate(names) if position[name] != k)
        raise DataError(f"two columns are called {twice!r}", path=text.path, line=1)

    def at(name: str, advice: str = "") -> int:
        if name not in position:
            found = listed(map(repr, names), 20)
            raise DataError(f"no column {name!r}{advice}; the columns are {found}", path=text.path, line=1)
        return position[name]

    if bag is None:
        found = next((name for name in BAG_COLUMNS if name in position), BAG_COLUMNS[0])
        roles = Roles(at(found, " that says to which bag a row belongs (name another with bag=...)"))
    else:
        roles = Roles(at(bag))
    kinds = text.kinds()
    for name in features or ():
        roles.features.append(at(name))
    for name in info:
        roles.info[name] = at(name), natural
    if isinstance(labels, str):
        roles.labels = at(labels)
    elif labels is not None:
        roles.flags = [at(name) for name in labels]
    else:
        roles.flags = [k for name, k in position.items() if name.startswith(LABEL)]
        roles.labels = None if roles.flags else position.get("labels")
    if instance_label is None:
        free = set(position) - set(features or ()) - set(info)
        free -= {names[k] for k in [*roles.flags, roles.bag, roles.labels] if k is not None}
        candidates = [name for name in INSTANCE_LABEL_COLUMNS if name in free]
        instance_label = next(
            (name for name in candidates if name == "instance_label" or kinds[position[name]] != NUMBER), None
        )
    if instance_label is not None:
        roles.instance_label = at(instance_label)
    _take_the_rest(roles, names, kinds, features is None)
    return roles


def _take_the_rest(roles: Roles, names: list[str], kinds: list[str], guess_features: bool) -> None:
    taken = {*roles.texts, *roles.features, *roles.flags}
    for k, name in enumerate(names):
        if k in taken or name in ("instance", "labels") or name.startswith(LABEL):
            continue
        if name == "group":
            roles.group = k
        elif name == "splits":
            roles.splits = k
        elif name.startswith(INFO) or name == "row":
            roles.info.setdefault(name.removeprefix(INFO), (k, natural))
        elif kinds[k] == EMPTY:
            roles.empty.append(k)
        elif kinds[k] != NUMBER:
            roles.info.setdefault(name, (k, to_numpy))
        elif guess_features:
            reason = None if name.startswith(FEATURE) else by_name.doubt(name)
            if reason is None:
                roles.features.append(k)
                continue
            roles.doubtful[name] = reason
            if reason != ROW_COUNTERS:
                roles.info.setdefault(name, (k, natural))
