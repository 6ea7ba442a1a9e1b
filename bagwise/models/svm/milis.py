"""MILIS: one prototype per training bag, chosen along with a linear machine on the similarities to them."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve
from sklearn.exceptions import ConvergenceWarning

from bagwise.base import Traits
from bagwise.base.parameters import JOBS, Choice, Number, Whole
from bagwise.compute.segment import segment_argmax
from bagwise.compute.threads import run
from bagwise.errors import warn
from bagwise.models.svm.base import MACHINE, SCALING, kernel_products, resolve_gamma
from bagwise.models.svm.miles import PrototypeClassifier, bag_similarities

_SCALE = 10.0  # of the feature whose weight is the intercept: its penalty is a hundredth of that of others
_STEPS, _TOL = 100, 1e-12  # of the machine, whose objective must not rise from round to round
_FLAT = 1e-4  # gradient, as a share of the weights, at which the machine counts as the lowest
_LOWER = 1e-9  # relative decrease of the loss that is worth another prototype


class MILIS(PrototypeClassifier):
    r"""Describe a bag by its similarity to one instance of every training bag, and choose these instances.

    The instances are chosen by the density of negative ones at first, and then so that a linear support
    vector machine errs less. Several labels are learned one against the rest, each with prototypes of its
    own. Some papers call the method IS-MIL.

    Parameters
    ----------
    gamma : float or "scale", default="scale"
        Similarities are ``exp(-gamma |x - x'|^2)``. "scale" is one over the number of features and the
        variance of their scaled values. Try it times 1/4 to 4.
    density_gamma : float or "same", default="same"
        The same for the density of negative instances; by default ``gamma``.
    C : float, default=10.0
        Penalty of squared errors; try 1 to 1000.
    max_iter : int, default=10
        Limit on the rounds; with 1 the first prototypes stay.
    scaling : {"standard", "minmax", "l2", "none"}, default="standard"
        What is done to instances first: features with mean 0 and variance 1 over the training instances
        (sparse ones are divided by one spread, not moved), features divided by their range, instances
        divided by their length, or nothing.
    n_jobs : int, optional
        Labels learned at a time.

    Attributes
    ----------
    prototypes_ : ndarray or CSR of shape (n_prototypes, n_features)
        Scaled training instances that are the prototype of their bag for some label.
    prototype_rows_ : ndarray of shape (n_prototypes,)
        Their numbers among the training instances.
    coef_ : ndarray of shape (n_labels, n_prototypes)
        Their weights; 0 where another instance of the bag is the prototype of the label.
    intercept_ : ndarray of shape (n_labels,)
        Constants.
    gamma_ : float
        The gamma that was used.
    objective_ : list of ndarray
        For every label the objective of the machine after each round.
    constant_scores_ : ndarray of shape (n_labels,)
        1 for a label that all training bags carry, -1 for one that none does, NaN for others. It is the
        score of such a label everywhere.
    n_iter_ : int
        Most rounds that a label took.

    Notes
    -----
    With prototypes :math:`z_k`, one of each training bag, and
    :math:`s_k(B) = \max_{x \in B} \exp(-\gamma |x - z_k|^2)`, the score of a bag is
    :math:`f(B) = \sum_k w_k s_k(B) + b`, and w, b and the prototypes minimise

    .. math:: \frac 1 2 |w|^2 + C \sum_i \max(0, 1 - y_i f(B_i))^2 .

    The first prototype of a positive bag is the instance where negative ones are rarest, that of a negative
    bag the instance where they are densest. A round learns the machine, then looks at the bags with an error
    one by one: of all instances of the bag, with the machine as it is, the one with the least loss over all
    bags becomes its prototype. Neither step raises the objective; rounds end when no prototype changes.

    ``instance_scores`` are those of bags with one instance: :math:`\sum_k w_k \exp(-\gamma |x - z_k|^2) + b`.

    It costs O(n_instances^2 * n_features) for similarities, of which n_bags * n_instances numbers are kept,
    and O(n_bags * n_instances) for a round besides the machine.

    *Differences from* [1]_. (1) All prototypes are kept at the end; in the paper those with small weights
    may go. (2) There is an intercept, with a small penalty.

    References
    ----------
    .. [1] Z. Fu, A. Robles-Kelly, J. Zhou: MILIS: Multiple instance learning with instance selection. IEEE
       Transactions on Pattern Analysis and Machine Intelligence 33(5), 2011. First as Z. Fu, A. Robles-Kelly:
       An instance selection approach to multiple instance learning. CVPR 2009.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> data = make_miml(n_bags=120, random_state=0)
    >>> model = MILIS().fit(data.bags, data.Y)
    >>> bool((model.predict(data.bags) == data.Y).mean() > 0.9)
    True
    >>> bool((model.coef_ != 0).sum(axis=1).max() <= 120)  # one for each bag
    True
    """

    traits = Traits(instances="model")

    _parameters = {
        "gamma": MACHINE["gamma"],
        "density_gamma": (Choice("same"), Number(above=0)),
        "C": MACHINE["C"],
        "max_iter": Whole(1),
        "scaling": SCALING,
        "n_jobs": JOBS,
    }

    def __init__(
        self, gamma="scale", *, density_gamma="same", C=10.0, max_iter=10, scaling="standard", n_jobs=None
    ):
        self.gamma = gamma
        self.density_gamma = density_gamma
        self.C = C
        self.max_iter = max_iter
        self.scaling = scaling
        self.n_jobs = n_jobs

    def _learn(self, X, offsets, Y):
        self.gamma_ = resolve_gamma(self.gamma, X)
        beta = self.gamma_ if self.density_gamma == "same" else self.density_gamma
        S = bag_similarities(X, offsets, X, self.gamma_)
        first = first_prototypes(negative_density(X, offsets, Y, beta), offsets, Y)
        settings = {"C": float(self.C), "max_iter": self.max_iter}
        varies = np.flatnonzero(np.isnan(self.constant_scores_))
        tasks = [(Y[:, l].copy(), first[:, l].copy(), S, offsets, settings) for l in varies]
        found = dict(zip(varies.tolist(), run(learn_label, tasks, self.n_jobs)))
        machines = {l: (f["rows"], f["weights"], f["intercept"]) for l, f in found.items()}
        self._keep_prototypes(X, machines, Y.shape[1])
        n_labels = Y.shape[1]
        self.objective_ = [np.array(found[l]["objective"] if l in found else []) for l in range(n_labels)]
        self.n_iter_ = max(len(history) for history in self.objective_)
        stuck = sum(not f["lowest"] for f in found.values())
        if stuck:
            warn(
                f"the machines of {stuck} of {n_labels} labels are not the best ones for C={self.C:g}: "
                "similarities differ too little for so large a penalty; lower it",
                ConvergenceWarning,
            )
        restless = sum(not f["at_rest"] for f in found.values())
        if restless and self.max_iter > 1:
            warn(
                f"{restless} of {n_labels} labels stopped at max_iter={self.max_iter} with prototypes "
                "still changing; raise it, or lower C",
                ConvergenceWarning,
            )


def negative_density(X, offsets, Y, gamma):
    """Mean ``exp(-gamma |x - u|^2)`` of every instance x over the instances u of bags without each label."""
    outside = np.repeat(1.0 - Y, np.diff(offsets), axis=0)
    counts = np.maximum(outside.sum(axis=0), 1.0)
    return kernel_products("rbf", gamma, X, X, outside) / counts


def first_prototypes(density, offsets, Y):
    """Of every bag and label the instance where negatives are densest, rarest if the bag has the label."""
    signs = np.repeat(1.0 - 2.0 * Y, np.diff(offsets), axis=0)
    return segment_argmax(signs * density, offsets)


def learn_label(y, rows, S, offsets, settings):
    """Machine and prototypes in turn for one label; ``S`` (n_bags, n_instances) are all similarities."""
    t = np.where(y > 0, 1.0, -1.0)
    rows = rows.copy()
    objective, at_rest = [], False
    for turn in range(settings["max_iter"]):
        w, b, value, lowest = _machine(S[:, rows], t, settings["C"])
        objective.append(value)
        solution = {"rows": rows.copy(), "weights": w, "intercept": b}
        if turn + 1 == settings["max_iter"]:
            break
        at_rest = not exchange(rows, S, offsets, t, w, b)
        if at_rest:
            break
    return solution | {"objective": objective, "at_rest": at_rest, "lowest": lowest}


def exchange(rows, S, offsets, t, w, b):
    """Give each bag with an error its best prototype, machine as it is; change ``rows``, say if any."""
    f = S[:, rows] @ w + b
    loss = _loss(t * f)
    changed = False
    for k in np.flatnonzero(w):
        if t[k] * f[k] >= 1.0:
            continue
        block = S[:, offsets[k] : offsets[k + 1]]
        F = f[:, None] + w[k] * (block - S[:, rows[k], None])
        losses = _loss(t[:, None] * F)
        best = int(losses.argmin())
        if losses[best] < loss - _LOWER * max(loss, 1.0):
            rows[k], f, loss = offsets[k] + best, F[:, best], losses[best]
            changed = True
    return changed


def _loss(margins):
    return np.square(np.maximum(0.0, 1.0 - margins)).sum(axis=0)


def _machine(S, t, C):
    """The linear machine with squared errors by Newton's method: weights, intercept, objective, if lowest.

    The Hessian is one plus a matrix of the rank of the bags with an error, so a step solves for those alone.
    It is exact as soon as these stay the same, which takes a handful of steps.
    """
    A = np.column_stack([S, np.full(len(S), _SCALE)])
    w, f = np.zeros(A.shape[1]), np.zeros(len(A))
    value = C * len(A)
    for _ in range(_STEPS):
        wrong = np.flatnonzero(t * f < 1.0)
        B = A[wrong]
        gradient = w - 2.0 * C * (B.T @ (t[wrong] - f[wrong]))
        M = B @ B.T
        M[np.diag_indices_from(M)] += 0.5 / C
        move = B.T @ solve(M, B @ gradient, assume_a="pos") - gradient
        along, slope, step = A @ move, gradient @ move, 1.0
        while step >= 1e-6:
            new = 0.5 * float(np.square(w + step * move).sum()) + C * float(_loss(t * (f + step * along)))
            if new <= value + 1e-4 * step * slope:
                break
            step *= 0.5
        else:
            break  # rounding is all that is left
        fall, value = value - new, new
        w, f = w + step * move, f + step * along
        if fall <= _TOL * value:
            break
    wrong = np.flatnonzero(t * f < 1.0)
    gradient = w - 2.0 * C * (A[wrong].T @ (t[wrong] - f[wrong]))
    lowest = bool(np.abs(gradient).max() <= _FLAT * max(float(np.abs(w).max()), 1.0))
    return w[:-1], _SCALE * float(w[-1]), value, lowest
