"""What comes out: shapes, decisions, annotations, and independence of order."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.utils import get_tags

from bagwise.bags import Bags
from bagwise.base import MIMLClassifier
from bagwise.checks.sample import fitted, sample_bags
from bagwise.compute.threads import forced_threads
from bagwise.inspection import scores_and_labels
from bagwise.models import MIMLDummy


def check_bags_output_shapes(estimator: MIMLClassifier) -> None:
    """Every method of the contract returns what the contract says."""
    model, bags, Y = fitted(estimator)
    scores = model.decision_function(bags)
    assert scores.shape == Y.shape and np.issubdtype(scores.dtype, np.floating)
    F = model.instance_scores(bags)
    assert F.shape == (bags.n_instances, 3)
    keys = model.key_instances(bags, k=2)
    assert keys.shape == (len(bags), 3, 2)
    inside = (keys >= bags.offsets[:-1, None, None]) & (keys < bags.offsets[1:, None, None])
    assert (inside | (keys == -1)).all(), "a key instance lies outside its bag"
    assert ((keys == -1)[:, 0, 1] == (bags.sizes < 2)).all(), "-1 must mark bags with too few instances"
    assert hasattr(model, "predict_proba") == model.traits.probabilities
    if model.traits.probabilities:
        proba = model.predict_proba(bags)
        assert proba.shape == Y.shape and (proba >= 0).all() and (proba <= 1).all()
    assert_array_equal(model.classes_, np.tile([0, 1], (3, 1)))


def check_bags_decisions(estimator: MIMLClassifier) -> None:
    """``predict``, ``scores_and_labels`` and what the command line goes by decide alike."""
    model, bags, Y = fitted(estimator)
    P, scores = model.predict(bags), model.decision_function(bags)
    assert P.dtype == Y.dtype, f"predict gives {P.dtype}, the training labels were {Y.dtype}"
    assert set(np.unique(P)) <= {0, 1}, "predict gives something other than 0 and 1"
    own_scores, own = model.scores_and_labels(bags)
    assert_array_equal(own, P, err_msg="predict and scores_and_labels decide differently")
    assert_array_equal(own_scores, scores, err_msg="scores_and_labels gives other scores")
    seen_scores, seen = scores_and_labels(model, bags)
    assert_array_equal(seen, P, err_msg="predict and the command line decide differently")
    assert_array_equal(seen_scores, scores)
    if type(model)._predict is MIMLClassifier._predict:
        assert_array_equal(P, scores > 0, err_msg="predict is not decision_function > 0")


def check_bags_annotate(estimator: MIMLClassifier) -> None:
    """Annotation stays within the labels, and within the bag's set when that is known."""
    model, bags, Y = fitted(estimator)
    free = model.annotate(bags)
    assert free.shape == (bags.n_instances,) and ((free >= -1) & (free < 3)).all()
    Y_known = Y.copy()
    Y_known[0] = 0
    bound = model.annotate(bags, Y_known)
    has = bound >= 0
    assert Y_known[bags.index[has], bound[has]].all(), "a label outside the bag's set"
    assert (bound[bags.index == 0] == -1).all(), "a bag without labels has no labelled instance"
    if model.traits.probabilities:
        labels, Q = model.annotate(bags, Y_known, return_proba=True)
        assert_array_equal(labels, bound)
        assert (Q[Y_known[bags.index] == 0] == 0).all(), "probability outside the bag's set"
        assert (Q.sum(axis=1) <= 1 + 1e-9).all()


def check_bags_order_of_instances(estimator: MIMLClassifier) -> None:
    """A bag is a set: the order of its instances changes nothing."""
    model, bags, _ = fitted(estimator)
    rng = np.random.default_rng(1)
    order = np.concatenate(
        [rng.permutation(np.arange(a, b)) for a, b in zip(bags.offsets[:-1], bags.offsets[1:])]
    )
    shuffled = Bags(bags.X[order], bags.offsets)
    message = "scores depend on the order of instances within a bag"
    pairs = [
        (model.decision_function(shuffled), model.decision_function(bags)),
        (model.instance_scores(shuffled), model.instance_scores(bags)[order]),
    ]
    for got, expected in pairs:
        assert_allclose(got, expected, rtol=1e-7, atol=1e-8, err_msg=message)


