"""Which column of a long CSV file is what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from bagwise.errors import DataError
from bagwise.io._csv_table import CsvText, natural
from bagwise.utils.arrow import to_numpy

BAG_COLUMNS = ("bag_id", "bag")
INSTANCE_LABEL_COLUMNS = ("instance_label", "label", "letter")
RESERVED = {*BAG_COLUMNS, *INSTANCE_LABEL_COLUMNS, "labels", "instance", "row", "group", "splits"}


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

    @property
    def texts(self) -> list[int]:
        """Columns to be read as text."""
        single = [self.bag, self.labels, self.instance_label, self.group, self.splits]
        return [k for k in [*single, *(k for k, _ in self.info.values())] if k is not None]


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

    def at(name: str) -> int:
        if name not in position:
            found = ", ".join(map(repr, names[:20]))
            raise DataError(f"no column {name!r}; the columns are {found}", path=text.path, line=1)
        return position[name]

    if bag is None:
        bag = next((name for name in BAG_COLUMNS if name in position), BAG_COLUMNS[0])
    roles = Roles(at(bag))
    numeric = text.numeric()
    for name in features or ():
        roles.features.append(at(name))
    for name in info:
        roles.info[name] = at(name), natural
    if isinstance(labels, str):
        roles.labels = at(labels)
    elif labels is not None:
        roles.flags = [at(name) for name in labels]
    else:
        roles.flags = [k for name, k in position.items() if name.startswith("label:")]
        roles.labels = None if roles.flags else position.get("labels")
    if instance_label is None:
        free = set(position) - set(features or ()) - set(info)
        free -= {names[k] for k in [*roles.flags, roles.bag, roles.labels] if k is not None}
        candidates = [name for name in INSTANCE_LABEL_COLUMNS if name in free]
        instance_label = next(
            (name for name in candidates if name == "instance_label" or not numeric[position[name]]), None
        )
    if instance_label is not None:
        roles.instance_label = at(instance_label)
    if not roles.flags and roles.labels is None and roles.instance_label is None:
        raise DataError(
            "no labels found: name the label columns of the bags with labels=[...], or the column with the "
            "label of each instance with instance_label=...",
            path=text.path,
            line=1,
        )
    _take_the_rest(roles, names, numeric, features is None)
    if not roles.features:
        raise DataError("no column of numbers is left for features", path=text.path, line=1)
    chosen = [names[k] for k in roles.features]
    unnamed = chosen == [f"f{k}" for k in range(1, len(chosen) + 1)]
    roles.feature_names = None if unnamed else chosen
    return roles


def _take_the_rest(roles: Roles, names: list[str], numeric: list[bool], guess_features: bool) -> None:
    taken = {*roles.texts, *roles.features, *roles.flags}
    for k, name in enumerate(names):
        if k in taken or name == "instance":
            continue
        if name == "group":
            roles.group = k
        elif name == "splits":
            roles.splits = k
        elif name.startswith("info:") or name == "row":
            roles.info.setdefault(name.removeprefix("info:"), (k, natural))
        elif not numeric[k]:
            roles.info.setdefault(name, (k, to_numpy))
        elif guess_features:
            roles.features.append(k)
