"""From transformed bags to the posterior, at full or at loose tolerance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from bagwise.bags import Bags
from bagwise.errors import quoted
from bagwise.models.gp.covariances import InstanceKernel
from bagwise.models.gp.em import Learned, final_curvature, learn_label_covariance
from bagwise.models.gp.features import FeatureMap, build_features
from bagwise.models.gp.likelihood import CollectiveLikelihood, StandardLikelihood
from bagwise.models.gp.posterior import DENSE_LIMIT, Curvature, block_curvature
from bagwise.parallel import small_products


@dataclass
class Found:
    """All that a fitted model is made of.

    Parameters
    ----------
    P : ndarray of shape (rows, m)
        Features of the training bags, or of their instances.
    features : FeatureMap
        How others are computed.
    structure : str
        What K_f could be.
    learned : Learned
        K_f and the mode.
    curvature : Curvature
        Around the mode.
    """

    P: np.ndarray
    features: FeatureMap
    structure: str
    learned: Learned
    curvature: Curvature


def learn(
    model: Any, X: Any, offsets: np.ndarray, Y: np.ndarray, width: float, random_state: np.random.RandomState
) -> Found:
    """Factor the kernel, learn K_f and the weights by the settings of ``model``."""
    P, features = _features(model, X, offsets, width, random_state)
    likelihoods = _likelihoods(model, Y, offsets)
    K, structure = _start(model, P, Y.shape[1])
    small = P.shape[1] * Y.shape[1] <= DENSE_LIMIT
    with small_products(P.size * Y.shape[1]):
        learned = learn_label_covariance(
            P,
            likelihoods,
            K,
            structure,
            tol=model.tol,
            max_iter=model.max_iter,
            n_probes=model.n_probes,
            # K_* d amplifies what is left up to 1e4 times; features times weights do not
            mode_tol=1e-9 if small or is_exact(model, features) else 1e-6,
        )
        curvature = final_curvature(P, likelihoods[-1], learned, model.exact_limit)
    return Found(P, features, structure, learned, curvature)


def quick_evidence(
    model: Any, X: Any, offsets: np.ndarray, Y: np.ndarray, width: float, K: np.ndarray | None
) -> tuple[float, np.ndarray]:
    """Evidence at a loose tolerance and the learned K_f, for comparisons; ``K`` is where to start."""
    P, _ = _features(model, X, offsets, width, check_random_state(0))
    likelihoods = _likelihoods(model, Y, offsets)
    start, structure = _start(model, P, Y.shape[1])
    with small_products(P.size * Y.shape[1]):
        learned = learn_label_covariance(
            P,
            likelihoods,
            start if K is None else K,
            structure,
            tol=max(model.tol, 1e-2),
            max_iter=min(model.max_iter, 30),
            n_probes=0,
            mode_tol=1e-4,
        )
        curvature = block_curvature(P, likelihoods[-1], learned.mode.state, learned.root)
    return learned.mode.objective - 0.5 * curvature.log_det, learned.K


def is_exact(model: Any, features: FeatureMap) -> bool:
    """Whether predictive means are K_* d rather than features times weights."""
    wanted = model.cross == "exact" or model.mode == "paper" or (model.cross == "auto" and features.whole)
    return wanted and model.assumption == "collective"


def means_of(model: Any, found: Found, X: Any, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, Any]:
    """Coefficients and intercept of predictive means; training bags, if these need the kernel with all."""
    features, learned = found.features, found.learned
    if not is_exact(model, features):
        weights = learned.mode.b @ learned.root
        return features.projection @ weights, features.intercept @ weights, None
    dual = learned.mode.slope @ learned.K  # Eq. (18): F_* = K_* d
    if features.landmarks is None:  # linear: K_* d is linear in the mean instance
        return features.base(X, offsets).T @ dual, features.kernel.constant * dual.sum(axis=0), None
    # with landmarks that are not all bags: means with all training bags, variances from the landmarks
    return dual, np.zeros(dual.shape[1]), None if features.whole else Bags(X, offsets)


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


def _features(model, X, offsets, width, random_state) -> tuple[np.ndarray, FeatureMap]:
    kernel = InstanceKernel(model.kernel, width, 0.0)
    single = np.arange(X.shape[0] + 1)
    factor = model.factor
    if model.constant is not None:
        kernel.constant = float(model.constant)
    elif model.assumption == "standard":
        kernel.constant = float(kernel.with_itself(X, single).mean())
    if model.assumption == "standard":
        offsets = single
        if factor == "auto" and model.kernel != "linear":
            factor = "pivoted"
    elif model.mode == "paper":
        factor = "eigen"
    share = 0.995 if model.mode == "paper" else model.share
    return build_features(
        kernel, X, offsets, factor=factor, share=share, rank=model.rank, random_state=random_state
    )


def _likelihoods(model, Y, offsets) -> list[Any]:
    if model.assumption == "collective":
        return [CollectiveLikelihood(Y)]
    return [StandardLikelihood(Y, offsets, v) for v in model.sharpness]


def _start(model, P, n_labels):
    """K_f where learning starts, and what it may be."""
    if not isinstance(model.label_covariance, str):
        return np.array(model.label_covariance, dtype=np.float64), "fixed"
    if model.label_covariance == "identity":
        return np.eye(n_labels) * (1.0 if model.scale is None else model.scale), "fixed"
    size = float((P**2).sum()) / len(P)
    scale = 10.0 / max(size, 1e-12) if model.scale is None else model.scale
    return np.eye(n_labels) * scale, model.label_covariance
