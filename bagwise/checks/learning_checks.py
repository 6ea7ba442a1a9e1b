"""What is learned: more than the dummy knows, the same for the same seed and any number of jobs."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.utils import get_tags

from bagwise.bags import Bags
from bagwise.base import MIMLClassifier
from bagwise.checks.sample import fitted, sample_bags
from bagwise.compute.threads import forced_threads
from bagwise.models import MIMLDummy


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
