"""Label distributions, sets and annotations of MIMLmix against a plain Algorithm 3."""

import pickle

import numpy as np
import pytest
from mimlmix_problems import FIXED, log_likelihoods, slow_e_step, two_views
from scipy.special import digamma, logsumexp

from bagwise import Bags, MultiViewBags
from bagwise.datasets import make_mimlmix_like
from bagwise.errors import DataError
from bagwise.metrics import average_precision
from bagwise.models.mimlmix import kernels, kernels_topics
from bagwise.models.mimlmix.estimator import MIMLMix
from bagwise.models.mimlmix.fit_em import Layout
from bagwise.models.mimlmix.kernels_topics import (
    fold_in,
    transposed,
)
from bagwise.models.mimlmix.kernels_topics import label_sets as ragged_sets


def slow_algorithm_3(logp, weights_of_rows, eta, xi, beta, alpha_topic, sharp_topics, n_fold):
    """Algorithm 3 with expected label tokens for one bag, without any short cut."""
    n_labels = logp.shape[1]

    def e_step(alpha):
        g = alpha + weights_of_rows.sum() / n_labels
        for _ in range(101):
            s = logp + digamma(g)
            phi = np.exp(s - logsumexp(s, axis=1, keepdims=True))
            before, g = g, alpha + weights_of_rows @ phi
            if np.abs(g - before).mean() < 1e-6:
                break
        return g, phi

    g, phi = e_step(np.full(n_labels, eta + xi))
    theta = np.zeros(len(beta))
    for _ in range(20 if eta else 0):
        tokens = weights_of_rows @ phi
        tokens = tokens / tokens.sum() * len(logp)
        gt = np.full(len(beta), alpha_topic + tokens.sum() / len(beta))
        last = np.full(len(beta), alpha_topic / (alpha_topic * len(beta) + tokens.sum()))
        for _ in range(n_fold):
            e = np.exp(digamma(gt)) if sharp_topics else gt
            q = e[:, None] * beta
            gt = alpha_topic + (q / q.sum(axis=0)) @ tokens
            moved, last = np.abs(gt / gt.sum() - last).sum(), gt / gt.sum()
            if moved < 1e-3:
                break
        change, theta = np.abs(gt / gt.sum() - theta).sum(), gt / gt.sum()
        g, phi = e_step(eta * beta.T @ theta + xi)
        if change < 1e-2:
            break
    return g, phi


@pytest.mark.parametrize("eta", [0.0, 0.5, 4.0])
@pytest.mark.parametrize("xi", [0.05, 1.0])
def test_prediction_equals_a_plain_algorithm_3(eta, xi):
    data = make_mimlmix_like("citeseer", 160, random_state=2)
    model = MIMLMix(**{**FIXED, "eta": eta, "xi": xi, "max_iter": 8}).fit(data.bags[:150], data.Y[:150])
    test = data.bags[150:155]
    gamma, phi = model.label_scores(test), model.instance_scores(test)
    known = model.components_
    for n in range(len(test)):
        rows, weights = [], []
        for v, w in model.view_weights_.items():
            beta = np.array([model.label_distribution(y, v)["words"] for y in known])
            rows.append(np.log(beta[:, test[v][n].indices]).T)
            weights.append(np.full(len(rows[-1]), w))
        topics = model.label_topics_[:, known]
        g, p = slow_algorithm_3(np.vstack(rows), np.concatenate(weights), eta, xi, topics, 0.1, False, 10)
        np.testing.assert_allclose(gamma[n, known], g, atol=2e-2)
        got = np.vstack([phi[v][test[v].offsets[n] : test[v].offsets[n + 1]] for v in phi])[:, known]
        np.testing.assert_allclose(got, p, atol=2e-2)
        assert np.abs(gamma[n, known] - g).mean() < 1e-3


@pytest.mark.parametrize("sharp", [True, False])
def test_topics_of_a_label_set_equal_a_plain_fold_in(sharp):
    """Against eqs. of latent Dirichlet allocation in NumPy, without setting topics aside."""
    rng = np.random.default_rng(3)
    n_labels, n_topics, alpha = 60, 40, 0.1
    beta = rng.dirichlet(np.full(n_labels, 0.05), n_topics).T + 1e-4  # (labels, topics)
    for n in (1, 5, 30):
        labels = rng.permutation(n_labels)[:n]
        amounts = rng.gamma(1.0, 4.0, n)
        gamma = np.full(n_topics, alpha + amounts.sum() / n_topics)
        for _ in range(8):
            q = (np.exp(digamma(gamma)) if sharp else gamma) * beta[labels]
            gamma = alpha + amounts @ (q / q.sum(axis=1, keepdims=True))
        sets = ragged_sets(np.zeros(n, dtype=int), labels, amounts, 1)
        theta = fold_in(sets, transposed(beta.T), alpha, sharp, 8)[0]
        assert np.abs(theta - gamma / gamma.sum()).sum() < 5e-3


