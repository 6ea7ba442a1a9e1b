"""How ORed logistic regression goes from posteriors to scores, label sets and a background."""

import numpy as np
import pytest
from ored_problems import enumerate_bag, random_problem
from scipy import sparse
from scipy.special import expit, log_expit, logsumexp
from sklearn.metrics import roc_auc_score

from bagwise import Bags
from bagwise.models import ORedLogisticRegression


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


def test_a_label_never_seen_is_never_predicted():
    bags, Y = random_problem(seed=11, n_bags=20)
    wider = np.column_stack([Y, np.zeros(20, dtype=int)])
    model = ORedLogisticRegression().fit(bags, wider)
    assert not model.predict(bags)[:, 3].any() and (model.predict_proba(bags)[:, 3] < 1e-100).all()
