"""The default classifier: all kinds of data, nothing leaks, threads change nothing, choices can be seen."""

import numpy as np
import pytest
from scipy import sparse

from bagwise import Bags, MultiViewBags
from bagwise.checks import sample_bags
from bagwise.datasets import load_dataset
from bagwise.models import BagClassifier
from bagwise.models.auto import estimator as classifier
from bagwise.models.auto import fit as fitting
from bagwise.models.auto import predict as view
from bagwise.models.auto.fit import MEMBERS, Plan, plan_for
from bagwise.models.auto.fit_linear import fit_rankers


def text_bags(n_bags=150, seed=0, n_words=1200):
    """Sentences of topics, with words of their own and common ones; the last topic is no label."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(0, 4, 4 * n_bags)
    rates = np.full((4, n_words), 0.004)
    for t in range(4):
        rates[t, 30 * t : 30 * t + 30] = 0.15
    X = sparse.csr_array(rng.poisson(rates[topic]).astype(float))
    Y = np.zeros((n_bags, 4), dtype=np.int64)
    Y[np.repeat(np.arange(n_bags), 4), topic] = 1
    return Bags(X, np.arange(0, 4 * n_bags + 1, 4)), Y[:, :3], np.where(topic == 3, -1, topic)


def test_bags_and_instances_of_digits():
    data = load_dataset("digits", n_bags=180)
    train, test = slice(0, 120), slice(120, None)
    model = BagClassifier(random_state=0).fit(data.bags[train], data.Y[train])
    assert model.effort_ == "full"
    bags, Y = data.bags[test], data.Y[test]
    z = data.instance_Y[data.bags[train].n_instances :]
    assert (model.predict(bags) != Y).mean() < 0.06
    assert (model.annotate(bags) == z).mean() > 0.85
    assert (model.annotate(bags, Y) == z).mean() > 0.93
    best = model.key_instances(bags)[:, :, 0]
    hits = [z[best[b, l]] == l for b, l in zip(*np.nonzero(Y))]
    assert np.mean(hits) > 0.85
    P = model.predict_proba(bags)
    assert np.abs(P.mean(axis=0) - Y.mean(axis=0)).mean() < 0.06  # calibrated in the large
    assert set(model.weights_) == set(model.members_)
    assert all(np.isfinite(f["log_loss"]) for f in model.members_.values())
    assert model.log_loss_ <= min(f["log_loss"] for f in model.members_.values()) + 1e-3


def test_labels_drawn_at_random_are_not_learned():
    rng = np.random.default_rng(0)
    bags, _ = sample_bags(n_bags=100)
    Y = (rng.random((100, 3)) < 0.4).astype(int)
    model = BagClassifier("fast", random_state=0).fit(bags, Y)
    chance = -np.mean(Y.mean(0) * np.log(Y.mean(0)) + (1 - Y.mean(0)) * np.log(1 - Y.mean(0)))
    assert model.log_loss_ > chance - 0.03  # answers to unseen bags know nothing
    other, _ = sample_bags(n_bags=200, seed=5)
    assert np.abs(model.predict_proba(other) - 0.4).mean() < 0.15


def test_threads_change_no_bit():
    bags, Y = sample_bags(n_bags=60)
    one, two = (BagClassifier("fast", random_state=0, n_jobs=k).fit(bags, Y) for k in (1, 2))
    assert np.array_equal(one.decision_function(bags), two.decision_function(bags))
    assert np.array_equal(one.instance_scores(bags), two.instance_scores(bags))
    assert one.weights_ == two.weights_


def test_text_stays_sparse(monkeypatch):
    bags, Y, z = text_bags()
    monkeypatch.setattr(Bags, "with_X", _never_dense(Bags.with_X))
    model = BagClassifier(random_state=0).fit(bags[:110], Y[:110])
    assert {"text_kernel", "inherited_logistic", "ored", "stacked_kernel"} == set(model.members_)
    assert (model.predict(bags[110:]) != Y[110:]).mean() < 0.15
    has = z[440:] >= 0
    assert (model.annotate(bags[110:], Y[110:]) == z[440:])[has].mean() > 0.8
    monkeypatch.setattr(fitting, "EXACT_BAGS", 50)
    large = BagClassifier(random_state=0).fit(bags[:110], Y[:110])
    assert "text_logistic" in large.members_ and "text_kernel" not in large.members_
    assert (large.predict(bags[110:]) != Y[110:]).mean() < 0.15


def _never_dense(with_X):
    def checked(self, X, **names):
        assert sparse.issparse(X), "text was made dense"
        return with_X(self, X, **names)

    return checked


def test_text_with_few_words_has_members_of_both_kinds():
    bags, Y, _ = text_bags(n_words=200)
    model = BagClassifier("fast", random_state=0).fit(bags, Y)
    both = {"ored_forest", "pooled_forest", "text_kernel", "inherited_logistic", "ored", "stacked_kernel"}
    assert set(model.members_) == both
    named = BagClassifier("fast", members=["set_kernel"], random_state=0).fit(bags, Y)
    assert set(named.members_) == {"set_kernel"}
    dense = BagClassifier("fast", random_state=0).fit(bags.with_X(bags.X.toarray()), Y)
    np.testing.assert_allclose(dense.predict_proba(bags), model.predict_proba(bags), atol=1e-6)


def test_instances_are_left_to_the_member_whose_bags_come_out_best(monkeypatch):
    bags, Y = sample_bags(n_bags=60)
    rng = np.random.default_rng(0)
    noise = rng.dirichlet(np.ones(3), size=bags.n_instances)
    real = fitting.ored_softmax
    monkeypatch.setattr(fitting, "ored_softmax", lambda problem, n, a: (real(problem, n, a)[0], noise, 1.0))
    monkeypatch.setattr(fitting, "ored_forest", lambda problem, softmax, r: (view.ViewModel, noise))
    members = ["inherited_forest", "ored", "ored_forest"]
    model = BagClassifier("fast", members=members, random_state=0).fit(bags, Y)
    assert model.instance_members_ == {"bags": {"inherited_forest": 1.0}}


def test_several_views():
    bags, Y = sample_bags(n_bags=70)
    noise = Bags(np.random.default_rng(0).normal(size=(70, 3)), np.arange(71))
    both = MultiViewBags({"real": bags, "noise": noise})
    model = BagClassifier("fast", random_state=0).fit(both[:50], Y[:50])
    assert {name.split(":")[0] for name in model.members_} == {"real", "noise"}
    share = sum(w for name, w in model.weights_.items() if name.startswith("real"))
    assert share > 0.7 * sum(model.weights_.values())
    assert (model.predict(both[50:]) != Y[50:]).mean() < 0.2
    labels = model.annotate(both[50:], Y[50:])
    assert labels["real"].shape == (bags[50:].n_instances,) and labels["noise"].shape == (20,)
    assert model.key_instances(both[50:], 2)["real"].shape == (20, 3, 2)
    assert model.instance_scores(both[50:])["noise"].shape == (20, 3)


def test_plain_multi_instance_learning():
    # one label: a bag is positive if one of its instances is
    rng = np.random.default_rng(0)
    z = rng.random(400) < 0.15
    X = rng.normal(size=(400, 3)) + 4.0 * z[:, None]
    bags = Bags(X, np.arange(0, 401, 4))
    y = np.where(z.reshape(-1, 4).any(axis=1), "yes", "no")
    model = BagClassifier("fast", random_state=0).fit(bags[:70], y[:70])
    assert (model.predict(bags[70:]) == y[70:]).mean() > 0.85
    assert model.predict_proba(bags[70:]).shape == (30, 2)
    assert ((model.annotate(bags[70:]) == 0) == z[280:]).mean() > 0.9
    three = np.array(["a", "b", "c"])[np.arange(100) % 3]
    assert set(BagClassifier("fast", random_state=0).fit(bags, three).predict(bags)) <= {"a", "b", "c"}


def test_empty_bags_rare_labels_and_few_bags():
    bags, Y = sample_bags(n_bags=20)
    sizes = bags.sizes.copy()
    kept = np.flatnonzero(~np.isin(bags.index, [2, 9]))
    sizes[[2, 9]] = 0
    holed = Bags(bags.X[kept], np.concatenate([[0], np.cumsum(sizes)]))
    Y[:, 1] = 0
    Y[4, 1] = 1  # a single bag carries it
    Y[2] = 0
    model = BagClassifier("fast", random_state=0).fit(holed, Y)
    assert np.isfinite(model.predict_proba(holed)).all()
    assert model.annotate(holed).shape == (holed.n_instances,)
    assert model.predict_proba(holed)[:, 1].max() < 0.9


def test_instances_without_any_value():
    bags, Y = sample_bags(n_bags=30)
    nothing = bags.with_X(np.zeros_like(bags.X))
    P = BagClassifier("fast", random_state=0).fit(nothing, Y).predict_proba(nothing)
    assert np.isfinite(P).all()


def test_hundreds_of_labels():
    rng = np.random.default_rng(0)
    Y = (rng.random((60, 300)) < 0.01).astype(int)
    bags, _ = sample_bags(n_bags=60)
    model = BagClassifier("fast", random_state=0).fit(bags, Y)
    assert model.predict_proba(bags).shape == (60, 300)


def test_many_bags_are_sampled(monkeypatch):
    bags, Y = sample_bags(n_bags=120)
    monkeypatch.setattr(classifier, "LARGEST", 100)
    monkeypatch.setattr(classifier, "FULL_BAGS", 90)
    plan = Plan(40, (6, 10), 40, 3, 30, 150)  # instance members see about 50 bags
    monkeypatch.setattr(classifier, "plan_for", lambda effort, n, text: plan)
    model = BagClassifier(random_state=0).fit(bags, Y)
    assert model.n_bags_used_ == 100 and model.effort_ == "fast"
    assert 20 < model.members_["ored"]["bags"] < 70
    test, truth = sample_bags(n_bags=60, seed=3)
    assert (model.predict(test) != truth).mean() < 0.2


def test_many_bags_have_a_linear_member_that_sees_all_of_them(monkeypatch, tmp_path):
    from bagwise import load, save

    bags, Y = sample_bags(n_bags=150)
    few = BagClassifier("fast", random_state=0).fit(bags, Y)
    assert "mimlfast" not in few.members_
    monkeypatch.setattr(fitting, "MANY_BAGS", 100)
    monkeypatch.setattr(classifier, "ANSWERED", 90)
    learned = []
    real = fitting.fit_rankers
    monkeypatch.setattr(
        fitting, "fit_rankers", lambda b, *a, **k: (learned.append(len(b)), real(b, *a, **k))[1]
    )
    model = BagClassifier("fast", random_state=0).fit(bags, Y)
    assert learned == [150] and model.members_["mimlfast"]["n_folds"] == 3
    assert model.members_["pooled_forest"]["bags"] == 90 and "bags" not in model.members_["set_kernel"]
    test, truth = sample_bags(n_bags=60, seed=3)
    assert (model.predict(test) != truth).mean() < 0.15
    two = BagClassifier("fast", random_state=0, n_jobs=2).fit(bags, Y)
    assert np.array_equal(model.decision_function(test), two.decision_function(test))
    save(model, tmp_path / "m.skops")
    np.testing.assert_array_equal(
        load(tmp_path / "m.skops").decision_function(test), model.decision_function(test)
    )


def test_rankers_are_the_mean_of_folds_and_know_nothing_of_empty_bags():
    from bagwise.models import MIMLFast

    bags, Y = sample_bags(n_bags=60)
    sizes = bags.sizes.copy()
    sizes[7] = 0
    holed = Bags(bags.X[bags.index != 7], np.concatenate([[0], np.cumsum(sizes)]))
    order = np.random.default_rng(0).permutation(60)
    folds = [(np.sort(order[30:]), np.sort(order[:30])), (np.sort(order[:30]), np.sort(order[30:]))]
    fitted, answers, _ = fit_rankers(holed, Y, folds, seed=4, n_jobs=1)
    singles = []
    for k, (train, test) in enumerate(folds):
        train = train[train != 7]
        singles.append(MIMLFast(random_state=4 + k).fit(holed[train], Y[train]))
        test = test[test != 7]
        np.testing.assert_allclose(answers[test], singles[k].decision_function(holed[test]))
    scores = fitted.scores(holed)
    filled = np.delete(np.arange(60), 7)
    expected = np.mean([m.decision_function(holed[filled]) for m in singles], axis=0)
    np.testing.assert_allclose(scores[filled], expected)
    np.testing.assert_allclose(scores[7], answers[filled].mean(axis=0))
    np.testing.assert_allclose(answers[7], answers[filled].mean(axis=0))


def test_text_beyond_the_sample_is_answered_by_models_of_whole_documents(monkeypatch):
    bags, Y, _ = text_bags()
    monkeypatch.setattr(fitting, "EXACT_BAGS", 50)
    plan = Plan(40, (6, 10), 40, 3, 30, 60)  # members on sentences see a sample
    monkeypatch.setattr(classifier, "plan_for", lambda effort, n, text: plan)
    seen = {}
    real = BagClassifier._mix
    monkeypatch.setattr(BagClassifier, "_mix", lambda m, a, Y, v: (seen.update(a), real(m, a, Y, v))[1])
    model = BagClassifier(members=["text_logistic"], random_state=0).fit(bags, Y)
    assert (seen["text_logistic"] != 0).any(axis=1).all()  # no bag is left without an answer
    assert model.log_loss_ < 0.45


def test_trees_by_effort_size_and_kind():
    full, fast = (plan_for(effort, 5000) for effort in ("full", "fast"))
    assert full.rounds > fast.rounds and full.pooled_trees > fast.pooled_trees
    assert plan_for("full", 1400) == plan_for("fast", 900) and plan_for("fast", 1400) == fast
    text = plan_for("full", 5000, text=True)
    assert text.rounds == fast.rounds and text.max_instances == full.max_instances


def test_blocks_of_bags_change_nothing(monkeypatch):
    bags, Y = sample_bags()
    model = BagClassifier("fast", random_state=0).fit(bags, Y)
    whole = model.decision_function(bags)
    monkeypatch.setattr(classifier, "_BLOCK", 7)
    np.testing.assert_allclose(model.decision_function(bags), whole, rtol=1e-6, atol=1e-8)


def test_statistics_kernel_is_ridge_regression_on_the_statistics_of_bags():
    bags, Y = sample_bags(n_bags=60)
    model = BagClassifier("fast", members=["statistics_kernel"], random_state=0).fit(bags, Y)
    facts, fitted = model.members_["statistics_kernel"], model._views["bags"]

    def table(some):
        parts = [some.X[a:b] for a, b in zip(some.offsets[:-1], some.offsets[1:])]
        q = [[np.quantile(x, p, axis=0) for p in (0.1, 0.25, 0.5, 0.75, 0.9)] for x in parts]
        rows = [[x.mean(0), x.std(0), x.min(0), x.max(0), *v, [len(x)]] for x, v in zip(parts, q)]
        return np.array([np.concatenate(row) for row in rows])

    test = sample_bags(n_bags=20, seed=3)[0]
    A, B = table(bags), table(test)
    keep = A.std(axis=0) > 0
    A, B = ((t[:, keep] - A[:, keep].mean(axis=0)) / A[:, keep].std(axis=0) for t in (A, B))
    K = np.exp(-facts["gamma"] * np.square(A[:, None] - A).sum(axis=2)) + 10.0
    new = np.exp(-facts["gamma"] * np.square(B[:, None] - A).sum(axis=2)) + 10.0
    expected = new @ np.linalg.solve(K + facts["penalty"] * np.eye(len(K)), 2.0 * Y - 1.0)
    found = fitted.answers(test, {"statistics_kernel"})["statistics_kernel"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_members_can_be_named_and_time_limited():
    bags, Y = sample_bags()
    some = BagClassifier("fast", members=["set_kernel", "ored_forest"], random_state=0).fit(bags, Y)
    assert set(some.weights_) == {"set_kernel", "ored", "ored_forest"}  # the forest starts from ored
    limited = BagClassifier("fast", max_seconds=1e-9, random_state=0).fit(bags, Y)
    dropped = {name for name, facts in limited.members_.items() if "dropped" in facts}
    assert dropped == {"inherited_forest", "ored", "ored_forest", "stacked_kernel"}
    assert set(limited.weights_) == {"set_kernel", "statistics_kernel", "pooled_forest"}
    assert limited.annotate(bags, Y).shape == (bags.n_instances,)
    with pytest.raises(ValueError, match="members"):
        BagClassifier(members=["no such member"]).fit(bags, Y)


def test_every_member_can_stand_alone():
    bags, Y = sample_bags(n_bags=60)
    for name in MEMBERS:
        if name.startswith("text") or name in ("inherited_logistic", "stacked_kernel"):
            continue
        model = BagClassifier("fast", members=[name], random_state=0).fit(bags, Y)
        assert (model.predict(bags) != Y).mean() < 0.2, name


def test_saves_and_loads(tmp_path):
    from bagwise import load, save

    bags, Y = sample_bags()
    model = BagClassifier("fast", random_state=0).fit(bags, Y)
    save(model, tmp_path / "m.skops")
    again = load(tmp_path / "m.skops")
    assert np.array_equal(again.predict_proba(bags), model.predict_proba(bags))
    assert np.array_equal(again.annotate(bags, Y), model.annotate(bags, Y))


def test_all_instances_of_a_label_are_found_among_much_background():
    """One instance explains its bag; the others must not stay background for that."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 20))
    bags, labels, truth = [], [], []
    for _ in range(70):
        kinds = np.zeros(60, dtype=int)
        for kind in np.flatnonzero(rng.random(2) < 0.4) + 1:
            kinds[rng.choice(60, 5, replace=False)] = kind
        bags.append(centres[kinds] + rng.normal(0, 0.6, (60, 20)))
        labels.append([int(kind in kinds) for kind in (1, 2)])
        truth.append(kinds - 1)
    labels, test = np.array(labels), slice(50, None)
    model = BagClassifier("fast", random_state=0).fit(bags[:50], labels[:50])
    z = np.concatenate(truth[test])
    for found in (model.annotate(bags[test]), model.annotate(bags[test], labels[test])):
        assert (found[z >= 0] == z[z >= 0]).mean() > 0.9
        assert (found[z < 0] >= 0).mean() < 0.02
