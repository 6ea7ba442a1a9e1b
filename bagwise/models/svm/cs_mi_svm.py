"""cs.MISVM: MI-SVM whose errors cost by how rare the label is."""

from __future__ import annotations

from bagwise.base import Traits
from bagwise.base.parameters import Whole
from bagwise.models.svm.base import MACHINES
from bagwise.models.svm.mi_svm import MISVM


class CSMISVM(MISVM):
    r"""Cost-sensitive MI-SVM: a positive bag is its best instance, and errors on rare labels cost more.

    Several labels are learned one against the rest. It is `MISVM` with margins of bags and, for a label that
    p of n bags carry, the penalty ``C n / p`` for positive and ``C n / (n - p)`` for negative examples.

    Parameters
    ----------
    kernel : {"rbf", "linear"}, default="rbf"
        Kernel between instances.
    gamma : float or "scale", default="scale"
        Of the kernel "rbf", ``exp(-gamma |x - x'|^2)``; "scale" is one over the number of features and the
        variance of their scaled values. The paper takes 0.5.
    C : float, default=8.0
        Penalty of errors, before it is weighted.
    scaling : {"standard", "minmax", "l2", "none"}, default="standard"
        What is done to instances first: features with mean 0 and variance 1 over the training instances
        (sparse ones are divided by one spread, not moved), features divided by their range, instances
        divided by their length, or nothing.
    max_iter : int, default=50
        Limit on rounds.
    n_jobs : int, optional
        Labels learned at a time.

    Attributes
    ----------
    support_vectors_ : ndarray or CSR of shape (n_support, n_features)
        Scaled instances, or means of bags, that support some label; with ``kernel="rbf"``.
    dual_coef_ : ndarray of shape (n_support, n_labels)
        Their weights; with ``kernel="rbf"``.
    coef_ : ndarray of shape (n_labels, n_features)
        Weights of scaled features; with ``kernel="linear"``.
    intercept_ : ndarray of shape (n_labels,)
        Constants of the machines.
    gamma_ : float
        The gamma that was used.
    witnesses_ : list of ndarray
        For every label the numbers of the training instances that are positive examples of the machine that
        was kept; -1 stands for the mean of a bag, which only a first round has. Empty for a constant label.
    objective_ : list of ndarray
        For every label the value of the objective after each round.
    constant_scores_ : ndarray of shape (n_labels,)
        1 for a label that all training bags carry, -1 for one that none does, NaN for others. It is the
        score of such a label everywhere.
    n_iter_ : int
        Most rounds that a label took.

    Notes
    -----
    For a label with p of n bags positive, over :math:`f(x) = w \cdot \phi(x) + b` and one instance
    :math:`x_B` of every positive bag,

    .. math:: \min \tfrac 1 2 |w|^2 + C \frac n p \sum_{B} \max(0, 1 - f(x_B))
        + C \frac{n}{n - p} \sum_{x} \max(0, 1 + f(x)) ,

    the second sum over all instances of negative bags. The score of a bag is its largest :math:`f(x)`. Both
    weights are twice those of scikit-learn's "balanced". Scores of different labels are not made comparable.

    *Complexity.* Per label and round one machine over p + N examples (N instances of negative bags): between
    :math:`N` times its support and :math:`N^2` kernels; some ten rounds.

    *Differences from* [1]_, which only names the method: starting points and stopping are those of
    `MISVM`; gamma and scaling suit features of any size (the paper's gamma of 0.5 is for its own features).

    References
    ----------
    .. [1] C.-T. Nguyen, X. Wang, J. Liu, Z.-H. Zhou: Labeling complicated objects: multi-view multi-instance
       multi-label learning. AAAI 2014. Its baseline cs.MISVM.
    .. [2] S. Andrews, I. Tsochantaridis, T. Hofmann: Support vector machines for multiple-instance learning.
       NIPS 2002.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> data = make_miml(n_bags=120, random_state=0)
    >>> model = CSMISVM().fit(data.bags, data.Y)
    >>> bool((model.predict(data.bags) == data.Y).mean() > 0.9)
    True
    >>> len(model.witnesses_[0]) == int(data.Y[:, 0].sum())  # one for each positive bag
    True
    """

    traits = Traits(instances="model")

    _parameters = {**MACHINES, "max_iter": Whole(1)}

    margin = "bag"  # settings of `MISVM` that are no parameters here
    positive_weight = "rarity"

    def __init__(self, *, kernel="rbf", gamma="scale", C=8.0, scaling="standard", max_iter=50, n_jobs=None):
        self.kernel = kernel
        self.gamma = gamma
        self.C = C
        self.scaling = scaling
        self.max_iter = max_iter
        self.n_jobs = n_jobs
