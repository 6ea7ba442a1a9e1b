"""What formats with one matrix per bag ask of a data set before they write it."""

from __future__ import annotations

from bagwise.bags import Bags
from bagwise.dataset import Dataset
from bagwise.errors import DataError
from bagwise.io._checks import check_finite, check_unique_ids


def writable_bags(dataset: Dataset, format_name: str) -> Bags:
    """The bags, if they are one view, finite, with unique ids, and at least one bag with one label.

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
    if not len(bags) or not len(dataset.label_names):
        what = "bags" if not len(bags) else "labels"
        raise DataError(f"a set without {what} cannot be written as {format_name}; write .parquet instead")
    try:
        check_finite(bags.X, bags.offsets, bags.bag_ids, "", feature_names=bags.feature_names)
        check_unique_ids(bags.bag_ids, "")
    except DataError as error:
        raise DataError(error.message) from None  # the place is the caller's to name
    return bags
