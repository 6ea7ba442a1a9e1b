"""How ORed logistic regression learns, over blocks of bags in memory, in shards or on a GPU.

Bags are counted, instances scaled, every block becomes a likelihood (`UnionLikelihood`; on a GPU the one of
``gpu.py``, which asks its `residual` run by run), and their penalised sum is climbed by L-BFGS; by EM in
``fit_em.py``. Parameters are one array ``W`` (C, d + 1) whose last column is the intercept.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from bagwise.bags import instance_rows
from bagwise.base.blocks import Block, Blocks
from bagwise.compute.devices import gpu_for
from bagwise.compute.optim import minimise
from bagwise.compute.parts import Parts, map_reduce
from bagwise.compute.scaling import Scaling, apply_scaling, is_text, learn_scaling, positive_rows, scaling_of
from bagwise.compute.threads import product_size, small_products, threads
from bagwise.errors import DataError, quoted, warn
from bagwise.models._shared.instance_softmax import NEVER
from bagwise.models.ored.fit_em import climb_em
from bagwise.models.ored.kernels import EXACT
from bagwise.models.ored.predict import (
    UnionPass,
    known_classes,
    log_normaliser,
    union_posterior,
    with_background,
)
from bagwise.preprocessing.rbf_dictionary import RBFDictionary

# ---------------------------------------------------------------------- bags that take part


class Treatment(NamedTuple):
    """How label sets are taken: where the background may be, and what becomes of sets that cannot be."""

    background: Any  # "anywhere", "empty" or False
    max_labels: int
    unusable_bags: str
    prune: float
    inference: dict[str, Any]  # algorithm of the posteriors


class Usable(NamedTuple):
    """Weights of the bags that take part, those that give candidate sets only, and why."""

    weights: np.ndarray
    candidates: np.ndarray
    impossible: np.ndarray
    too_many: np.ndarray


def usable(block: Block, how: Treatment) -> Usable:
    """Which bags of a block take part, and how."""
    bags, Y, weights, _ = block
    n_labels, sizes = Y.sum(axis=1), np.diff(bags.offsets)
    impossible = n_labels > sizes
    if not how.background:
        impossible |= n_labels == 0
    too_many = n_labels > how.max_labels
    if block.known is not None:
        impossible |= _contradicted(block, how) & ~too_many
    unusable = impossible | too_many
    candidates = unusable & (how.unusable_bags == "candidates")
    used = np.where(unusable & ~candidates, 0.0, weights)
    if how.prune > 0:
        cost = np.where(used > 0, sizes * n_labels * 2.0**n_labels, -1.0)
        kept = np.argsort(cost, kind="stable")[: len(sizes) - int(how.prune * (used > 0).sum())]
        used = np.where(np.isin(np.arange(len(sizes)), kept), used, 0.0)
    return Usable(used, candidates, impossible, too_many)


def _contradicted(block: Block, how: Treatment) -> np.ndarray:
    """Bags whose set cannot be the union of what their instances are known to carry or not."""
    bags, clamps = block.bags, known_classes(block.known, block.Y.shape[1], bool(how.background))
    result = np.zeros(len(bags), dtype=bool)
    if clamps is None:
        return result
    which = np.unique(bags.index[clamps.rows])
    rows, offsets = instance_rows(bags.offsets, which)
    logits = np.zeros((len(rows), block.Y.shape[1] + bool(how.background)))
    logits[np.searchsorted(rows, clamps.rows)] = np.where(clamps.allowed, 0.0, -np.inf)
    sets = with_background(block.Y, how.background)[which]
    anywhere = how.background == "anywhere"
    loglik = union_posterior(logits, offsets, sets, background=anywhere, **how.inference)[1]
    result[which] = np.isneginf(loglik)
    return result


def count_bags(how: Treatment, block: Block) -> dict[str, Any]:
    """What the likelihood needs to know of all bags before it is climbed."""
    found = usable(block, how)
    bad = found.impossible | found.too_many
    row_weights = found.weights[np.diff(block.bags.offsets) > 0]
    return {
        "n_unusable": int(bad.sum()),
        "n_impossible": int(found.impossible.sum()),
        "n_over": int((found.too_many & ~found.impossible).sum()),
        "first": [block.bags.bag_ids[np.flatnonzero(bad)[0]].item()] if bad.any() else [],
        "weight": float(found.weights.sum()),
        "carried": (block.Y[found.weights > 0] > 0).sum(axis=0),
        "range": [float(row_weights.min(initial=np.inf)), float(row_weights.max(initial=-np.inf))],
    }


def joined_counts(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Counts of two blocks together: sums, the first id, the range of weights."""
    sums = {key: a[key] + b[key] for key in a if key not in ("first", "range")}
    low, high = zip(a["range"], b["range"])
    return sums | {"first": (a["first"] + b["first"])[:1], "range": [min(low), max(high)]}


