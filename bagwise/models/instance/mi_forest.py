"""MIForest: a random forest of instances whose labels in positive bags are drawn anew while it cools down."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import sklearn
from scipy import sparse
from scipy.special import expit
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import check_random_state

try:  # not public: see `_inside_is_known`
    from sklearn.tree._criterion import Gini
    from sklearn.tree._splitter import BestSplitter
    from sklearn.tree._tree import DepthFirstTreeBuilder, Tree
except ImportError:
    Gini = BestSplitter = DepthFirstTreeBuilder = Tree = None

from bagwise.base import MIMLClassifier, Traits
from bagwise.base.parameters import JOBS, Choice, Flag, Number, Seed, Whole
from bagwise.compute.scaling import Scaling, in_single, single_scaling
from bagwise.compute.segment import segment_argmax, segment_max
from bagwise.compute.threads import in_threads
from bagwise.models._shared.scores import constant_scores, each_label, put_constants
from bagwise.utils.arrays import check_memory


class MIForest(MIMLClassifier):
    r"""Random forest over instances that learns by annealing which instances make a bag positive.

    All instances of negative bags are negative. In positive bags the label of an instance is random: every
    tree draws its own labels, by probabilities that follow the votes of the forest before and become sure as
    the temperature falls; the best instance of a positive bag is always positive. Several labels are learned
    one against the rest.

    Parameters
    ----------
    n_trees : int, default=50
        Trees of the forest of each label.
    max_depth : int or None, default=20
        Limit on the depth of trees.
    max_features : {"sqrt", "log2"}, float or None, default="sqrt"
        Features tried at each split: the root or the logarithm of their number, a share of them, or all.
    min_samples_leaf : int, default=1
        Fewest instances of a leaf.
    cooling : float, default=0.5
        The temperature after m refits is ``exp(-cooling * m)``.
    last_temperature : float, default=0.005
        The forest is refitted as long as the temperature is at least this: 11 times with the defaults.
    votes : {"all", "unseen"}, default="all"
        Which trees tell the margin of a training instance: all, or those whose bootstrap lacks it. The
        latter err on the side of negative, and drawn labels soon are negative all but one in each bag.
    balanced : bool, default=True
        Whether positive and negative instances get the same total weight in every tree. Without it positive
        labels, once few, become fewer in every refit.
    n_jobs : int, optional
        Threads that grow and ask trees.
    random_state : int, RandomState instance or None, default=None
        Seed of samples, splits and drawn labels.

    Attributes
    ----------
    forests_ : list of list of DecisionTreeClassifier
        Trees of every label; none for a label that never changes in training.
    temperatures_ : ndarray of shape (n_refits,)
        The temperatures.
    positive_probabilities_ : list of ndarray
        For every label the probability, before the last refit, that each training instance is positive: 0
        in negative bags, 1 for the best instance of a positive bag. Empty for a constant label.
    constant_scores_ : ndarray of shape (n_labels,)
        1 for a label that all training bags carry, -1 for one that none does, NaN for others. It is the
        score of such a label everywhere.

    Notes
    -----
    The forest F and the distributions p of the labels of instances in positive bags minimise

    .. math:: \sum_i \sum_k p_i(k)\, \ell(F_k(x_i)) - T \sum_i H(p_i)

    in turn, with :math:`F_k` the margin of the votes for class k, H the entropy and T the temperature [1]_.
    For the logistic loss :math:`\ell(m) = \log(1 + e^{-m})` and the margin m of the positive class the best p
    is :math:`p_i(+) = 1 / (1 + e^{-m_i / T})`.

    The score of an instance is the margin of its votes, from -1 to 1, and that of a bag the score of its best
    instance; ``predict_proba`` is the share of votes for it, half a vote added on either side. Trees ask for
    order alone: features are not scaled, but for those whose values single precision would not tell apart.
    Sparse instances are made dense.

    One fit grows up to 12 forests per label: :math:`O(12\, T N \log^2 N \sqrt d)` for T trees, N instances
    and d features. Bags of one instance leave nothing to draw: the forest is then that of scikit-learn,
    without weights of classes if ``balanced`` is not set.

    *Differences from* [1]_. (1) A tree keeps its bootstrap, its seed and the random numbers that decide on
    labels in all refits: a tree whose labels are the same need not be grown again, and drawn labels change
    only where probabilities do. (2) Votes are soft: the share of a leaf's training instances. (3) Classes are
    weighted, and margins come from all trees, see ``balanced`` and ``votes``. (4) Bags of several labels
    are learned one label at a time.

    References
    ----------
    .. [1] C. Leistner, A. Saffari, H. Bischof: MIForests: multiple-instance learning with randomized trees.
       ECCV 2010.

    Examples
    --------
    >>> from bagwise.datasets import make_miml
    >>> data = make_miml(n_bags=60, random_state=0)
    >>> model = MIForest(20, random_state=0).fit(data.bags, data.Y)
    >>> bool((model.predict(data.bags) == data.Y).mean() > 0.9)
    True
    >>> model.temperatures_.round(3).tolist()
    [1.0, 0.607, 0.368, 0.223, 0.135, 0.082, 0.05, 0.03, 0.018, 0.011, 0.007]
    """

    traits = Traits(instances="model", probabilities=True)

    _parameters = {
        "n_trees": Whole(1),
        "max_depth": (Choice(None), Whole(1)),
        "max_features": (Choice("sqrt", "log2", None), Number(above=0, high=1)),
        "min_samples_leaf": Whole(1),
        "cooling": Number(above=0),
        "last_temperature": Number(above=0),
        "votes": Choice("all", "unseen"),
        "balanced": Flag(),
        "n_jobs": JOBS,
        "random_state": Seed(),
    }

    def __init__(
        self,
        n_trees=50,
        *,
        max_depth=20,
        max_features="sqrt",
        min_samples_leaf=1,
        cooling=0.5,
        last_temperature=0.005,
        votes="all",
        balanced=True,
        n_jobs=None,
        random_state=None,
    ):
        self.n_trees = n_trees
        self.max_depth = max_depth
        self.max_features = max_features
        self.min_samples_leaf = min_samples_leaf
        self.cooling = cooling
        self.last_temperature = last_temperature
        self.votes = votes
        self.balanced = balanced
        self.n_jobs = n_jobs
        self.random_state = random_state

    @classmethod
    def _test_params(cls):
        return {"n_trees": 10, "last_temperature": 0.05, "random_state": 0}

    def _fit(self, bags, Y):
        rng = check_random_state(self.random_state)
        # drawn as RandomForestClassifier does; the same for all labels, whose order then does not matter
        seeds = [int(rng.randint(np.iinfo(np.int32).max)) for _ in range(self.n_trees)]
        n_refits = max(0, int(np.floor(-np.log(self.last_temperature) / self.cooling)) + 1)
        self.temperatures_ = np.exp(-self.cooling * np.arange(n_refits))
        share = self.max_features
        settings = {
            "max_depth": self.max_depth,
            "max_features": float(share) if isinstance(share, (int, float)) else share,
            "min_samples_leaf": self.min_samples_leaf,
        }
        plan = Plan(seeds, settings, self.temperatures_, self.balanced, self.votes == "unseen", self.n_jobs)
        self.constant_scores_ = constant_scores(Y)
        self._scaling = single_scaling(bags.X)
        X = as_tree_input(bags.X, self._scaling)
        found = each_label(anneal, Y, None, X, bags.offsets, plan)
        self.forests_ = [[] if f is None else f[0] for f in found]
        self.positive_probabilities_ = [np.empty(0) if f is None else f[1] for f in found]

    def _instance_scores(self, bags):
        X = as_tree_input(bags.X, self._scaling)
        margins = [
            2.0 * mean_votes(trees, X, self.n_jobs) - 1.0 if trees else np.zeros(bags.n_instances)
            for trees in self.forests_
        ]
        return put_constants(np.column_stack(margins), self.constant_scores_)

    def _scores(self, bags):
        return segment_max(self._instance_scores(bags), bags.offsets)

    def _probabilities(self, bags):
        votes = (1.0 + self._scores(bags)) / 2.0
        return (self.n_trees * votes + 0.5) / (self.n_trees + 1.0)  # half a vote for either side


def as_tree_input(X: Any, scaling: Scaling) -> np.ndarray:
    """Instances as scikit-learn's trees want them unchecked: dense and in single precision.

    Trees of sparse instances would break ties between splits otherwise than those of the same dense ones.

    Examples
    --------
    >>> as_tree_input(sparse.csr_array(np.eye(2)), single_scaling(np.eye(2)))
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    if sparse.issparse(X):
        what = f"a dense copy of {X.shape[0]:,} instances with {X.shape[1]:,} features"
        check_memory(4.0 * X.shape[0] * X.shape[1], what, "select features first")
        return in_single(X, scaling).toarray()
    return np.ascontiguousarray(in_single(X, scaling))


