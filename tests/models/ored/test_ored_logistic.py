"""ORed logistic regression against enumeration of every labelling and against finite differences."""

import itertools

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score

from bagwise import Bags, load_dataset
from bagwise.errors import DataError
from bagwise.models import ORedLogisticRegression
from bagwise.models.ored.likelihood import UnionLikelihood


def random_problem(seed=0, n_bags=6, n_labels=3, n_features=4, empty=False):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, n_bags)
    X = rng.normal(size=(sizes.sum(), n_features)) * (rng.random((sizes.sum(), n_features)) < 0.7)
    bags = Bags(X, np.concatenate([[0], np.cumsum(sizes)]))
    Y = np.zeros((n_bags, n_labels), dtype=np.int8)
    Y[bags.index, rng.integers(0, n_labels, bags.n_instances)] = 1
    if empty:
        Y[0] = 0
    return bags, Y


def enumerate_bag(logits, labels, background=False):
    """Log-likelihood of a label set and posterior of every instance, by going through all labellings."""
    log_p = logits - logsumexp(logits, axis=1, keepdims=True)
    n, n_classes = logits.shape
    total, Q = 0.0, np.zeros_like(logits)
    for z in itertools.product(range(n_classes), repeat=n):
        union = {c for c in z if not (background and c == n_classes - 1)}
        if union == set(labels):
            weight = np.exp(sum(log_p[i, c] for i, c in enumerate(z)))
            total += weight
            Q[np.arange(n), z] += weight
    return (np.log(total), Q / total) if total > 0 else (-np.inf, Q)


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


def test_units_of_the_features_do_not_matter():
    bags, Y = random_problem(seed=5, n_bags=25)
    moved = bags.with_X(bags.X * [1e3, 1e-3, 7.0, 1.0] + [5.0, 0.0, -100.0, 3.0])
    first = ORedLogisticRegression(tol=1e-8).fit(bags, Y)
    second = ORedLogisticRegression(tol=1e-8).fit(moved, Y)
    np.testing.assert_allclose(second.predict_proba(moved), first.predict_proba(bags), atol=1e-5)


def test_weights_are_copies():
    bags, Y = random_problem(seed=6, n_bags=20)
    copies = np.arange(20) % 3
    weighted = ORedLogisticRegression(tol=1e-9).fit(bags, Y, sample_weight=copies)
    repeated = ORedLogisticRegression(tol=1e-9).fit(
        bags[np.repeat(np.arange(20), copies)], Y.repeat(copies, axis=0)
    )
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-5)


def test_text_is_divided_by_one_number_and_not_centred():
    rng = np.random.default_rng(7)
    words = rng.poisson(0.06, size=(90, 40)) * rng.uniform(0.5, 2.0, size=40)  # mostly zeros
    bags = Bags(words, np.arange(0, 91, 3))
    Y = np.zeros((30, 3), dtype=int)
    Y[bags.index, rng.integers(0, 3, 90)] = 1
    scaled = ORedLogisticRegression(tol=1e-9).fit(bags.with_X(sparse.csr_array(words)), Y)
    spread = np.sqrt(np.square(words[words != 0]).mean())
    by_hand = ORedLogisticRegression(tol=1e-9, standardize=False).fit(bags.with_X(words / spread), Y)
    np.testing.assert_allclose(scaled.coef_ * spread, by_hand.coef_, atol=1e-5)


def test_sparse_equals_dense():
    bags, Y = random_problem(seed=7, n_bags=30)
    as_csr = bags.with_X(sparse.csr_array(bags.X))
    scaled = ORedLogisticRegression(tol=1e-9).fit(as_csr, Y)
    assert scaled.coef_.shape == (3, 4)
    np.testing.assert_allclose(scaled.coef_, ORedLogisticRegression(tol=1e-9).fit(bags, Y).coef_, atol=1e-8)


