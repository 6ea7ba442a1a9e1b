"""What MIML-GP learns or chooses by itself: label covariance, width, scaling, transforms."""

import warnings

import numpy as np
import pytest
from gp_problems import averaging, problem, spd
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from bagwise.base.blocks import thinned
from bagwise.errors import DataError
from bagwise.models.gp.estimator import MIMLGP
from bagwise.models.gp.fit import constrained, extrapolated
from bagwise.models.gp.fit_features import TRANSFORMS, apply_transform, learn_transform

pytestmark = pytest.mark.usefixtures("one_thread")

# ---------------------------------------------------------------------- learning K_f


def test_structures():
    bags, Y = problem(n=40, seed=14)
    K = {
        k: MIMLGP(width=2.0, label_covariance=k).fit(bags, Y).label_covariance_
        for k in ("full", "diagonal", "scalar")
    }
    assert np.count_nonzero(K["full"]) == 9
    assert np.count_nonzero(K["diagonal"]) == 3
    assert_allclose(K["scalar"], K["scalar"][0, 0] * np.eye(3))
    identity = MIMLGP(width=2.0, label_covariance="identity").fit(bags, Y)
    assert_allclose(identity.label_covariance_, np.eye(3))
    assert identity.converged_ and identity.n_iter_ == 0
    # one label: all learned structures are the same
    K = [
        MIMLGP(width=2.0, label_covariance=k, tol=1e-5).fit(bags, Y[:, :1]).label_covariance_
        for k in ("full", "scalar")
    ]
    assert_allclose(K[0], K[1], rtol=1e-3)


def test_extrapolation_keeps_matrices_positive_definite():
    K0, K1, K2 = spd(4, 1), spd(4, 2), spd(4, 3)
    for structure in ("full", "diagonal", "scalar"):
        K = constrained(extrapolated(*(constrained(K, structure) for K in (K0, K1, K2))), structure)
        assert np.linalg.eigvalsh(K)[0] > 0
        assert_allclose(K, constrained(K, structure))


@pytest.mark.parametrize("assumption", ["collective", "standard"])
def test_degenerate_labels(assumption):
    bags, Y = problem(n=30, seed=15)
    rng = np.random.default_rng(0)
    hard = np.column_stack([Y, Y[:, :1], np.ones(30), np.zeros(30), rng.integers(0, 2, 30)]).astype(np.int8)
    model = MIMLGP(width=2.0, assumption=assumption, max_iter=60)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(bags, hard)
    told = any(issubclass(w.category, ConvergenceWarning) for w in caught)
    assert model.converged_ or told  # never silently
    assert np.isfinite(model.decision_function(bags)).all()
    assert np.linalg.eigvalsh(model.label_covariance_)[0] >= -1e-9 * np.abs(model.label_covariance_).max()
    if assumption == "collective":
        assert model.label_correlation_[0, 3] > 0.95  # a label and its copy
        P = model.predict_proba(bags)
        assert (P[:, 4] > 0.5).all() and (P[:, 5] < 0.5).all()


def test_warning_names_labels_and_a_way_out():
    bags, Y = problem(n=20, seed=16)
    names = [[("ant", "bee", "cat")[s] for s in np.flatnonzero(row)] for row in Y]
    with pytest.warns(ConvergenceWarning, match=r"label '(ant|bee|cat)'.*max_iter"):
        model = MIMLGP(width=2.0, max_iter=2, tol=1e-9).fit(bags, names)
    first, second, value = model.correlated_labels(1)[0]
    assert {first, second} < {"ant", "bee", "cat"} and -1 <= value <= 1


# ---------------------------------------------------------------------- choosing


def test_features_are_scaled_unless_told_otherwise():
    bags, Y = problem(n=60, seed=17)
    units = bags.with_X(bags.X * np.array([1e4, 1.0, 1e-3]))  # the first feature alone would decide
    model = MIMLGP().fit(units, Y)
    assert model.scaling_ == "minmax"
    assert {transform for transform, _ in model.candidates_} == {"minmax", "none"}
    alike = MIMLGP(scaling="minmax").fit(bags, Y).decision_function(bags)
    assert_allclose(model.decision_function(units), alike, rtol=1e-6, atol=1e-8)
    assert MIMLGP(width=1.0).fit(units, Y).scaling_ == "minmax"
    assert MIMLGP(assumption="standard", width=1.0, max_iter=2, tol=1.0).fit(units, Y).scaling_ == "minmax"
    assert MIMLGP(scaling="none").fit(units, Y).scaling_ == "none"
    words = (np.random.default_rng(0).random((bags.n_instances, 40)) < 0.05) * 3.0
    for X in (words, sparse.csr_array(words)):
        assert MIMLGP(width=1.0).fit(bags.with_X(X), Y).scaling_ == "log"


