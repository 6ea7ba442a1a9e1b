"""Measures of multi-label prediction for bags, with the rules for ties and degenerate bags spelled out.

>>> from bagwise.metrics import ranking_loss
>>> ranking_loss([[1, 0, 0]], [[0.5, 0.9, 0.1]])
0.5
"""

from bagwise.metrics.bag import (
    average_precision,
    calibration_error,
    coverage,
    hamming_loss,
    one_error,
    ranking_loss,
)
from bagwise.metrics.instance import instance_accuracy, key_instance_accuracy
from bagwise.metrics.label import macro_f1, mean_average_precision, roc_auc, top_labels
from bagwise.metrics.table import HIGHER_IS_BETTER, Evaluation, evaluate, get_scorer, scorers

__all__ = [
    "HIGHER_IS_BETTER",
    "Evaluation",
    "average_precision",
    "calibration_error",
    "coverage",
    "evaluate",
    "get_scorer",
    "hamming_loss",
    "instance_accuracy",
    "key_instance_accuracy",
    "macro_f1",
    "mean_average_precision",
    "one_error",
    "ranking_loss",
    "roc_auc",
    "scorers",
    "top_labels",
]
