"""How the mixture learns: settings from held-out bags, topics, EM, and further batches."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from bagwise.bags import Bags
from bagwise.base.blocks import blocks_in_memory, evenly, gathered
from bagwise.base.parameters import check_parameters
from bagwise.compute.threads import small_products
from bagwise.errors import DataError
from bagwise.models.mimlmix import tune as settings_of
from bagwise.models.mimlmix.answers import MixtureAnswers
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
from bagwise.models.mimlmix.tune import Held, best_threshold, choose_settings, held_out_threshold

_SEED_LIMIT = 2**31 - 1
_MOST_COMPARED, _MOST_SETS = 4300, 200_000  # bags of several parts behind settings, and behind topics


class MixtureLearner(MixtureAnswers):
    """Learns from blocks of bags; the parameters are those of `MIMLMix`."""

    alpha_topic: float
    topic_smoothing: float
    max_iter: int
    max_inner: int
    tol: float
    mode: str
    unlabelled: str
    random_state: Any

    def _fit(self, bags, Y):
        self._fit_blocks(blocks_in_memory(bags, Y))

    def _fit_blocks(self, blocks):
        if len(blocks) == 1:  # of shards with one part, too: they are no more than bags in memory
            blocks = blocks_in_memory(*blocks.only()[:2])
        with small_products(0.0):  # labels are spread over the cores; each product stays on its own
            self._learn(blocks)

    def _learn(self, blocks):
        rng = check_random_state(self.random_state)
        blocks, known, sets = self._set_up(blocks)
        views = view_parts(blocks)
        hypers = view_settings(self, views, len(self.components_))
        self.view_kinds_ = {v: hyper["kind"] for v, hyper in hypers.items()}
        self._warn_of_silent_views(hypers)
        given = settings_of.given_settings(self, len(views))
        self._fixed = settings_of.fixed_settings(self, list(views), rng.randint(_SEED_LIMIT))
        n_topics = given.pop("n_topics")
        if n_topics == "auto":
            n_topics = choose_n_topics(sets, rng, alpha=self.alpha_topic, smoothing=self.topic_smoothing)
        flat = settings_of.flat_settings(given, hypers)
        self.search_: list[tuple[dict[str, Any], float]] = []
        if "auto" in flat.values() or self.sets == "threshold":
            flat = self._search(blocks, sets, hypers, flat, n_topics, rng)
        settings = settings_of.nested_settings(flat)
        self.settings_ = {**settings, "n_topics": n_topics}
        hypers = settings_of.with_smoothing(hypers, settings)
        self._keep_topics(self._label_topics(blocks, sets, n_topics, rng))
        found = train(
            self._layout(blocks, known, sets, hypers),
            alpha=settings["alpha_train"],
            tau=self._fixed["tau"],
            max_iter=self.max_iter,
            tol=self.tol,
            tied_start=self._fixed["tied_start"],
            max_inner=self.max_inner,
        )
        self.views_ = dict(zip(views, found.views))
        self.view_weights_ = dict(zip(views, found.weights.tolist()))
        self.elbo_ = self.objective_ = found.elbo
        self.n_iter_ = found.n_iter
        self.n_batches_, self.n_bags_seen_ = 1, len(sets)

    def _search(self, blocks, sets, hypers, flat, n_topics, rng):
        """Settings that held-out bags choose; of several parts those of some bags."""
        if len(blocks) == 1:
            bags = blocks.only().bags
        else:
            some = evenly(len(sets), _MOST_COMPARED)
            bags, sets = gathered(blocks, some).bags, sets[some]
        held = Held(as_views(bags), sets, self._n_real, hypers, self._fixed, rng)
        held.fit_topics(n_topics, self.topic_smoothing)
        flat, self.search_ = choose_settings(held, flat)
        if self.sets == "threshold":
            self.threshold_ = held_out_threshold(held, flat)
        return flat

    def _label_topics(self, blocks, sets, n_topics, rng):
        """Labels per topic; of several parts those of some label sets, as many as there are bags."""
        some = np.arange(len(sets)) if len(blocks) == 1 else evenly(len(sets), _MOST_SETS)
        counts = fit_topics(sets[some], n_topics, rng, alpha=self.alpha_topic)
        return counts * (len(sets) / len(some))

    def _layout(self, blocks, known, sets, hypers):
        if len(blocks) == 1:
            return Layout(as_views(blocks.only().bags), sets, hypers)
        n_features = getattr(self, "view_features_in_", {"instances": self.n_features_in_})
        return OverParts(blocks, known, hypers, n_features)

    def _set_up(self, blocks):
        """Components of the model and the label sets over them; bags that teach nothing are left out."""
        Y = blocks.labels()[0]
        self._labels_seen, self._label_sets_seen = 0, 0
        self._count_labels(Y)
        components = np.flatnonzero(Y.any(axis=0))
        empty = ~Y.any(axis=1)
        self._n_real, self._n_labels = len(components), Y.shape[1]
        background = bool(empty.any() and self.unlabelled == "background" and self.mode != "paper")
        known = Components(components, background)
        if empty.any() and not background:
            some = gathered(blocks, np.flatnonzero(empty)[:3]).bags.bag_ids
            if empty.all():
                named = ", ".join(repr(i) for i in some.tolist())
                raise DataError(f"no training bag carries a label (bags {named}, ...): nothing to learn")
            _warn_of_left_out(some, empty)
            blocks, Y = blocks.take(np.flatnonzero(~empty)), Y[~empty]
        self.components_ = np.append(components, Y.shape[1]) if background else components
        return blocks, known, known.sets(Y)

    def _count_labels(self, Y):
        """L-bar over all bags seen so far."""
        self._labels_seen += int(Y.sum())
        self._label_sets_seen += len(Y)
        self.n_top_ = max(1, round(self._labels_seen / self._label_sets_seen))

    @staticmethod
    def _warn_of_silent_views(hypers):
        for v, hyper in hypers.items():
            empty = hyper.pop("empty")
            if not hyper["informative"]:
                why = "no training bag has it" if empty else "all its instances are alike"
                warnings.warn(f"view {v!r} says nothing ({why}) and gets no weight", stacklevel=6)

    def _keep_topics(self, counts):
        self._topic_counts = counts
        share = counts.sum(axis=1) + 1e-12
        self._topic_share = share / share.sum()
        self._topics = label_distributions(counts, self.topic_smoothing)
        self.label_topics_ = np.zeros((len(counts), self._n_labels))
        real = self.components_[: self._n_real]
        self.label_topics_[:, real] = self._topics[:, : self._n_real]

    def partial_fit(self, X, y, classes=None):
        """Learn from one more batch of bags by stochastic variational inference.

        The first batch is learned as by `fit`, which fixes features, settings and view weights; every later
        one moves the averaged statistics, and the threshold of ``sets="threshold"``, by a step of
        (t + 1)^-0.8; L-bar is the mean over all bags seen. New labels may occur in later batches. May also
        follow a `fit`.

        Parameters
        ----------
        X : Bags, MultiViewBags, list of 2-D arrays, or table
            The batch.
        y : labels as in ``fit``
            Their labels.
        classes : array, optional
            All classes, when ``y`` holds one class per bag and the first batch may lack some.

        Returns
        -------
        self
        """
        if not hasattr(self, "views_"):
            missing = np.setdiff1d(classes, y) if classes is not None and np.ndim(y) == 1 else np.empty(0)
            if missing.size:
                raise DataError(f"the first batch lacks the class {missing[0]!r}; make it larger")
            return self.fit(X, y)
        check_parameters(self, self._parameters)
        bags = self._as_bags(X, reset=False)
        Y = self._known_labels(y, bags)
        self._count_labels(Y)
        with_background = len(self.components_) > self._n_real
        empty = ~Y.any(axis=1)
        if empty.any() and not with_background:
            _warn_of_left_out(bags.bag_ids[empty], empty)
            bags, Y = bags[~empty], Y[~empty]
            if not len(Y):
                return self
        if self.sets == "threshold":  # to the model the batch is as good as held out until it is learned
            known = self.components_[: self._n_real]
            best = best_threshold(Y[:, known].ravel(), self._infer(bags)[0][:, : self._n_real].ravel())
            self.threshold_ += step_size(self) * (best - self.threshold_)
        new = np.setdiff1d(np.flatnonzero(Y.any(axis=0)), self.components_)
        if len(new):
            grow(self, new)
        sets = Y[:, self.components_[: self._n_real]]
        if with_background:
            sets = np.column_stack([sets, ~Y.any(axis=1)]).astype(np.int8)
        with small_products(0.0):
            stream_step(self, as_views(bags), np.ascontiguousarray(sets))
        return self


def _warn_of_left_out(ids: np.ndarray, empty: Any) -> None:
    some = ", ".join(repr(i) for i in ids[:3].tolist())
    warnings.warn(f"{empty.sum()} bags without labels are left out: {some}, ...", stacklevel=6)


# ----------------------------------------------------------------------
# Stochastic variational inference for MIMLmix: batches of bags, averaged statistics


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
