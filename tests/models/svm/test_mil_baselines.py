"""What the machines of one label share: files, CSR, blocks, scaling, refusals; and codebooks."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler
from sklearn.svm import SVC
from toy_bags import planted, planted_and_stored, random_bags

from bagwise import Bags
from bagwise.compute.scaling import apply_scaling, learn_scaling
from bagwise.models import MILES, MISVM, CodebookSVM, SetKernelSVM
from bagwise.models.svm.base import blocks, short_indices

FAMILY = [MISVM(), MISVM("instance"), MILES(penalty=0.1), SetKernelSVM(), SetKernelSVM("graph")]
FAMILY += [CodebookSVM(10, random_state=0), MISVM(kernel="linear"), SetKernelSVM(kernel="linear")]


# ---------------------------------------------------------------------- what all share


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_saved_and_loaded(model, tmp_path):
    bags, again = planted_and_stored(model, tmp_path)
    assert again.instance_scores(bags).shape == (bags.n_instances, 4)


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_nothing_but_constant_labels(model):
    bags, y, _ = planted(10)
    S = model.fit(bags, np.column_stack([np.ones_like(y), np.zeros_like(y)])).decision_function(bags)
    np.testing.assert_array_equal(S, np.tile([1.0, -1.0], (10, 1)))
    assert model.instance_scores(bags).shape == (bags.n_instances, 2)


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_learning_from_csr(model):
    bags, y, _ = planted()
    thin = bags.with_X(np.where(np.abs(bags.X) > 0.4, bags.X, 0.0))
    as_csr = thin.with_X(sparse.csr_array(thin.X))
    model.set_params(scaling="none")
    try:
        dense = model.fit(thin, y).decision_function(thin)
        from_csr = model.fit(as_csr, y).decision_function(as_csr)
    finally:
        model.set_params(scaling="standard")
    # the solver stops within its own tolerance, at a place that the last bits of the kernel decide
    np.testing.assert_allclose(from_csr, dense, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_learns_what_is_planted(model):
    bags, y, _ = planted(80)
    model.fit(bags[:40], y[:40])
    assert (model.predict(bags[40:]) == y[40:]).mean() > 0.8


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_blocks_change_nothing(model, monkeypatch):
    bags, y, _ = planted(12)
    model.fit(bags, y)
    whole, instances = model.decision_function(bags), model.instance_scores(bags)
    monkeypatch.setattr("bagwise.models.svm.base.CELLS", 60)
    monkeypatch.setattr("bagwise.models.svm.miles.CELLS", 60)
    monkeypatch.setattr("bagwise.models.svm.kernels._CELLS", 60)
    np.testing.assert_allclose(model.decision_function(bags), whole, atol=1e-10)
    np.testing.assert_allclose(model.instance_scores(bags), instances, atol=1e-10)


def test_blocks_cover_all_bags():
    bags = random_bags(23, 1, seed=0)
    for n_rows in (1, 4, 7, 1000):
        parts = list(blocks(bags, n_rows))
        np.testing.assert_array_equal(np.concatenate([part.X for part in parts]), bags.X)
        assert all(part.n_instances <= n_rows or len(part) == 1 for part in parts)


@pytest.mark.parametrize("scaling", ["standard", "minmax", "l2", "none"])
def test_scaling_is_that_of_scikit_learn(scaling):
    X, new = np.random.default_rng(0).normal(1.0, 3.0, size=(2, 20, 4))
    theirs = {"standard": StandardScaler(), "minmax": MinMaxScaler(), "l2": Normalizer()}.get(scaling)
    expected = new if theirs is None else theirs.fit(X).transform(new)
    scale = learn_scaling(X, scaling)
    if scaling == "minmax":  # moved by a constant, which no kernel of differences sees
        expected = expected - theirs.transform(np.zeros((1, 4)))
    np.testing.assert_allclose(apply_scaling(new, scale), expected)
    long = sparse.csr_array(new)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    got = short_indices(apply_scaling(long, scale))
    np.testing.assert_allclose(got.toarray() if sparse.issparse(got) else got, expected)


@pytest.mark.parametrize(
    ("cls", "wrong"),
    [
        (MISVM, {"margin": "mi"}),
        (MISVM, {"kernel": "poly"}),
        (MISVM, {"C": 0.0}),
        (MISVM, {"max_iter": 0}),
        (MISVM, {"positive_weight": -1.0}),
        (MISVM, {"gamma": "auto"}),
        (MILES, {"gamma": -1.0}),
        (MILES, {"penalty": 0.0}),
        (MILES, {"positive_cost": 1.0}),
        (SetKernelSVM, {"weights": "all"}),
        (SetKernelSVM, {"normalization": "paper"}),
        (SetKernelSVM, {"graph_distance": "l1"}),
        (SetKernelSVM, {"edge_threshold": -1.0}),
        (CodebookSVM, {"n_words": 0}),
        (CodebookSVM, {"scaling": "robust"}),
    ],
)
def test_bad_parameters_are_named(cls, wrong):
    bags, y, _ = planted(10)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        cls(**wrong).fit(bags, y)


# ---------------------------------------------------------------------- codebooks


def test_as_many_words_as_instances_are_the_empirical_distribution():
    values = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [5.0, 5.0]])
    bags = Bags.from_list([values[[0, 1]], values[[2, 2, 0]], values[[3]], values[[1, 3, 3, 2]]])
    model = CodebookSVM(4, scaling="none", random_state=0).fit(bags, [0, 1, 0, 1])
    order = [int(np.abs(model.words_ - value).sum(axis=1).argmin()) for value in values]
    np.testing.assert_allclose(model.words_[order], values, atol=1e-12)
    expected = [[0.5, 0.5, 0, 0], [1 / 3, 0, 2 / 3, 0], [0, 0, 0, 1], [0, 0.25, 0.25, 0.5]]
    np.testing.assert_allclose(model.histograms(bags)[:, order], expected)
    more = CodebookSVM(9, scaling="none", random_state=0).fit(bags, [0, 1, 0, 1])  # fewer distinct ones
    assert len(more.words_) == 4


def test_histograms_equal_loops_and_feed_a_plain_machine():
    bags, y, _ = planted(50, noise=1.5)
    model = CodebookSVM(8, C=5.0, random_state=0).fit(bags[:30], y[:30])
    Z = StandardScaler().fit(bags[:30].X).transform(bags.X)
    H = np.zeros((50, len(model.words_)))
    for i, z in enumerate(Z):
        H[bags.index[i], ((model.words_ - z) ** 2).sum(axis=1).argmin()] += 1.0 / bags.sizes[bags.index[i]]
    np.testing.assert_allclose(model.histograms(bags), H)
    plain = SVC(C=5.0, gamma="scale").fit(H[:30], y[:30])
    np.testing.assert_allclose(model.decision_function(bags), plain.decision_function(H), atol=1e-2)


def test_several_classes():
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], 15)
    centres = {"a": (0, 0), "b": (4, 0), "c": (0, 4)}
    bags = Bags.from_list([rng.normal(centres[c], 0.7, size=(rng.integers(1, 5), 2)) for c in y])
    for model in FAMILY:
        assert (model.fit(bags, y).predict(bags) == y).mean() > 0.9, model
