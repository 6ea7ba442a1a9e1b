"""MMMIL as an estimator: features, outputs, the number of clusters."""

import warnings

import numpy as np
import pytest
from mm_mil_problems import faces
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score

import bagwise
from bagwise.bags import Bags
from bagwise.checks import all_checks
from bagwise.datasets import make_miml
from bagwise.models import OneVsRestMIL
from bagwise.models.mm_mil.estimator import MMMIL, select_n_clusters
from bagwise.models.mm_mil.fit_features import gaussian_kernel, median_distance, whitening

# ---------------------------------------------------------------------- features


def test_whitened_features_have_the_kernel_as_inner_product():
    X = np.random.default_rng(0).normal(size=(20, 3))
    K = gaussian_kernel(X, X, 2.0)
    Phi = K @ whitening(K)
    np.testing.assert_allclose(Phi @ Phi.T, K, atol=1e-5)
    d = ((X[3] - X[7]) ** 2).sum()
    assert np.isclose(K[3, 7], np.exp(-d / 4.0))


def test_median_distance_and_degenerate_rows():
    X = np.random.default_rng(0).normal(size=(400, 5))
    D = ((X[:, None] - X[None]) ** 2).sum(axis=2)[np.triu_indices(400, 1)]
    pairs = np.random.RandomState(0).randint(400, size=(2, 2000))
    found = median_distance(X, *pairs)
    assert abs(found / np.median(D) - 1) < 0.1
    assert np.isclose(median_distance(sparse.csr_array(X), *pairs), found)
    assert median_distance(np.ones((3, 2)), *(pairs % 3)) == 1.0
    assert median_distance(np.ones((1, 2)), *(pairs % 1)) == 1.0


def test_kernel_model_learns_a_ring_and_scaling_features_changes_nothing():
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 5, 120)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    y = rng.integers(0, 2, 120)
    X = rng.normal(size=(offsets[-1], 2)) * 0.4
    angle = rng.uniform(0, 2 * np.pi, 120)
    X[offsets[:-1][y == 1]] = 3.0 * np.column_stack([np.cos(angle), np.sin(angle)])[y == 1]
    bags = Bags(X, offsets)
    model = MMMIL(1, kernel="rbf", width_scale=0.25, n_landmarks=100, random_state=0).fit(bags, y)
    assert roc_auc_score(y, model.decision_function(bags)) > 0.98
    assert model.landmarks_.shape == (100, 2) and model.expert_coef_.shape == (1, 1, 100)
    moved = Bags(1000.0 * X + 7.0, offsets)
    again = MMMIL(1, kernel="rbf", width_scale=0.25, n_landmarks=100, random_state=0).fit(moved, y)
    assert np.isclose(again.sigma2_, model.sigma2_)
    np.testing.assert_allclose(
        again.decision_function(moved), model.decision_function(bags), rtol=0.05, atol=0.05
    )


# ---------------------------------------------------------------------- outputs


@pytest.mark.parametrize("kernel", [None, "rbf"])
def test_outputs_agree_with_each_other(kernel):
    bags, y, _ = faces(100, 2)
    model = MMMIL(2, kernel=kernel, n_landmarks=60, random_state=0).fit(bags, y)
    q = model.cluster_proba(bags)
    np.testing.assert_allclose(q.sum(axis=1), 1.0)
    p = model.instance_proba(bags)[:, 0]
    proba = model.predict_proba(bags)[:, 1]
    np.testing.assert_allclose(proba, [p[a:b].max() for a, b in zip(bags.offsets[:-1], bags.offsets[1:])])
    found = model.bag_clusters(bags)
    np.testing.assert_array_equal(found >= 0, model.predict(bags) == 1)
    witness = model.key_instances(bags)[:, 0, 0]
    np.testing.assert_array_equal(found[found >= 0], q[witness].argmax(axis=1)[found >= 0])
    np.testing.assert_array_equal(model.bag_clusters(bags, y) >= 0, y == 1)
    if kernel is None:  # P(z | x, +) by the letter
        P = np.vstack(
            [
                np.hstack([model.expert_coef_[0].T, model.gate_coef_[0].T]),
                np.hstack([model.expert_intercept_[0], model.gate_intercept_[0]]),
            ]
        )
        x = bags.X[5].astype(float)
        f = np.append(x, 1.0) @ P
        joint = np.exp(f[2:]) / np.exp(f[2:]).sum() / (1 + np.exp(-f[:2]))
        np.testing.assert_allclose(q[5], joint / joint.sum(), rtol=1e-6)
        assert np.isclose(p[5], joint.sum())


