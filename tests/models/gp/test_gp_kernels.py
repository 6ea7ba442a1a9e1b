"""Covariances of instances and bags, and their factors, against whole matrices."""

import tracemalloc
import warnings

import numpy as np
import pytest
from gp_problems import averaging, gaussian, problem, training_of
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF

from bagwise import Bags
from bagwise.models.gp.estimator import MIMLGP
from bagwise.models.gp.fit_features import build_features
from bagwise.models.gp.kernels import CollectiveLikelihood
from bagwise.models.gp.kernels_gaussian import InstanceKernel, gaussian_means, gaussian_pair_sums

pytestmark = pytest.mark.usefixtures("one_thread")

# ---------------------------------------------------------------------- kernels


def test_gaussian_means_are_means_over_pairs():
    bags, _ = problem(9, seed=2, sizes=[1, 700, 3, 1, 2, 5, 1, 1, 4])  # one bag longer than a chunk
    others, _ = problem(5, seed=3)
    K = gaussian(bags.X, others.X, 1.3)
    expected = averaging(bags) @ K @ averaging(others).T
    kernel = InstanceKernel("gaussian", 1.3, 0.0)
    assert_allclose(kernel.between(bags.X, bags.offsets, others.X, others.offsets), expected, rtol=1e-11)
    whole = averaging(bags) @ gaussian(bags.X, bags.X, 1.3) @ averaging(bags).T
    assert_allclose(kernel.gram(bags.X, bags.offsets), whole, rtol=1e-11)
    assert_allclose(kernel.with_itself(bags.X, bags.offsets), np.diag(whole), rtol=1e-11)


def test_kernels_without_compiling():
    bags, _ = problem(4, seed=4)
    out = np.empty((4, 4))
    squares = (bags.X**2).sum(axis=1)
    XT = bags.X.T.copy()
    gaussian_means.py_func(0, 2, bags.X, squares, bags.offsets, XT, squares, bags.offsets, 0.5, False, out)
    E = averaging(bags)
    K = gaussian(bags.X, bags.X, 2.0**0.5)
    assert_allclose(out, E @ K @ E.T, rtol=1e-11)
    ends, sums = np.repeat(bags.offsets[1:], bags.sizes), np.empty(bags.n_instances)
    gaussian_pair_sums.py_func(0, len(sums), bags.X, squares, ends, XT, squares, 0.5, sums)
    behind = np.triu(K, 1) * (bags.index[:, None] == bags.index)
    assert_allclose(sums, behind.sum(axis=1), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("kind", ["gaussian", "linear", "callable", "sklearn"])
def test_all_kinds_of_kernels_dense_and_sparse(kind):
    bags, _ = problem(7, seed=5)
    others, _ = problem(4, seed=6)
    function = {
        "gaussian": "gaussian",
        "linear": "linear",
        "callable": lambda A, B: (1.0 + A @ B.T) ** 2,
        "sklearn": RBF(1.7),
    }[kind]
    plain = {
        "gaussian": lambda A, B: gaussian(A, B, 1.3),
        "linear": lambda A, B: A @ B.T,
        "callable": function,
        "sklearn": function,
    }[kind]
    kernel = InstanceKernel(function, 1.3, 0.25)
    expected = averaging(bags) @ plain(bags.X, others.X) @ averaging(others).T + 0.25
    own = np.diag(averaging(bags) @ plain(bags.X, bags.X) @ averaging(bags).T) + 0.25
    single = np.diag(plain(bags.X, bags.X)) + 0.25
    for make in (np.asarray, sparse.csr_array):
        X, Z = make(bags.X), make(others.X)
        assert_allclose(kernel.between(X, bags.offsets, Z, others.offsets), expected, rtol=1e-10)
        assert_allclose(kernel.with_itself(X, bags.offsets), own, rtol=1e-10)
        assert_allclose(kernel.with_itself(X, np.arange(len(bags.X) + 1)), single, rtol=1e-10)


def test_slopes_of_many_bags_are_those_of_few():
    rng = np.random.default_rng(3)
    Y, F = rng.integers(0, 2, (700, 150)), rng.normal(size=(700, 150)) * 20
    many = CollectiveLikelihood(Y).slopes(F)
    few = [CollectiveLikelihood(Y[i : i + 350]).slopes(F[i : i + 350]) for i in (0, 350)]
    assert_allclose(many[0], few[0][0] + few[1][0])
    for k in (1, 2):
        assert_allclose(many[k], np.vstack([few[0][k], few[1][k]]), rtol=1e-9, atol=1e-15)


# ---------------------------------------------------------------------- factors


@pytest.mark.parametrize("factor", ["eigen", "pivoted", "nystroem"])
@pytest.mark.parametrize("kind", ["gaussian", "linear"])
def test_factors_reproduce_the_kernel(factor, kind):
    bags, _ = problem(25, d=4, seed=7)
    kernel = InstanceKernel(kind, 2.0, 0.1)
    K = kernel.gram(bags.X, bags.offsets)
    parts, features = build_features(
        kernel,
        training_of(bags),
        factor=factor,
        share=1.0,
        rank=25 if factor == "nystroem" else None,
        random_state=np.random.RandomState(0),
    )
    P = parts.only().P
    assert_allclose(P @ P.T, K, atol=1e-6 * K.max())
    again = features.base(bags.X, bags.offsets) @ features.projection + features.intercept
    assert_allclose(again, P, atol=1e-5 * np.abs(P).max())
    gram = P.T @ P
    assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-8 * gram.max())


