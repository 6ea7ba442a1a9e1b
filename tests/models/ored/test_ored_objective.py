"""Posterior, objective and solvers of ORed logistic regression against enumeration and finite differences."""

import numpy as np
import pytest
from ored_problems import enumerate_bag, random_problem
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import log_expit, logsumexp
from sklearn.exceptions import ConvergenceWarning

from bagwise import Bags
from bagwise.errors import DataError
from bagwise.models import ORedLogisticRegression
from bagwise.models.ored.fit import UnionLikelihood


@pytest.mark.parametrize("background", [False, True])
def test_posterior_of_the_fitted_model_is_exact(background):
    bags, Y = random_problem(empty=background)
    model = ORedLogisticRegression(background=background).fit(bags, Y)
    labels, Q = model.annotate(bags, Y, return_proba=True)
    loglik = model.log_likelihood(bags, Y)
    logits = bags.X @ model.coef_.T + model.intercept_
    assert logits.shape[1] == 3 + background
    for b, (a, e) in enumerate(zip(bags.offsets[:-1], bags.offsets[1:])):
        expected, posterior = enumerate_bag(logits[a:e], np.flatnonzero(Y[b]), background)
        assert loglik[b] == pytest.approx(expected, abs=1e-10)
        np.testing.assert_allclose(Q[a:e], posterior[:, :3], atol=1e-10)
        best = posterior.argmax(axis=1)
        assert labels[a:e].tolist() == [c if c < 3 else -1 for c in best]


@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("candidates", [False, True])
def test_objective_and_gradient(kind, background, candidates):
    bags, Y = random_problem(seed=1, empty=background)
    rng = np.random.default_rng(2)
    weights = rng.random(len(bags)) + 0.5
    as_candidates = np.zeros(len(bags), dtype=bool)
    as_candidates[[2, 4]] = candidates
    extended = np.column_stack([Y, np.ones(len(Y), dtype=np.int8)]) if background else Y
    problem = UnionLikelihood(
        sparse.csr_array(bags.X) if kind == "csr" else bags.X,
        bags.offsets,
        np.ascontiguousarray(extended),
        weights,
        alpha=0.7,
        fit_intercept=True,
        background=background,
        candidates=as_candidates,
        method="auto",
        max_labels=16,
        n_threads=1,
    )
    W = rng.normal(size=problem.shape)
    value, gradient = problem.value_and_gradient(W)
    logits = bags.X @ W[:, :-1].T + W[:, -1]
    expected = -0.35 * np.square(W[:, :-1]).sum()
    for b, (a, e) in enumerate(zip(bags.offsets[:-1], bags.offsets[1:])):
        if as_candidates[b]:
            log_p = logits[a:e] - logsumexp(logits[a:e], axis=1, keepdims=True)
            expected += weights[b] * logsumexp(log_p[:, extended[b] > 0], axis=1).sum()
        else:
            expected += weights[b] * enumerate_bag(logits[a:e], np.flatnonzero(Y[b]), background)[0]
    assert value == pytest.approx(expected, abs=1e-9)
    for entry in [(0, 0), (1, 2), (2, -1), (W.shape[0] - 1, 1)]:
        step = np.zeros_like(W)
        step[entry] = 1e-5
        slope = problem.value_and_gradient(W + step)[0] - problem.value_and_gradient(W - step)[0]
        assert gradient[entry] == pytest.approx(slope / 2e-5, rel=1e-5, abs=1e-6)


def test_em_never_goes_down_and_reaches_the_optimum_of_lbfgs():
    bags, Y = random_problem(seed=3, n_bags=30)
    fast = ORedLogisticRegression(tol=1e-8).fit(bags, Y)
    assert (np.diff(fast.objective_) >= -1e-9).all()
    assert fast.n_iter_ == len(fast.objective_) - 1
    slow = ORedLogisticRegression(solver="em", max_iter=3000, tol=1e-7).fit(bags, Y)
    assert (np.diff(slow.objective_) >= -1e-9).all()
    assert slow.objective_[-1] == pytest.approx(fast.objective_[-1], abs=1e-5)
    np.testing.assert_allclose(slow.coef_, fast.coef_, atol=1e-2)
    paper = ORedLogisticRegression(solver="em", alpha=0, tol=0).fit(bags, Y)
    assert paper.n_iter_ == 50 and len(paper.objective_) == 51
    assert (np.diff(paper.objective_) >= 0).all()


def test_objective_is_the_penalised_likelihood_on_standardised_features():
    bags, Y = random_problem(seed=4, n_bags=20)
    model = ORedLogisticRegression(alpha=2.0).fit(bags, Y)
    scaled_weights = model.coef_ * bags.X.std(axis=0)
    expected = model.log_likelihood(bags, Y).sum() - np.square(scaled_weights).sum()
    assert model.objective_[-1] == pytest.approx(expected, abs=1e-8)


def test_weights_are_copies():
    bags, Y = random_problem(seed=6, n_bags=20)
    copies = np.arange(20) % 3
    weighted = ORedLogisticRegression(tol=1e-9).fit(bags, Y, sample_weight=copies)
    repeated = ORedLogisticRegression(tol=1e-9).fit(
        bags[np.repeat(np.arange(20), copies)], Y.repeat(copies, axis=0)
    )
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-5)