def test_bag_scores_sets_and_probabilities():
    bags, Y = random_problem(seed=8, n_bags=30)
    model = ORedLogisticRegression(decision="union", bag_probability="max").fit(bags, Y)
    logits = bags.X @ model.coef_.T + model.intercept_
    P = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
    parts = list(zip(bags.offsets[:-1], bags.offsets[1:]))
    union = np.zeros_like(Y)
    union[bags.index, P.argmax(axis=1)] = 1
    np.testing.assert_array_equal(model.predict(bags), union)
    np.testing.assert_array_equal(model.annotate(bags), P.argmax(axis=1))
    np.testing.assert_allclose(model.predict_proba(bags), [P[a:e].max(axis=0) for a, e in parts])
    some = ORedLogisticRegression(decision="union").fit(bags, Y)
    expected = [1 - np.prod(1 - P[a:e], axis=0) for a, e in parts]
    np.testing.assert_allclose(some.predict_proba(bags), expected, atol=1e-12)
    _, proba = model.annotate(bags, return_proba=True)
    np.testing.assert_allclose(proba, P)


def test_the_calibrated_decision_agrees_with_probabilities_and_keeps_scores():
    bags, Y = random_problem(seed=8, n_bags=60)
    plain = ORedLogisticRegression(decision="union").fit(bags, Y)
    model = ORedLogisticRegression().fit(bags, Y)
    P = model.predict_proba(bags)
    np.testing.assert_array_equal(model.predict(bags), P > 0.5)
    np.testing.assert_array_equal(model.decision_function(bags), plain.decision_function(bags))
    own = plain.predict_proba(bags)
    odds = model.decision_slope_ * (np.log(own) - np.log1p(-own)) + model.decision_intercept_
    np.testing.assert_allclose(P, 1 / (1 + np.exp(-odds)), atol=1e-9)
    two = ORedLogisticRegression(n_jobs=2).fit(bags, Y)
    np.testing.assert_array_equal(two.decision_intercept_, model.decision_intercept_)
    one = ORedLogisticRegression().fit(bags, Y[:, 0])
    np.testing.assert_array_equal(one.predict(bags), one.decision_function(bags) > 0)


def test_label_sets_are_no_worse_than_a_constant_where_the_union_is():
    """Instances that are hard to tell apart: some instance errs in nearly every bag."""
    losses = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        bags = Bags(rng.normal(size=(1600, 8)), np.arange(0, 1601, 4))
        z = (0.6 * bags.X + rng.gumbel(size=(1600, 8))).argmax(axis=1)
        Y = np.zeros((400, 8), dtype=int)
        Y[bags.index, z] = 1
        train, test = np.arange(300), np.arange(300, 400)
        constant = (Y[train].mean(axis=0) > 0.5) != Y[test]
        found = [
            ORedLogisticRegression(decision=rule).fit(bags[train], Y[train]).predict(bags[test]) != Y[test]
            for rule in ("union", "calibrated")
        ]
        losses.append([constant.mean(), *(wrong.mean() for wrong in found)])
    constant, union, calibrated = np.mean(losses, axis=0)
    assert union > constant + 0.01 and calibrated < constant - 0.01


def test_labels_of_all_bags_are_always_predicted():
    bags, Y = random_problem(seed=2, n_bags=40)
    everywhere = np.ones((40, 2), dtype=int)
    with pytest.warns(UserWarning, match="no labelling"):  # bags of one instance cannot carry two
        model = ORedLogisticRegression().fit(bags, everywhere)
    assert model.predict(bags.with_X(3 * bags.X)).all()
    Y[:, 1] = 1
    Y[bags.sizes < 3, [0]], Y[bags.sizes < 3, 2] = 0, 0
    assert ORedLogisticRegression().fit(bags, Y).predict(bags)[:, 1].all()


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


