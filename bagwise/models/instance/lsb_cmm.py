"""LSB-CMM: a mixture with logistic stick-breaking gates that learns from sets of candidate labels."""

from __future__ import annotations

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from bagwise.base import Traits
from bagwise.base.parameters import Choice, Flag, Number, Whole
from bagwise.compute.scaling import apply_scaling, learn_scaling
from bagwise.compute.threads import small_products
from bagwise.models._shared.instance_softmax import (
    NEVER,
    InstanceSoftmaxClassifier,
    product_size,
)
from bagwise.models.instance.lsb_cmm_em import CandidateModel, log_gates, run_em

_PER_LABEL = 5  # components per label of the published settings
_CELLS = 1 << 22  # gate probabilities computed at a time in prediction


class LSBCMM(InstanceSoftmaxClassifier):
    r"""Mixture of regions of the feature space, each with its own distribution over labels.

    Every instance takes its bag's label set as candidates, of which one is right. That all labels of the set
    must occur in the bag is not used; `ORedLogisticRegression` uses it.

    Parameters
    ----------
    sigma2 : float, default=10.0
        Variance of the normal prior of gate weights on standardised features; intercepts are free.
    alpha : float, default=0.05
        Parameter of the Dirichlet prior of each component's label distribution; small values make
        components prefer few labels.
    n_components : int or "auto", default="auto"
        Number K of components; "auto" is five per label that occurs.
    max_iter : int, default=100
        Limit on EM iterations.
    tol : float, default=1e-4
        Stop when the mean bound of three iterations exceeds that of the three before by no larger share;
        after ten at the earliest.
    standardize : bool, default=True
        Whether to learn on standardised features (sparse ones share one spread and are not centred);
        ``gate_coef_`` and ``gate_intercept_`` always speak of the features as given.
    decision : {"calibrated", "union"}, default="calibrated"
        How ``predict`` decides. "calibrated": a sigmoid per label of the log-odds of a bag is learned on
        held-out bags (three folds; with more than 2,000 bags one third, once), ``predict_proba`` is that
        sigmoid and ``predict`` takes what is above one half. "union": ``predict`` takes the labels given to
        instances as in [1]_, and ``predict_proba`` is not calibrated. Scores are the same.

    Attributes
    ----------
    gate_coef_ : ndarray of shape (n_components - 1, n_features)
        Weights of the gates, in the order in which the stick is broken.
    gate_intercept_ : ndarray of shape (n_components - 1,)
        Their intercepts.
    label_counts_ : ndarray of shape (n_components, n_labels)
        Parameters of the Dirichlet posterior of every component: prior plus expected counts. Labels without a
        training bag hold 0. One more column for instances without a label if ``has_background_``.
    has_background_ : bool
        Whether the last column of ``label_counts_`` stands for instances of bags without any label.
    objective_ : ndarray of shape (n_iter_,)
        Variational lower bound on the penalised log-likelihood at each iteration; it never falls.
    n_iter_ : int
        Number of EM iterations.
    decision_slope_, decision_intercept_ : ndarray of shape (n_labels,) or None
        Calibration: log-odds of a label in a bag are ``slope * log-odds of its best instance + intercept``.

    Notes
    -----
    With gates :math:`v_k(x) = \sigma(w_k \cdot x + b_k)`, the last of them 1, component k has probability
    :math:`\phi_k(x) = v_k(x) \prod_{j<k} (1 - v_j(x))` and labels are drawn from
    :math:`\theta_k \sim Dir(\alpha)`; instance i carries some label of its bag's set :math:`Y_{b(i)}`.
    EM with a Dirichlet posterior of each :math:`\theta_k` climbs the bound

    .. math::

        \sum_i \log \sum_k \phi_k(x_i) \sum_{c \in Y_{b(i)}} \exp E[\log \theta_{kc}]
        - \sum_k KL(Dir(\hat\alpha_k) \| Dir(\alpha)) - \sum_k |w_k|^2 / (2 \sigma^2)

    :math:`\hat\alpha` is ``label_counts_``, K ``n_components``. An instance carries label c with probability
    :math:`\sum_k \phi_k(x) \hat\alpha_{kc} / \sum_{c'} \hat\alpha_{kc'}`, a bag with the largest of its
    instances. Scores are margins between logarithms of these: positive exactly if the label is in the union
    of the labels given to instances. That union is too large where a bag has many instances, each of which
    may err; hence the calibrated decision. With one label the score is the calibrated log-odds. EM starts
    with component k preferring label k mod L, so the order of labels matters.

    **Differences from [1]**: (1) The M-step takes one Newton step for all gates together, solved by conjugate
    gradients and shortened gate by gate where needed, instead of fitting each gate to convergence; the bound
    still never falls. (2) Bags without labels, which [1]_ does not know, give their instances a class of
    their own, background, which is no candidate in other bags: as a candidate everywhere it would explain
    everything. (3) Labels that never occur get probability 0.

    References
    ----------
    .. [1] L. Liu, T. G. Dietterich: A conditional multinomial mixture model for superset label learning.
       NIPS 2012.

    Examples
    --------
    >>> from bagwise import load_dataset
    >>> data = load_dataset("digits", n_bags=200)
    >>> model = LSBCMM(max_iter=30).fit(data.bags, data.Y)
    >>> bool((model.annotate(data.bags, data.Y) == data.instance_Y).mean() > 0.8)  # instance labels not shown
    True
    """

    traits = Traits(instances="model", probabilities=True, label_equivariant=False)

    _parameters = {
        "sigma2": Number(above=0),
        "alpha": Number(above=0),
        "n_components": (Choice("auto"), Whole(1)),
        "max_iter": Whole(1),
        "tol": Number(0),
        "standardize": Flag(),
        "decision": Choice("calibrated", "union"),
    }

    def __init__(
        self,
        sigma2=10.0,
        *,
        alpha=0.05,
        n_components="auto",
        max_iter=100,
        tol=1e-4,
        standardize=True,
        decision="calibrated",
    ):
        self.sigma2 = sigma2
        self.alpha = alpha
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol
        self.standardize = standardize
        self.decision = decision

    @classmethod
    def _test_params(cls):
        return {"max_iter": 30}

    def _fit(self, bags, Y):
        empty = ~Y.any(axis=1)
        self.has_background_ = bool(empty.any())
        candidates = np.column_stack([Y, empty]) if self.has_background_ else Y
        seen = np.flatnonzero(candidates.any(axis=0))
        K = _PER_LABEL * len(seen) if self.n_components == "auto" else int(self.n_components)
        scaling = learn_scaling(bags.X, "standard" if self.standardize else "none")
        X = apply_scaling(bags.X, scaling, bags.dtype)
        model = CandidateModel(X, bags.offsets, candidates[:, seen], self.alpha, self.sigma2)
        with small_products(product_size(X, K)):
            W, counts, history = run_em(model, K, self.max_iter, self.tol)
        self.gate_coef_, self.gate_intercept_ = scaling.weights_as_given(W[:, :-1], W[:, -1])
        self.label_counts_ = np.zeros((K, candidates.shape[1]))
        self.label_counts_[:, seen] = counts
        self.objective_, self.n_iter_ = np.array(history), len(history)
        self.decision_slope_ = self.decision_intercept_ = None
        if self.decision == "calibrated" and self._target != "multiclass":
            self._learn_decision(bags, Y, None, lambda train: self._refit(bags[train], Y[train]))

    def _refit(self, bags, Y):
        model = clone(self).set_params(decision="union")
        model._fit(bags, Y)
        return model

    @property
    def _n_labels(self):
        return self.label_counts_.shape[1] - self.has_background_

    def gate_probabilities(self, X):
        """Probability of every component at every instance.

        Returns
        -------
        ndarray of shape (n_instances, n_components)
        """
        check_is_fitted(self)
        return self._gates(self._as_bags(X, reset=False).X)

    def _gates(self, X):
        return np.exp(log_gates(np.asarray(X @ self.gate_coef_.T, dtype=np.float64) + self.gate_intercept_))

    def _logits(self, bags):
        """Logarithms of label probabilities: normalised already, so the softmax returns them as they are."""
        theta = self.label_counts_ / self.label_counts_.sum(axis=1, keepdims=True)
        P = np.empty((bags.n_instances, theta.shape[1]))
        rows = max(1, _CELLS // len(theta))
        for start in range(0, len(P), rows):
            P[start : start + rows] = self._gates(bags.X[start : start + rows]) @ theta
        return np.log(np.maximum(P, np.exp(NEVER)))
