"""What formats ask of a data set before they write it, and what they have no place for."""

from __future__ import annotations

from collections.abc import Sequence

from bagwise.bags import Bags
from bagwise.bags.dataset import Dataset
from bagwise.errors import DataError
from bagwise.io._checks import check_finite, check_unique_ids
from bagwise.io._grouping import LONGEST_NAME

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
        raise DataError(f"a set without bags cannot be written as {format_name}; write .parquet instead")
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
