"""Splitting bags, choosing thresholds, comparing models; the rest of scikit-learn works as it is."""

from bagwise.model_selection.compare import compare
from bagwise.model_selection.comparison import Comparison
from bagwise.model_selection.thresholds import LabelThresholds, cross_val_instance_scores
from bagwise.models._shared.held_out import MultilabelKFold
from bagwise.models.mimlfast.tune import select_mimlfast

__all__ = [
    "Comparison",
    "LabelThresholds",
    "MultilabelKFold",
    "compare",
    "cross_val_instance_scores",
    "select_mimlfast",
]
