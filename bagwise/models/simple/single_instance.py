"""Logistic regression that is shown the label of every instance: the upper bound of weak supervision."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression

from bagwise.bags.dataset import UNKNOWN
from bagwise.base import Traits
from bagwise.base.parameters import Anything, Flag, Number, Whole
from bagwise.compute.scaling import apply_scaling, learn_scaling
from bagwise.compute.threads import product_size, small_products
from bagwise.errors import DataError, quoted
from bagwise.models._shared.instance_softmax import NEVER, InstanceSoftmaxClassifier


class SingleInstanceLogisticRegression(InstanceSoftmaxClassifier):
    """Multinomial logistic regression on instances with their true labels.

    It sees what weakly supervised methods must find out, so it bounds what can be expected of them.

    Parameters
    ----------
    alpha : float, default=1.0
        L2 penalty ``alpha / 2 * |W|^2`` on standardised features, intercepts left free. 0 is the
        unpenalised model of [1]_, whose weights grow without bound on separable data.
    max_iter : int, default=200
        Limit on the iterations of L-BFGS.
    tol : float, default=1e-5
        Tolerance on the gradient.
    standardize : bool, default=True
        Whether to learn on standardised features (sparse ones share one spread and are not centred);
        ``coef_`` and ``intercept_`` always speak of the features as given.
    instance_labels : str, default="label"
        Name of the fact in ``bags.instance_info`` that holds the label index of each instance, -1
        where unknown. `Dataset.labelled_bags` puts it there. A bag with a single label needs no such
        fact: all its instances carry that label.

    Attributes
    ----------
    coef_ : ndarray of shape (n_labels, n_features)
        Weights; one more row for the background if some training bag carries no label.
    intercept_ : ndarray of shape (n_labels,)
        Intercepts, likewise.
    has_background_ : bool
        Whether the last row stands for instances without a label.
    n_iter_ : int
        Iterations used.

    Notes
    -----
    Instances of unknown label in bags that carry several labels are left out. Instances of bags
    without any label are the background. A label without a training instance gets probability 0.

    References
    ----------
    .. [1] A. T. Pham, R. Raich, X. Z. Fern: Dynamic programming for instance annotation in
       multi-instance multi-label learning. IEEE TPAMI 39(12), 2017. The baseline "SLR".

    Examples
    --------
    >>> from bagwise import load_dataset
    >>> data = load_dataset("digits", n_bags=200)
    >>> model = SingleInstanceLogisticRegression().fit(data.labelled_bags(), data.Y)
    >>> bool((model.annotate(data.bags) == data.instance_Y).mean() > 0.95)
    True
    """

    traits = Traits(
        instances="model",
        probabilities=True,
        sample_weight=True,
        instance_labels=True,
        label_equivariant=False,
    )

    def __init__(self, alpha=1.0, *, max_iter=200, tol=1e-5, standardize=True, instance_labels="label"):
        self.alpha = alpha
        self.max_iter = max_iter
        self.tol = tol
        self.standardize = standardize
        self.instance_labels = instance_labels

    @classmethod
    def _expected_failed_checks(cls):
        reason = "a table with several labels per row says nothing about which instance carries which"
        formats = ("predict", "predict_proba", "decision_function")
        checks = [f"check_classifiers_multilabel_output_format_{name}" for name in formats]
        return dict.fromkeys([*checks, "check_classifiers_multilabel_representation_invariance"], reason)

    _parameters = {
        "alpha": Number(0),
        "max_iter": Whole(1),
        "tol": Number(0),
        "standardize": Flag(),
        "instance_labels": Anything("the name of a fact of instances"),
    }

    def _fit(self, bags, Y, weights):
        z = self._classes_of_instances(bags, Y)
        rows = np.flatnonzero(z != UNKNOWN)
        if rows.size == 0:
            raise DataError("no instance has a known label; see the parameter instance_labels")
        w = None if weights is None else weights[bags.index[rows]]
        self.has_background_ = bool((z == Y.shape[1]).any())
        self._solve(bags.X[rows], z[rows], Y.shape[1] + self.has_background_, w)

    def _classes_of_instances(self, bags, Y):
        """Label index per instance, n_labels for the background, -1 for unknown."""
        alone = np.where(Y.sum(axis=1) == 1, Y.argmax(axis=1), UNKNOWN)
        alone[Y.sum(axis=1) == 0] = Y.shape[1]
        z = alone[bags.index]
        if self.instance_labels in bags.instance_info:
            given = np.asarray(bags.instance_info[self.instance_labels])
            outside = np.flatnonzero((given < UNKNOWN) | (given >= Y.shape[1]))
            if outside.size:
                bag = bags.bag_ids[bags.index[outside[0]]]
                raise DataError(
                    f"instance {outside[0]} (bag {quoted(bag)}) has the label {given[outside[0]]}; "
                    f"labels are 0..{Y.shape[1] - 1}"
                )
            return np.where(given == UNKNOWN, np.where(z == Y.shape[1], z, UNKNOWN), given)
        several = np.flatnonzero(Y.sum(axis=1) > 1)
        if several.size:
            raise DataError(
                f"bag {quoted(bags.bag_ids[several[0]])} carries several labels and its instances none: "
                f"this model needs bags.instance_info[{self.instance_labels!r}]; "
                "Dataset.labelled_bags puts it there"
            )
        return z

    def _solve(self, X, z, n_classes, weights):
        scaling = learn_scaling(X, "standard" if self.standardize else "none", weights)
        coef = np.zeros((n_classes, X.shape[1]))
        intercept = np.full(n_classes, NEVER)
        present = np.unique(z)
        self.n_iter_ = 0
        if len(present) == 1:
            intercept[present] = 0.0
        else:
            C = np.inf if self.alpha == 0 else 1.0 / self.alpha
            inner = LogisticRegression(C=C, max_iter=self.max_iter, tol=self.tol)
            with small_products(product_size(X, len(present))):
                inner.fit(apply_scaling(X, scaling, X.dtype), z, sample_weight=weights)
            self.n_iter_ = int(np.max(inner.n_iter_))
            if len(present) == 2:  # scikit-learn keeps one row for two classes
                coef[present] = np.vstack([-inner.coef_, inner.coef_]) / 2.0
                intercept[present] = np.concatenate([-inner.intercept_, inner.intercept_]) / 2.0
            else:
                coef[present], intercept[present] = inner.coef_, inner.intercept_
        self.coef_, self.intercept_ = scaling.weights_as_given(coef, intercept)