def check_bags_order_of_bags(estimator: MIMLClassifier) -> None:
    """Bags are predicted independently: in another order, or one at a time, a bag gets the same scores."""
    model, bags, _ = fitted(estimator)
    together = model.decision_function(bags)
    order = np.random.default_rng(2).permutation(len(bags))
    message = "scores of a bag depend on the bags around it"
    shuffled = model.decision_function(bags[order])
    assert_allclose(shuffled, together[order], rtol=1e-7, atol=1e-8, err_msg=message)
    alone = np.vstack([model.decision_function(bags[i : i + 1]) for i in range(8)])
    assert_allclose(alone, together[:8], rtol=1e-6, atol=1e-8, err_msg=message)


def check_bags_label_permutation(estimator: MIMLClassifier) -> None:
    """Renaming labels renames the output and nothing else, unless the traits say otherwise."""
    if not estimator.traits.label_equivariant:
        return
    model, bags, Y = fitted(estimator)
    order = np.array([2, 0, 1])
    facts = {"label": np.argsort(order)[bags.instance_info["label"]]}
    permuted = Bags(bags.X, bags.offsets, instance_info=facts)
    first = model.decision_function(bags)
    second = clone(estimator).fit(permuted, Y[:, order]).decision_function(bags)
    assert_allclose(second, first[:, order], rtol=1e-3, atol=1e-4, err_msg="labels are not treated alike")


# ----------------------------------------------------------------------
# What is learned: more than the dummy knows, the same for the same seed and any number of jobs


def check_bags_beats_chance(estimator: MIMLClassifier) -> None:
    """On well-separated instances a model that claims to learn errs at most half as often as the dummy."""
    if get_tags(estimator).classifier_tags.poor_score:
        return
    bags, Y = sample_bags(n_bags=80)
    wrong, chance = (
        (model.fit(bags[:60], Y[:60]).predict(bags[60:]) != Y[60:]).mean()
        for model in (estimator, MIMLDummy())
    )
    assert wrong <= 0.5 * chance, f"Hamming loss {wrong:.3f} on easy bags; without looking it is {chance:.3f}"


def check_bags_degenerate_labels(estimator: MIMLClassifier) -> None:
    """A label that is always or never there neither stops the fit nor gives NaN."""
    bags, Y = sample_bags(n_labels=4)
    z = bags.instance_info["label"]
    Y[:, 0], Y[:, 1] = 1, 0
    known = Bags(bags.X, bags.offsets, instance_info={"label": np.where(z == 1, 0, z)})
    estimator.fit(known, Y)
    assert np.isfinite(estimator.decision_function(bags)).all(), "NaN or infinite scores for a constant label"


def check_bags_constant_feature(estimator: MIMLClassifier) -> None:
    """A feature that never changes has no say; its spread is rounding noise, not a scale to divide by."""
    bags, Y = sample_bags()
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    scores = []
    for value in (0.1, 0.1 + 1e-9):
        wider = bags.with_X(np.column_stack([bags.X, np.full(bags.n_instances, value)]))
        scores.append(clone(estimator).fit(wider, Y).decision_function(wider))
    scale = max(1.0, float(np.abs(scores[0]).max()))
    message = "a constant feature moves the scores"
    assert_allclose(scores[1], scores[0], rtol=1e-3, atol=1e-3 * scale, err_msg=message)


def check_bags_same_seed(estimator: MIMLClassifier) -> None:
    """The same seed gives the same model to the last bit, however loops are cut for threads."""
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    model, bags, Y = fitted(estimator)  # by one thread
    with forced_threads(1):
        one = model.decision_function(bags)
    with forced_threads(3):
        three = clone(estimator).fit(bags, Y).decision_function(bags)
    assert_array_equal(three, one, err_msg="the result depends on the number of threads")


def check_bags_n_jobs(estimator: MIMLClassifier) -> None:
    """One job or two, the result is the same to the last bit."""
    if "n_jobs" not in estimator.get_params(deep=False):
        return
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    if estimator.n_jobs not in (None, 1):  # None is one job
        estimator.set_params(n_jobs=1)
    model, bags, Y = fitted(estimator)
    two = clone(estimator).set_params(n_jobs=2).fit(bags, Y).decision_function(bags)
    assert_array_equal(two, model.decision_function(bags), err_msg="the result depends on n_jobs")
