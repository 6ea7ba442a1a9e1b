"""MM-MIL: multi-instance learning of concepts with many faces, by a mixture of experts over instances."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bagwise.base import MIMLClassifier, Traits
from bagwise.base.blocks import blocks_in_memory, unweighted
from bagwise.base.parameters import JOBS, Choice, Device, Flag, Number, Seed, Whole
from bagwise.compute.devices import gpu_for
from bagwise.compute.scaling import apply_scaling, is_text, learn_scaling, scaling_of
from bagwise.compute.segment import segment_argmax, segment_max
from bagwise.errors import warn
from bagwise.models._shared.scores import constant_score, each_label
from bagwise.models.mm_mil.fit import learn_blocks, learn_label, warn_of_contradictions
from bagwise.models.mm_mil.fit_features import drawn_landmarks, drawn_numbers, features_of, similarities
from bagwise.models.mm_mil.kernels import instance_posteriors
from bagwise.models.mm_mil.tune import select_n_clusters

__all__ = ["MMMIL", "select_n_clusters"]

NO_CLUSTER = -1  # what `bag_clusters` says of a bag that is not positive
_FEATURES_OF = ("random_state", "kernel", "width_scale", "n_landmarks", "standardize", "solver", "device")
_PASSES = 10.0  # over the instances that learning makes at the very least


class MMMIL(MIMLClassifier):
    r"""Mixture-model multi-instance learning: positive instances may come from several clusters.

    A gate (multinomial logit) says to which of ``n_clusters`` clusters an instance belongs, an expert
    (logistic regression) per cluster whether it is positive; a bag is as positive as its most positive
    instance. Several labels are learned one by one, on the same features.

    Parameters
    ----------
    n_clusters : int, default=3
        Number of clusters M. 1 is multi-instance logistic regression. `select_n_clusters` chooses it.
    kernel : {None, "rbf"}, default=None
        None is linear in the features; "rbf" uses ``exp(-|x - x'|^2 / (2 sigma2_))`` to ``n_landmarks``
        training instances.
    width_scale : float, default=0.5
        ``sigma2_`` as a multiple of the median squared distance between instances; try 1/8 to 2.
    n_landmarks : int, default=500
        Number of training instances that span the kernel's functions; all, if there are fewer.
    gate_penalty, expert_penalty : float, default=0.1
        Penalties lambda and beta on squared norms, without the intercepts. The loss is a sum over bags, so
        larger sets stand larger values; try 0.003 to 0.1 with a kernel, 0.1 to 1 without.
    solver : {"smooth", "em", "paper"}, default="smooth"
        "smooth": L-BFGS on a soft maximum of growing sharpness. "em": hard choice of one instance per bag,
        then experts and gates in turn with weights that make the bound tight. "paper": the same with the
        sub-problems as printed in [1]_. All keep the point with the lowest objective, their start included.
    n_init : int, default=3
        Number of starts.
    max_iter : int, default=100
        Limit on the iterations of L-BFGS at each sharpness, or on the choices of instances.
    tol : float, default=1e-6
        Relative change of the objective at which to stop.
    standardize : bool, default=True
        Whether to learn on standardised features (sparse ones are scaled without centring). Without a kernel,
        coefficients always speak of the features as given.
    device : {"auto", "cpu", "cuda", "cuda:0", ...}, default="auto"
        Where dense instances that are no text are learned from by ``solver="smooth"``, and scored; "auto" is
        a GPU if there is one and the work is worth the way to it. All labels are learned there at
        the same time, in double precision, and to the same model but for rounding.
    n_jobs : int, optional
        Labels learned at the same time on the processor; the result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of landmarks and starts. Every label starts from the same seed.

    Attributes
    ----------
    expert_coef_, gate_coef_ : ndarray of shape (n_labels, n_clusters, n_features)
        Weights; with a kernel, of the similarities to ``landmarks_``.
    expert_intercept_, gate_intercept_ : ndarray of shape (n_labels, n_clusters)
        Intercepts.
    objective_ : list of ndarray
        For every label the objective with the hard maximum at the start, after every iteration, and at the
        model that was kept, which is the lowest of all.
    n_iter_ : int
        Most iterations that a label took.
    landmarks_ : ndarray or CSR of shape (n_landmarks, n_features)
        Only with a kernel: landmarks, in standardised features.
    sigma2_ : float
        Only with a kernel: its squared radius.

    Notes
    -----
    Symbols of [1]_: ``t_m`` is a row of ``expert_coef_`` with its intercept, ``w_m`` of ``gate_coef_``
    (``alpha^t``, ``alpha^w`` with a kernel), ``y_ijm`` and ``theta_ijm`` their logistic and softmax,
    ``lambda`` is ``gate_penalty`` and ``beta`` is ``expert_penalty``. The objective is Eq. (7),

    .. math:: -\sum_i \ln P(l_i | B_i) + \lambda \sum_m |w_m|^2 + \beta \sum_m |t_m|^2, \quad
        P(+ | B_i) = \max_j \sum_m \theta_{ijm} y_{ijm} .

    The score of an instance is its log-odds ``ln p - ln(1 - p)``, computed from two sums of positive terms,
    so that confident instances keep all digits; a bag has the largest score of its instances.

    `bagwise.ShardedBags` of one part are bags in memory. With several parts all labels and starts climb
    together, so that one pass serves all. Starts are found among up to 2000 positive bags of each label.

    **Differences from [1]**: (a) The default solver is not EM. The bound of Eq. (10) is not tight, SP2 is not
    the convex regression it is taken for, and choosing one instance per bag makes negative bags jump from
    instance to instance; minimising the soft maximum ``(1 / v) log sum_j exp(v r_j)`` of log-odds for
    v = 1, 3, 10, 30 reaches far lower values of the same Eq. (7). ``solver="paper"`` is the printed
    algorithm. (b) Gates and experts have intercepts, without which half of the space is positive. (c) The
    kernel's basis is fixed, where Eqs. (13) and (16) change it with every choice of instances, which changes
    what the weights mean. (d) Widths are relative to the median distance. (e) Several labels are learned one
    against the rest.

    References
    ----------
    .. [1] Q. Wang, L. Si, D. Zhang: A discriminative data-dependent mixture-model approach for multiple
       instance learning in image classification. ECCV 2012.

    Examples
    --------
    >>> from bagwise.datasets import make_sub_concepts
    >>> data = make_sub_concepts(n_bags=300, n_labels=1, n_sub=3, cardinality=0.5, noise=1.0)
    >>> train, test = data.bags[:200], data.bags[200:]
    >>> model = MMMIL(n_clusters=3, random_state=0).fit(train, data.Y[:200, 0])
    >>> bool((model.predict(test) == data.Y[200:, 0]).mean() > 0.9)
    True
    >>> model.cluster_proba(test).shape == (test.n_instances, 3)
    True
    """

    traits = Traits(instances="model", probabilities=True, shards=True, device=("cpu", "cuda"))
    _parameters = {
        "n_clusters": Whole(1),
        "kernel": Choice(None, "rbf"),
        "width_scale": Number(above=0),
        "n_landmarks": Whole(1),
        "gate_penalty": Number(0),
        "expert_penalty": Number(0),
        "solver": Choice("smooth", "em", "paper"),
        "n_init": Whole(1),
        "max_iter": Whole(1),
        "tol": Number(0),
        "standardize": Flag(),
        "device": Device(),
        "n_jobs": JOBS,
        "random_state": Seed(),
    }

    def __init__(
        self,
        n_clusters=3,
        *,
        kernel=None,
        width_scale=0.5,
        n_landmarks=500,
        gate_penalty=0.1,
        expert_penalty=0.1,
        solver="smooth",
        n_init=3,
        max_iter=100,
        tol=1e-6,
        standardize=True,
        device="auto",
        n_jobs=None,
        random_state=None,
    ):
        self.n_clusters = n_clusters
        self.kernel = kernel
        self.width_scale = width_scale
        self.n_landmarks = n_landmarks
        self.gate_penalty = gate_penalty
        self.expert_penalty = expert_penalty
        self.solver = solver
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.standardize = standardize
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"n_clusters": 2, "random_state": 0}

    # ------------------------------------------------------------------ learning

    def _fit(self, bags, Y):
        gpu = self._gpu(bags, Y.shape[1])
        if gpu is None:
            self._learn(bags, Y, self._features(bags))
        else:
            self._fit_on_gpu([self], bags, Y, gpu)

    @classmethod
    def _fit_several(cls, models, bags, Y):
        """Models of the same features learn side by side on a GPU, others one after the other."""
        alike: dict[tuple, list] = {}
        for model in models:
            alike.setdefault(tuple(getattr(model, name) for name in _FEATURES_OF), []).append(model)
        for (seed, *_), group in alike.items():
            gpu = group[0]._gpu(bags, Y.shape[1] * len(group)) if isinstance(seed, int) else None
            if gpu is None:
                for model in group:
                    model._fit(bags, Y)
            else:
                cls._fit_on_gpu(group, bags, Y, gpu)

    @staticmethod
    def _fit_on_gpu(models, bags, Y, gpu):
        from bagwise.models.mm_mil.gpu import learn_on_gpu

        warn_of_contradictions(blocks_in_memory(bags, Y))
        for model, found in zip(models, learn_on_gpu(models, bags, Y, gpu)):
            model._keep(*found)

    def _gpu(self, bags, n_labels):
        """The GPU that learning goes to, None where it stays here."""
        if self.solver != "smooth" or bags.is_sparse:
            return None
        n_features = bags.n_features if self.kernel is None else min(self.n_landmarks, bags.n_instances)
        gpu = gpu_for(self.device, _PASSES * bags.n_instances * n_features * n_labels)
        return None if gpu is None or is_text(bags.X) else gpu

    def _fit_blocks(self, blocks):
        if len(blocks) == 1:  # no more than bags in memory
            return self._fit(*blocks.only()[:2])
        if self.solver != "smooth":
            raise ValueError(
                f"solver={self.solver!r} chooses among all bags at once; on shards use solver='smooth'"
            )
        rng = check_random_state(self.random_state)
        kind = "standard" if self.standardize else "none"
        scaling = scaling_of(blocks.map(unweighted), kind, self.n_features_in_, blocks.shards.dtype)
        seed, kernel = int(rng.randint(2**31 - 1)), None
        if self.kernel == "rbf":
            kernel = drawn_landmarks(blocks, scaling, self.n_landmarks, self.width_scale, rng)
        warn_of_contradictions(blocks)
        found = learn_blocks(blocks, scaling, kernel, self._settings(seed))
        shared = {"scaling": scaling} | ({} if kernel is None else kernel._asdict())
        n_features = self.n_features_in_ if kernel is None else kernel.whitening.shape[1]
        self._keep(found, blocks.labels()[0], n_features, shared)

    def _shared(self, bags):
        """What labels that are learned one by one can share; nothing on a GPU, which makes its own."""
        return self._features(bags) if self._gpu(bags, 1) is None else None

    def _features(self, bags):
        """What no label changes: features, the way from their weights to inputs, the seed of the starts."""
        rng = check_random_state(self.random_state)
        seed, kind = int(rng.randint(2**31 - 1)), "standard" if self.standardize else "none"
        if self.kernel == "rbf":
            drawn = drawn_numbers(bags.n_instances, self.n_landmarks, rng)
            scaling, kernel, Phi = features_of(bags.X, kind, *drawn, float(self.width_scale))
            return kernel._asdict() | {"scaling": scaling, "seed": seed, "Phi": Phi}
        scaling = learn_scaling(bags.X, kind)
        return {"scaling": scaling, "seed": seed, "Phi": apply_scaling(bags.X, scaling)}

    def _learn(self, bags, Y, shared):
        """Learn every label on shared features."""
        warn_of_contradictions(blocks_in_memory(bags, Y))
        settings = self._settings(shared["seed"])
        found = each_label(learn_label, Y, self.n_jobs, shared["Phi"], bags.offsets, settings)
        self._keep(found, Y, shared["Phi"].shape[1], shared)

    def _keep(self, found, Y, n_features, shared):
        """Weights of the features as given, from the solutions of all labels."""
        P = np.zeros((Y.shape[1], n_features + 1, 2 * self.n_clusters))
        for l, solution in enumerate(found):
            if solution is None:
                P[l, -1, : self.n_clusters] = constant_score(Y[:, l])
            else:
                P[l] = solution.P
        rows = P.transpose(0, 2, 1).reshape(-1, P.shape[1])  # one row per label and expert or gate
        coef, intercept = rows[:, :-1], rows[:, -1]
        if self.kernel == "rbf":
            coef = coef @ shared["whitening"].T
            self._scaling = shared["scaling"]
            self.landmarks_, self.sigma2_ = shared["landmarks"], shared["sigma2"]
        else:
            coef, intercept = shared["scaling"].weights_as_given(coef, intercept)
        coef = coef.reshape(len(P), 2, self.n_clusters, -1)
        intercept = intercept.reshape(len(P), 2, self.n_clusters)
        self.expert_coef_, self.gate_coef_ = coef[:, 0].copy(), coef[:, 1].copy()
        self.expert_intercept_, self.gate_intercept_ = intercept[:, 0].copy(), intercept[:, 1].copy()
        self.objective_ = [np.zeros(1) if s is None else np.array(s.history) for s in found]
        self.n_iter_ = max(max(len(history) - 2 for history in self.objective_), 0)
        restless = sum(s is not None and not s.at_rest for s in found)
        if restless:
            message = (
                f"{restless} of {len(found)} labels stopped at max_iter={self.max_iter}; raise it or tol"
            )
            warn(message, ConvergenceWarning)

    def _settings(self, seed):
        names = ("n_clusters", "solver", "n_init", "max_iter", "tol")
        rest = {"lam": float(self.gate_penalty), "beta": float(self.expert_penalty), "seed": seed}
        return {name: getattr(self, name) for name in names} | rest

    # ------------------------------------------------------------------ predicting

    def _posteriors(self, bags):
        """Log-odds (n_instances, n_labels) and P(z | x, +), (n_instances, n_labels, n_clusters)."""
        there = self._predicted_on_gpu(bags, "posteriors")
        if there is not None:
            return there
        coef, intercept = self._weights
        n_labels, _, M, _ = coef.shape
        X = bags.X
        if self.kernel == "rbf":
            X = similarities(X, self._scaling, self.landmarks_, self.sigma2_)
        F = np.asarray(X @ coef.reshape(n_labels * 2 * M, -1).T, dtype=np.float64) + intercept.ravel()
        r = np.empty(len(F) * n_labels)
        plus = np.empty((len(F) * n_labels, M))
        instance_posteriors(F.reshape(-1, 2 * M), r, plus)
        return r.reshape(len(F), n_labels), plus.reshape(len(F), n_labels, M)

    @property
    def _weights(self):
        """Weights and intercepts of experts, then gates, (n_labels, 2, n_clusters, ...)."""
        coef = np.stack([self.expert_coef_, self.gate_coef_], axis=1)
        return coef, np.stack([self.expert_intercept_, self.gate_intercept_], axis=1)

    def _predicted_on_gpu(self, bags, kind):
        """What `predicted_on_gpu` finds, None where the work stays here."""
        if bags.is_sparse or self.device == "cpu":
            return None
        columns = self.expert_coef_.shape[2] if self.kernel == "rbf" else bags.n_features / _PASSES
        # one product repays the way to the GPU for large data alone
        gpu = gpu_for(self.device, bags.n_instances * columns)
        if gpu is None:
            return None
        from bagwise.models.mm_mil.gpu import predicted_on_gpu

        return predicted_on_gpu(self, bags, gpu, kind)

    def _instance_scores(self, bags):
        there = self._predicted_on_gpu(bags, "instances")
        return self._posteriors(bags)[0] if there is None else there

    def _scores(self, bags):
        there = self._predicted_on_gpu(bags, "bags")
        return segment_max(self._instance_scores(bags), bags.offsets) if there is None else there

    def _probabilities(self, bags):
        return expit(self._scores(bags))

    def _instance_probabilities(self, bags, Y):
        """Labels are independent here; only where they add up to more than one are they scaled down."""
        P = expit(self._instance_scores(bags))
        if Y is not None:
            P = np.where(Y[bags.index] > 0, P, 0.0)
        return P / np.maximum(P.sum(axis=1, keepdims=True), 1.0)

    def instance_proba(self, X):
        """Probability of every instance to be positive, P(+ | x).

        Returns
        -------
        ndarray of shape (n_instances, n_labels)
        """
        return expit(self.instance_scores(X))

    def cluster_proba(self, X):
        """Posterior of clusters given that an instance is positive, P(z_m | x, +).

        Returns
        -------
        ndarray of shape (n_instances, n_clusters)
            After learning several labels (n_instances, n_labels, n_clusters).
        """
        check_is_fitted(self)
        plus = self._posteriors(self._as_bags(X, reset=False))[1]
        return plus[:, 0] if plus.shape[1] == 1 else plus

    def bag_clusters(self, X, Y=None):
        """Say which cluster explains each positive bag: the likeliest one of its most positive instance.

        Parameters
        ----------
        X : Bags, list of 2-D arrays, or table
            The bags.
        Y : labels as in ``fit``, optional
            Which bags are positive; by default those predicted so.

        Returns
        -------
        int ndarray of shape (n_bags,)
            -1 for bags that are not positive. After learning several labels (n_bags, n_labels).
        """
        check_is_fitted(self)
        bags = self._as_bags(X, reset=False)
        r, plus = self._posteriors(bags)
        witness = segment_argmax(r, bags.offsets)
        labels = np.arange(r.shape[1])
        positive = r[witness, labels] > 0 if Y is None else self._known_labels(Y, bags) > 0
        clusters = np.where(positive, plus[witness, labels].argmax(axis=2), NO_CLUSTER)
        return clusters[:, 0] if clusters.shape[1] == 1 else clusters
