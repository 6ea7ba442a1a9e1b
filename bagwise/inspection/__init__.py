"""Looking inside: instance scores, key instances and annotations of any model, pipeline or search."""

from bagwise.inspection.frames import label_names, prediction_frame
from bagwise.inspection.unwrap import (
    annotate,
    instance_scores,
    key_instances,
    last_estimator,
    scores_and_labels,
    unwrap,
)

__all__ = [
    "annotate",
    "instance_scores",
    "key_instances",
    "label_names",
    "last_estimator",
    "prediction_frame",
    "scores_and_labels",
    "unwrap",
]
