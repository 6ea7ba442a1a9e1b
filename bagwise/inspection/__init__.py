"""Looking inside: instance scores, key instances and annotations of any model, pipeline or search."""

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
    "last_estimator",
    "scores_and_labels",
    "unwrap",
]
