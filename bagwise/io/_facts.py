"""What `parquet` and `npz` keep beside the numbers, as JSON, and what other formats cannot keep."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from bagwise.bags import ONE_VIEW, Bags, MultiViewBags, views_of
from bagwise.bags.arrow import LONGEST_NAME, as_text
from bagwise.bags.dataset import Dataset
from bagwise.errors import DataError
from bagwise.io._source import check_finite, check_unique_ids

VERSION = 1
ABOUT = ("name", "description", "citation", "licence")


def instance_labels_of(dataset: Dataset) -> dict[str, np.ndarray]:
    """Known instance labels by view."""
    if dataset.instance_Y is None:
        return {}
    return dataset.instance_Y if isinstance(dataset.instance_Y, dict) else {ONE_VIEW: dataset.instance_Y}


def facts_of(dataset: Dataset) -> dict[str, Any]:
    """Everything that the arrays do not say, ready for JSON."""
    facts: dict[str, Any] = {"version": VERSION, "several_views": isinstance(dataset.bags, MultiViewBags)}
    facts |= {key: getattr(dataset, key) for key in ABOUT if getattr(dataset, key)}
    if dataset.recipe is not None:
        facts["recipe"] = dict(dataset.recipe)
    facts["label_names"] = list(dataset.label_names)
    facts["splits"] = list(dataset.splits)
    facts["views"] = {}
    for name, bags in views_of(dataset.bags).items():
        facts["views"][name] = {
            "n_instances": bags.n_instances,
            "n_features": bags.n_features,
            "dtype": str(bags.dtype),
            "sparse": bags.is_sparse,
            "named_bags": bags.has_bag_ids,
            "feature_names": bags.feature_names,
            "info": {
                key: {"dtype": kind_of(values), "shape": list(values.shape[1:])}
                for key, values in bags.instance_info.items()
            },
        }
    return facts


def loads(text: str | bytes) -> dict[str, Any]:
    """Parse the JSON of `facts_of`; refuse what a later version wrote."""
    facts = json.loads(text)
    if not isinstance(facts, dict) or not isinstance(facts.get("views"), dict) or not facts["views"]:
        raise DataError("the facts about the data set are not what bagwise writes")
    if not isinstance(facts.get("version"), int) or facts["version"] > VERSION:
        raise DataError(
            f"written in version {facts.get('version')!r} of the layout; this bagwise knows up to {VERSION}"
        )
    return facts


def kind_of(values: np.ndarray) -> str:
    """Name of a number type, or "text", or "object" for text with gaps; anything else is refused."""
    if values.dtype.kind in "OT":
        flat = values.ravel().tolist()
        if any(v is not None and not isinstance(v, str) for v in flat):
            raise DataError(
                "facts about instances must be numbers, times or text; found other Python objects"
            )
        return "object" if None in flat else "text"
    if values.dtype.kind == "U":
        return "text"
    if values.dtype.kind not in "biufMm" or values.dtype.itemsize > 8:
        raise DataError(f"values of type {values.dtype} cannot be kept in a file")
    return values.dtype.name


def as_kind(values: np.ndarray, kind: Any, shape: Any) -> np.ndarray:
    """Bring values back to the kind and shape that they had."""
    if kind == "text":
        values = as_text(values.astype(object).ravel())
    elif kind == "object":
        values = values.astype(object)
    else:
        dtype = np.dtype(str(kind))
        if dtype.kind not in "biufMm" or dtype.itemsize > 8:
            raise DataError(f"values of type {kind!r} were never written by bagwise")
        values = values.astype(dtype, copy=False)
    return values.reshape(-1, *shape) if values.size else values.reshape(len(values), *shape)


def rebuild(
    facts: dict[str, Any],
    views: dict[str, Bags],
    Y: Any,
    instance_labels: dict[str, np.ndarray],
    groups: np.ndarray | None,
    splits: dict[str, np.ndarray],
) -> Dataset:
    """Put a data set together from what a file held."""
    several = bool(facts["several_views"])
    bags: Any = MultiViewBags(views) if several else next(iter(views.values()))
    known: Any = None
    if instance_labels:
        known = instance_labels if several else next(iter(instance_labels.values()))
    for name, which in splits.items():
        if which.size and not (which.min() >= 0 and which.max() < len(bags)):
            raise DataError(f"part {name!r} holds bag numbers outside 0..{len(bags) - 1}")
    about: dict[str, Any] = {key: str(facts.get(key, "")) for key in ABOUT}
    about["recipe"] = facts["recipe"] if isinstance(facts.get("recipe"), dict) else None
    names = tuple(map(str, facts["label_names"]))
    return Dataset(bags, Y, names, instance_Y=known, groups=groups, splits=splits, **about)


# ----------------------------------------------------------------------
# What formats ask of a data set before they write it, and what they have no place for


_CALLED = {
    "instance_Y": "labels of instances",
    "groups": "groups",
    "splits": "published parts",
    "instance_info": "facts about instances",
    "licence": "the licence",
    "recipe": "the recipe, by which models take raw files,",
}


def lost_facts(dataset: Dataset, names: Sequence[str]) -> list[str]:
    """Which of these the data set has: fields of a `Dataset`, or ``instance_info``.

    Examples
    --------
    >>> lost_facts(Dataset(Bags([[1.0]], [0, 1]), [["wren"]], groups=[1]), ("groups", "splits"))
    ['groups']
    """

    def has(name: str) -> bool:
        value = dataset.bags.instance_info if name == "instance_info" else getattr(dataset, name)  # type: ignore
        return value is not None and len(value) > 0

    return [_CALLED.get(name, f"the {name}") for name in names if has(name)]


def writable_bags(dataset: Dataset, format_name: str) -> Bags:
    """The bags, if there is at least one, of one view, finite, with unique ids that are not empty.

    Examples
    --------
    >>> writable_bags(Dataset(Bags([[1.0]], [0, 1]), [["wren"]]), "ARFF")
    Bags(1 bags, 1 instances, 1 features, dense float64)
    """
    bags = dataset.bags
    if not isinstance(bags, Bags):
        raise DataError(
            f"{format_name} holds one view, this set has {len(bags.views)}; write .parquet instead"
        )
    if not len(bags):
        raise DataError(f"the set has no bags; without bags it is no {format_name}, write .parquet instead")
    for i in bags.bag_ids.tolist():
        if isinstance(i, str) and not 0 < len(i) <= LONGEST_NAME:
            problem = f"a bag has {len(i):,} characters in its id" if i else "a bag has the empty id ''"
            raise DataError(f"{problem}; in {format_name} ids have 1 to {LONGEST_NAME}. Rename it")
    try:
        check_finite(bags.X, bags.offsets, bags.bag_ids, "", feature_names=bags.feature_names)
        check_unique_ids(bags.bag_ids, "")
    except DataError as error:
        raise DataError(error.message) from None  # the place is the caller's to name
    return bags