def test_background_does_not_count_as_a_label():
    """A bag of exactly max_labels labels was left out, its likelihood NaN and its posterior the prior."""
    bags, Y = random_problem(seed=9, n_bags=30, empty=True)
    most = int(Y.sum(axis=1).max())
    assert most == 3
    model = ORedLogisticRegression(background=True, max_labels=most).fit(bags, Y)
    assert model.n_unusable_ == 0
    wide = ORedLogisticRegression(background=True).fit(bags, Y)
    np.testing.assert_array_equal(model.coef_, wide.coef_)
    logits = bags.X @ model.coef_.T + model.intercept_
    _, Q = model.annotate(bags, Y, return_proba=True)
    loglik = model.log_likelihood(bags, Y)
    for b in np.flatnonzero(Y.sum(axis=1) == most):
        a, e = bags.offsets[b : b + 2]
        expected, posterior = enumerate_bag(logits[a:e], np.flatnonzero(Y[b]), background=True)
        assert loglik[b] == pytest.approx(expected, abs=1e-10)
        np.testing.assert_allclose(Q[a:e], posterior[:, :3], atol=1e-10)
    small = ORedLogisticRegression(background=True, max_labels=most - 1)
    with pytest.warns(UserWarning, match="more than max_labels=2"):
        small.fit(bags, Y)
    with pytest.warns(UserWarning, match="log-likelihood is NaN"):
        assert np.isnan(small.log_likelihood(bags, Y)[Y.sum(axis=1) == most]).all()


def test_a_background_of_empty_bags_only():
    """Then it is a label like others, carried by the bags without any."""
    bags, Y = random_problem(seed=9, n_bags=30, empty=True)
    Y[5] = 0
    model = ORedLogisticRegression(background="empty", unusable_bags="drop").fit(bags, Y)
    assert model.background_ == "empty" and model.has_background_ and model.coef_.shape == (3 + 1, 4)
    logits = bags.X @ model.coef_.T + model.intercept_
    labels, Q = model.annotate(bags, Y, return_proba=True)
    loglik = model.log_likelihood(bags, Y)
    for b, (a, e) in enumerate(zip(bags.offsets[:-1], bags.offsets[1:])):
        carried = np.flatnonzero(Y[b]) if Y[b].any() else [3]
        expected, posterior = enumerate_bag(logits[a:e], carried)
        assert loglik[b] == pytest.approx(expected, abs=1e-10)
        np.testing.assert_allclose(Q[a:e], posterior[:, :3], atol=1e-10)
        assert (labels[a:e] == -1).all() == (not Y[b].any())


def text_problem(seed=0, n_bags=60):
    """Documents of five sentences; a topic is three words among forty."""
    rng = np.random.default_rng(seed)
    bags = Bags(
        sparse.csr_array(rng.poisson(0.04, size=(5 * n_bags, 40)).astype(float)), np.arange(n_bags + 1) * 5
    )
    z = rng.integers(0, 4, bags.n_instances)
    X = bags.X.tolil()
    for i, c in enumerate(z):
        if c < 3:
            X[i, 3 * c + rng.integers(0, 3)] += 1.0
    Y = np.zeros((n_bags, 4), dtype=int)
    Y[bags.index, z] = 1
    return bags.with_X(sparse.csr_array(X)), Y[:, :3]  # the fourth topic is none


def test_what_auto_stands_for():
    bags, Y = random_problem(seed=3, n_bags=30)
    plain = ORedLogisticRegression().fit(bags, Y)
    assert plain.alpha_ == 1.0 and plain.background_ is False and len(plain.held_out_loss_) == 1
    np.testing.assert_array_equal(
        plain.coef_, ORedLogisticRegression(1.0, background=False).fit(bags, Y).coef_
    )
    documents, T = text_problem()
    assert T.any(axis=1).all()
    model = ORedLogisticRegression().fit(documents, T)
    losses = model.held_out_loss_
    assert len(losses) == 3 and model.alpha_ == (1.0, 3.0, 10.0)[losses.argmin()]
    same = ORedLogisticRegression(model.alpha_, n_jobs=2).fit(documents, T)
    np.testing.assert_array_equal(model.coef_, same.coef_)
    np.testing.assert_array_equal(model.decision_slope_, same.decision_slope_)
    T[:10] = 0
    some = ORedLogisticRegression(3.0).fit(documents, T)
    assert len(some.held_out_loss_) == 2
    assert some.background_ == ("anywhere", "empty")[some.held_out_loss_.argmin()]
    union = ORedLogisticRegression(3.0, decision="union").fit(documents, T)
    same = ORedLogisticRegression(3.0, bag_probability="noisy_or").fit(documents, T)
    assert (
        union.background_ == same.background_
        and union.bag_probability_ == "noisy_or"
        and union.decision_slope_ is None
    )
    assert ORedLogisticRegression().fit(documents, T[:, 0]).background_ == "anywhere"


