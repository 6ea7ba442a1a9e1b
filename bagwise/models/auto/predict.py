"""The fitted members of one view, and their answers to bags."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.bags import Bags
from bagwise.compute.calibration import calibrated_loss
from bagwise.compute.scaling import Scaling, apply_scaling
from bagwise.models._shared.scores import pooled, safe_logit
from bagwise.preprocessing.pooling import bag_statistics

# members that answer from whole bags, and from instances
ON_BAGS = ("set_kernel", "statistics_kernel", "text_kernel", "text_logistic", "mimlfast")
ON_INSTANCES = ("inherited_forest", "inherited_logistic", "ored", "ored_forest")
_MANY_COLUMNS = 600  # pooled probabilities beyond which one of three poolings is kept


@dataclass
class ViewModel:
    """Fitted members of one view."""

    dense: bool
    text: bool
    background: bool
    n_labels: int
    statistics: tuple[Any, ...]
    columns: np.ndarray  # features that vary in training; the others say nothing
    members: dict[str, Any] = field(default_factory=dict)
    scaling: Scaling = field(default_factory=lambda: Scaling("none", np.zeros(0), np.zeros(0)))
    statistics_scaling: Scaling = field(default_factory=lambda: Scaling("none", np.zeros(0), np.zeros(0)))
    stack_names: tuple[str, ...] = ()
    stack_shift: np.ndarray | None = None
    stack_scale: np.ndarray | None = None
    instance_weights: dict[str, float] = field(default_factory=dict)
    background_shift: float = 0.0  # taken off the logarithm of the background's probability
    n_jobs: int | None = None

    def answers(self, bags: Bags, needed: set[str]) -> dict[str, np.ndarray]:
        """Scores of bags by each of the members that are needed."""
        bags, X = self._prepare(bags)
        of_bags = needed & {"statistics_kernel", "pooled_forest"}
        table = bag_statistics(bags, self.statistics) if of_bags else np.zeros((len(bags), 0))
        own = {name: self._bag_member(name, bags, X, table) for name in ON_BAGS if name in needed}
        if needed - set(own):
            sources = (name for name in ON_INSTANCES if name in self.members)
            P = {name: self.members[name].probabilities(X[name], self.n_jobs) for name in sources}
            for name in (name for name in P if name in needed):
                own[name] = instance_member_score(name, P[name][:, : self.n_labels], bags.offsets)
            F = stack(P, self.stack_names, self.n_labels, bags.offsets)
            if "stacked_kernel" in needed:
                rows = (F - self.stack_shift) * self.stack_scale
                own["stacked_kernel"] = self.members["stacked_kernel"].predict(rows, np.arange(len(F) + 1))
            if "pooled_forest" in needed:
                both = np.hstack([table, F]).astype(np.float32)
                own["pooled_forest"] = safe_logit(self.members["pooled_forest"].predict(both, self.n_jobs))
        return own

    def instance_probabilities(self, bags: Bags) -> np.ndarray:
        """Distribution over classes of every instance."""
        bags, X = self._prepare(bags)
        P = {n: self.members[n].probabilities(X[n], self.n_jobs) for n in self.instance_weights}
        if not P:
            return np.full((bags.n_instances, self.n_labels + self.background), 0.5)
        Q = mix_instances(P, self.instance_weights, self.n_labels, self.background)
        if self.background_shift > 0.0:
            Q[:, -1] *= np.exp(-self.background_shift)
            Q /= Q.sum(axis=1, keepdims=True)
        return Q

    def _prepare(self, bags: Bags) -> tuple[Bags, dict[str, Any]]:
        """Bags as they were learned from, and the instances that each member takes."""
        bags = as_learned(bags, self.dense, self.columns)
        single = bags.X.astype(np.float32) if self.dense else None
        rows = as_csr(bags.X) if self.text else None
        X = dict.fromkeys(("inherited_forest", "ored_forest"), single)
        return bags, {**X, "ored": bags.X, "inherited_logistic": rows}

    def _bag_member(self, name: str, bags: Bags, X: dict[str, Any], table: np.ndarray) -> np.ndarray:
        model = self.members[name]
        if name == "set_kernel":
            return model.predict(apply_scaling(bags.X, self.scaling), bags.offsets)
        if name == "statistics_kernel":
            rows = apply_scaling(table, self.statistics_scaling)
            return model.predict(rows, np.arange(len(rows) + 1))
        if name == "mimlfast":
            return model.scores(bags)
        terms, logistic = model
        return logistic.logits(terms.bags(X["inherited_logistic"], bags.offsets))


def as_learned(bags: Bags, dense: bool, columns: np.ndarray) -> Bags:
    """Dense bags for a dense view, sparse ones for text; of features those that vary in training."""
    if len(columns) < bags.n_features:
        bags = bags[:, columns]
    if dense:
        return bags.with_X(bags.X.toarray()) if bags.is_sparse else bags
    return bags if bags.is_sparse else bags.with_X(sparse.csr_array(bags.X))


def as_csr(X: Any) -> Any:
    """Instances as CSR in double precision."""
    return sparse.csr_array(X).astype(np.float64)


def instance_member_score(name: str, P: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Bag scores of a member on instances: noisy-or of the softmax, of others half maximum, half mean."""
    largest, mean, noisy_or = pooled(P, offsets)
    return safe_logit(noisy_or if name == "ored" else (largest + mean) / 2.0)


