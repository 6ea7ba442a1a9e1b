"""From transformed bags to the posterior: features, mode, and the covariance of labels by accelerated EM."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import linalg

from bagwise.bags import Bags
from bagwise.compute.devices import gpu_for
from bagwise.compute.parts import map_reduce
from bagwise.compute.threads import small_products
from bagwise.errors import quoted
from bagwise.models.gp.fit_features import FeatureMap, Features, Training, build_features, mean_instances
from bagwise.models.gp.fit_mode import (
    DENSE_LIMIT,
    Curvature,
    Mode,
    Problem,
    Rows,
    block_curvature,
    dense_curvature,
    find_mode,
    is_dense,
)
from bagwise.models.gp.kernels import CollectiveLikelihood, StandardLikelihood
from bagwise.models.gp.kernels_gaussian import InstanceKernel

_ASTRAY = 10.0  # growth of the change that sends an extrapolation back
_LONGEST = 16.0  # longest extrapolation, in plain steps


@dataclass
class Found:
    """All that a fitted model is made of."""

    features: FeatureMap  # how features are computed
    structure: str  # what K_f could be
    problem: Problem  # the likelihood of the training bags
    learned: Learned
    curvature: Curvature  # around the mode

    @property
    def log_evidence(self) -> float:
        """Laplace approximation of the log marginal likelihood."""
        return self.learned.mode.objective - 0.5 * self.curvature.log_det


def learn(
    model: Any,
    training: Training,
    width: float,
    random_state: Any,
    *,
    quick: bool = False,
    K: np.ndarray | None = None,
) -> Found:
    """Factor the kernel, learn K_f (from ``K`` on) and the weights by the settings of ``model``.

    ``quick``, for comparisons: at a loose tolerance, and with log-determinants from blocks.
    """
    problems, features = _problems(model, training, width, random_state)
    problem, n_labels = problems[-1], training.n_labels
    start, structure = _start(model, problem, n_labels)
    # K_* d amplifies what is left up to 1e4 times; features times weights do not
    mode_tol = 1e-9 if problem.m * n_labels <= DENSE_LIMIT or is_exact(model, features) else 1e-6
    # several parts are worked on by one thread each
    products = 0.0 if problem.parts.one_thread else float(problem.n_rows) * problem.m * n_labels
    with small_products(products):
        learned = learn_label_covariance(
            problems,
            start if K is None else K,
            structure,
            tol=max(model.tol, 1e-2) if quick else model.tol,
            max_iter=min(model.max_iter, 30) if quick else model.max_iter,
            n_probes=0 if quick else model.n_probes,
            mode_tol=1e-4 if quick else mode_tol,
        )
        point, root = learned.mode.point, learned.root
        # exact, with covariances, where the system is small enough
        if not quick and is_dense(problem, root, max(model.exact_limit, DENSE_LIMIT)):
            curvature = dense_curvature(problem, point, root, covariance=True)
        else:
            curvature = block_curvature(problem, point, root)
    return Found(features, structure, problem, learned, curvature)


def is_exact(model: Any, features: FeatureMap) -> bool:
    """Whether predictive means are K_* d rather than features times weights."""
    wanted = model.cross == "exact" or model.mode == "paper" or (model.cross == "auto" and features.whole)
    return wanted and model.assumption == "collective"


def means_of(model: Any, found: Found, training: Training) -> tuple[np.ndarray, np.ndarray, Any]:
    """Coefficients and intercept of predictive means; training bags, if these need the kernel with all."""
    features, learned = found.features, found.learned
    if not is_exact(model, features):
        weights = learned.mode.b @ learned.root
        return features.projection @ weights, features.intercept @ weights, None
    # Eq. (18): F_* = K_* d
    if features.landmarks is None:  # linear: K_* d is linear in the mean instance
        constant = features.kernel.constant
        V = features.projection
        if constant > 0:
            V = np.vstack([V, features.intercept / constant**0.5])
        params = (V, learned.mode.point.w)
        dual = map_reduce(_pull_of_means, params, mean_instances(training, constant)) @ learned.K
        if constant > 0:
            return dual[:-1], constant**0.5 * dual[-1], None
        return dual, np.zeros(dual.shape[1]), None
    dual = found.problem.parts.only().gradient(learned.mode.point.w) @ learned.K
    # with landmarks that are not all bags: means with all training bags, variances from the landmarks
    return dual, np.zeros(dual.shape[1]), None if features.whole else Bags(*training.only())


def _pull_of_means(params: Any, means: Features) -> np.ndarray:
    """Mean instances times d."""
    V, w = params
    d = CollectiveLikelihood(means.Y).slopes((means.P @ V) @ w)[1]
    return means.P.T @ d


def unsettled(model: Any) -> str:
    """What to say of a covariance of labels that has not come to rest."""
    variances = np.diag(model.label_covariance_)
    names = getattr(model, "label_names_", range(len(variances)))
    low, high = int(variances.argmin()), int(variances.argmax())
    return (
        f"the covariance of labels still changes by {model.objective_[-1]:.1e} a step after {model.n_iter_} "
        f"M steps (tol={model.tol}); "
        f"its variances run from {variances[low]:.2g} (label {quoted(names[low])}) "
        f"to {variances[high]:.2g} (label {quoted(names[high])}). Raise max_iter or tol, or use "
        "label_covariance='diagonal' or 'scalar'"
    )


def _problems(
    model: Any, training: Training, width: float, random_state: Any
) -> tuple[list[Problem], FeatureMap]:
    """The likelihood of the bags, preceded by easier ones, and how their features are made."""
    kernel, factor = InstanceKernel(model.kernel, width, 0.0, model.device), model.factor
    gpu = None
    if model.assumption == "collective" and len(training.parts) == 1:
        gpu = gpu_for(model.device, 10.0 * training.n_rows * training.n_labels)  # ten passes are little
    if model.constant is not None:
        kernel.constant = float(model.constant)
    elif model.assumption == "standard":
        kernel.constant = float(kernel.with_itself(*training.only()).mean())
    if model.assumption == "standard":
        if factor == "auto" and model.kernel != "linear":
            factor = "pivoted"
    elif model.mode == "paper":
        factor = "eigen"
    share = 0.995 if model.mode == "paper" else model.share
    P, features = build_features(
        kernel, training, factor=factor, share=share, rank=model.rank, random_state=random_state, gpu=gpu
    )
    n, m = training.n_rows, features.projection.shape[1]
    if gpu is not None:
        from bagwise.models.gp.gpu import GpuProblem

        whole = P.only()
        return [GpuProblem(whole.P, whole.Y, gpu)], features
    sharpness = (None,) if model.assumption == "collective" else model.sharpness
    rows = [P.map(partial(_rows, v)).in_memory(8.0 * n * (m + training.n_labels)) for v in sharpness]
    return [Problem(parts, n, m) for parts in rows], features


def _rows(sharpness: float | None, features: Features) -> Rows:
    P, Y, offsets = features
    return Rows(
        P, CollectiveLikelihood(Y) if sharpness is None else StandardLikelihood(Y, offsets, sharpness)
    )


def _start(model: Any, problem: Problem, n_labels: int) -> tuple[np.ndarray, str]:
    """K_f where learning starts, and what it may be."""
    if not isinstance(model.label_covariance, str):
        return np.array(model.label_covariance, dtype=np.float64), "fixed"
    if model.label_covariance == "identity":
        return np.eye(n_labels) * (1.0 if model.scale is None else model.scale), "fixed"
    size = map_reduce(_size, None, problem.parts) / problem.n_rows
    scale = 10.0 / max(size, 1e-12) if model.scale is None else model.scale
    return np.eye(n_labels) * scale, model.label_covariance


def _size(_: None, rows: Rows) -> float:
    return float((rows.Z**2).sum())


# ---------------------------------------------------------------------- the covariance of labels


@dataclass
class Learned:
    """K_f and the posterior that belongs to it."""

    K: np.ndarray  # covariance of labels
    root: np.ndarray  # its symmetric square root L
    mode: Mode  # polished
    residuals: list[float]  # |M step(K) - K| / |K| after each M step


def symmetric_root(K: np.ndarray) -> np.ndarray:
    """Symmetric square root; unlike a Cholesky factor it does not depend on the order of labels."""
    if np.count_nonzero(K - np.diag(np.diag(K))) == 0:
        return np.diag(np.sqrt(np.diag(K)))
    values, vectors = linalg.eigh(K)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


def learn_label_covariance(
    problems: list[Problem],
    K: np.ndarray,
    structure: str,
    *,
    tol: float,
    max_iter: int,
    n_probes: int,
    mode_tol: float,
) -> Learned:
    """Alternate mode and M step, from ``K`` on, until the undamped M step changes K_f by less than ``tol``.

    The likelihood, last of the problems, is preceded by easier ones whose modes lead to it (annealing).
    ``structure`` says what K_f may be: "full", "diagonal", "scalar" or "fixed".
    """
    problem = problems[-1]
    m, n_labels = problem.m, len(K)
    b = np.zeros((m, n_labels))
    # the same signs in every round: noise that changed from round to round would keep K_f from settling
    signs = np.random.default_rng(0).integers(0, 2, (n_probes, m, n_labels)) * 2.0 - 1.0
    root = symmetric_root(K)
    for easier in problems[:-1]:
        b = find_mode(easier, root, b, 1e-3).b
    residuals: list[float] = []

    def m_step(K, b, old_root):
        root = symmetric_root(K)
        b = _better_start(problem, b, old_root, root)
        # no more exact than the steps of K_f are long
        mode = find_mode(problem, root, b, max(0.05 * tol, min(1e-3, 0.02 * (residuals or [1.0])[-1])))
        if is_dense(problem, root):
            curvature = dense_curvature(problem, mode.point, root)
        else:
            curvature = block_curvature(problem, mode.point, root, signs)
        w = mode.b @ root
        new = (w.T @ w + root @ curvature.traces @ root) / m  # fixed points of Eq. (32): K H K = 0
        new = constrained(new, structure)
        residuals.append(float(linalg.norm(new - K) / max(linalg.norm(K), 1e-300)))
        return new, mode.b, root

    before, plain = np.inf, K
    while structure != "fixed" and len(residuals) < max_iter:
        first, b, root = m_step(K, b, root)
        if (
            residuals[-1] > _ASTRAY * before
        ):  # the extrapolation went astray: back to where plain steps had led
            K, before = plain, np.inf
            continue
        before = residuals[-1]
        if residuals[-1] > tol:
            plain, b, root = m_step(first, b, root)
        if residuals[-1] <= tol:
            K = first if before <= tol else plain
            break
        K = constrained(extrapolated(K, first, plain), structure)
    old_root, root = root, symmetric_root(K)
    mode = find_mode(problem, root, _better_start(problem, b, old_root, root), mode_tol)
    return Learned(K, root, mode, residuals)


def _better_start(problem: Problem, b, old_root, root):
    """Whitened weights for a new K_f: the old ones, or those that keep the latent values as they are."""
    if not b.any() or np.array_equal(old_root, root):
        return b
    values, vectors = linalg.eigh(root)
    inverse = (vectors / np.maximum(values, 1e-3 * values[-1])) @ vectors.T
    starts = (b, (b @ old_root) @ inverse)
    values = problem.values([x @ root for x in starts])
    kept, moved = (value - 0.5 * np.vdot(x, x) for value, x in zip(values, starts))
    return starts[int(moved > kept)]


def constrained(K: np.ndarray, structure: str) -> np.ndarray:
    """The M step within a smaller family of matrices."""
    if structure == "diagonal":
        return np.diag(np.diag(K))
    if structure == "scalar":
        return np.eye(len(K)) * np.trace(K) / len(K)
    return (K + K.T) / 2.0


def extrapolated(K0: np.ndarray, K1: np.ndarray, K2: np.ndarray) -> np.ndarray:
    """SQUAREM on the symmetric root: K_f stays positive semi-definite, labels stay exchangeable.

    On roots a direction that dies out moves little; on logarithms it would take over the step length.
    """
    x0, x1, x2 = (symmetric_root(K) for K in (K0, K1, K2))
    r = x1 - x0
    v = (x2 - x1) - r
    bend = linalg.norm(v)
    length = 1.0 if bend == 0 else min(max(linalg.norm(r) / bend, 1.0), _LONGEST)
    x = x0 + 2.0 * length * r + length**2 * v
    return x @ x.T
