"""Diverse density against a grid, and what all models of concepts share."""

import os

import numpy as np
import pytest
from density_references import plain_density, plain_q, scipy_minimum
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from toy_bags import planted, planted_and_stored

from bagwise import Bags
from bagwise.models import DDSVM, EMDD, MCEMDD, DiverseDensity
from bagwise.models.diverse_density.diverse_density import densest
from bagwise.models.diverse_density.kernels import NoisyOr

FAMILY = [
    DiverseDensity(20, random_state=0),
    EMDD(20, random_state=0),
    EMDD(20, combine="average", random_state=0),
    MCEMDD(2, n_starts=4, random_state=0),
    DDSVM(20, random_state=0),
]


# ---------------------------------------------------------------------- diverse density


def test_densest_point_equals_a_grid():
    rng = np.random.default_rng(3)
    y = np.arange(12) % 2
    X = [rng.choice([-3.0, 3.0], (3, 1)) + rng.normal(size=(3, 1)) for _ in y]  # negatives on either side
    for b in np.flatnonzero(y):
        X[b][0] = rng.normal(scale=0.7)
    bags = Bags.from_list(X)
    model = DiverseDensity("all", scaling="none", max_scale=3.0).fit(bags, y)
    h, s = np.meshgrid(np.linspace(-6, 6, 481), np.linspace(0.01, 3.0, 300))
    values, _ = NoisyOr(bags.X, bags.offsets, y)(np.column_stack([h.ravel(), s.ravel()]), None)
    assert model.objective_[0][0] <= values.min() + 1e-9
    assert model.objective_[0][0] == pytest.approx(values.min(), abs=0.02)
    best = int(values.argmin())
    assert abs(model.concepts_[0][0, 0] - h.ravel()[best]) < 0.05
    assert plain_density(np.concatenate([model.concepts_[0][0], model.scales_[0][0]]), bags, y) == (
        pytest.approx(model.objective_[0][0])
    )


def test_every_start_does_as_well_as_scipy():
    bags, y, _ = planted(16, d=2, noise=1.0)
    settings = {"init_scale": 0.5, "max_scale": 4.0, "max_iter": 300, "tol": 1e-12}
    points = bags.X[y[bags.index] > 0][:6]
    found = densest(y, bags.X, bags.offsets, points, settings)
    limit = np.array([np.inf, np.inf, 4.0, 4.0])
    theirs = [
        scipy_minimum(lambda t: plain_density(t, bags, y), np.concatenate([p, [0.5, 0.5]]), limit).fun
        for p in points
    ]
    assert found.values.min() == pytest.approx(min(theirs), abs=1e-4)
    assert np.isclose(found.values, theirs, atol=1e-3).sum() >= 4  # others ended in another valley


def test_scores_are_log_odds_of_the_noisy_or():
    bags, y, _ = planted(noise=1.0)
    model = DiverseDensity(20, random_state=0).fit(bags, y)
    Z = StandardScaler().fit_transform(bags.X)
    p = np.array([np.exp(-plain_q(z, model.concepts_[0][0], model.scales_[0][0])) for z in Z])
    P = np.array([1.0 - np.prod(1.0 - p[bags.index == b]) for b in range(len(bags))])
    np.testing.assert_allclose(
        model.decision_function(bags), np.log(P / (1 - P)) - model.offset_[0], rtol=1e-6
    )
    np.testing.assert_allclose(
        model.instance_scores(bags)[:, 0], np.log(p / (1 - p)) - model.offset_[0], rtol=1e-6, atol=1e-6
    )
    errors = (model.predict(bags) != y).sum()
    assert errors == min(((t < P) != y).sum() for t in [-1.0, *P])  # the best threshold of all


def test_the_planted_point_is_found():
    bags, y, rows = planted(60, noise=0.4)
    for model in (DiverseDensity(20, random_state=0), EMDD(20, random_state=0)):
        model.fit(bags, y)
        scale = StandardScaler().fit(bags.X)
        point = scale.inverse_transform(model.concepts_[0])[0]
        assert abs(point[0] - 4.0) < 0.5  # where the scale is nearly 0, the point may be anywhere
        assert model.scales_[0][0, 0] > 2 * model.scales_[0][0, 1:].max()  # the feature that matters
        np.testing.assert_array_equal(model.key_instances(bags)[y == 1, 0, 0], rows)
        assert (model.predict(bags) == y).all()


# ---------------------------------------------------------------------- what all share


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_a_concept_model_saved_and_loaded(model, tmp_path):
    bags, again = planted_and_stored(model, tmp_path)
    F = again.instance_scores(bags)
    np.testing.assert_array_equal(F[:, [1, 3]], np.tile([1.0, -1.0], (len(F), 1)))


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_only_constant_labels(model):
    bags, y, _ = planted(10)
    S = model.fit(bags, np.column_stack([np.ones_like(y), np.zeros_like(y)])).decision_function(bags)
    np.testing.assert_array_equal(S, np.tile([1.0, -1.0], (10, 1)))
    assert model.instance_scores(bags).shape == (bags.n_instances, 2)


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_concepts_from_csr_and_in_blocks(model, monkeypatch):
    bags, y, _ = planted()
    thin = bags.with_X(np.where(np.abs(bags.X) > 0.4, bags.X, 0.0))
    as_csr = thin.with_X(sparse.csr_array(thin.X))
    model = type(model)(**{**model.get_params(), "scaling": "none"})
    expected = model.fit(thin, y).decision_function(thin)
    np.testing.assert_allclose(model.fit(as_csr, y).decision_function(as_csr), expected, atol=1e-6)
    instances = model.instance_scores(thin)
    monkeypatch.setattr("bagwise.models.svm.base.CELLS", 60)
    np.testing.assert_allclose(model.decision_function(thin), expected, atol=1e-6)
    np.testing.assert_allclose(model.instance_scores(thin), instances, atol=1e-6)


@pytest.mark.parametrize("model", FAMILY, ids=str)
def test_concepts_generalise(model):
    bags, y, _ = planted(80)
    model.fit(bags[:40], y[:40])
    assert (model.predict(bags[40:]) == y[40:]).mean() > 0.85
    singles = bags.singletons()
    if not isinstance(model, DDSVM):
        np.testing.assert_allclose(
            model.instance_scores(bags)[:, 0], model.decision_function(singles), rtol=1e-9
        )


@pytest.mark.parametrize("cls", [DiverseDensity, EMDD, MCEMDD])
def test_too_few_iterations_are_told(cls):
    bags, y, _ = planted(20, noise=1.5)
    with pytest.warns(match="max_iter=1"):
        cls(max_iter=1, tol=0.0, random_state=0).fit(bags, y)


def test_wide_sparse_data_are_refused_with_advice(monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: 32)  # 32 pages of 32 bytes
    bags, y, _ = planted(20)
    with pytest.raises(MemoryError, match="use fewer features"):
        EMDD(scaling="none").fit(bags.with_X(sparse.csr_array(bags.X)), y)
