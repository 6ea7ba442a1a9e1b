"""Splitting bags and choosing thresholds; the rest of scikit-learn's model selection works as it is."""

from bagwise.model_selection.instance_scores import cross_val_instance_scores
from bagwise.model_selection.mimlfast_grid import select_mimlfast
from bagwise.model_selection.multilabel_kfold import MultilabelKFold
from bagwise.model_selection.thresholds import LabelThresholds

__all__ = ["LabelThresholds", "MultilabelKFold", "cross_val_instance_scores", "select_mimlfast"]