def test_topics_help_where_labels_go_together_and_two_views_beat_one():
    data = make_mimlmix_like("imageclef", 1200, random_state=3)
    train_part, test = data[:1000], data[1000:]

    def quality(select, **more):
        settings = {
            **FIXED,
            "kappa": 100.0,
            "alpha_train": 5.0,
            "eta": 10.0,
            "n_topics": 12,
            "max_iter": 8,
        } | more
        model = MIMLMix(**settings).fit(train_part.bags.select(select), train_part.Y)
        return average_precision(test.Y, model.label_scores(test.bags.select(select)))

    both = quality(["visual", "textual"])
    assert both > quality(["visual"]) + 0.03
    assert both > quality(["textual"]) + 0.03
    assert both > quality(["visual", "textual"], eta=0.0) + 0.08
    assert both > quality(["visual", "textual"], n_topics=1) + 0.08  # a prior of label popularity


def test_partial_examples_and_empty_bags():
    views, Y = two_views(8, n_bags=40)
    bags = MultiViewBags(views)
    assert not bags.present.any(axis=1).all()  # a bag without any instance takes part
    model = MIMLMix(**FIXED).fit(bags, Y)
    empty = MultiViewBags({v: b[[39]] for v, b in views.items()})
    gamma = model.label_scores(empty)[0]
    share = model._topic_share @ model.label_topics_
    np.testing.assert_allclose(gamma, 3.0 * share + 0.1)
    assert model.predict(empty).shape == (1, 4)
    only_words = MultiViewBags({"x": Bags(np.empty((0, 3)), np.zeros(41, dtype=int)), "w": views["w"]})
    assert np.isfinite(model.decision_function(only_words)).all()
    fitted = MIMLMix(**FIXED).fit(only_words, Y)  # a view that no training bag has
    assert np.isfinite(fitted.decision_function(bags)).all()
    single = MIMLMix(**FIXED).fit(views["w"], Y)
    assert np.isfinite(single.decision_function(views["w"])).all()


def test_sampling_is_seeded_and_bags_do_not_influence_each_other():
    data = make_mimlmix_like("imageclef", 80, random_state=4, missing=0.3)
    for mode in ({}, {"sampling": True}, {"mode": "paper"}):
        settings = {**FIXED, "max_iter": 5} | mode
        model = MIMLMix(**settings).fit(data.bags[:60], data.Y[:60])
        test = data.bags[60:]
        together = model.label_scores(test)
        np.testing.assert_array_equal(
            together, MIMLMix(**settings).fit(data.bags[:60], data.Y[:60]).label_scores(test)
        )
        alone = np.vstack([model.label_scores(test[[n]]) for n in range(len(test))])
        np.testing.assert_allclose(together, alone, rtol=1e-12)
    # draws are spread around what is expected
    expected = MIMLMix(**{**FIXED, "max_iter": 5}).fit(data.bags[:60], data.Y[:60]).label_scores(test)
    sampled = (
        MIMLMix(**{**FIXED, "max_iter": 5}, sampling=True).fit(data.bags[:60], data.Y[:60]).label_scores(test)
    )
    assert np.corrcoef(expected.ravel(), sampled.ravel())[0, 1] > 0.8
    assert not np.allclose(expected, sampled)


@pytest.mark.parametrize("size", ["imageclef", "iaprtc", "citeseer"])
def test_results_do_not_depend_on_threads(size, monkeypatch):
    data = make_mimlmix_like(size, 60, random_state=5)
    results = []
    monkeypatch.setattr(kernels, "_WORTH_A_THREAD", 1.0)  # small data are cut, too
    for n_threads in (1, 3):
        monkeypatch.setattr(kernels, "cores", lambda n=n_threads: n)
        model = MIMLMix(**{**FIXED, "max_iter": 6}).fit(data.bags, data.Y)
        phi = model.instance_scores(data.bags)
        phi = np.vstack(list(phi.values())) if isinstance(phi, dict) else phi
        results.append((model.elbo_, model.label_scores(data.bags), model.label_topics_, phi))
    for a, b in zip(*results):
        np.testing.assert_array_equal(a, b)