# ---------------------------------------------------------------------- blocks as likelihoods


class Setup(NamedTuple):
    """All that a block needs to become a likelihood."""

    how: Treatment
    classes: np.ndarray  # columns of the labels, and of the background, that occur
    scaling: Scaling
    dictionary: Any  # of the kernel, None without one
    fit_intercept: bool
    device: str = "cpu"


def likelihood_of(setup: Setup, store: Any, block: Block) -> Any:
    """The likelihood of one block, without a penalty; ``store`` has its instances if they are on a GPU."""
    gpu = gpu_of(setup.device, block.bags.X) if store is None else store.device
    how, found = setup.how, usable(block, setup.how)
    known = None
    if block.known is not None:
        clamps = known_classes(block.known, block.Y.shape[1], bool(how.background))
        known = None if clamps is None else clamps.of_classes(setup.classes)
    Y = np.ascontiguousarray(with_background(block.Y, how.background)[:, setup.classes])
    sets: dict[str, Any] = {
        "offsets": block.bags.offsets,
        "Y": Y,
        "weights": found.weights,
        "fit_intercept": setup.fit_intercept,
        "background": how.background == "anywhere",
        "candidates": found.candidates,
        "known": known,
        **how.inference,
    }
    if gpu is not None:
        from bagwise.models._shared.gpu import Instances
        from bagwise.models.ored.gpu import GPULikelihood

        store = Instances(block.bags.X, gpu, setup.scaling) if store is None else store
        return GPULikelihood(store, store.folded(setup.scaling), **sets)
    features = apply_scaling(block.bags.X, setup.scaling, block.bags.X.dtype)
    if setup.dictionary is not None:
        features = setup.dictionary.transform(features)
    return UnionLikelihood(features, **sets)


def gpu_of(device: str, X: Any) -> Any:
    """The GPU that dense instances go to, None where they stay here."""
    gpu = None if sparse.issparse(X) else gpu_for(device, X.size)
    return None if gpu is None or is_text(X) else gpu


def value_and_gradient(W: np.ndarray, problem: Any) -> tuple[float, np.ndarray]:
    """Log-likelihood of a block and its gradient."""
    return problem.value_and_gradient(W)


