"""``Dataset``: bags with what is known about them; the only place where the truth about instances lives."""

from bagwise.dataset._dataset import UNKNOWN, Dataset
from bagwise.dataset._frames import MOST_FLAGS, bag_columns

__all__ = ["MOST_FLAGS", "UNKNOWN", "Dataset", "bag_columns"]