def test_every_loop_is_compiled_once():
    """One type per argument: fits with views of all kinds, predictions and annotations share their loops."""
    for size in ("imageclef", "iaprtc", "citeseer"):
        data = make_mimlmix_like(size, 40, random_state=5)
        model = MIMLMix(**{**FIXED, "max_iter": 6}).fit(data.bags, data.Y)
        model.annotate(data.bags, data.Y, return_proba=True)
        model.instance_scores(data.bags)
        model.partial_fit(data.bags, data.Y)
    loaded = pickle.loads(pickle.dumps(model))
    loaded.predict(data.bags)
    for name, loop in {**vars(kernels), **vars(kernels_topics)}.items():
        if hasattr(loop, "overloads") and loop.__module__.startswith("bagwise.models.mimlmix"):
            assert len(loop.overloads) <= 1, name


def test_annotation_within_known_sets_is_the_training_e_step():
    views, Y = two_views(9, n_bags=30)
    bags = MultiViewBags(views)
    model = MIMLMix(**FIXED).fit(bags, Y)
    labels, proba = model.annotate(bags, Y, return_proba=True)
    assert set(labels) == {"x", "w"}
    layout = Layout(views, Y, model.views_)
    for view, learned in zip(layout.views, model.views_.values()):
        view.restore(learned)
    logp = log_likelihoods(layout, views, 4)
    slow = slow_e_step(logp, views, Y, list(model.view_weights_.values()), 2.0, 500)
    for n, (_, phi, _) in enumerate(slow):
        inside = np.flatnonzero(Y[n])
        got = np.vstack([proba[v][b.offsets[n] : b.offsets[n + 1]] for v, b in views.items()])
        np.testing.assert_allclose(got[:, inside], phi, atol=1e-5)
        np.testing.assert_allclose(got.sum(axis=1), 1.0)
    for v, b in views.items():
        assert (Y[b.index, labels[v]] == 1).all()
    inductive = model.annotate(bags)
    np.testing.assert_array_equal(inductive["x"], model.instance_scores(bags)["x"].argmax(axis=1))
    assert isinstance(MIMLMix(**FIXED).fit(views["x"], Y).annotate(views["x"]), np.ndarray)
    keys = model.key_instances(bags, k=2)
    assert keys["w"].shape == (30, 4, 2)


def test_labels_without_bags_and_bags_without_labels():
    views, Y = two_views(10, n_bags=40)
    Y = np.column_stack([Y, np.zeros(40, dtype=np.int8)])
    bags = views["x"]
    model = MIMLMix(**FIXED).fit(bags, Y)
    scores = model.decision_function(bags)
    assert (scores[:, 4] < scores[:, :4].min(axis=1)).all()
    assert (model.instance_scores(bags)[:, 4] == 0).all()
    Y[:10] = 0
    with_background = MIMLMix(**FIXED).fit(bags, Y)
    assert with_background.components_.tolist() == [0, 1, 2, 3, 5]
    with pytest.warns(UserWarning, match="without labels"):
        skipping = MIMLMix(**FIXED, unlabelled="skip").fit(bags, Y)
    assert skipping.components_.tolist() == [0, 1, 2, 3]
    assert MIMLMix(**FIXED).fit(bags, Y * 0).predict(bags).sum() == 0
    with pytest.raises(DataError, match="no training bag carries a label"):
        MIMLMix(**FIXED, unlabelled="skip").fit(bags, Y * 0)
    known = with_background.annotate(bags, Y)
    assert (known[bags.index < 10] == -1).all()


def test_label_sets():
    data = make_mimlmix_like("iaprtc", 150, random_state=6)
    model = MIMLMix(**FIXED).fit(data.bags, data.Y)
    assert (model.predict(data.bags).sum(axis=1) == model.n_top_).all()
    gamma, scores = model.label_scores(data.bags), model.decision_function(data.bags)
    for g, s in zip(gamma, scores):
        np.testing.assert_array_equal(np.argsort(-g, kind="stable"), np.argsort(-s, kind="stable"))
    shares = model.label_scores(data.bags, normalise=True)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    cut = MIMLMix(**FIXED, sets="threshold").fit(data.bags, data.Y)
    np.testing.assert_allclose(cut.decision_function(data.bags), cut.label_scores(data.bags) - cut.threshold_)
    assert 0 < cut.predict(data.bags).sum() < data.Y.size
