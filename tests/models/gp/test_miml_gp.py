"""MIMLGP as an estimator: classes, heat maps, files, refusals, sparse data."""

import numpy as np
import pytest
from gp_problems import problem, spd
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.exceptions import NotFittedError

from bagwise import Bags, load_dataset
from bagwise.models.gp.estimator import MIMLGP

pytestmark = pytest.mark.usefixtures("one_thread")


def test_classes_and_binary():
    data = load_dataset("digits", n_bags=100)
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 4, 150)
    from sklearn.datasets import load_digits

    X, z = load_digits(n_class=4, return_X_y=True)
    classes = rng.integers(0, 4, 150)
    rows = np.concatenate([rng.choice(np.flatnonzero(z == c), size) for c, size in zip(classes, sizes)])
    bags = Bags(X[rows], np.concatenate([[0], np.cumsum(sizes)]))
    model = MIMLGP(width=40.0, scaling="none").fit(bags[:100], classes[:100])
    assert (model.predict(bags[100:]) == classes[100:]).mean() > 0.95
    binary = MIMLGP("linear", scaling="minmax").fit(bags[:100], classes[:100] > 1)
    assert (binary.predict(bags[100:]) == (classes[100:] > 1)).mean() > 0.9
    assert binary.predict_proba(bags[100:]).shape == (50, 2)
    many = MIMLGP(scaling="minmax", width=4.0, label_covariance="scalar").fit(data.bags, data.Y)
    assert (many.predict(data.bags) == data.Y).mean() > 0.9


def test_heat_map_and_saving(tmp_path):
    from bagwise.persistence import load, save
    from bagwise.report import heat_map

    bags, Y = problem(n=30, seed=21)
    names = [[("ant", "bee", "cat")[s] for s in np.flatnonzero(row)] for row in Y]
    for settings in ({"width": 2.0}, {"kernel": "linear", "assumption": "standard"}):
        model = MIMLGP(**settings).fit(bags, names)
        figure = heat_map(model.label_correlation_, model.label_names_)
        assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == list(model.label_names_)
        save(model, tmp_path / "gp.skops")
        assert_allclose(load(tmp_path / "gp.skops").predict_proba(bags), model.predict_proba(bags))


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel": "cubic"},
        {"assumption": "some"},
        {"width": -1.0},
        {"width": "wide"},
        {"label_covariance": "fuller"},
        {"label_covariance": -np.eye(3)},
        {"label_covariance": np.eye(2)},
        {"scaling": "squared"},
        {"factor": "svd"},
        {"share": 0.0},
        {"sharpness": ()},
        {"selection": "luck"},
        {"width": float("nan")},
        {"width": (1.0, float("nan"))},
        {"tol": float("nan")},
        {"constant": -1.0},
        {"scale": float("inf")},
        {"n_draws": 0},
        {"cv": 1},
        {"label_covariance": np.full((3, 3), np.nan)},
        {"label_covariance": 3.0},
        {"scaling": ("none", "squared")},
        {"max_iter": -3},
    ],
)
def test_bad_settings_are_refused_by_name(settings):
    bags, Y = problem()
    with pytest.raises(ValueError, match=next(iter(settings))):
        MIMLGP(**settings).fit(bags, Y)


@pytest.mark.parametrize("method", ["predict_latent", "instance_latent"])
def test_own_methods_need_a_fit(method):
    bags, _ = problem()
    with pytest.raises(NotFittedError):
        getattr(MIMLGP(), method)(bags)
    with pytest.raises(NotFittedError):
        MIMLGP().correlated_labels()


def test_scene_paper_mode(public_data):
    data = load_dataset("miml_scene")
    model = MIMLGP(scaling="minmax", mode="paper").fit(data.bags[:1800], data.Y[:1800])
    assert model.rank_ < 80 and model.n_iter_ < 40


@pytest.mark.parametrize("assumption", ["collective", "standard"])
@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_sparse_training_is_dense_training(kernel, assumption):
    bags, Y = problem(n=30, d=6, seed=22)
    thin = np.where(np.abs(bags.X) > 0.7, bags.X, 0.0)
    for factor in ("auto", "pivoted"):
        model = MIMLGP(
            kernel, 2.0, assumption=assumption, factor=factor, label_covariance=spd(3), scaling="minmax"
        )
        dense = model.fit(bags.with_X(thin), Y).decision_function(bags.with_X(thin))
        csr = bags.with_X(sparse.csr_array(thin))
        assert_allclose(model.fit(csr, Y).decision_function(csr), dense, rtol=1e-3, atol=2e-3)
