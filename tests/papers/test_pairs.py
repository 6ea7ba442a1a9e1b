"""Kernels of pairs of bags that are kept from fit to fit give what fits alone give."""

from __future__ import annotations

import numpy as np
import pytest

from bagwise.compute import memo as pairs
from bagwise.compute.memo import between_bags, shared_pairs
from bagwise.datasets import make_miml
from bagwise.registry import get_estimator
from papers.execute import execute
from papers.tasks import Task

DATA = make_miml(n_bags=40, n_labels=3, random_state=0)
MODELS = {
    "SetKernelSVM": {"weights": "graph", "scaling": "none", "gamma": 0.05},
    "MIMLGP": {"scaling": "none", "width": 4.0, "label_covariance": "scalar"},
}


@pytest.mark.parametrize("name", MODELS)
def test_folds_that_share_pairs_give_the_scores_of_folds_alone(name):
    kept, sizes = {}, []
    for fold in range(4):
        test = np.arange(fold, 40, 4)
        train = np.setdiff1d(np.arange(40), test)
        model = get_estimator(name)(**MODELS[name])
        alone = model.fit(DATA.bags[train], DATA.Y[train, 0]).decision_function(DATA.bags[test])
        with shared_pairs(kept):
            model = get_estimator(name)(**MODELS[name])
            shared = model.fit(DATA.bags[train], DATA.Y[train, 0]).decision_function(DATA.bags[test])
        np.testing.assert_allclose(shared, alone, rtol=1e-6, atol=1e-9)
        sizes.append([len(matrix.places) for matrix in kept.values()])
    assert sizes[-1] == [40]  # one matrix of all bags serves all folds


def test_only_unknown_pairs_are_computed():
    X, offsets = np.arange(6.0)[:, None], np.arange(7)
    asked = []

    def compute(some, others):
        asked.append((len(some), len(others)))
        return np.add.outer(left[some, 0], right[others, 0])

    with shared_pairs({}):
        left = right = X[:4]
        between_bags("sum", (left, offsets[:5]), (right, offsets[:5]), compute)
        left, right = X[3:], X[:2]
        found = between_bags("sum", (left, offsets[:4]), (right, offsets[:3]), compute)
        np.testing.assert_array_equal(found, np.add.outer(left[:, 0], right[:, 0]))
    assert asked == [(4, 4), (2, 2)]  # 3 with 0 and 1 was known


def test_too_many_bags_are_not_kept(monkeypatch):
    monkeypatch.setattr(pairs, "_MOST_BAGS", 3)
    X, offsets, kept = np.arange(6.0)[:, None], np.arange(7), {}
    with shared_pairs(kept):
        between_bags("sum", (X, offsets), (X, offsets), lambda a, b: np.zeros((len(a), len(b))))
    assert kept == {}


def test_fits_of_a_protocol_that_shares_have_no_times_of_their_own():
    data = {"load": "miml", "options": {"n_bags": 40, "n_labels": 3, "random_state": 0}, "target": "binary"}
    model = {"estimator": "SetKernelSVM", "params": {"scaling": "none"}}
    split = {"kind": "folds", "n_splits": 4}
    rows = {}
    for share in ({}, {"share": True}):
        row, _ = execute(Task("A", "m", data, model, split | share, {"seed": 0, "fold": 1}))
        assert row["error"] == ""
        rows[bool(share)] = row
    assert rows[True]["measures"] == rows[False]["measures"]
    assert rows[True]["fit_seconds"] is None and rows[False]["fit_seconds"] is not None
