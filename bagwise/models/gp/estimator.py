"""MIML-GP: a Gaussian process per label over instances, with a learned covariance between labels."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from bagwise.bags import Bags
from bagwise.base import MIMLClassifier, Traits
from bagwise.errors import quoted
from bagwise.models.gp.checks import check_settings
from bagwise.models.gp.covariances import InstanceKernel
from bagwise.models.gp.em import Learned, final_curvature, learn_label_covariance
from bagwise.models.gp.features import FeatureMap, build_features
from bagwise.models.gp.likelihood import CollectiveLikelihood, StandardLikelihood
from bagwise.models.gp.logistic_kernels import logistic_normal_log_odds
from bagwise.models.gp.maxima import drawn_weights, integrate_maxima, standard_draws
from bagwise.models.gp.posterior import DENSE_LIMIT, block_curvature
from bagwise.models.gp.select import by_cross_validation, by_evidence, width_grid
from bagwise.models.gp.transforms import apply_transform, learn_scale
from bagwise.parallel import small_products

_CELLS = 4_000_000  # sampled latent values held at a time


class MIMLGP(MIMLClassifier):
    """Gaussian processes for multi-instance multi-label learning.

    Every label has a latent function over instances. A priori the functions are Gaussian with covariance
    ``cov(f_l(x), f_s(x')) = K_f[l, s] k(x, x')``; a bag carries label s with probability sigma of the mean
    (``"collective"``) or of the maximum (``"standard"``) of its latent values. The posterior is
    approximated around its mode (Laplace), and ``K_f`` is learned.

    Parameters
    ----------
    kernel : "gaussian", "linear" or callable, default="gaussian"
        ``exp(-|x - x'|^2 / width^2)``, ``x'x``, or any function of two matrices that returns their
        positive semi-definite kernel matrix, such as scikit-learn's Gaussian process kernels.
    width : float, "auto" or sequence of float, default="auto"
        Width of the Gaussian kernel. Several are compared as ``selection`` says; "auto" compares eight
        around the median distance of instances.
    assumption : "collective" or "standard", default="collective"
        Whether all instances of a bag contribute, or one suffices.
    label_covariance : "full", "diagonal", "scalar", "identity" or array, default="full"
        What ``K_f`` may be; the first three are learned. "identity" is ``scale`` times the identity; a
        positive semi-definite matrix is kept as it is.
    scaling : str or sequence of str, default="none"
        What is done to instances first: "none", "minmax" (divide by the range), "standard" (divide by the
        standard deviation), "l2" (rows of length 1), "sqrt", "log" (log(1 + x)), "sqrt-l2", "log-l2".
        Several are compared as ``selection`` says. Features are scaled but not shifted.
    constant : float, optional
        Added to the kernel, so that functions have a common offset. By default 0 for the collective
        assumption; for the standard one the mean of k(x, x) over training instances, since without an
        offset the maximum over instances that resemble no training instance is never negative.
    scale : float, optional
        Diagonal of ``K_f`` where learning starts; by default 10 / mean kernel of a bag with itself, and 1
        for "identity".
    factor : "auto", "eigen", "pivoted" or "nystroem", default="auto"
        How the kernel between bags (between instances under the standard assumption) is factored. "auto"
        decomposes the Gram matrix of up to 3000 bags and takes a pivoted Cholesky factor beyond, and for
        instances always; a linear kernel with up to 1000 features needs neither and is kept exact.
    share : float, default=0.995
        Share of the trace that the factor must hold.
    rank : int, optional
        Rank of the factor, instead of ``share``. Without it a pivoted factor stops at 1000, the
        "nystroem" one has 100.
    cross : "auto", "exact" or "features", default="auto"
        Whether predictive means use the kernel with all training bags or the features only. "auto" is
        exact where the training bags are at hand anyway: collective, factor "eigen" or linear.
    selection : "auto", "evidence" or "cv", default="auto"
        How widths and transforms are compared. "auto" is "evidence" for the collective assumption and
        "cv" for the standard one, where the evidence is not reliable.
    cv : int, default=3
        Folds of "cv".
    sharpness : sequence of float, default=(1.0, 4.0)
        Values of v in the smooth maximum of Eq. (38), one after the other; the last is the model's.
    n_draws : int, default=256
        Draws of the weights (quasi-random, the same in every call) behind probabilities under the
        standard assumption.
    n_probes : int, default=4
        Random probes that correct the traces in large problems; 0 trusts the diagonal blocks.
    exact_limit : int, default=1500
        Number of unknowns (labels times rank) up to which predictive variances are exact under the
        Laplace approximation; beyond, they come from diagonal blocks: right within a few per cent on
        average, for single bags up to half off.
    max_iter : int, default=100
        Limit on M steps.
    tol : float, default=1e-3
        Learning stops when an undamped M step changes ``K_f`` by less, relative to its norm.
    mode : "fast" or "paper", default="fast"
        "paper" takes width 1 where none is given, eigenvectors with 99.5 % of the trace and the exact
        cross-covariance, as printed.
    random_state : int, RandomState or None, default=None
        For the landmarks of "nystroem" and the folds of "cv".

    Attributes
    ----------
    label_covariance_ : ndarray of shape (n_labels, n_labels)
        Learned ``K_f``.
    label_correlation_ : ndarray of shape (n_labels, n_labels)
        The same, scaled to a unit diagonal; rows and columns are ``label_names_`` where labels have names.
    log_evidence_ : float
        Laplace approximation of the log marginal likelihood; a lower bound of it where the
        log-determinant comes from diagonal blocks (see ``exact_limit``).
    width_, scaling_, constant_ : float, str, float
        What was chosen.
    candidates_, candidate_scores_ : list of (scaling, width), ndarray
        What was compared and how it fared; only after a comparison.
    rank_ : int
        Number of features m.
    weights_ : ndarray of shape (rank_, n_labels)
        Most probable weights.
    weight_covariance_ : ndarray of shape (n_labels, rank_, rank_) or (rank_, n_labels)
        Posterior covariance of each label's weights, or its diagonal.
    n_iter_ : int
        M steps used.
    objective_ : ndarray of shape (n_iter_,)
        Relative change of ``K_f`` in each undamped M step.
    converged_ : bool
        Whether the last one was below ``tol``.

    Notes
    -----
    Symbols of [1]_: Q labels, ``K_f`` is `label_covariance_`, delta is ``width``, P are the features,
    m is `rank_`, v is ``sharpness``, d is the gradient of the log-likelihood behind ``dual_coef_``.
    Kernels between bags are means over pairs of instances; the paper's are sums, with the counts moved
    into d and W_0: the same model, better scaled.

    *Differences from [1]_.*

    - The M step of Eq. (32) is taken in weight space, where its divisor is m, not the number of
      instances: the same fixed point (K H K = 0), hundreds of times fewer steps. It is extrapolated
      (SQUAREM on the matrix logarithm) and starts at a fitting scale instead of the identity. The stop
      looks at the undamped step; the printed rule looks at a step damped by m / sum n_i.
    - Newton systems are solved by Cholesky factors or preconditioned conjugate gradients, not by
      minimising a squared residual, which squares the condition number. The mode is polished before d
      is used, since ``K_* d`` amplifies what is left by up to 1e4.
    - The variance of Eq. (24) with a low-rank factor can be negative. Here it is the variance of the
      features' part plus what the features leave unexplained, never negative.
    - Eq. (25) is integrated to about 1e-11 instead of sampled.
    - Under the standard assumption the printed iteration (42) cycles: negative bags have ties at the
      mode. Here the smooth maximum of Eq. (38) is kept and sharpened step by step, with a line search.
      Eq. (45) is integrated over quasi-random draws of the weights; what features leave unexplained is
      taken as independent between the instances of a bag.
    - The published gain of a learned ``K_f`` over the identity is mostly one of scale: compare with
      ``label_covariance="scalar"`` before reading correlations into it.

    References
    ----------
    .. [1] J. He, H. Gu, Z. Wang: Bayesian multi-instance multi-label learning using Gaussian process
       prior. Machine Learning 88, 273-295, 2012.
    .. [2] R. Varadhan, C. Roland: Simple and globally convergent methods for accelerating the convergence
       of any EM algorithm. Scandinavian Journal of Statistics 35, 335-353, 2008.

    Examples
    --------
    >>> from bagwise import load_dataset
    >>> data = load_dataset("digits", n_bags=120)
    >>> model = MIMLGP(scaling="minmax", width=2.0).fit(data.bags, data.Y)
    >>> model.predict_proba(data.bags).shape
    (120, 10)
    >>> mean, deviation = model.instance_latent(data.bags)
    >>> bool((deviation > 0).all())
    True
    """

    traits = Traits(instances="model", probabilities=True)

    def __init__(
        self,
        kernel="gaussian",
        width="auto",
        *,
        assumption="collective",
        label_covariance="full",
        scaling="none",
        constant=None,
        scale=None,
        factor="auto",
        share=0.995,
        rank=None,
        cross="auto",
        selection="auto",
        cv=3,
        sharpness=(1.0, 4.0),
        n_draws=256,
        n_probes=4,
        exact_limit=1500,
        max_iter=100,
        tol=1e-3,
        mode="fast",
        random_state=None,
    ):
        self.kernel = kernel
        self.width = width
        self.assumption = assumption
        self.label_covariance = label_covariance
        self.scaling = scaling
        self.constant = constant
        self.scale = scale
        self.factor = factor
        self.share = share
        self.rank = rank
        self.cross = cross
        self.selection = selection
        self.cv = cv
        self.sharpness = sharpness
        self.n_draws = n_draws
        self.n_probes = n_probes
        self.exact_limit = exact_limit
        self.max_iter = max_iter
        self.tol = tol
        self.mode = mode
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"width": 3.0}

    # ------------------------------------------------------------------ learning

    def _fit(self, bags: Bags, Y: np.ndarray) -> None:
        check_settings(self, Y.shape[1])
        random_state = check_random_state(self.random_state)
        self.scaling_, self.width_ = self._choose(bags, Y, random_state)
        self.feature_scale_ = learn_scale(bags.X, self.scaling_)
        X = apply_transform(bags.X, self.scaling_, self.feature_scale_)
        P, features = self._features(X, bags.offsets, self.width_, random_state)
        likelihoods = self._likelihoods(Y, bags.offsets)
        K, structure = self._start(P, Y.shape[1])
        with small_products(P.size * Y.shape[1]):
            learned = learn_label_covariance(
                P,
                likelihoods,
                K,
                structure,
                tol=self.tol,
                max_iter=self.max_iter,
                n_probes=self.n_probes,
                # K_* d amplifies what is left up to 1e4 times; features times weights do not
                mode_tol=1e-9 if self._is_exact(features) or self._is_small(P, Y) else 1e-6,
            )
            self._keep(P, features, likelihoods[-1], learned, X, bags.offsets)
        self.n_iter_ = len(learned.residuals)
        self.objective_ = np.array(learned.residuals)
        self.converged_ = structure == "fixed" or bool(learned.residuals[-1] <= self.tol)
        if not self.converged_:
            warnings.warn(
                f"the covariance of labels still changes by {learned.residuals[-1]:.1e} a step after "
                f"{self.n_iter_} M steps (tol={self.tol}); {self._about_variances()}. "
                "Raise max_iter or tol, or use label_covariance='diagonal' or 'scalar'",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _quick_evidence(self, X, offsets, Y, width, K):
        """Evidence at a loose tolerance and the learned K_f, for comparisons."""
        P, _ = self._features(X, offsets, width, check_random_state(0))
        likelihoods = self._likelihoods(Y, offsets)
        start, structure = self._start(P, Y.shape[1])
        with small_products(P.size * Y.shape[1]):
            learned = learn_label_covariance(
                P,
                likelihoods,
                start if K is None else K,
                structure,
                tol=max(self.tol, 1e-2),
                max_iter=min(self.max_iter, 30),
                n_probes=0,
                mode_tol=1e-4,
            )
            curvature = block_curvature(P, likelihoods[-1], learned.mode.state, learned.root)
        return learned.mode.objective - 0.5 * curvature.log_det, learned.K

    def _choose(self, bags, Y, random_state):
        transforms = [self.scaling] if isinstance(self.scaling, str) else list(self.scaling)
        candidates = [(t, w) for t in transforms for w in self._widths(bags.X, t)]
        for name in ("candidates_", "candidate_scores_"):
            if hasattr(self, name):
                delattr(self, name)
        if len(candidates) == 1:
            return candidates[0]
        how = self.selection
        if how == "auto":
            how = "evidence" if self.assumption == "collective" else "cv"
        if how == "evidence":
            scores = by_evidence(self, bags, Y, candidates)
        else:
            seed = int(random_state.randint(2**31 - 1))
            scores = by_cross_validation(self, bags, Y, candidates, seed)
        self.candidates_, self.candidate_scores_ = candidates, scores
        return candidates[int(np.argmax(scores))]

    def _widths(self, X, transform):
        if self.kernel != "gaussian":
            return [1.0]
        if isinstance(self.width, str):
            return [1.0] if self.mode == "paper" else width_grid(X, transform).tolist()
        return [float(w) for w in np.atleast_1d(self.width)]

    def _features(self, X, offsets, width, random_state) -> tuple[np.ndarray, FeatureMap]:
        kernel = InstanceKernel(self.kernel, width, 0.0)
        if self.constant is not None:
            kernel.constant = float(self.constant)
        elif self.assumption == "standard":
            kernel.constant = float(kernel.with_itself(X, np.arange(X.shape[0] + 1)).mean())
        factor = self.factor
        if self.mode == "paper" and self.assumption == "collective":
            factor = "eigen"
        if self.assumption == "standard":
            offsets = np.arange(X.shape[0] + 1)
            if factor == "auto" and self.kernel != "linear":
                factor = "pivoted"
        share = 0.995 if self.mode == "paper" else self.share
        return build_features(
            kernel,
            X,
            offsets,
            factor=factor,
            share=share,
            rank=self.rank,
            random_state=random_state,
        )

    def _likelihoods(self, Y, offsets) -> list[Any]:
        if self.assumption == "collective":
            return [CollectiveLikelihood(Y)]
        return [StandardLikelihood(Y, offsets, v) for v in self.sharpness]

    def _start(self, P, n_labels):
        if not isinstance(self.label_covariance, str):
            return np.array(self.label_covariance, dtype=np.float64), "fixed"
        if self.label_covariance == "identity":
            return np.eye(n_labels) * (1.0 if self.scale is None else self.scale), "fixed"
        size = float((P**2).sum()) / len(P)
        scale = 10.0 / max(size, 1e-12) if self.scale is None else self.scale
        return np.eye(n_labels) * scale, self.label_covariance

    @staticmethod
    def _is_small(P: np.ndarray, Y: np.ndarray) -> bool:
        return P.shape[1] * Y.shape[1] <= DENSE_LIMIT

    def _is_exact(self, features: FeatureMap) -> bool:
        """Whether predictive means are K_* d rather than features times weights."""
        wanted = self.cross == "exact" or self.mode == "paper" or (self.cross == "auto" and features.whole)
        return wanted and self.assumption == "collective"

    def _keep(self, P, features, likelihood, learned: Learned, X, offsets) -> None:
        curvature = final_curvature(P, likelihood, learned, self.exact_limit)
        self.label_covariance_ = learned.K
        deviations = np.sqrt(np.maximum(np.diag(learned.K), 1e-300))
        self.label_correlation_ = learned.K / np.outer(deviations, deviations)
        self.log_evidence_ = float(learned.mode.objective - 0.5 * curvature.log_det)
        self.constant_ = features.kernel.constant
        self.rank_ = P.shape[1]
        self.weights_ = learned.mode.b @ learned.root
        self.weight_covariance_: Any = curvature.covariance
        self.projection_, self.intercept_ = features.projection, features.intercept
        self.landmarks_ = None if features.landmarks is None else Bags(features.landmarks, features.offsets)
        self.training_bags_ = None
        if not self._is_exact(features):
            self.dual_coef_ = features.projection @ self.weights_
            self.dual_intercept_ = features.intercept @ self.weights_
            return
        dual = learned.mode.slope @ learned.K  # Eq. (18): F_* = K_* d
        self.dual_coef_, self.dual_intercept_ = dual, np.zeros(dual.shape[1])
        if features.landmarks is None:  # linear: K_* d is linear in the mean instance
            self.dual_coef_ = features.base(X, offsets).T @ dual
            self.dual_intercept_ = self.constant_ * dual.sum(axis=0)
        elif not features.whole:  # means with all training bags, variances from the landmarks
            self.training_bags_ = Bags(X, offsets)

    # ------------------------------------------------------------------ predicting

    def _latent(self, X: Any, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Mean and variance of the latent mean of bags, their features, and what these leave unexplained."""
        kernel = InstanceKernel(self.kernel, self.width_, self.constant_)
        landmarks = self.landmarks_
        features = FeatureMap(
            kernel,
            self.projection_,
            self.intercept_,
            None if landmarks is None else landmarks.X,
            None if landmarks is None else landmarks.offsets,
        )
        base = features.base(X, offsets)
        P = base @ self.projection_ + self.intercept_
        if self.training_bags_ is not None:
            base = kernel.between(X, offsets, self.training_bags_.X, self.training_bags_.offsets)
        mean = base @ self.dual_coef_ + self.dual_intercept_
        S = self.weight_covariance_
        if S.ndim == 2:
            variance = P**2 @ S
        else:
            variance = np.stack([np.einsum("ik,ik->i", P @ S[s], P) for s in range(len(S))], axis=1)
        left = np.maximum(kernel.with_itself(X, offsets) - np.einsum("ik,ik->i", P, P), 0.0)
        variance = np.maximum(variance, 0.0) + left[:, None] * np.diag(self.label_covariance_)
        return mean, variance, P, left

    def _transformed(self, bags: Bags) -> Any:
        return apply_transform(bags.X, self.scaling_, self.feature_scale_)

    def _scores(self, bags: Bags) -> np.ndarray:
        X = self._transformed(bags)
        with small_products(X.shape[0] * self.rank_ * 10.0):
            if self.assumption == "standard":
                yes, no = self._integrated(X, bags.offsets)
                return np.log(np.maximum(yes, 1e-300)) - np.log(np.maximum(no, 1e-300))
            mean, variance, _, _ = self._latent(X, bags.offsets)
            return logistic_normal_log_odds(mean, variance)

    def _probabilities(self, bags: Bags) -> np.ndarray:
        return expit(self._scores(bags))

    def _instance_scores(self, bags: Bags) -> np.ndarray:
        return self._latent(self._transformed(bags), np.arange(bags.n_instances + 1))[0]

    def _integrated(self, X: Any, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means of sigma(max f) and sigma(-max f), Eq. (45), over shared draws of the weights."""
        S, n_labels = self.weight_covariance_, self.weights_.shape[1]
        yes, no = np.empty((2, len(offsets) - 1, n_labels))
        draws = standard_draws(self.rank_, self.n_draws)
        step = max(1, int(_CELLS / (draws.shape[1] * float(np.diff(offsets).mean()))))
        drawn = [
            drawn_weights(self.weights_[:, s], S[:, s] if S.ndim == 2 else S[s], draws)
            for s in range(n_labels)
        ]
        for a in range(0, len(offsets) - 1, step):
            cut = offsets[a : a + step + 1]
            rows = X[cut[0] : cut[-1]]
            _, _, P, left = self._latent(rows, np.arange(rows.shape[0] + 1))
            for s in range(n_labels):
                spread = np.sqrt(left * self.label_covariance_[s, s])
                found = integrate_maxima(P, drawn[s], spread, cut - cut[0])
                yes[a : a + step, s], no[a : a + step, s] = found
        return yes, no

    def predict_latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the mean latent value of each bag, per label.

        Returns
        -------
        mean, deviation : ndarrays of shape (n_bags, n_labels)
        """
        bags = self._as_bags(X, reset=False)
        mean, variance, _, _ = self._latent(self._transformed(bags), bags.offsets)
        return mean, np.sqrt(variance)

    def instance_latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the latent value of each instance, per label.

        Returns
        -------
        mean, deviation : ndarrays of shape (n_instances, n_labels)
        """
        bags = self._as_bags(X, reset=False)
        mean, variance, _, _ = self._latent(self._transformed(bags), np.arange(bags.n_instances + 1))
        return mean, np.sqrt(variance)

    def correlated_labels(self, k: int = 10) -> list[tuple[Any, Any, float]]:
        """List the pairs of labels whose latent functions are most correlated, by size.

        Returns
        -------
        list of (label, label, correlation)
            Names where labels have names, else numbers.
        """
        R = self.label_correlation_
        a, b = np.triu_indices(len(R), 1)
        order = np.argsort(-np.abs(R[a, b]), kind="stable")[:k]
        names = getattr(self, "label_names_", range(len(R)))
        return [(names[a[i]], names[b[i]], float(R[a[i], b[i]])) for i in order]

    def _about_variances(self) -> str:
        variances = np.diag(self.label_covariance_)
        names = getattr(self, "label_names_", range(len(variances)))
        low, high = int(variances.argmin()), int(variances.argmax())
        return (
            f"its variances run from {variances[low]:.2g} (label {quoted(names[low])}) "
            f"to {variances[high]:.2g} (label {quoted(names[high])})"
        )
