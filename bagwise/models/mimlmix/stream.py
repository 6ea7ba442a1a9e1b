"""Stochastic variational inference for MIMLmix: batches of bags, averaged statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.models.mimlmix.em import Layout, collect_statistics
from bagwise.models.mimlmix.topics import label_distributions, topic_shares
from bagwise.models.mimlmix.views import from_parts

_FORGETTING = 0.8
_SWEEPS = 30  # gamma starts cold in every batch
_STATISTICS = {"counts": ("S",), "gaussian": ("mass", "first", "second")}


def stream_step(model: Any, views: dict[str, Bags], sets: np.ndarray) -> None:
    """Move a fitted model by one batch.

    Statistics of the batch come from `collect_statistics`, the function of batch training. Averages per bag
    move by a step of (t + 1)^-0.8; the evidence grows with the number of bags seen while priors stay what
    they are.
    """
    alpha = model.settings_["alpha_train"]
    weights = np.array(list(model.view_weights_.values()))
    layout = Layout(views, sets, model.views_)
    for view, learned in zip(layout.views, model.views_.values()):
        view.restore(learned)
    gamma = layout.cold_gamma(alpha, weights)
    found = collect_statistics(layout, weights, alpha, gamma, _SWEEPS, 1e-6)
    topics = _topic_counts(model, sets)
    n_before, n_now = model.n_bags_seen_, model.n_bags_seen_ + len(sets)
    step = step_size(model)
    keep, add = (1.0 - step) * n_now / n_before, step * n_now / len(sets)
    for view, stats, learned in zip(layout.views, found.views, model.views_.values()):
        names = _STATISTICS[learned["kind"]]
        old = {"S": from_parts(learned["S"])} if learned["kind"] == "counts" else learned
        view.update({k: keep * old[k] + add * stats[k] for k in names})
    model.views_ = dict(zip(views, [view.export() for view in layout.views]))
    model._keep_topics(keep * model._topic_counts + add * topics)
    model.n_bags_seen_ = n_now
    model.n_batches_ += 1


def step_size(model: Any) -> float:
    """How far the next batch moves what was learned: (t + 1)^-0.8."""
    return float(model.n_batches_ + 1) ** -_FORGETTING


def _topic_counts(model: Any, sets: np.ndarray) -> np.ndarray:
    """Expected labels per topic of a batch under the present topics."""
    topics = label_distributions(model._topic_counts, model.topic_smoothing)
    theta = topic_shares(sets, topics, alpha=model.alpha_topic, sharp=model._fixed["sharp"])
    expected = np.zeros_like(topics)
    doc, label = np.nonzero(sets)
    q = theta[doc] * topics[:, label].T
    np.add.at(expected.T, label, q / q.sum(axis=1, keepdims=True))
    return expected


def grow(model: Any, new: np.ndarray) -> None:
    """Make room for labels that earlier batches did not have; they begin without statistics."""
    at, n = model._n_real, len(new)

    def widen(values: np.ndarray, fill: Any) -> np.ndarray:
        room = np.empty((n, *values.shape[1:]))
        room[:] = fill
        return np.concatenate([values[:at], room, values[at:]])

    model.components_ = np.concatenate([model.components_[:at], new, model.components_[at:]])
    model._n_real += n
    model._topic_counts = np.ascontiguousarray(widen(model._topic_counts.T, 0.0).T)
    for learned in model.views_.values():
        if learned["kind"] == "counts":
            S = learned["S"]
            moved = np.where(S["indices"] < at, S["indices"], S["indices"] + n)  # the order stays
            learned["S"] = {**S, "indices": moved, "shape": (S["shape"][0], S["shape"][1] + n)}
            learned["totals"] = widen(learned["totals"], 0.0)
            continue
        for name in ("mass", "first", "second", "mean"):
            learned[name] = widen(learned[name], 0.0)
        total = learned["total"]  # a label without instances looks like the view as a whole
        diagonal = learned["covariance"] == "diag"
        log_det = np.log(total).sum() if diagonal else np.linalg.slogdet(total)[1]
        constant = -0.5 * (len(total) * np.log(2.0 * np.pi) + log_det)
        if diagonal:
            learned["whiten"] = widen(learned["whiten"], 1.0 / np.sqrt(total))
        elif len(learned["whiten"]) > 1 or learned["covariance"] == "full":
            learned["whiten"] = widen(learned["whiten"], np.linalg.inv(np.linalg.cholesky(total)).T)
        else:
            constant = learned["constants"][0]
        learned["constants"] = widen(learned["constants"], constant)