# ----------------------------------------------------------------------
# Deterministic annealing of the labels of instances, round by round with a forest grown on them


class Plan(NamedTuple):
    """What all labels share."""

    seeds: list[int]  # of the trees
    settings: dict[str, Any]  # of the trees
    temperatures: np.ndarray
    balanced: bool  # whether both classes weigh the same in the sample of a tree
    unseen: bool  # whether margins come from trees that have not seen an instance
    n_jobs: int | None


def anneal(y: np.ndarray, X: np.ndarray, offsets: np.ndarray, plan: Plan) -> tuple[list[Any], np.ndarray]:
    """Forest of one label, and the probabilities from which its trees drew their labels."""
    n, sizes = X.shape[0], np.diff(offsets)
    inside = np.flatnonzero(np.repeat(y > 0, sizes))  # instances of positive bags
    starts = np.concatenate([[0], np.cumsum(sizes[y > 0])])
    p = np.zeros(n)
    p[inside] = 1.0
    samples = [Sample.of(seed, n, inside) for seed in plan.seeds]
    forest = _grow(X, p, samples, [], plan)
    if len(inside) == len(starts) - 1:  # bags of one instance: nothing to draw
        return forest, p
    rows = X[inside]
    seen = np.array([sample.counts[inside] > 0 for sample in samples])
    in_bag = seen if plan.unseen else np.zeros_like(seen)
    for temperature in plan.temperatures:
        F = _votes_out_of_bag(in_bag, forest, rows, plan.n_jobs)
        p[inside] = expit((2.0 * F - 1.0) / temperature)
        p[inside[segment_argmax(F, starts)]] = 1.0
        forest = _grow(X, p, samples, forest, plan)
    return forest, p