def stack(P: dict[str, np.ndarray], names: tuple[str, ...], n_labels: int, offsets: np.ndarray) -> np.ndarray:
    """Logits of pooled instance probabilities of some members, side by side."""
    n = len(offsets) - 1
    parts: list[np.ndarray] = []
    for name in names:
        poolings: tuple[np.ndarray, ...] = pooled(P[name][:, :n_labels], offsets)
        if 3 * len(names) * n_labels > _MANY_COLUMNS:
            poolings = ((poolings[0] + poolings[1]) / 2.0,)
        parts += [safe_logit(p) for p in poolings]
    return np.hstack(parts) if parts else np.zeros((n, 0))


def mix_instances(
    P: dict[str, np.ndarray], weights: dict[str, float], n_labels: int, background: bool
) -> np.ndarray:
    """Weighted geometric mean of distributions over classes, normalised."""
    total: Any = 0.0
    for name, weight in weights.items():
        p = P[name]
        if p.shape[1] < n_labels + background:  # labels by themselves: none of them is the background
            none = np.exp(np.log1p(-np.clip(p, 0.0, 1.0 - 1e-9)).sum(axis=1))
            p = np.column_stack([p, none])
        total = total + weight * np.log(np.maximum(p, 1e-3))
    Q = np.exp(total)
    return Q / Q.sum(axis=1, keepdims=True)


# ---------------------------------------------------------------------- which members vote on instances

_MIXED = {"ored": 0.25, "ored_forest": 0.75}  # the softmax is sharp, the forest knows more


def voting_weights(
    P: dict[str, np.ndarray], Y: np.ndarray, offsets: np.ndarray, background: bool
) -> dict[str, float]:
    """Weights of the members whose pooled answers, alone or mixed, predict unseen bags best.

    ``P`` are the members' distributions over classes of instances of unseen bags.
    """
    candidates: list[dict[str, float]] = [{name: 1.0} for name in P]
    if "ored" in P and "ored_forest" in P:
        candidates += [dict(_MIXED)]
    if not candidates:
        return {}
    varies = Y.min(axis=0) < Y.max(axis=0)
    truth = Y[:, varies].astype(np.float64)
    losses = []
    for weights in candidates:
        Q = mix_instances(P, weights, Y.shape[1], background)[:, : len(varies)]
        largest, mean, noisy_or = pooled(Q[:, varies], offsets)
        poolings = (safe_logit((largest + mean) / 2.0), safe_logit(noisy_or))
        losses.append(min(calibrated_loss(S, truth) for S in poolings))
    return candidates[int(np.argmin(losses))]


def background_shift(
    P: dict[str, np.ndarray], weights: dict[str, float], Y: np.ndarray, bag_of_row: np.ndarray
) -> float:
    """How far even odds are from what instances of bags without labels say, halved.

    One instance explains a label of its bag, so that nothing pushes the probability of a second one up: it
    may stay below that of the background although no instance of a bag without labels looks like it. Those
    are known to be background: the line is drawn half way between the 99th of a hundred of them and even
    odds, where they are all on their side of it.
    """
    known = (Y.sum(axis=1) == 0)[bag_of_row]
    if not known.any():
        return 0.0
    Q = mix_instances(P, weights, Y.shape[1], True)[known]
    odds = np.log(Q[:, :-1].max(axis=1)) - np.log(Q[:, -1])
    return float(max(0.0, -np.quantile(odds, 0.99) / 2.0))
