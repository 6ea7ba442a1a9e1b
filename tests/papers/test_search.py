"""Searches that share work choose and fit what plain grids do, and compute far less."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, ParameterGrid, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import papers.methods as room
from bagwise.compute.memo import remembered, shared_work, unchanging
from bagwise.datasets import make_miml
from bagwise.errors import DataError
from bagwise.metrics import get_scorer
from bagwise.model_selection import MultilabelKFold
from bagwise.preprocessing import OnInstances
from bagwise.registry import get_estimator
from papers.methods import fit_model, search

DATA = make_miml(n_bags=60, n_labels=3, random_state=0)
GRIDS = {
    "MIMLRBF": {"ratio": [0.1, 0.4], "width_scale": [0.3, 1.0]},
    "MIMLSVM": {"ratio": [0.2, 0.4], "gamma": [0.2, 0.8], "C": [1.0, 4.0]},
    "MIMLKNN": {"n_references": [3, 6], "n_citers": [3, 6]},
    "SetKernelSVM": {"weights": ["equal", "graph"], "C": [1.0, 100.0]},
    "MILES": {"penalty": [0.1, 0.5]},
    "CodebookSVM": {"n_words": [5, 20], "C": [1.0, 10.0]},
    "MMMIL": {"kernel": ["rbf"], "n_clusters": [1, 2], "width_scale": [0.3, 1.0], "max_iter": [5]},
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", GRIDS)
def test_a_shared_search_is_a_plain_one(name):
    model = get_estimator(name)()
    if "random_state" in model.get_params():
        model.set_params(random_state=7)
    spec = {"grid": GRIDS[name], "cv": 2, "scoring": "average_precision"}
    bags, Y = DATA.bags[:40], DATA.Y[:40]
    fitted, chosen = search(model, spec, bags, Y, 3)
    folds = MultilabelKFold(2, random_state=3)
    plain = GridSearchCV(model, GRIDS[name], scoring=get_scorer("average_precision"), cv=folds)
    plain.fit(bags, Y)
    assert chosen == plain.best_params_
    new = DATA.bags[40:]
    # the same up to how arrays lie in memory
    np.testing.assert_allclose(fitted.decision_function(new), plain.decision_function(new), rtol=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", ["MMMIL", "MIMLKNN", "CodebookSVM"])
def test_sharing_changes_no_bit_of_any_score(name, monkeypatch):
    model = get_estimator(name)()
    if "random_state" in model.get_params():
        model.set_params(random_state=7)
    grid = dict(GRIDS[name])
    if name == "MMMIL":
        grid |= {"gate_penalty": [0.01, 0.1], "expert_penalty": [0.01, 0.1], "n_init": [1]}
    scores = {}

    def recorded(*arguments):
        values = inner(*arguments)
        scores[way].extend(values)
        return values

    inner = room._scores
    monkeypatch.setattr(room, "_scores", recorded)
    chosen, answers = {}, {}
    for way, memory in {"shared": room.shared_work, "alone": nullcontext}.items():
        scores[way] = []
        monkeypatch.setattr(room, "shared_work", memory)
        spec = {"grid": grid, "cv": 2, "scoring": "roc_auc"}
        fitted, chosen[way] = search(model, spec, DATA.bags[:40], DATA.Y[:40, 0], 3)
        answers[way] = fitted.decision_function(DATA.bags[40:])
    assert scores["shared"] == scores["alone"]
    assert len(scores["alone"]) == len(ParameterGrid(grid))
    assert chosen["shared"] == chosen["alone"]
    assert np.array_equal(answers["shared"], answers["alone"])


def test_starts_and_features_of_mm_mil_are_those_of_a_width_and_a_penalty(monkeypatch):
    from bagwise.models.mm_mil import fit, fit_features

    calls = {"kernel_of": 0, "inherited_expert": 0}

    def counted(where, name):
        inner = getattr(where, name)

        def call(*given):
            calls[name] += 1
            return inner(*given)

        monkeypatch.setattr(where, name, call)

    counted(fit_features, "kernel_of")
    counted(fit, "inherited_expert")
    grid = {
        "width_scale": [0.3, 1.0],
        "gate_penalty": [0.01, 0.1],
        "expert_penalty": [0.1],
        "n_clusters": [1, 2],
    }
    model = get_estimator("MMMIL")(kernel="rbf", n_init=1, max_iter=2, random_state=0)
    spec = {"grid": grid, "cv": 2, "scoring": "roc_auc"}
    with pytest.warns(ConvergenceWarning):
        search(model, spec, DATA.bags, DATA.Y[:, 0], 0)
    # two widths in two folds, and the chosen one on all bags; 17 each without sharing
    assert calls == {"kernel_of": 5, "inherited_expert": 5}


def test_classes_and_steps_before_the_model():
    y = DATA.Y[:, 0]
    whole = make_pipeline(OnInstances(StandardScaler()), get_estimator("SetKernelSVM")())
    spec = {"grid": [{"C": [1.0]}, {"C": [100.0], "gamma": [0.1, 1.0]}], "cv": 3, "scoring": "roc_auc"}
    fitted, chosen = search(whole, spec, DATA.bags, y, 0)
    grid = [{f"setkernelsvm__{k}": v for k, v in part.items()} for part in spec["grid"]]
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    plain = GridSearchCV(whole, grid, scoring="roc_auc", cv=folds).fit(DATA.bags, y)
    assert chosen == {k.removeprefix("setkernelsvm__"): v for k, v in plain.best_params_.items()}
    assert fitted.get_params()["setkernelsvm__C"] == chosen["C"]


def test_steps_before_the_model_are_learned_once_in_each_fold(monkeypatch):
    fits = []
    inner = StandardScaler.fit
    monkeypatch.setattr(
        StandardScaler, "fit", lambda self, X, y=None: fits.append(len(X)) or inner(self, X, y)
    )
    whole = make_pipeline(OnInstances(StandardScaler()), get_estimator("SetKernelSVM")())
    search(
        whole, {"grid": {"C": [0.1, 1.0, 10.0]}, "cv": 2, "scoring": "roc_auc"}, DATA.bags, DATA.Y[:, 0], 0
    )
    assert len(fits) == 3  # two folds, and all bags
    assert fits[0] + fits[1] == fits[2] == DATA.bags.n_instances


def test_steps_in_single_precision_halve_the_numbers_and_change_little():
    spec = {"estimator": "ORedLogisticRegression", "rbf": 0.5, "params": {"solver": "em", "alpha": 0.0}}
    double, _ = fit_model(spec, DATA.bags, DATA.Y, 0)
    single, _ = fit_model(spec | {"steps": ["single"]}, DATA.bags, DATA.Y, 0)
    assert single[:-1].transform(DATA.bags).X.dtype == np.float32
    a, b = double.decision_function(DATA.bags), single.decision_function(DATA.bags)
    np.testing.assert_allclose(a, b, atol=1e-3 * np.abs(a).max())


def test_rounds_give_up_poor_settings_and_the_last_one_settles_it():
    grid = {"alpha": [1000.0, 0.1, 100.0, 1.0]}
    spec = {"grid": grid, "cv": 2, "scoring": "average_precision"}
    model = get_estimator("ORedLogisticRegression")(max_iter=20)
    _, whole = search(model, spec, DATA.bags, DATA.Y, 0)
    rounds = [{"params": {"max_iter": 3}, "keep": 0.5}]
    fitted, found = search(model, {**spec, "rounds": rounds}, DATA.bags, DATA.Y, 0)
    assert found == whole
    assert fitted.max_iter == 20  # not that of the trials
    with pytest.raises(DataError, match="params and keep"):
        search(model, {**spec, "rounds": [{"keep": 1.0}]}, DATA.bags, DATA.Y, 0)


def test_what_settings_have_in_common_is_computed_once(monkeypatch):
    from bagwise.models.distance import base

    calls = []

    def counted(X, offsets, *others, **settings):
        calls.append(len(offsets) - 1)
        return inner(X, offsets, *others, **settings)

    inner = base.hausdorff_distances.__wrapped__
    counted.__module__, counted.__qualname__ = "here", "counted"
    monkeypatch.setattr(base, "hausdorff_distances", remembered(counted))
    spec = {
        "grid": {"n_references": [2, 3, 4], "n_citers": [2, 3, 4]},
        "cv": 2,
        "scoring": "average_precision",
    }
    search(get_estimator("MIMLKNN")(), spec, DATA.bags, DATA.Y, 0)
    assert len(calls) == 5  # training and test part of two folds, and all bags; 37 without sharing


def test_unknown_keys_are_named():
    with pytest.raises(DataError, match="'grinds'"):
        fit_model({"estimator": "MIMLKNN", "search": {"grinds": {}}}, DATA.bags, DATA.Y, 0)


# ---------------------------------------------------------------------- the memory behind it


def test_memory_compares_contents_and_forgets_the_longest_unused():
    calls = []

    @remembered
    def work(x, *, by=1.0):
        calls.append(by)
        return x * by

    x = np.arange(1000.0)
    with shared_work(limit=20_000):
        first = work(x, by=2.0)
        assert work(x.copy(), by=2.0) is first
        assert not first.flags.writeable
        assert work(x, by=np.float64(2.0)) is not first  # another type is another argument
        work(x, by=3.0), work(x, by=4.0)
        work(x, by=2.0)
    assert calls == [2.0, 2.0, 3.0, 4.0, 2.0]
    assert work(x, by=2.0).flags.writeable  # outside, nothing is kept
    with shared_work(), pytest.raises(TypeError, match="list"):
        work([1.0])


def test_arrays_that_do_not_change_are_looked_at_once():
    @dataclass(frozen=True)
    class Scale:
        by: np.ndarray

    calls = []

    @remembered
    def scaled(x, scale):
        calls.append(len(x))
        return x * scale.by, scale

    x, scale = np.arange(5.0), Scale(np.full(5, 2.0))
    unchanging(x)  # outside it says nothing
    with shared_work():
        unchanging(x)
        first, told = scaled(x, scale)
        x[0] = 7.0  # the promise is broken, so nobody looks
        assert scaled(x, scale)[0] is first
        assert scaled(np.arange(5.0), Scale(np.full(5, 2.0)))[0] is first  # the same contents elsewhere
        assert not told.by.flags.writeable
        again, _ = scaled(first, scale)  # a result: known without looking
        assert scaled(first, scale)[0] is again
        assert scaled(x.copy(), scale)[0] is not first
    assert calls == [5, 5, 5]


def test_what_is_larger_than_the_memory_is_not_kept():
    calls = []

    @remembered
    def ones(n):
        calls.append(n)
        return np.ones(n)

    with shared_work(limit=100):
        ones(1000), ones(1000)
    assert calls == [1000, 1000]


def test_features_are_divided_by_what_serves_mimlfast_best():
    from bagwise.model_selection import select_mimlfast
    from papers.methods import division

    grid = {"n_components": [5], "n_sub_concepts": [1], "step_size": [5e-3]}
    model = get_estimator("MIMLFast")(solver="asgd", scaling="none", max_iter=4, random_state=0)
    spec = {"estimator": "MIMLFast", "params": {"solver": "asgd", "scaling": "none", "max_iter": 4}}
    spec["params"]["random_state"] = 0
    spec["search"] = {"kind": "mimlfast", "cv": 2, "grid": {**grid, "divide": [1000.0, 1.0]}}
    fitted, chosen = fit_model(spec, DATA.bags, DATA.Y, 0)
    losses = {
        by: select_mimlfast(
            division(by).fit_transform(DATA.bags), DATA.Y, estimator=model, grid=grid, cv=2, random_state=0
        ).best_loss
        for by in (1000.0, 1.0)
    }
    assert chosen["divide"] == min(losses, key=losses.get)
    assert fitted.predict(DATA.bags).shape == DATA.Y.shape