class Sample(NamedTuple):
    """What a tree sees: how often each instance, and the numbers that decide on labels in positive bags."""

    counts: np.ndarray
    numbers: np.ndarray  # below the probability of an instance: it is positive for this tree
    labels: np.ndarray  # those of the tree as it is now

    @classmethod
    def of(cls, seed: int, n: int, inside: np.ndarray) -> Sample:
        """Bootstrap as scikit-learn draws it; numbers for the instances of positive bags."""
        counts = np.bincount(np.random.RandomState(seed).randint(0, n, n), minlength=n)
        numbers = np.zeros(n)
        numbers[inside] = np.random.default_rng(seed).random(len(inside))
        return cls(counts, numbers, np.zeros(n))


def _grow(X: Any, p: np.ndarray, samples: list[Sample], forest: list[Any], plan: Plan) -> list[Any]:
    """Every tree anew on its sample, with labels of its own by the probabilities p.

    A tree none of whose labels has changed would be the same again, and stays.
    """

    def some(first: int, last: int) -> list[Any]:
        trees = []
        for t in range(first, last):
            counts, numbers, before = samples[t]
            labels = (numbers < p).astype(np.float64)
            if forest and np.array_equal(labels[counts > 0], before[counts > 0]):
                trees.append(forest[t])
                continue
            before[:] = labels
            weights = counts.astype(np.float64)
            positive, total = weights @ labels, weights.sum()
            if plan.balanced and 0 < positive < total:
                # whole numbers, in which sums over instances are exact; trees mind no common factor
                weights *= np.where(labels > 0, total - positive, positive)
            trees.append(grow_tree(X, labels, weights, plan.seeds[t], plan.settings))
        return trees

    parts = in_threads(some, len(plan.seeds), plan.n_jobs)
    return [tree for trees in parts for tree in trees]


def _votes_out_of_bag(in_bag: np.ndarray, trees: list[Any], X: Any, n_jobs: int | None) -> np.ndarray:
    """Mean vote of the trees for which an instance is out of bag; of all trees where it is so for none."""
    votes = np.empty((len(trees), X.shape[0]))

    def some(first: int, last: int) -> None:
        for t in range(first, last):
            votes[t] = votes_of(trees[t], X)

    in_threads(some, len(trees), n_jobs)
    allowed = ~in_bag | in_bag.all(axis=0)
    return (votes * allowed).sum(axis=0) / allowed.sum(axis=0)