@pytest.mark.parametrize("assumption", ["collective", "standard"])
def test_features_of_any_size(assumption):
    bags, Y = problem(n=30, seed=18)
    huge = bags.with_X(bags.X * 1e300)
    settings = {"assumption": assumption, "label_covariance": "identity"}
    model = MIMLGP(width=1.0, **settings).fit(huge, Y)
    plain = MIMLGP(width=1.0, **settings).fit(bags, Y)
    assert_allclose(model.decision_function(huge), plain.decision_function(bags), rtol=1e-6, atol=1e-8)
    MIMLGP(**settings, width="auto" if assumption == "collective" else 1.0).fit(huge, Y)
    spoiled = bags.X.copy()
    spoiled[bags.offsets[7], 2] = -1e300
    for X in (spoiled, sparse.csr_array(spoiled)):
        with pytest.raises(DataError, match=r"feature 2 of bag 7 has the value -1e\+300.*divide"):
            plain.predict(bags.with_X(X))
        with pytest.raises(DataError, match="feature 2 of bag 7"):
            MIMLGP(scaling="none", width=1.0, **settings).fit(bags.with_X(X), Y)


def test_width_by_evidence_and_transforms():
    bags, Y = problem(n=60, seed=17)
    model = MIMLGP(scaling="minmax").fit(bags, Y)
    assert len(model.candidates_) == 8
    assert model.width_ == model.candidates_[int(np.argmax(model.candidate_scores_))][1]
    several = MIMLGP(width=(0.5, 2.0), scaling=("none", "standard")).fit(bags, Y)
    assert len(several.candidates_) == 4 and several.scaling_ in ("none", "standard")
    again = several.set_params(width=2.0, scaling="none").fit(bags, Y)
    assert not hasattr(again, "candidates_")


def test_comparisons_look_at_a_part_of_large_bags(monkeypatch):
    bags, Y = problem(n=20, seed=18, sizes=[50, 3, 1, *[4] * 17])
    monkeypatch.setattr("bagwise.models.gp.tune.MOST_INSTANCES", 6)
    part = thinned(bags, 6)
    assert part.sizes.tolist() == [6, 3, 1, *[4] * 17]
    assert_allclose(part.X[[0, 5]], bags.X[[0, 49]])
    assert_allclose(part.X[6:], bags.X[50:])
    model = MIMLGP(label_covariance="scalar", max_iter=5, tol=0.5).fit(bags, Y)
    seen = MIMLGP(label_covariance="scalar", max_iter=5, tol=0.5).fit(part, Y)
    assert model.landmarks_.n_instances == bags.n_instances  # the model itself looks at all
    assert len(model.candidates_) == len(seen.candidates_) == 16
    monkeypatch.setattr("bagwise.models.gp.tune.MOST_BAGS", 10)
    fewer = MIMLGP(label_covariance="scalar", max_iter=5, tol=0.5).fit(bags, Y)
    some = np.linspace(0, 19, 10).astype(int)
    alone = MIMLGP(
        width=[w for t, w in fewer.candidates_ if t == "none"], scaling="none", max_iter=5, tol=0.5
    )
    alone.set_params(label_covariance="scalar").fit(part[some], Y[some])
    assert_allclose(fewer.candidate_scores_[8:], alone.candidate_scores_)


def test_width_by_cross_validation():
    bags, Y = problem(n=30, seed=18)
    settings = {"width": (0.05, 2.0), "assumption": "standard", "rank": 10, "label_covariance": "identity"}
    model = MIMLGP(**settings, random_state=0).fit(bags, Y)
    assert model.candidate_scores_.shape == (2,) and (model.candidate_scores_ < 0).all()
    assert model.width_ == 2.0


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_dense_and_sparse(name):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((20, 4)) < 0.5, rng.normal(size=(20, 4)), 0.0)
    X[3] = 0.0
    X[:, 3] = 2.0
    before = X.copy()
    dense = apply_transform(X, name, learn_transform(X, name))
    csr = sparse.csr_array(X)
    assert_allclose(apply_transform(csr, name, learn_transform(csr, name)).toarray(), dense, rtol=1e-12)
    assert np.isfinite(dense).all()
    assert_allclose(X, before)
    if name == "minmax":
        assert_allclose(np.ptp(dense[:, :3], axis=0), 1.0)
    if name in ("minmax", "standard"):
        assert (dense[:, 3] == 0).all()  # a constant column says nothing


def test_paper_mode():
    bags, Y = problem(n=40, seed=19)
    model = MIMLGP(mode="paper").fit(bags, Y)
    same = MIMLGP(width=1.0, factor="eigen", cross="exact").fit(bags, Y)
    assert model.width_ == 1.0
    assert_allclose(model.decision_function(bags), same.decision_function(bags))
    crude = MIMLGP("linear", mode="paper", share=0.5).fit(bags, Y)  # exact means although features are cut
    K = averaging(bags) @ bags.X @ bags.X.T @ averaging(bags).T
    mean, _ = crude.predict_latent(bags)
    assert np.linalg.matrix_rank(mean, tol=1e-8) <= 3 and crude.rank_ <= 3
    assert_allclose(K @ np.linalg.lstsq(K, mean, rcond=None)[0], mean, atol=1e-8)


def test_exact_means_with_landmarks():
    bags, Y = problem(n=40, seed=20)
    K = spd(3)
    full = MIMLGP(width=1.5, label_covariance=K, share=1.0).fit(bags, Y)
    model = MIMLGP(width=1.5, label_covariance=K, factor="pivoted", share=0.9999999, cross="exact").fit(
        bags, Y
    )
    assert model.training_bags_ is not None
    assert_allclose(model.predict_latent(bags)[0], full.predict_latent(bags)[0], atol=1e-3)
    again = model.set_params(cross="features").fit(bags, Y)
    assert again.training_bags_ is None