def test_beside_a_background_the_bag_speaks_for_its_instances():
    documents, T = text_problem()
    T[:10] = 0
    model = ORedLogisticRegression(1.0, background=True, bag_probability="noisy_or").fit(documents, T)
    logits = documents.X @ model.coef_.T + model.intercept_
    logits[:, :3] += np.log(model.predict_proba(documents))[documents.index]
    best = logits.argmax(axis=1)
    np.testing.assert_array_equal(model.annotate(documents), np.where(best < 3, best, -1))
    F = model.instance_scores(documents)
    for c in range(3):
        others = np.delete(logits, c, axis=1).max(axis=1)
        np.testing.assert_allclose(F[:, c], logits[:, c] - others, atol=1e-9)


def pieces_of_several_topics(n_bags, seed):
    """Two pieces of text a bag, each with the words of up to four topics: most label sets are impossible."""
    rng = np.random.default_rng(seed)
    T = rng.random((2 * n_bags, 8)) < 0.35
    rates = np.full((8, 120), 0.0)
    for c in range(8):
        rates[c, 10 * c : 10 * c + 10] = 0.12
    X = sparse.csr_array(rng.poisson(0.02 + T @ rates).astype(float))
    Y = T.reshape(n_bags, 2, 8).any(axis=1).astype(int)
    return Bags(X, np.arange(0, 2 * n_bags + 1, 2)), Y, T


@pytest.mark.filterwarnings("ignore:.*label sets that no labelling")
def test_instances_of_several_labels_are_judged_by_class_scores():
    bags, Y, _ = pieces_of_several_topics(300, 0)
    new, _, T = pieces_of_several_topics(300, 1)
    model = ORedLogisticRegression(1.0).fit(bags, Y)
    assert model.bag_probability_ == "score"
    logits = new.X @ model.coef_.T + model.intercept_
    largest = logits.reshape(300, 2, -1)[:, :, :8].max(axis=1)
    odds = largest * model.decision_slope_ + model.decision_intercept_
    np.testing.assert_allclose(model.decision_function(new), odds)
    np.testing.assert_allclose(model.predict_proba(new), expit(odds))
    np.testing.assert_array_equal(model.predict(new), odds > 0)
    judged = logits[:, :8] + log_expit(odds)[new.index]
    F = model.instance_scores(new)
    np.testing.assert_allclose(F, judged)
    if not model.has_background_:
        np.testing.assert_array_equal(model.annotate(new), judged.argmax(axis=1))
    competing = ORedLogisticRegression(1.0, bag_probability="noisy_or").fit(bags, Y)
    assert competing.held_out_loss_.min() > model.held_out_loss_.min()
    assert roc_auc_score(T, F) > roc_auc_score(T, competing.instance_scores(new)) + 0.03


def test_where_classes_compete_the_union_is_kept():
    bags, Y = random_problem(seed=3, n_bags=60)
    model, named = (ORedLogisticRegression(bag_probability=k).fit(bags, Y) for k in ("auto", "noisy_or"))
    assert model.bag_probability_ == "noisy_or"
    np.testing.assert_array_equal(model.predict_proba(bags), named.predict_proba(bags))
    assert ORedLogisticRegression().fit(bags, Y[:, 0]).bag_probability_ == "noisy_or"
    assert ORedLogisticRegression().fit(bags, Y.argmax(axis=1)).bag_probability_ == "noisy_or"
    with pytest.raises(ValueError, match="calibrated"):
        ORedLogisticRegression(bag_probability="score", decision="union").fit(bags, Y)