def test_impossible_and_oversized_label_sets_are_counted_and_harmless():
    bags, Y = random_problem(seed=9, n_bags=40)
    clean = ORedLogisticRegression().fit(bags, Y)
    more = Bags.concat([bags, bags[:2]])
    sizes = more.sizes[-2:]
    wrong = np.vstack([Y, Y[:2]])
    extra = np.ones((2, 3), dtype=np.int8)
    wrong[-2:] = extra
    n_impossible = int((sizes < 3).sum())
    if n_impossible < 2:
        more = Bags.concat([bags, Bags(np.ones((2, 4)), [0, 1, 2])])
    with pytest.warns(UserWarning, match="2 bags carry label sets"):
        model = ORedLogisticRegression(standardize=False, unusable_bags="drop").fit(more, wrong)
    assert model.n_unusable_ == 2
    reference = ORedLogisticRegression(standardize=False).fit(bags, Y)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-3)
    assert np.isneginf(model.log_likelihood(more, wrong)[-2:]).all()
    _, Q = model.annotate(more, wrong, return_proba=True)
    assert np.isfinite(Q).all()
    np.testing.assert_allclose(Q.sum(axis=1), 1.0)
    with pytest.raises(DataError, match="bag 40"):
        ORedLogisticRegression(unusable_bags="error").fit(more, wrong)
    with pytest.warns(UserWarning, match="candidate"):
        candidates = ORedLogisticRegression(unusable_bags="candidates").fit(more, wrong)
    assert np.isfinite(candidates.coef_).all()
    with pytest.warns(UserWarning, match="more than max_labels=2"):
        small = ORedLogisticRegression(max_labels=2).fit(bags, Y)
    assert small.n_unusable_ == (Y.sum(axis=1) > 2).sum()
    with pytest.warns(UserWarning, match="not by the exact posterior"):
        small.annotate(bags, Y)
    with pytest.warns(UserWarning), pytest.raises(DataError, match="no training bag is left"):
        ORedLogisticRegression(unusable_bags="drop").fit(
            bags.singletons(), np.ones((bags.n_instances, 2), dtype=int)
        )
    assert clean.n_unusable_ == 0


def test_lbfgs_says_when_it_has_not_converged():
    bags, Y = random_problem(seed=3, n_bags=30)
    with pytest.warns(ConvergenceWarning, match="3 iterations"):
        ORedLogisticRegression(max_iter=3, tol=1e-9).fit(bags, Y)


def test_background_alone_is_multi_instance_logistic_regression():
    """One label and a background: p(bag negative) = prod_i (1 - sigmoid(w x_i)), fitted by hand here."""
    rng = np.random.default_rng(10)
    bags, _ = random_problem(seed=10, n_bags=60)
    target = bags.X @ [1.5, -1.0, 0.5, 0.0] > 1.0
    y = np.array([target[a:e].any() for a, e in zip(bags.offsets[:-1], bags.offsets[1:])]).astype(int)
    y ^= rng.random(60) < 0.05
    model = ORedLogisticRegression(alpha=0.5, tol=1e-9, standardize=False).fit(bags, y)
    assert model.has_background_ and model.coef_.shape == (2, 4)

    def loss(w):
        absent = np.bincount(bags.index, log_expit(-(bags.X @ w[:4] + w[4])), minlength=60)
        # |w1|^2 + |w0|^2 is least at w1 = -w0 = w / 2, so the penalty on the difference is half as strong
        return -np.where(y == 1, np.log1p(-np.exp(absent)), absent).sum() + 0.125 * np.square(w[:4]).sum()

    best = minimize(loss, np.zeros(5), method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-9}).x
    np.testing.assert_allclose(model.coef_[0] - model.coef_[1], best[:4], atol=1e-3)
    some = ORedLogisticRegression(alpha=0.5, tol=1e-9, standardize=False, decision="union").fit(bags, y)
    absent = np.bincount(bags.index, log_expit(-(bags.X @ best[:4] + best[4])), minlength=60)
    np.testing.assert_allclose(some.predict_proba(bags)[:, 1], 1 - np.exp(absent), atol=1e-3)


def test_pruning_leaves_out_the_costliest_bags():
    bags, Y = random_problem(seed=12, n_bags=40)
    cost = bags.sizes * Y.sum(axis=1) * 2.0 ** Y.sum(axis=1)
    kept = np.sort(np.argsort(cost, kind="stable")[:30])
    pruned = ORedLogisticRegression(prune=0.25, tol=1e-8).fit(bags, Y)
    by_hand = ORedLogisticRegression(tol=1e-8).fit(bags[kept], Y[kept])
    np.testing.assert_allclose(pruned.coef_, by_hand.coef_, atol=1e-4)


def test_stochastic_subsets_come_near_and_are_seeded():
    bags, Y = random_problem(seed=13, n_bags=60)
    whole = ORedLogisticRegression(solver="em").fit(bags, Y)
    parts = [
        ORedLogisticRegression(solver="em", subset=0.5, random_state=seed).fit(bags, Y) for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(parts[0].coef_, parts[1].coef_)
    assert not np.array_equal(parts[0].coef_, parts[2].coef_)
    agreement = (parts[0].annotate(bags, Y) == whole.annotate(bags, Y)).mean()
    assert agreement > 0.85


@pytest.mark.parametrize("inference", ["forward", "substitution", "forward_backward", "wide"])
def test_every_algorithm_for_the_posterior_fits_the_same_model(inference):
    bags, Y = random_problem(seed=15, n_bags=20)
    default = ORedLogisticRegression(max_iter=20, tol=1e-3).fit(bags, Y)
    other = ORedLogisticRegression(max_iter=20, tol=1e-3, inference=inference).fit(bags, Y)
    np.testing.assert_allclose(other.coef_, default.coef_, atol=1e-5)
