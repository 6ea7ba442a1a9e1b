"""MI-Kernel and miGraph: a support vector machine on a kernel between bags."""

from __future__ import annotations

import numpy as np

from bagwise.bags import Bags
from bagwise.base import Traits
from bagwise.base.parameters import Choice, Device, Number
from bagwise.compute.segment import segment_sum
from bagwise.compute.threads import small_products
from bagwise.models.svm.base import (
    MACHINES,
    ScaledClassifier,
    machines_on,
    resolve_gamma,
    spread_out,
)
from bagwise.models.svm.kernels import graph_weights, kernel_of_bags, own_kernels


class SetKernelSVM(ScaledClassifier):
    r"""Compare bags by all pairs of their instances and learn each label by a support vector machine.

    With ``weights="equal"`` this is MI-Kernel; with ``weights="graph"`` it is miGraph, in which instances
    that have many others near them in their bag count less. Several labels share one kernel matrix.

    Parameters
    ----------
    weights : {"equal", "graph"}, default="equal"
        MI-Kernel or miGraph.
    kernel : {"rbf", "linear"}, default="rbf"
        Kernel between instances.
    gamma : float or "scale", default="scale"
        Of the kernel "rbf", ``exp(-gamma |x - x'|^2)``; "scale" is one over the number of features and the
        variance of their scaled values. What matters most; try it times 1/4 to 16.
    C : float, default=10.0
        Penalty of errors; try 1 to 1000. Kernels of type "mean" are small, and want a large one.
    normalization : {"spread", "cosine", "mean", "sqrt", "none"}, default="spread"
        What a kernel of two bags is divided by. "cosine": the roots of their kernels with themselves;
        "spread": these, and the mean squared distance of two training bags, so that C means the same for all
        data; "mean": the sums of their weights; "sqrt": the roots of those sums; "none": nothing.
    graph_distance : {"gaussian", "squared"}, default="gaussian"
        Distances in the graph of a bag: ``1 - exp(-gamma |x - x'|^2)`` or ``|x - x'|^2``.
    edge_threshold : float, optional
        Instances nearer than this are joined in the graph; by default the mean distance of the bag's pairs.
    scaling : {"standard", "minmax", "l2", "none"}, default="standard"
        What is done to instances first: features with mean 0 and variance 1 over the training instances
        (sparse ones are divided by one spread, not moved), features divided by their range, instances
        divided by their length, or nothing.
    device : {"auto", "cpu", "cuda", "cuda:0", ...}, default="auto"
        Where kernels are computed; "auto" takes a GPU if there is one and pairs of instances are many.
    n_jobs : int, optional
        Labels learned at a time.

    Attributes
    ----------
    bags_ : Bags
        Training bags that support some label, scaled.
    support_ : ndarray of shape (n_support,)
        Their numbers among the training bags.
    instance_weights_ : ndarray
        Weights of their instances, the normalization included.
    dual_coef_ : ndarray of shape (n_support, n_labels)
        Their weights in the machines.
    intercept_ : ndarray of shape (n_labels,)
        Constants of the machines.
    gamma_ : float
        The gamma that was used.
    constant_scores_ : ndarray of shape (n_labels,)
        1 for a label that all training bags carry, -1 for one that none does, NaN for others. It is the
        score of such a label everywhere.

    Notes
    -----
    With weights W of the instances of a bag,

    .. math:: K(A, C) = \frac{1}{s_A s_C} \sum_{ij} W_i W_j k(a_i, c_j) .

    Bags of many instances, texts above all, share most of what they hold: their cosines are all but 1, and no
    usual C lets a machine see what is left. Then all bags get the label that is more frequent in training,
    however well scores rank them. "spread" measures bags by how far they lie apart; on most other data, where
    a mean squared distance is near 1 anyway, it changes little.

    MI-Kernel [1]_ has W = 1 and :math:`s_A^2 = \sum_{ij} k(a_i, a_j)` ("cosine") or
    :math:`s_A = |A|` ("mean"). miGraph [2]_ has :math:`W_i = 1 / \sum_j [d(a_i, a_j) < \delta_A]`, the
    instance itself counted, with :math:`\delta_A` the mean of the distances d, and :math:`s_A = \sum_i W_i`
    ("mean"). The program of its authors is reported to use "squared" distances, "sqrt" and then "cosine";
    since ``s_A`` cancels in a cosine, that is "cosine".

    The power p of a kernel in [1]_ is ``gamma`` times p here.

    *Differences from* [2]_. (1) Cosines are the default for both kinds of weights, as in the program of the
    authors, here divided by their spread. (2) Nothing is added to the diagonal of the kernel matrix.

    References
    ----------
    .. [1] T. Gärtner, P. A. Flach, A. Kowalczyk, A. J. Smola: Multi-instance kernels. ICML 2002.
    .. [2] Z.-H. Zhou, Y.-Y. Sun, Y.-F. Li: Multi-instance learning by treating instances as non-i.i.d.
       samples. ICML 2009.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> data = make_miml(n_bags=120, random_state=0)
    >>> model = SetKernelSVM(C=10.0).fit(data.bags, data.Y)
    >>> bool((model.predict(data.bags) == data.Y).mean() > 0.9)
    True
    >>> graph = SetKernelSVM(weights="graph", C=10.0).fit(data.bags, data.Y)
    >>> graph.decision_function(data.bags).shape == data.Y.shape
    True
    """

    traits = Traits(instances="singleton", device=("cpu", "cuda"))

    _parameters = {
        "weights": Choice("equal", "graph"),
        **MACHINES,
        "normalization": Choice("spread", "cosine", "mean", "sqrt", "none"),
        "graph_distance": Choice("gaussian", "squared"),
        "edge_threshold": (Choice(None), Number(0)),
        "device": Device(),
    }

    def __init__(
        self,
        weights="equal",
        *,
        kernel="rbf",
        gamma="scale",
        C=10.0,
        normalization="spread",
        graph_distance="gaussian",
        edge_threshold=None,
        scaling="standard",
        device="auto",
        n_jobs=None,
    ):
        self.weights = weights
        self.kernel = kernel
        self.gamma = gamma
        self.C = C
        self.normalization = normalization
        self.graph_distance = graph_distance
        self.edge_threshold = edge_threshold
        self.scaling = scaling
        self.device = device
        self.n_jobs = n_jobs

    def _learn(self, X, offsets, Y):
        self.gamma_ = resolve_gamma(self.gamma, X)
        W = self._weights(X, offsets)
        with small_products(X.shape[0] ** 2 * X.shape[1]):
            K = kernel_of_bags((X, offsets, W), None, self._rbf, self.device)
        spread = self.normalization == "spread"
        K, means, unit = spread_out(K) if spread else (K, np.zeros(len(K)), 1.0)
        self.support_, dual, intercept = machines_on(K, Y, self.C, self.n_jobs)
        self.dual_coef_ = dual / unit
        self.intercept_ = intercept - means[self.support_] @ self.dual_coef_
        kept = Bags(X, offsets)[self.support_]
        self.bags_ = Bags(kept.X, kept.offsets)
        self.instance_weights_ = W[np.isin(np.repeat(np.arange(len(K)), np.diff(offsets)), self.support_)]

    @property
    def _rbf(self):
        return self.gamma_ if self.kernel == "rbf" else None

    def _weights(self, X, offsets):
        """Weights of instances, divided by what their bag's kernels are divided by."""
        W = np.ones(X.shape[0])
        if self.weights == "graph":
            settings = {"gaussian": self.graph_distance == "gaussian", "threshold": self.edge_threshold}
            W = graph_weights(X, offsets, gamma=self.gamma_, **settings)
        if self.normalization == "none":
            return W
        if self.normalization in ("cosine", "spread"):
            s = np.sqrt(own_kernels(X, offsets, W, gamma=self._rbf))
        else:
            s = segment_sum(W, offsets)
            s = np.sqrt(s) if self.normalization == "sqrt" else s
        return W / np.repeat(np.where(s > 0, s, 1.0), np.diff(offsets))

    _width = 1  # `set_kernel` goes block by block on its own

    def _score(self, X, offsets):
        if len(self.support_) == 0:  # every label is constant
            return np.zeros((len(offsets) - 1, len(self.intercept_)))
        own = self.bags_
        W = self._weights(X, offsets)
        with small_products(X.shape[0] * own.X.shape[0] * X.shape[1]):
            known = own.X, own.offsets, self.instance_weights_
            K = kernel_of_bags((X, offsets, W), known, self._rbf, self.device)
        return K @ self.dual_coef_ + self.intercept_