def test_same_seed_same_model_and_parallel_labels_too():
    data = make_miml(60, 3, 6, random_state=0)
    first = MMMIL(2, random_state=3).fit(data.bags, data.Y)
    again = MMMIL(2, random_state=3, n_jobs=2).fit(data.bags, data.Y)
    np.testing.assert_array_equal(first.expert_coef_, again.expert_coef_)
    assert first.cluster_proba(data.bags).shape == (data.bags.n_instances, 3, 2)
    assert first.bag_clusters(data.bags).shape == (60, 3)
    assert len(first.objective_) == 3


def test_contradicting_copies_of_a_bag_are_reported():
    rng = np.random.default_rng(0)
    matrices = [rng.normal(size=(3, 2)) for _ in range(6)]
    bags = Bags.from_list([*matrices, matrices[2][::-1], matrices[3]])  # another order is the same bag
    y = np.array([0, 1, 0, 1, 0, 1, 1, 1])
    for X in (bags, bags.with_X(sparse.csr_array(bags.X))):
        with pytest.warns(UserWarning, match="1 bags occur again.*2 and 6.*6 distinct bags among 8"):
            MMMIL(1).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        MMMIL(1).fit(bags, np.array([0, 1, 0, 1, 0, 1, 0, 1]))


def test_bad_parameters_are_refused_by_name():
    bags, y, _ = faces(20, 1)
    bad = {
        "n_clusters": 0,
        "kernel": "poly",
        "solver": "sgd",
        "n_init": 0,
        "width_scale": 0.0,
        "gate_penalty": -1.0,
        "expert_penalty": float("nan"),
        "n_landmarks": 2.5,
        "tol": float("nan"),
        "max_iter": -3,
        "n_jobs": 0,
    }
    for name, value in bad.items():
        for model in (MMMIL(**{name: value}), OneVsRestMIL(MMMIL(**{name: value}))):
            with pytest.raises(ValueError, match=name):
                model.fit(bags, y)
        with pytest.raises(ValueError, match=name):
            select_n_clusters(MMMIL(**{name: value}), bags, y, (1, 2))
    with pytest.raises(ValueError, match=r"estimator of OneVsRestMIL.*fit and decision_function"):
        OneVsRestMIL("svm").fit(bags, y)
    with pytest.raises(ValueError, match="n_clusters"):
        select_n_clusters(MMMIL(), bags, y, [])


@pytest.mark.parametrize("method", ["instance_proba", "cluster_proba", "bag_clusters"])
def test_own_methods_need_a_fit(method):
    bags, _, _ = faces(20, 1)
    with pytest.raises(NotFittedError):
        getattr(MMMIL(), method)(bags)


@pytest.mark.parametrize("kernel", [None, "rbf"])
def test_stored_model_predicts_the_same(tmp_path, kernel):
    bags, y, _ = faces(40, 2)
    for model in (
        MMMIL(2, kernel=kernel, random_state=0),
        OneVsRestMIL(MMMIL(1, kernel=kernel, random_state=0)),
    ):
        model.fit(bags, y)
        bagwise.save(model, tmp_path / "model.skops")
        again = bagwise.load(tmp_path / "model.skops")
        np.testing.assert_array_equal(again.decision_function(bags), model.decision_function(bags))


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.__name__)
def test_common_checks_with_a_kernel(check):
    check(MMMIL(2, kernel="rbf", n_landmarks=40, n_init=1, random_state=0))


# ---------------------------------------------------------------------- number of clusters


def corners(n_faces, seed, n_bags=200, d=10):
    """Half of the bags hold one instance of a face; faces are corners of a regular simplex around 0."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(3, 11, n_bags))])
    X = rng.normal(size=(offsets[-1], d))
    centres = np.eye(n_faces, d) - (np.arange(d) < n_faces) / n_faces * (n_faces > 1)
    centres *= 5.0 / np.linalg.norm(centres, axis=1, keepdims=True)
    y = rng.permutation(n_bags) % 2
    chosen = (offsets[:-1] + rng.integers(0, np.diff(offsets)))[y == 1]
    X[chosen] += centres[rng.integers(0, n_faces, len(chosen))]
    return Bags(X, offsets), y


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_faces", [1, 2, 3])
def test_number_of_clusters_is_found(n_faces, seed):
    # the information criterion, no longer offered, took 4, 4 and 7 clusters for 3
    bags, y = corners(n_faces, seed)
    best, values = select_n_clusters(MMMIL(n_init=2, random_state=0), bags, y, range(1, 6))
    assert best == n_faces and set(values) == {1, 2, 3, 4, 5}


def test_number_of_clusters_of_several_labels():
    data = make_miml(60, 3, 6, random_state=0)
    best, values = select_n_clusters(MMMIL(random_state=0), data.bags, data.Y, (2, 1))
    assert best in (1, 2) and np.isfinite(list(values.values())).all()
