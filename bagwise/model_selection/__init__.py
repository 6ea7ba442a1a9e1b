"""Splitting bags and choosing thresholds; the rest of scikit-learn's model selection works as it is."""

from bagwise.model_selection.instance_scores import cross_val_instance_scores
from bagwise.model_selection.thresholds import LabelThresholds
from bagwise.models._shared.folds import MultilabelKFold
from bagwise.models.mimlfast.select import select_mimlfast

__all__ = ["LabelThresholds", "MultilabelKFold", "cross_val_instance_scores", "select_mimlfast"]
