"""Label sets: one 0/1 matrix and its names, from and to everything that people have; rows matched to bags."""

from bagwise.labels._matrix import (
    KEPT_DENSE,
    MOST_DENSE,
    binary_matrix,
    dense_labels,
    label_matrix,
    label_sets,
    stored_labels,
    unknown_label,
)
from bagwise.labels._order import in_bag_order

__all__ = [
    "KEPT_DENSE",
    "MOST_DENSE",
    "binary_matrix",
    "dense_labels",
    "in_bag_order",
    "label_matrix",
    "label_sets",
    "stored_labels",
    "unknown_label",
]
