"""The checks catch what they are for: each breaks one promise of an estimator that keeps the others."""

import warnings

import numpy as np
import pytest
from scipy import sparse

from bagwise.base import MIMLClassifier, Traits
from bagwise.base.parameters import Number
from bagwise.checks import check_scikit_learn, input_checks, output_checks
from bagwise.checks.sample import fitted, remembered_fits
from bagwise.compute.threads import in_threads
from bagwise.models import MIMLDummy


class Good(MIMLClassifier):
    """Means of the instances, compared with the mean of the bags that carry a label."""

    traits = Traits(instances="singleton")
    _parameters = {"alpha": Number(0)}

    def __init__(self, alpha=1.0):
        self.alpha = alpha

    def _means(self, bags):
        X = bags.X.toarray() if bags.is_sparse else bags.X
        return np.array([X[a:b].mean(axis=0) for a, b in zip(bags.offsets[:-1], bags.offsets[1:])])

    def _fit(self, bags, Y):
        M = np.column_stack([self._means(bags), np.ones(len(bags))])
        penalty = self.alpha * np.eye(M.shape[1])
        self.coef_ = np.linalg.solve(M.T @ M + penalty, M.T @ (2.0 * Y - 1.0))

    def _scores(self, bags):
        return np.column_stack([self._means(bags), np.ones(len(bags))]) @ self.coef_


class WritesIntoItsInput(Good):
    def _fit(self, bags, Y):
        super()._fit(bags, Y)
        (bags.X.data if bags.is_sparse else bags.X)[0] += 1.0


class LooksAtTheStorage(Good):
    def _fit(self, bags, Y):
        super()._fit(bags, Y)
        self.coef_ = self.coef_ * (1.5 if sparse.issparse(bags.X) else 1.0)


class LooksAtThePrecision(Good):
    def _fit(self, bags, Y):
        super()._fit(bags, Y)
        self.coef_ = self.coef_ * (1.5 if bags.dtype == np.float32 else 1.0)


class CountsThreads(Good):
    def _fit(self, bags, Y):
        super()._fit(bags, Y)
        self.coef_ = self.coef_ * len(in_threads(lambda first, last: None, len(bags), smallest=10**9))


class LooksAtOtherBags(Good):
    def _scores(self, bags):
        return super()._scores(bags) - super()._scores(bags).mean(axis=0)


class LooksAtTheOrder(Good):
    def _means(self, bags):
        return np.asarray(bags.X)[bags.offsets[:-1]]


class LearnsNothing(Good):
    def _scores(self, bags):
        return np.zeros((len(bags), self.coef_.shape[1])) - 1.0


class AnswersBeforeFit(Good):
    def coefficients(self):
        return getattr(self, "coef_", None)


class KeepsItsLastFit(Good):
    def _fit(self, bags, Y):
        before = getattr(self, "coef_", 0.0)
        super()._fit(bags, Y)
        self.coef_ = self.coef_ + before


class ChangesItsParameters(Good):
    def _fit(self, bags, Y):
        super()._fit(bags, Y)
        self.alpha = 2.0


class PrefersTheFirstLabel(Good):
    def _scores(self, bags):
        return super()._scores(bags) + np.eye(self.coef_.shape[1])[0]


BROKEN = [
    (WritesIntoItsInput, input_checks.check_bags_read_only),
    (LooksAtTheStorage, input_checks.check_bags_sparse),
    (LooksAtThePrecision, input_checks.check_bags_float32),
    (CountsThreads, output_checks.check_bags_same_seed),
    (LooksAtOtherBags, output_checks.check_bags_order_of_bags),
    (LooksAtTheOrder, output_checks.check_bags_order_of_instances),
    (LearnsNothing, output_checks.check_bags_beats_chance),
    (AnswersBeforeFit, input_checks.check_bags_not_fitted),
    (PrefersTheFirstLabel, output_checks.check_bags_label_permutation),
]


@pytest.mark.parametrize(("cls", "check"), BROKEN, ids=lambda value: value.__name__)
def test_a_broken_promise_is_caught(cls, check):
    check(Good())
    with pytest.raises((AssertionError, ValueError)):
        check(cls())


def test_values_that_no_rule_takes_are_tried():
    tried = dict.fromkeys(repr(value) for _, value in input_checks._bad_values(Good()))
    assert {"nan", "inf", "-inf", "-1", "'seven'"} <= set(tried)
    input_checks.check_bags_parameters(Good())


def test_checks_that_only_look_share_a_fit():
    first, second = fitted(Good(2.0))[0], fitted(Good(2.0))[0]
    assert first is second and fitted(Good(3.0))[0] is not first
    assert fitted(MIMLDummy())[0] is not first


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("cls", "says"), [(KeepsItsLastFit, "check_fit_idempotent"), (ChangesItsParameters, "alpha")]
)
def test_scikit_learn_sees_what_fits_do_although_equal_ones_are_made_once(cls, says, monkeypatch):
    learned = []
    learn = Good._fit
    monkeypatch.setattr(Good, "_fit", lambda self, *given: learned.append(self) or learn(self, *given))
    check_scikit_learn(Good())
    assert 10 < len(learned) < 60  # of 80 that are asked for
    with pytest.raises(AssertionError, match=says):
        check_scikit_learn(cls())


def test_a_fit_is_made_once_for_an_equal_object_with_equal_bags():
    bags, Y = fitted(Good())[1:]

    class Counting(Good):
        fits = 0

        def _fit(self, bags, Y):
            Counting.fits += 1
            super()._fit(bags, Y)
            if Counting.fits == 1:
                warnings.warn("thin ice", stacklevel=1)

    with remembered_fits(Counting):
        for _ in range(2):
            with pytest.warns(UserWarning, match="thin ice"):
                model = Counting().fit(bags, Y)
            np.testing.assert_array_equal(model.coef_, Good().fit(bags, Y).coef_)
        assert Counting.fits == 1
        Counting(2.0).fit(bags, Y)  # another setting
        Counting().fit(bags[1:], Y[1:])  # other bags
        Counting().fit(bags, 1 - Y)  # other labels
        model.fit(bags, Y)  # an object that has learned before
        assert Counting.fits == 5
    Counting().fit(bags, Y)
    assert Counting.fits == 6