@pytest.mark.parametrize("factor", ["eigen", "pivoted"])
def test_share_of_the_trace(factor):
    bags, _ = problem(60, d=2, seed=8)
    kernel = InstanceKernel("gaussian", 1.0, 0.0)
    trace = kernel.with_itself(bags.X, bags.offsets).sum()
    ranks = []
    for share in (0.8, 0.95, 0.999):
        parts, _ = build_features(
            kernel, training_of(bags), factor=factor, share=share, rank=None, random_state=None
        )
        P = parts.only().P
        assert (P**2).sum() >= (share - 1e-9) * trace
        ranks.append(P.shape[1])
    assert ranks == sorted(ranks) and ranks[0] < ranks[-1] < 60


def test_memory_stays_below_the_gram_matrix_of_instances():
    rng = np.random.default_rng(9)
    bags = Bags(rng.normal(size=(6000, 2)), np.arange(0, 6001, 10))
    Y = rng.integers(0, 2, (600, 2))
    small = bags[:20]
    MIMLGP(width=1.0, assumption="standard", rank=5).fit(small, Y[:20]).predict(small)  # compile
    for assumption in ("collective", "standard"):
        model = MIMLGP(
            width=2.0, assumption=assumption, rank=20, factor="pivoted", label_covariance="scalar", max_iter=5
        )
        tracemalloc.start()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(bags, Y)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 6000 * 6000 * 8 / 10


@pytest.mark.parametrize("kernel", ["gaussian", "linear", "callable"])
@pytest.mark.parametrize("storage", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("assumption", ["collective", "standard"])
def test_large_bags_go_in_blocks(kernel, storage, assumption, monkeypatch):
    # blocks of a few rows give what whole matrices give, within what is drawn at random for large bags
    bags, Y = problem(n=20, seed=9, sizes=[25, 1, 40, *[3] * 17])
    bags = bags.with_X(storage(bags.X))
    function = (
        (lambda A, B: np.exp(-np.abs(A[:, None] - B[None]).sum(axis=2))) if kernel == "callable" else kernel
    )
    settings = {"assumption": assumption, "label_covariance": "identity", "width": 2.0}
    whole = MIMLGP(function, **settings).fit(bags, Y)
    expected = whole.predict_proba(bags), *whole.predict_latent(bags), *whole.instance_latent(bags)
    monkeypatch.setattr("bagwise.models.gp.kernels_gaussian.BLOCK", 7)
    monkeypatch.setattr("bagwise.models.gp.predict.CELLS", 50)
    monkeypatch.setattr("bagwise.models.gp.predict.LARGEST", 8)
    blocks = MIMLGP(function, **settings).fit(bags, Y)
    found = blocks.predict_proba(bags), *blocks.predict_latent(bags), *blocks.instance_latent(bags)
    assert_allclose(found[0], expected[0], atol=1e-8 if assumption == "collective" else 6e-3)
    for a, b in zip(found[1:], expected[1:]):
        assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_a_bag_of_many_instances_in_bounded_memory(monkeypatch):
    rng = np.random.default_rng(9)
    sizes = [2500, *[5] * 20]
    bags = Bags(rng.normal(size=(sum(sizes), 3)), np.cumsum([0, *sizes]))
    Y = rng.integers(0, 2, (21, 2))
    Y[:2] = [[0, 1], [1, 0]]
    monkeypatch.setattr("bagwise.models.gp.fit_features.CELLS_LIMIT", 2600 * 20)
    monkeypatch.setattr("bagwise.models.gp.predict.CELLS", 30_000)
    monkeypatch.setattr("bagwise.models.gp.kernels_gaussian.BLOCK", 300)
    for assumption in ("collective", "standard"):
        for X in (bags.X, sparse.csr_array(bags.X)):
            given = bags.with_X(X)
            settings = {"assumption": assumption, "label_covariance": "identity", "n_draws": 256}
            MIMLGP(width=2.0, **settings).fit(given[1:], Y[1:]).predict(given[1:])  # compile
            tracemalloc.start()
            model = MIMLGP(width=2.0, **settings).fit(given, Y)
            assert np.isfinite(model.decision_function(given)).all()
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 2500 * 2500 * 8 / 5, (assumption, type(X))  # a kernel matrix of the bag has 50 MB
            assert model.rank_ <= 21
