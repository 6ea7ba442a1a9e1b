"""MIML-GP: a Gaussian process per label over instances, with a learned covariance between labels."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy import linalg
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags
from bagwise.base import MIMLClassifier, Traits
from bagwise.base.blocks import Block, Blocks, blocks_in_memory, evenly, gathered, unweighted
from bagwise.base.parameters import Anything, Choice, Device, HasMethod, Number, Rules, Seed, Several, Whole
from bagwise.compute.threads import small_products
from bagwise.errors import DataError, warn
from bagwise.models.gp.fit import learn, means_of, unsettled
from bagwise.models.gp.fit_features import TRANSFORMS, Data, Training, transform_of, transformed
from bagwise.models.gp.kernels import logistic_normal_log_odds
from bagwise.models.gp.predict import Predictor
from bagwise.models.gp.tune import MOST_BAGS, MOST_INSTANCES, choose

STRUCTURES = ("full", "diagonal", "scalar", "identity")


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
    scaling : str or sequence of str, default="auto"
        What is done to instances first: "none", "minmax" (divide by the range), "standard" (divide by the
        standard deviation), "l2" (rows of length 1), "sqrt", "log" (log(1 + x)), "sqrt-l2", "log-l2". "auto"
        is "log" for text (nine values in ten are zero), else "minmax", beside "none" where the evidence
        compares widths. Several are compared as ``selection`` says. Features are never shifted.
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
        Rank of the factor, instead of ``share``. Without it a pivoted factor stops at 1000, or where it
        holds 3e7 numbers (100,000 instances: 300); the "nystroem" one has 100.
    cross : "auto", "exact" or "features", default="auto"
        Whether predictive means use the kernel with all training bags or the features only. "auto" is
        exact where the training bags are at hand anyway: collective, factor "eigen" or linear.
    selection : "auto", "evidence" or "cv", default="auto"
        How widths and transforms are compared (with up to 1000 instances a bag, the evidence on up to 1000
        bags). "auto" is "cv" for the standard assumption, where the evidence is not reliable.
    cv : int, default=3
        Folds of "cv".
    sharpness : sequence of float, default=(1.0, 4.0)
        Values of v in the smooth maximum of Eq. (38), one after the other; the last is the model's.
    n_draws : int, default=2048
        Draws of latent values (quasi-random, the same in every call) behind probabilities under the
        standard assumption; 2048 leave errors of at most 0.002.
    n_probes : int, default=4
        Random probes that correct the traces in large problems; 0 trusts the diagonal blocks.
    exact_limit : int, default=1500
        Labels times rank up to which predictive variances are exact under the Laplace approximation; beyond
        they come from diagonal blocks: a few per cent off on average, for single bags up to half.
    max_iter : int, default=100
        Limit on M steps.
    tol : float, default=1e-3
        Learning stops when an undamped M step changes ``K_f`` by less, relative to its norm.
    mode : "fast" or "paper", default="fast"
        "paper": width 1 if none is given, eigenvectors with 99.5 % of the trace, exact cross-covariance.
    device : {"auto", "cpu", "cuda", "cuda:0", ...}, default="auto"
        Where the collective model learns and where Gaussian kernels between dense bags are computed; "auto"
        takes a GPU if there is one and the work is large. What decides is in double precision there, too.
        ``assumption="standard"`` and shards of several parts stay here.
    random_state : int, RandomState or None, default=None
        For the landmarks of "nystroem" and the folds of "cv".

    Attributes
    ----------
    label_covariance_ : ndarray of shape (n_labels, n_labels)
        Learned ``K_f``.
    label_correlation_ : ndarray of shape (n_labels, n_labels)
        The same, scaled to a unit diagonal; rows and columns are ``label_names_`` where labels have names.
    log_evidence_ : float
        Laplace approximation of the log marginal likelihood; a lower bound of it beyond ``exact_limit``.
    width_, scaling_, constant_, rank_ : float, str, float, int
        What was chosen; the number of features m.
    candidates_, candidate_scores_ : list of (scaling, width), ndarray
        What was compared and how it fared; only after a comparison.
    weights_, weight_covariance_ : ndarrays of shape (rank_, n_labels), (n_labels, rank_, rank_)
        Most probable weights and, per label, their covariance, or its diagonal in shape (rank_, n_labels).
    n_iter_, objective_, converged_ : int, ndarray of shape (n_iter_,), bool
        M steps used, relative change of ``K_f`` in each of them, whether the last was below ``tol``.

    Notes
    -----
    Symbols of [1]_: Q labels, ``K_f`` is `label_covariance_`, delta is ``width``, P are the features,
    m is `rank_`, v is ``sharpness``, d is the gradient of the log-likelihood behind ``dual_coef_``.
    Kernels between bags are means over pairs of instances; the paper's are sums, with the counts moved
    into d and W_0: the same model, better scaled.

    `bagwise.ShardedBags` of one part are bags in memory. With several parts widths and transforms are
    compared on up to 1000 bags, and a kernel that is not linear is spanned by landmark bags (of at most 100
    instances each), drawn ("nystroem") or found among up to 2000 bags ("pivoted", "auto"); features, mode
    and ``K_f`` are sums over all bags. What needs all pairs of bags is refused.

    *Differences from [1]_.*

    - The M step of Eq. (32) is taken in weight space, where its divisor is m, not the number of instances:
      the same fixed point (K H K = 0), hundreds of times fewer steps. It is extrapolated (SQUAREM [2]_) and
      starts at a fitting scale; the stop looks at the undamped step.
    - Newton systems are solved by Cholesky factors or preconditioned conjugate gradients. The mode is
      polished before d is used, since ``K_* d`` amplifies what is left by up to 1e4.
    - The variance of Eq. (24) with a low-rank factor can be negative; here it is that of the features'
      part plus what the features leave unexplained. Eq. (25) is integrated to about 1e-11, not sampled.
    - Under the standard assumption the printed iteration (42) cycles: negative bags have ties at the mode.
      Here the smooth maximum of Eq. (38) is kept and sharpened step by step. Eq. (45) is integrated over
      draws of the latent values; what features leave unexplained is independent between instances.
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
    >>> model = MIMLGP(width=2.0).fit(data.bags, data.Y)
    >>> model.scaling_
    'minmax'
    >>> model.predict_proba(data.bags).shape
    (120, 10)
    >>> [part.shape for part in model.predict_latent(data.bags)]
    [(120, 10), (120, 10)]
    """

    traits = Traits(instances="model", probabilities=True, shards=True, device=("cpu", "cuda"))
    _parameters: ClassVar[Rules] = {
        "kernel": (Choice("gaussian", "linear"), HasMethod("__call__")),
        "width": (Choice("auto"), Number(above=0), Several(Number(above=0))),
        "assumption": Choice("collective", "standard"),
        "label_covariance": Anything(f"one of {', '.join(STRUCTURES)}, or a matrix"),
        "scaling": (Choice("auto", *TRANSFORMS), Several(Choice("auto", *TRANSFORMS))),
        "constant": (Choice(None), Number(0)),
        "scale": (Choice(None), Number(above=0)),
        "factor": Choice("auto", "eigen", "pivoted", "nystroem"),
        "share": Number(above=0, high=1),
        "rank": (Choice(None), Whole(1)),
        "cross": Choice("auto", "exact", "features"),
        "selection": Choice("auto", "evidence", "cv"),
        "cv": Whole(2),
        "sharpness": Several(Number(above=0)),
        "n_draws": Whole(1, 2**20),
        "n_probes": Whole(0),
        "exact_limit": Whole(0),
        "max_iter": Whole(1),
        "tol": Number(0),
        "mode": Choice("fast", "paper"),
        "device": Device(),
        "random_state": Seed(),
    }

    def __init__(
        self,
        kernel="gaussian",
        width="auto",
        *,
        assumption="collective",
        label_covariance="full",
        scaling="auto",
        constant=None,
        scale=None,
        factor="auto",
        share=0.995,
        rank=None,
        cross="auto",
        selection="auto",
        cv=3,
        sharpness=(1.0, 4.0),
        n_draws=2048,
        n_probes=4,
        exact_limit=1500,
        max_iter=100,
        tol=1e-3,
        mode="fast",
        device="auto",
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
        self.device = device
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"width": 3.0}

    # ------------------------------------------------------------------ learning

    def _fit(self, bags: Bags, Y: np.ndarray) -> None:
        self._fit_blocks(blocks_in_memory(bags, Y))

    def _fit_blocks(self, blocks: Blocks) -> None:
        if len(blocks) == 1:  # of shards with one part, too: they are no more than bags in memory
            blocks = blocks_in_memory(*blocks.only()[:2])
            sample = blocks.only()
        else:
            check_sums(self)
            sample = gathered(blocks, evenly(blocks.n_bags, MOST_BAGS), MOST_INSTANCES)
        check_covariance(self.label_covariance, blocks.n_labels)
        random_state = check_random_state(self.random_state)
        for name in ("candidates_", "candidate_scores_"):
            self.__dict__.pop(name, None)
        self.scaling_, self.width_, compared = choose(self, sample.bags, sample.Y, random_state)
        if compared:
            self.candidates_, self.candidate_scores_ = compared
        n_features, dtype = sample.bags.n_features, sample.bags.dtype
        self._transform = transform_of(blocks.map(unweighted), self.scaling_, n_features, dtype)
        single = self.assumption == "standard"
        parts = blocks.map(partial(_data, self.scaling_, self._transform, single))
        part_rows = blocks.part_rows if single else blocks.part_bags
        training = Training(parts, part_rows, n_features, blocks.n_labels)
        found = learn(self, training, self.width_, random_state)
        self._keep(found, training)
        if not self.converged_:
            warn(unsettled(self), ConvergenceWarning)

    def _keep(self, found: Any, training: Training) -> None:
        learned, features = found.learned, found.features
        self.label_covariance_ = learned.K
        deviations = np.sqrt(np.maximum(np.diag(learned.K), 1e-300))
        self.label_correlation_ = learned.K / np.outer(deviations, deviations)
        self.log_evidence_ = float(found.log_evidence)
        self.n_iter_, self.objective_ = len(learned.residuals), np.array(learned.residuals)
        self.converged_ = found.structure == "fixed" or bool(learned.residuals[-1] <= self.tol)
        self.constant_, self.rank_ = features.kernel.constant, found.problem.m
        self.weights_ = learned.mode.b @ learned.root
        self.weight_covariance_: Any = found.curvature.covariance
        self.projection_, self.intercept_ = features.projection, features.intercept
        self.landmarks_ = None if features.landmarks is None else Bags(features.landmarks, features.offsets)
        self.dual_coef_, self.dual_intercept_, self.training_bags_ = means_of(self, found, training)

    # ------------------------------------------------------------------ predicting

    def _transformed(self, bags: Bags) -> Any:
        return transformed(bags, self.scaling_, self._transform)

    def _latent(self, bags: Bags, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with small_products(bags.n_instances * self.rank_ * 10.0):
            return Predictor(self).latent(self._transformed(bags), offsets)

    def _scores(self, bags: Bags) -> np.ndarray:
        if self.assumption == "collective":
            return logistic_normal_log_odds(*self._latent(bags, bags.offsets))
        with small_products(bags.n_instances * self.rank_ * 10.0):
            yes, no = Predictor(self).of_maxima(self._transformed(bags), bags.offsets)
        return np.log(np.maximum(yes, 1e-300)) - np.log(np.maximum(no, 1e-300))

    def _probabilities(self, bags: Bags) -> np.ndarray:
        return expit(self._scores(bags))

    def _instance_scores(self, bags: Bags) -> np.ndarray:
        return self._latent(bags, np.arange(bags.n_instances + 1))[0]

    def predict_latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the mean latent value of each bag, per label.

        Returns
        -------
        mean, deviation : ndarrays of shape (n_bags, n_labels)
        """
        return self._mean_and_deviation(X, "bags")

    def instance_latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the latent value of each instance, per label.

        Returns
        -------
        mean, deviation : ndarrays of shape (n_instances, n_labels)
        """
        return self._mean_and_deviation(X, "instances")

    def _mean_and_deviation(self, X: Any, of: str) -> tuple[np.ndarray, np.ndarray]:
        check_is_fitted(self)
        bags = self._as_bags(X, reset=False)
        mean, variance = self._latent(bags, bags.offsets if of == "bags" else np.arange(bags.n_instances + 1))
        return mean, np.sqrt(variance)

    def correlated_labels(self, k: int = 10) -> list[tuple[Any, Any, float]]:
        """List the pairs of labels whose latent functions are most correlated, by size.

        Returns
        -------
        list of (label, label, correlation)
            Names where labels have names, else numbers.
        """
        check_is_fitted(self)
        R = self.label_correlation_
        a, b = np.triu_indices(len(R), 1)
        order = np.argsort(-np.abs(R[a, b]), kind="stable")[:k]
        names = getattr(self, "label_names_", range(len(R)))
        return [(names[a[i]], names[b[i]], float(R[a[i], b[i]])) for i in order]


def _data(transform: str, scaling: Any, single: bool, block: Block) -> Data:
    """A block as the kernel sees it."""
    return Data.of(transformed(block.bags, transform, scaling), block.bags.offsets, block.Y, single)


def check_sums(model: Any) -> None:
    """Refuse, on shards of several parts, settings that look at all pairs of bags."""
    others = {
        "assumption": ("standard", "features of all instances", "'collective'"),
        "mode": ("paper", "the kernel between all pairs of bags", "'fast'"),
        "cross": ("exact", "the kernel with all training bags", "'auto'"),
        "factor": ("eigen", "the kernel between all pairs of bags", "'auto', 'pivoted' or 'nystroem'"),
    }
    for name, (refused, why, instead) in others.items():
        linear = model.kernel == "linear" and name in ("cross", "factor")
        if getattr(model, name) == refused and not linear:
            raise ValueError(f"{name}={refused!r} needs {why} at once; on shards use {name}={instead}")


def check_covariance(given: Any, n_labels: int) -> None:
    """Refuse what is neither a structure nor a covariance matrix of the labels."""
    if isinstance(given, str):
        if given not in STRUCTURES:
            raise ValueError(
                f"label_covariance must be one of {', '.join(STRUCTURES)} or a matrix, got {given!r}"
            )
        return
    try:
        K = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        K = np.empty(0)
    right = K.shape == (n_labels, n_labels) and np.isfinite(K).all() and np.allclose(K, K.T)
    if not right or linalg.eigvalsh(K)[0] < -1e-9 * np.abs(K).max():
        shape = np.shape(given) if isinstance(given, (np.ndarray, list, tuple)) else ()
        what = f"shape {shape}" if shape else repr(given)
        raise DataError(
            f"label_covariance must be a symmetric positive semi-definite matrix of shape "
            f"({n_labels}, {n_labels}) without NaN, one row per label; got {what}"
        )
