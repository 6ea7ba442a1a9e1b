"""Data sets: public ones by name, and generated ones with known instance labels."""

from bagwise.datasets.algorithmic import make_absence_trap, make_counting_trap, make_order_trap
from bagwise.datasets.characters import make_digits, make_letter_words
from bagwise.datasets.media import make_collages, make_documents, make_recordings, make_slides
from bagwise.datasets.published import make_mimlmix_like, make_msra_like
from bagwise.datasets.registry import GENERATORS, entries, is_registered, list_datasets, load_dataset
from bagwise.datasets.synthetic import (
    make_correlated_labels,
    make_miml,
    make_multi_target,
    make_multi_view,
    make_sub_concepts,
)

__all__ = [
    "GENERATORS",
    "entries",
    "is_registered",
    "list_datasets",
    "load_dataset",
    "make_absence_trap",
    "make_collages",
    "make_correlated_labels",
    "make_counting_trap",
    "make_digits",
    "make_documents",
    "make_letter_words",
    "make_miml",
    "make_mimlmix_like",
    "make_msra_like",
    "make_multi_target",
    "make_multi_view",
    "make_order_trap",
    "make_recordings",
    "make_slides",
    "make_sub_concepts",
]
