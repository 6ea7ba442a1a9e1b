"""``Dataset``: bags with what is known about them; the only place where the truth about instances lives."""

from bagwise.dataset._dataset import UNKNOWN, Dataset
from bagwise.dataset._frames import bag_columns

__all__ = ["UNKNOWN", "Dataset", "bag_columns"]