def test_a_constant_feature_has_no_weight():
    """The spread of a constant .1 is rounding noise; dividing by it gave weights of 1e11."""
    Y = np.eye(3, dtype=int)[np.arange(150) % 3]

    def bags(value):
        rng = np.random.default_rng(0)
        return [
            np.column_stack([rng.normal(size=(4, 3)) + [b % 3, 0, 0], np.full(4, value)]) for b in range(150)
        ]

    first = ORedLogisticRegression().fit(bags(0.1), Y)
    assert np.abs(first.coef_).max() < 10 and (first.coef_[:, 3] == 0).all()
    moved = ORedLogisticRegression().fit(bags(0.1 + 1e-9), Y)
    np.testing.assert_allclose(
        moved.predict_proba(bags(0.1 + 1e-9)), first.predict_proba(bags(0.1)), atol=1e-9
    )
    np.testing.assert_allclose(
        first.predict_proba(bags(0.1 + 1e-9)), first.predict_proba(bags(0.1)), atol=1e-9
    )


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


def test_a_label_never_seen_is_never_predicted():
    bags, Y = random_problem(seed=11, n_bags=20)
    wider = np.column_stack([Y, np.zeros(20, dtype=int)])
    model = ORedLogisticRegression().fit(bags, wider)
    assert not model.predict(bags)[:, 3].any() and (model.predict_proba(bags)[:, 3] < 1e-100).all()


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


def test_kernel_version_separates_what_lines_cannot():
    rng = np.random.default_rng(14)
    X = rng.normal(size=(600, 2))
    z = (np.hypot(*X.T) > 1.2).astype(int)  # a disc and its outside
    bags = Bags(X, np.arange(0, 601, 3), instance_info={"label": z})
    Y = np.zeros((200, 2), dtype=int)
    Y[bags.index, z] = 1
    linear = ORedLogisticRegression().fit(bags, Y)
    rbf = ORedLogisticRegression(0.1, kernel="rbf", dictionary_size=100, width_scale=0.3, random_state=0).fit(
        bags, Y
    )
    assert (linear.annotate(bags) == z).mean() < 0.75
    assert (rbf.annotate(bags) == z).mean() > 0.93
    assert rbf.coef_.shape == (2, 100) and rbf.dictionary_.rows_.shape == (100, 2)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    squared = np.square(scaled[:, None] - rbf.dictionary_.rows_[None]).sum(axis=2)
    pairs = np.square(scaled[:, None] - scaled[None]).sum(axis=2)
    width = 0.3 * pairs.sum() / (600 * 599)
    assert rbf.dictionary_.width_ == pytest.approx(width)
    logits = np.exp(-squared / width) @ rbf.coef_.T + rbf.intercept_
    np.testing.assert_array_equal(rbf.annotate(bags), logits.argmax(axis=1))


@pytest.mark.parametrize("inference", ["forward", "substitution", "forward_backward", "wide"])
def test_every_algorithm_for_the_posterior_fits_the_same_model(inference):
    bags, Y = random_problem(seed=15, n_bags=20)
    default = ORedLogisticRegression(max_iter=20, tol=1e-3).fit(bags, Y)
    other = ORedLogisticRegression(max_iter=20, tol=1e-3, inference=inference).fit(bags, Y)
    np.testing.assert_allclose(other.coef_, default.coef_, atol=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"solver": "sgd"},
        {"alpha": -1},
        {"prune": 1.0},
        {"subset": 0.5},
        {"kernel": "poly"},
        {"unusable_bags": "keep"},
        {"bag_probability": "mean"},
        {"inference": "magic"},
        {"decision": "vote"},
        {"alpha": np.nan},
        {"tol": np.nan},
        {"max_iter": -3},
        {"max_labels": 60},
        {"dictionary_size": 1.5},
        {"width_scale": 0.0},
    ],
)
def test_wrong_parameters_are_named(wrong):
    bags, Y = random_problem()
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ORedLogisticRegression(**wrong).fit(bags, Y)


def test_reads_digits_from_bag_labels_alone():
    data = load_dataset("digits", n_bags=600)
    train, test = data["train"], data["test"]
    model = ORedLogisticRegression().fit(train.bags, train.Y)
    assert (model.annotate(test.bags) == test.instance_Y).mean() > 0.85
    assert (model.annotate(train.bags, train.Y) == train.instance_Y).mean() > 0.95
