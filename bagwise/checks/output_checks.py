"""What comes out: shapes, decisions, annotations, and independence of order."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from bagwise.bags import Bags
from bagwise.base import MIMLClassifier
from bagwise.checks.sample import fitted
from bagwise.inspection import scores_and_labels


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
