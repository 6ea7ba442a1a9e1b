"""The containers: ``Bags`` (one view) and ``MultiViewBags`` (several).

A bag is a run of rows of one matrix, so a million bags are two arrays and no Python objects::

    X        [ a0 a1 | b0 | c0 c1 c2 ]     one row per instance
    offsets  [ 0       2    3         6 ]   bag i is X[offsets[i]:offsets[i + 1]]
"""

from bagwise.bags._bags import Bags
from bagwise.bags._rows import bag_numbers, checked_csr, first_not_finite, instance_rows, runs, stack_rows
from bagwise.bags._views import ONE_VIEW, MultiViewBags, each_view, views_of

__all__ = [
    "ONE_VIEW",
    "Bags",
    "MultiViewBags",
    "bag_numbers",
    "checked_csr",
    "each_view",
    "first_not_finite",
    "instance_rows",
    "runs",
    "stack_rows",
    "views_of",
]