def mean_votes(trees: list[Any], X: Any, n_jobs: int | None) -> np.ndarray:
    """Mean over trees of the share of positive training instances in the leaf of each row."""
    out = np.zeros(X.shape[0])

    def some(first: int, last: int) -> None:
        rows = X[first:last]
        for tree in trees:
            out[first:last] += votes_of(tree, rows)

    in_threads(some, X.shape[0], n_jobs, smallest=1024)
    return out / len(trees)


# ----------------------------------------------------------------------
# Trees of one forest after another on the same instances, without a check of these for every tree
#
# On a few hundred bags `DecisionTreeClassifier.fit` spends two fifths of its time on checks of
# parameters, labels and weights, which annealing makes itself and which are right. What grows a tree
# inside of it is not public, though: it is used with the versions of scikit-learn in which it was read,
# once it has grown the tree of `fit` on a small problem. Elsewhere `fit` grows all trees.


_KNOWN = ("1.6.", "1.7.", "1.8.", "1.9.")  # in another one a part that is used wrongly may end the process


def grow_tree(
    X: np.ndarray, labels: np.ndarray, weights: np.ndarray, seed: int, settings: dict[str, Any]
) -> DecisionTreeClassifier:
    """Tree of instances in single precision, with labels 0 and 1, both of them present."""
    grow = _grown_inside if _inside_is_known() else _grown_by_fit
    return grow(X, labels, weights, seed, settings)


def votes_of(tree: DecisionTreeClassifier, X: np.ndarray) -> np.ndarray:
    """Share of positive training instances in the leaf of each row."""
    return tree.predict_proba(X, check_input=False)[:, 1]


def _grown_by_fit(
    X: np.ndarray, labels: np.ndarray, weights: np.ndarray, seed: int, settings: dict[str, Any]
) -> DecisionTreeClassifier:
    tree = DecisionTreeClassifier(random_state=seed, **settings)
    return tree.fit(X, labels, sample_weight=weights, check_input=False)


def _grown_inside(
    X: np.ndarray, labels: np.ndarray, weights: np.ndarray, seed: int, settings: dict[str, Any]
) -> DecisionTreeClassifier:
    """What `fit` does after its checks."""
    tree = DecisionTreeClassifier(random_state=seed, **settings)
    tree.n_features_in_, tree.n_outputs_ = X.shape[1], 1
    tree.classes_, tree.n_classes_ = np.array([0.0, 1.0]), np.intp(2)
    share, d = tree.max_features, X.shape[1]
    tried = {"sqrt": np.sqrt(d), "log2": np.log2(d), None: d}
    tree.max_features_ = max(1, int(tried[share] if share in tried else share * d))
    classes, leaf = np.array([2], dtype=np.intp), tree.min_samples_leaf
    depth = np.iinfo(np.int32).max if tree.max_depth is None else tree.max_depth
    rng = np.random.RandomState(seed)
    splitter = BestSplitter(Gini(1, classes), tree.max_features_, leaf, 0.0, rng, None)
    tree.tree_ = Tree(X.shape[1], classes, 1)
    builder = DepthFirstTreeBuilder(splitter, max(2, 2 * leaf), leaf, 0.0, depth, 0.0)
    builder.build(tree.tree_, X, labels[:, None], weights, None)
    return tree


@cache
def _inside_is_known() -> bool:
    """Whether the inner parts of this scikit-learn grow the trees that `fit` grows."""
    if not sklearn.__version__.startswith(_KNOWN):
        return False
    rng = np.random.RandomState(0)
    X, weights = rng.normal(size=(40, 5)).astype(np.float32), rng.randint(0, 3, 40).astype(np.float64)
    problem = X, (X[:, 0] + X[:, 1] > 0).astype(np.float64), weights, 1
    for settings in ({"max_depth": None, "max_features": "sqrt"}, {"max_depth": 3, "min_samples_leaf": 2}):
        try:
            ours = _grown_inside(*problem, settings)
            same = _state(ours) == _state(_grown_by_fit(*problem, settings))
        except Exception:  # whatever has changed: there is another way
            return False
        if not same:
            return False
    return True


def _state(tree: DecisionTreeClassifier) -> list[Any]:
    """All that a fitted tree holds, in a form that can be compared."""
    inner = tree.tree_.__getstate__()
    arrays = [inner["nodes"].tobytes(), inner["values"].tobytes()]
    return [*arrays, {k: np.asarray(v).tolist() for k, v in sorted(vars(tree).items()) if k != "tree_"}]
