"""How the mixture learns: settings from held-out bags, topics, EM; and batch by batch.

Batches are learned by stochastic variational inference: averaged statistics move by ever shorter steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from bagwise.bags import Bags
from bagwise.base.blocks import Blocks, evenly, gathered
from bagwise.compute.threads import small_products
from bagwise.errors import DataError, warn
from bagwise.models.mimlmix import tune
from bagwise.models.mimlmix.fit_em import (
    Components,
    Layout,
    OverParts,
    as_views,
    collect_statistics,
    train,
    view_parts,
)
from bagwise.models.mimlmix.fit_kinds import view_settings
from bagwise.models.mimlmix.fit_views import from_parts
from bagwise.models.mimlmix.kernels_topics import (
    choose_n_topics,
    fit_topics,
    label_distributions,
    topic_shares,
)

_FORGETTING = 0.8
_SWEEPS = 30  # gamma starts cold in every batch
_STATISTICS = {"counts": ("S",), "gaussian": ("mass", "first", "second")}
_SEED_LIMIT = 2**31 - 1
_MOST_COMPARED, _MOST_SETS = 4300, 200_000  # bags of several parts behind settings, and behind topics


def learn(model: Any, blocks: Blocks) -> None:
    """Learn from blocks of bags."""
    rng = check_random_state(model.random_state)
    blocks, known, sets = _set_up(model, blocks)
    views = view_parts(blocks)
    hypers = view_settings(model, views, len(model.components_))
    model.view_kinds_ = {v: hyper["kind"] for v, hyper in hypers.items()}
    for v, hyper in hypers.items():
        empty = hyper.pop("empty")
        if not hyper["informative"]:
            why = "no training bag has it" if empty else "all its instances are alike"
            warn(f"view {v!r} says nothing ({why}) and gets no weight")
    given = tune.given_settings(model, len(views))
    model._fixed = tune.fixed_settings(model, list(views), rng.randint(_SEED_LIMIT))
    n_topics = given.pop("n_topics")
    if n_topics == "auto":
        n_topics = choose_n_topics(sets, rng, alpha=model.alpha_topic, smoothing=model.topic_smoothing)
    flat = tune.flat_settings(given, hypers)
    model.search_ = []
    if "auto" in flat.values() or model.sets == "threshold":
        flat = _search(model, blocks, sets, hypers, flat, n_topics, rng)
    settings = tune.nested_settings(flat)
    model.settings_ = {**settings, "n_topics": n_topics}
    hypers = tune.with_smoothing(hypers, settings)
    # of several parts those of some label sets, as many as there are bags
    some = np.arange(len(sets)) if len(blocks) == 1 else evenly(len(sets), _MOST_SETS)
    counts = fit_topics(sets[some], n_topics, rng, alpha=model.alpha_topic)
    _keep_topics(model, counts * (len(sets) / len(some)))
    if len(blocks) == 1:
        layout: Any = Layout(as_views(blocks.only().bags), sets, hypers)
    else:
        n_features = getattr(model, "view_features_in_", {"instances": model.n_features_in_})
        layout = OverParts(blocks, known, hypers, n_features)
    found = train(
        layout,
        alpha=settings["alpha_train"],
        tau=model._fixed["tau"],
        max_iter=model.max_iter,
        tol=model.tol,
        tied_start=model._fixed["tied_start"],
        max_inner=model.max_inner,
    )
    model.views_ = dict(zip(views, found.views))
    model.view_weights_ = dict(zip(views, found.weights.tolist()))
    model.elbo_ = model.objective_ = found.elbo
    model.n_iter_ = found.n_iter
    model.n_batches_, model.n_bags_seen_ = 1, len(sets)


def _search(model, blocks, sets, hypers, flat, n_topics, rng):
    """Settings that held-out bags choose; of several parts those of some bags."""
    if len(blocks) == 1:
        bags = blocks.only().bags
    else:
        some = evenly(len(sets), _MOST_COMPARED)
        bags, sets = gathered(blocks, some).bags, sets[some]
    held = tune.Held(as_views(bags), sets, model._n_real, hypers, model._fixed, rng)
    held.fit_topics(n_topics, model.topic_smoothing)
    flat, model.search_ = tune.choose_settings(held, flat)
    if model.sets == "threshold":
        model.threshold_ = tune.held_out_threshold(held, flat)
    return flat


def _set_up(model, blocks):
    """Components of the model and the label sets over them; bags that teach nothing are left out."""
    Y = blocks.labels()[0]
    model._labels_seen, model._label_sets_seen = 0, 0
    _count_labels(model, Y)
    components = np.flatnonzero(Y.any(axis=0))
    empty = ~Y.any(axis=1)
    model._n_real, model._n_labels = len(components), Y.shape[1]
    background = bool(empty.any() and model.unlabelled == "background" and model.mode != "paper")
    known = Components(components, background)
    if empty.any() and not background:
        some = gathered(blocks, np.flatnonzero(empty)[:3]).bags.bag_ids
        if empty.all():
            named = ", ".join(repr(i) for i in some.tolist())
            raise DataError(f"no training bag carries a label (bags {named}, ...): nothing to learn")
        _warn_of_left_out(some, empty)
        blocks, Y = blocks.take(np.flatnonzero(~empty)), Y[~empty]
    model.components_ = np.append(components, Y.shape[1]) if background else components
    return blocks, known, known.sets(Y)


def _count_labels(model, Y):
    """L-bar over all bags seen so far."""
    model._labels_seen += int(Y.sum())
    model._label_sets_seen += len(Y)
    model.n_top_ = max(1, round(model._labels_seen / model._label_sets_seen))


def _keep_topics(model, counts):
    model._topic_counts = counts
    share = counts.sum(axis=1) + 1e-12
    model._topic_share = share / share.sum()
    model._topics = label_distributions(counts, model.topic_smoothing)
    model.label_topics_ = np.zeros((len(counts), model._n_labels))
    real = model.components_[: model._n_real]
    model.label_topics_[:, real] = model._topics[:, : model._n_real]


def _warn_of_left_out(ids: np.ndarray, empty: Any) -> None:
    some = ", ".join(repr(i) for i in ids[:3].tolist())
    warn(f"{empty.sum()} bags without labels are left out: {some}, ...")


# ---------------------------------------------------------------------- batch by batch


def learn_batch(model: Any, bags: Any, Y: np.ndarray) -> None:
    """Learn from one more batch of bags, after the first ones."""
    _count_labels(model, Y)
    with_background = len(model.components_) > model._n_real
    empty = ~Y.any(axis=1)
    if empty.any() and not with_background:
        _warn_of_left_out(bags.bag_ids[empty], empty)
        bags, Y = bags[~empty], Y[~empty]
        if not len(Y):
            return
    if model.sets == "threshold":  # to the model the batch is as good as held out until it is learned
        known = model.components_[: model._n_real]
        best = tune.best_threshold(Y[:, known].ravel(), model._infer(bags)[0][:, : model._n_real].ravel())
        model.threshold_ += step_size(model) * (best - model.threshold_)
    new = np.setdiff1d(np.flatnonzero(Y.any(axis=0)), model.components_)
    if len(new):
        grow(model, new)
    known = Components(model.components_[: model._n_real], with_background)
    with small_products(0.0):
        stream_step(model, as_views(bags), known.sets(Y))


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
    _keep_topics(model, keep * model._topic_counts + add * topics)
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
