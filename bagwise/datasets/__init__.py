"""Data sets: public ones by name, and generated ones with known instance labels."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bagwise.datasets.registry import GENERATORS, entries, is_registered, list_datasets, load_dataset

# Imported when first used, since they bring scikit-learn and scipy.special
_PLACES = {
    "make_absence_trap": "algorithmic",
    "make_collages": "media",
    "make_correlated_labels": "synthetic",
    "make_counting_trap": "algorithmic",
    "make_digits": "digits",
    "make_documents": "media",
    "make_letter_words": "letters",
    "make_miml": "synthetic",
    "make_mimlmix_like": "published",
    "make_msra_like": "published",
    "make_multi_target": "synthetic",
    "make_multi_view": "synthetic",
    "make_order_trap": "algorithmic",
    "make_recordings": "media",
    "make_slides": "media",
    "make_sub_concepts": "synthetic",
}

if TYPE_CHECKING:
    from bagwise.datasets.algorithmic import make_absence_trap, make_counting_trap, make_order_trap
    from bagwise.datasets.digits import make_digits
    from bagwise.datasets.letters import make_letter_words
    from bagwise.datasets.media import make_collages, make_documents, make_recordings, make_slides
    from bagwise.datasets.published import make_mimlmix_like, make_msra_like
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


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"bagwise.datasets.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
