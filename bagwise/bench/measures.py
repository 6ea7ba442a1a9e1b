"""What is measured of predictions and of data sets, and how the papers' tables express it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, roc_auc_score

from bagwise.bags.dataset import UNKNOWN
from bagwise.bench.problems import Problem
from bagwise.metrics import evaluate, hamming_loss, one_error
from bagwise.metrics.instance import instance_accuracy

# Names in published tables -> (name here, how the value is expressed there).
_PUBLISHED: dict[str, tuple[str, Callable[[float], float]]] = {
    "auc": ("roc_auc", lambda v: v),
    "coverage_raw": ("coverage", lambda v: v),
    "coverage_norm": ("normalised_coverage", lambda v: v),
    "one_minus_average_precision": ("average_precision", lambda v: 1.0 - v),
    "instance_accuracy_inductive": ("instance_accuracy", lambda v: v),
    "instance_accuracy_transductive": ("instance_accuracy_given_labels", lambda v: v),
    "train_time_s": ("fit_seconds", lambda v: v),
    "test_time_s": ("predict_seconds", lambda v: v),
    "train_time_min": ("fit_seconds", lambda v: v / 60.0),
    "test_time_min": ("predict_seconds", lambda v: v / 60.0),
}


def express(published: str, row: Mapping[str, float], named: Mapping[str, str] | None = None) -> float | None:
    """Value of a published measure in our row of measures; None where the row lacks it.

    Parameters
    ----------
    published : str
        Name of the measure in the published table; the ending ``_percent`` stands for a factor of 100.
    row : mapping of str to float
        Our measures.
    named : mapping of str to str, optional
        Measures that stand for published ones in one table only.

    Examples
    --------
    >>> express("hamming_loss_percent", {"hamming_loss": 0.125})
    12.5
    >>> express("one_minus_average_precision", {"average_precision": 0.75})
    0.25
    """
    stem = published.removesuffix("_percent")
    name, change = _PUBLISHED.get(stem, (stem, lambda v: v))
    value = row.get((named or {}).get(published, name))
    if value is None:
        return None
    return change(value) * (100.0 if published.endswith("_percent") else 1.0)


def measure_predictions(
    problem: Problem, train: np.ndarray, test: np.ndarray, found: Mapping[str, Any]
) -> dict:
    """All measures that predictions allow.

    Parameters
    ----------
    problem : Problem
        Bags and targets.
    train, test : int arrays
        Bags of the two parts.
    found : mapping
        Predictions of the test bags: ``scores``, ``predicted`` and, where instances have known labels,
        ``annotation`` (labels of instances), ``annotation_given_labels`` and ``instance_scores``.
    """
    y = problem.y[test]
    if not problem.is_matrix:
        result = {"accuracy": float(accuracy_score(y, found["predicted"]))}
        if found["scores"].ndim == 1 and len(np.unique(y)) == 2:
            result["roc_auc"] = float(roc_auc_score(y, found["scores"]))
        return result
    more: dict[str, Any] = {}
    if "annotation" in found:
        truth = problem.labelled[test].instance_info["label"]
        more = {
            "instance_Y": truth,
            "instance_predictions": found["annotation"],
            "instance_scores": found["instance_scores"],
            "offsets": problem.bags[test].offsets,
        }
    result = dict(evaluate(y, found["scores"], found["predicted"], train_Y=problem.y[train], **more))
    result["hamming_loss_top"] = hamming_loss(y, _top_labels(found["scores"], problem.y[train]))
    result["one_error_ties_wrong"] = one_error(y, found["scores"], ties="sklearn")
    if "annotation_given_labels" in found:
        result["instance_accuracy_given_labels"] = instance_accuracy(truth, found["annotation_given_labels"])
        result["n_annotated"] = int((np.asarray(truth) != UNKNOWN).sum())
    return {name: float(value) for name, value in result.items()}


def measure_data(problem: Problem) -> dict[str, float]:
    """Counts of a data set as the papers print them, and the cost of exact label posteriors on it."""
    bags, Y = problem.bags, problem.y if problem.is_matrix else np.eye(2, dtype=int)[problem.y]
    sizes, labels = np.diff(bags.offsets).astype(np.float64), Y.sum(axis=1).astype(np.float64)
    cost = sizes * labels * 2.0**labels
    cheapest = np.sort(cost)[: int(0.8 * len(cost))]
    occurring = int((Y.sum(axis=0) > 0).sum())
    softmax = float(sizes.sum() * occurring * bags.n_features)
    return {
        "n_bags": float(len(bags)),
        "n_instances": float(bags.n_instances),
        "n_features": float(bags.n_features),
        "n_labels": float(Y.shape[1]),
        "n_classes": float(occurring),
        "labels_per_bag": float(labels.mean()),
        "classes_per_bag": float(labels.mean()),
        "instances_per_bag": float(sizes.mean()),
        "min_instances_per_bag": float(sizes.min()),
        "max_instances_per_bag": float(sizes.max()),
        "sum_Y2Y_n2_forward": float((cost * sizes).sum()),
        "sum_Y2Y_n_fast": float(cost.sum()),
        "sum_nCd_forward": softmax,
        "sum_nCd_fast": softmax,
        "complexity_ratio_all_vs_80pct_bags": float(cost.sum() / cheapest.sum()),
    }


def _top_labels(scores: np.ndarray, train_Y: np.ndarray) -> np.ndarray:
    """As many labels of the highest scores as training bags have on average, at least one."""
    count = max(1, round(float(train_Y.sum(axis=1).mean())))
    order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    chosen = np.zeros(scores.shape, dtype=np.int8)
    np.put_along_axis(chosen, order, 1, axis=1)
    return chosen
