"""EM by combinations of instances is EM by weights, and its steps climb."""

import numpy as np
import pytest

from bagwise import Bags
from bagwise.models import ORedLogisticRegression
from bagwise.models.ored import fit_em as em


@pytest.fixture
def problem():
    rng = np.random.default_rng(3)
    sizes = rng.integers(2, 6, 40)
    X = rng.normal(size=(sizes.sum(), 3))
    bags = Bags(X, np.concatenate([[0], np.cumsum(sizes)]))
    kinds = (X[:, 0] > 0.3).astype(int) + (X[:, 1] > 0.0)
    Y = np.zeros((len(bags), 3), dtype=np.int8)
    Y[bags.index, kinds] = 1
    return bags, Y


@pytest.mark.parametrize(
    "settings", [{}, {"fit_intercept": False}, {"subset": 0.5}, {"kernel": None}, {"background": "anywhere"}]
)
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_rows_and_weights_take_the_same_steps(problem, monkeypatch, alpha, settings):
    settings = {"kernel": "rbf", "width_scale": 0.5, "background": False} | settings
    fits = []
    for by_rows in (False, True):
        monkeypatch.setattr(em, "rows_are_cheaper", lambda *_, answer=by_rows: answer)
        model = ORedLogisticRegression(alpha, solver="em", max_iter=25, tol=0.0, random_state=0, **settings)
        fits.append(model.fit(*problem))
    np.testing.assert_allclose(fits[1].objective_, fits[0].objective_, rtol=1e-9)
    np.testing.assert_allclose(fits[1].coef_, fits[0].coef_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(fits[1].intercept_, fits[0].intercept_, rtol=1e-6, atol=1e-9)
    if settings.get("subset", 1.0) == 1.0:
        assert (np.diff(fits[1].objective_) > 0).all()


def test_rows_serve_kernels_of_all_instances_and_long_climbs():

    class Problem:
        def __init__(self, n, d, n_classes):
            self.X, self.Y = np.zeros((n, d)), np.zeros((1, n_classes))

    assert em.rows_are_cheaper(Problem(100, 100, 5), 50)
    assert not em.rows_are_cheaper(Problem(100, 100, 5), 5)  # making X X' would not repay
    assert not em.rows_are_cheaper(Problem(1000, 20, 5), 500)