class UnionLikelihood:
    """Value and gradient of ``sum_b weight_b log p(Y_b | X_b, W) - alpha / 2 |W|^2``, intercepts unpenalised.

    Parameters
    ----------
    X : ndarray or CSR of shape (N, d)
        Features of the instances.
    offsets : ndarray of shape (B + 1,)
        Where bags begin.
    Y : ndarray of int8, shape (B, C)
        Label sets; with a background, its column, the last, holds ones.
    weights : ndarray of shape (B,)
        Weights of the bags.
    fit_intercept : bool
        Whether the last column of ``W`` may move.
    background : bool
        Whether the last class may be carried by any instance of any bag without showing in the label set.
    candidates : ndarray of bool, shape (B,)
        Bags whose set is taken as candidates only: ``sum_i log sum_{c in Y} p_i(c)``.
    method, max_labels, n_threads
        As in `bagwise.models.ored.predict.union_posterior`.
    known : Known, optional
        Instances of which some classes are ruled out; their posterior and the likelihood heed it exactly.
    alpha : float
        Strength of the penalty.
    """

    xp: Any = np  # what tensors have under the same names in ``gpu.py``

    def __init__(
        self,
        X,
        offsets,
        Y,
        weights,
        *,
        fit_intercept,
        background,
        candidates,
        method,
        max_labels,
        n_threads,
        known=None,
        alpha=0.0,
    ):
        self.X, self.offsets, self.Y, self.weights = X, offsets, Y, weights
        # CSR both ways: a product with the transpose of CSR scatters, one with its own CSR gathers
        self.Xt = X.T.tocsr() if sparse.issparse(X) else X.T
        self.alpha, self.fit_intercept, self.candidates, self.known = alpha, fit_intercept, candidates, known
        self.shape = Y.shape[1], X.shape[1] + 1  # of the parameters
        how = {"background": background, "method": method, "max_labels": max_labels, "n_threads": n_threads}
        self.passes = UnionPass(offsets, Y, **how)
        self.product_size = product_size(X, Y.shape[1])

    def value_and_gradient(self, W: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective and its gradient."""
        value, R = self.residual(self.logits(W))
        return value - 0.5 * self.alpha * float(np.square(W[:, :-1]).sum()), self.gradient(R, W)

    def residual(self, logits: Any, weights: np.ndarray | None = None) -> tuple[float, Any]:
        """Weighted log-likelihood and its gradient by the logits: posterior less prior, times weight."""
        given, plain = self.weights if weights is None else weights, None
        if self.known is not None:  # with A the classes left to an instance, p(y) = p(A) p(y | A)
            plain, logits = self._clamp(logits)
        value, R = self._union(logits, given)
        if self.candidates.any():
            value += self._add_candidates(logits, given, R)
        if plain is not None:
            value += self._add_known(plain, given, R)
        return value, R

    def _add_candidates(self, logits: Any, weights: np.ndarray, R: Any) -> float:
        """Bags whose set is taken as candidates only."""
        which = np.flatnonzero(self.candidates & (weights > 0))
        rows, offsets = instance_rows(self.offsets, which)
        bag = np.repeat(which, np.diff(offsets))
        log_p = self._fetched(logits, rows)
        log_p = log_p - log_normaliser(log_p)[:, None]
        inside = np.where(self.Y[bag] > 0, log_p, -np.inf)
        mass = logsumexp(inside, axis=1)
        usable = np.isfinite(mass)  # an empty set without a background has no candidates
        w = np.where(usable, weights[bag], 0.0)
        with np.errstate(invalid="ignore"):
            posterior = np.where(usable[:, None], np.exp(inside - mass[:, None]), 0.0)
        self._put(R, rows, w[:, None] * (posterior - np.exp(log_p)))
        return float(w[usable] @ mass[usable])

    def _add_known(self, plain: Any, weights: np.ndarray, R: Any) -> float:
        """The factor p(A); the union is over p(y | A) alone."""
        (rows, allowed), xp = self.known, self.xp
        w = self._known_weights(weights)
        log_p = plain - self._log_normaliser(plain)[:, None]
        inside = xp.where(allowed, log_p, -np.inf)
        mass = self._log_normaliser(inside)
        change = w[:, None] * (xp.exp(inside - mass[:, None]) - xp.exp(log_p))
        self._add(R, rows, change)
        return float(w @ mass)

    # ------------------------------------------------------------------ steps, which a GPU has of its own

    def logits(self, W: np.ndarray) -> np.ndarray:
        """Scores of every class for every instance."""
        return np.ascontiguousarray(self.X @ W[:, :-1].T.astype(self.X.dtype) + W[:, -1], dtype=np.float64)

    def gradient(self, R: np.ndarray, W: np.ndarray) -> np.ndarray:
        """Gradient by the parameters, the penalty included."""
        G = np.empty(self.shape)
        G[:, :-1] = (self.Xt @ R.astype(self.X.dtype, copy=False)).T
        G[:, :-1] -= self.alpha * W[:, :-1]
        G[:, -1] = R.sum(axis=0) if self.fit_intercept else 0.0
        return G

    def _union(self, logits: Any, given: np.ndarray) -> tuple[float, Any]:
        """Bags that are taken exactly."""
        weights = np.where(self.candidates, 0.0, given)
        R, loglik, status = self.passes.run(logits, weights, residual=True)
        counted = (status == EXACT) & (weights > 0)
        return float(weights[counted] @ loglik[counted]), R

    def _clamp(self, logits: Any) -> tuple[Any, Any]:
        """Logits of the instances that are known, and all logits without the classes that are ruled out."""
        return logits[self.known.rows], self.known.clamped(logits)

    def _known_weights(self, weights: np.ndarray) -> Any:
        return weights[np.searchsorted(self.offsets, self.known.rows, side="right") - 1]

    def _log_normaliser(self, F: Any) -> Any:
        return log_normaliser(F)

    def _fetched(self, logits: Any, rows: np.ndarray) -> np.ndarray:
        return logits[rows]

    def _put(self, R: Any, rows: np.ndarray, values: np.ndarray) -> None:
        R[rows] = values

    def _add(self, R: Any, rows: Any, values: Any) -> None:
        R[rows] += values


# ---------------------------------------------------------------------- the climb


def climb_lbfgs(
    parts: Parts, shape: tuple[int, int], weight: float, alpha: float, *, max_iter: int, tol: float
) -> tuple[np.ndarray, list[float]]:
    """Maximise the sum of the likelihoods less the penalty by L-BFGS; parameters and the objective's path.

    ``weight`` is that of all bags together.
    """
    total = max(weight, np.finfo(float).tiny)  # per bag, so that tol means the same

    def loss(W: np.ndarray) -> tuple[float, np.ndarray]:
        value, G = map_reduce(value_and_gradient, W, parts)
        G = G.copy()
        G[:, :-1] -= alpha * W[:, :-1]
        value -= 0.5 * alpha * float(np.square(W[:, :-1]).sum())
        return -value, -G

    options: dict[str, Any] = {"max_iter": max_iter, "tol": tol, "least_fall": 64 * np.finfo(float).eps}
    found = minimise(loss, np.zeros(shape), unit=total, tries=50, **options)
    return found.x, [-value for value in found.history]


def learn(model: Any, blocks: Blocks, setting: Any) -> None:
    """Climb the likelihood of the bags under a `Setting` of ``tune.py``, and keep what was found."""
    model.alpha_, model.background_, model.bag_probability_ = setting
    model.has_background_ = bool(model.background_)
    how = Treatment(
        model.background_, model.max_labels, model.unusable_bags, model.prune, inference_of(model)
    )
    counts = map_reduce(count_bags, how, blocks, joined_counts)
    model.n_unusable_ = counts["n_unusable"]
    if model.n_unusable_ or not counts["weight"]:
        _report_unusable(model, counts)
    rng = check_random_state(model.random_state)
    scaling = _scaling(model, blocks, how, plain=counts["range"][0] == counts["range"][1])
    dictionary = None if model.kernel is None else _dictionary(model, blocks.only(), how, scaling, rng)
    seen = np.flatnonzero(counts["carried"] > 0)
    classes = np.append(seen, blocks.n_labels) if model.has_background_ else seen
    setup = Setup(how, classes, scaling, dictionary, model.fit_intercept, model._fit_device)
    store = blocks.store if blocks.kind == "gpu" else None  # type: ignore[attr-defined]
    parts = blocks.map(partial(likelihood_of, setup, store))
    n_features = model.n_features_in_ if dictionary is None else len(dictionary.rows_)
    shape = len(classes), n_features + 1
    max_iter = model.max_iter or (1000 if model.solver == "lbfgs" else 50)
    # small products keep to one thread; on shards all do
    with small_products(0.0 if blocks.kind == "shards" else parts.only().product_size):
        how_long = {"max_iter": max_iter, "tol": model.tol}
        if model.solver == "em":
            problem = parts.only()
            problem.alpha = model.alpha_
            W, history = climb_em(problem, **how_long, subset=model.subset, rng=rng)
        else:
            W, history = climb_lbfgs(parts, shape, counts["weight"], model.alpha_, **how_long)
    model.n_iter_ = len(history) - (model.subset == 1)
    if model.solver == "lbfgs" and model.n_iter_ >= max_iter:
        message = f"stopped after {max_iter} iterations; raise max_iter or alpha"
        warn(message, ConvergenceWarning)
    model.objective_ = np.array(history)
    coef = np.zeros((blocks.n_labels + model.has_background_, n_features))
    intercept = np.full(len(coef), NEVER)  # a label that no training bag carries
    coef[classes], intercept[classes] = W[:, :-1], W[:, -1]
    if dictionary is None:
        coef, intercept = scaling.weights_as_given(coef, intercept)
    model.coef_, model.intercept_ = coef, intercept


def _report_unusable(model: Any, counts: dict[str, Any]) -> None:
    """Say how many bags are not taken exactly, or refuse them."""
    if model.n_unusable_:
        message = (
            f"{counts['n_impossible']} bags carry label sets that no labelling of their instances can "
            f"produce, {counts['n_over']} more than max_labels={model.max_labels} labels "
            f"(first: bag {quoted(counts['first'][0])})"
        )
        if model.unusable_bags == "error":
            raise DataError(f"{message}; see the parameter unusable_bags")
        treatment = "left out" if model.unusable_bags == "drop" else "used as candidate sets"
        warn(f"{message}; {treatment}")
    if not counts["weight"]:
        raise DataError("no training bag is left: every label set is impossible, too large or pruned")


def _scaling(model: Any, blocks: Any, how: Treatment, *, plain: bool) -> Scaling:
    """How features are scaled; ``plain`` says that all instances weigh the same."""
    kind = "standard" if model.standardize else "none"
    if blocks.kind == "shards":
        dtype = np.dtype(blocks.shards.dtype)
        return scaling_of(blocks.map(partial(rows, how, plain)), kind, model.n_features_in_, dtype)
    block = blocks.block
    weights = None if plain else usable(block, how).weights[block.bags.index]
    if blocks.kind == "gpu":
        return blocks.store.scaling(kind, weights)
    return learn_scaling(block.bags.X, kind, weights)


def rows(how: Treatment, plain: bool, block: Block) -> tuple[Any, np.ndarray | None]:
    """Instances of a block and their weights, None where all weigh the same, for the scaling."""
    if plain:
        return block.bags.X, None
    return positive_rows(block.bags.X, usable(block, how).weights[block.bags.index])


def _dictionary(
    model: Any, block: Block, how: Treatment, scaling: Scaling, rng: np.random.RandomState
) -> RBFDictionary:
    """The dictionary of the kernel."""
    model._scaling = scaling
    dictionary = RBFDictionary(model.dictionary_size, scale=model.width_scale, random_state=rng)
    row_weights = usable(block, how).weights[block.bags.index]
    scaled = apply_scaling(block.bags.X, scaling, block.bags.dtype)
    model.dictionary_ = dictionary.fit(scaled[row_weights > 0])
    model.dictionary_.random_state = None  # a generator cannot be stored; the sample is drawn
    return model.dictionary_


def inference_of(model: Any) -> dict[str, Any]:
    """Algorithm of the posteriors under the background that was chosen."""
    return {
        "method": model.inference,
        # anywhere, the background counts as a label of every bag
        "max_labels": model.max_labels + (model.background_ == "anywhere"),
        "n_threads": threads(model.n_jobs),
    }
