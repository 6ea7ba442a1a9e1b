"""Data sets: public ones by name, and generated ones with known instance labels."""

from bagwise.datasets.algorithmic import make_absence_trap, make_counting_trap, make_order_trap
from bagwise.datasets.digits import make_digits
from bagwise.datasets.letters import make_letter_words
from bagwise.datasets.mimlmix_like import make_mimlmix_like
from bagwise.datasets.msra_like import make_msra_like
from bagwise.datasets.multi_view import make_multi_view
from bagwise.datasets.registry import GENERATORS, entries, is_registered, list_datasets, load_dataset
from bagwise.datasets.synthetic import make_correlated_labels, make_miml, make_multi_target, make_sub_concepts

__all__ = [
    "GENERATORS",
    "entries",
    "is_registered",
    "list_datasets",
    "load_dataset",
    "make_absence_trap",
    "make_correlated_labels",
    "make_counting_trap",
    "make_digits",
    "make_letter_words",
    "make_miml",
    "make_mimlmix_like",
    "make_msra_like",
    "make_multi_target",
    "make_multi_view",
    "make_order_trap",
    "make_sub_concepts",
]
