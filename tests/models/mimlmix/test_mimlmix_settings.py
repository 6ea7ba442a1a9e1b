"""Settings of MIMLmix that are chosen inside the training data."""

import pickle

import numpy as np
import pytest
from mimlmix_problems import FIXED, two_views
from scipy import sparse
from sklearn.base import clone

from bagwise import MultiViewBags
from bagwise.datasets import make_mimlmix_like
from bagwise.errors import DataError
from bagwise.models.mimlmix.estimator import MIMLMix
from bagwise.models.mimlmix.tune import choose_settings


def test_settings_are_chosen_inside_the_training_data():
    views, Y = two_views(13, n_bags=60)
    model = MIMLMix(max_iter=4, random_state=0).fit(MultiViewBags(views), Y)
    assert set(model.settings_) == {"kappa", "nu", "alpha_train", "eta", "xi", "n_topics"}
    tried = {tuple(s.values()): v for s, v in model.search_}
    chosen = tuple(v for k, v in model.settings_.items() if k != "n_topics")
    assert tried[chosen] == max(tried.values())
    paper = MIMLMix(mode="paper", max_iter=5, random_state=0).fit(MultiViewBags(views), Y)
    assert paper.settings_ == {
        "kappa": 0.1, "nu": 1.0, "alpha_train": 0.3, "eta": 0.3, "xi": 0.1, "n_topics": 200
    }  # fmt: skip
    star = MIMLMix(0.0, mode="paper", max_iter=5, random_state=0).fit(views["w"], Y)
    assert star.settings_["alpha_train"] == 0.1


def test_views_have_their_own_smoothing():
    data = make_mimlmix_like("imageclef", 60, random_state=14)
    settings = {**FIXED, "max_iter": 4}

    def fitted(**more):
        return MIMLMix(**{**settings, **more}).fit(data.bags, data.Y)

    def learned(model, view):  # what the label looks like, from the kept statistics and a plain formula
        v = model.views_[view]
        S = sparse.csr_array((v["S"]["data"], v["S"]["indices"], v["S"]["indptr"]), v["S"]["shape"]).toarray()
        kappa = {"visual": 500.0, "textual": 7.0}[view]
        return (S[:, 0] + kappa * v["background"]) / (S[:, 0].sum() + kappa)

    named = fitted(kappa={"visual": 500.0, "textual": 7.0})
    assert named.settings_["kappa"] == {"visual": 500.0, "textual": 7.0}
    in_order = fitted(kappa=[500.0, 7.0])
    np.testing.assert_array_equal(named.elbo_, in_order.elbo_)
    for view in ("visual", "textual"):
        first = int(named.components_[0])
        words = named.label_distribution(first, view)["words"]
        np.testing.assert_allclose(words, learned(named, view), rtol=1e-9)
    one = fitted(kappa=20.0)
    assert one.settings_["kappa"] == 20.0
    both = fitted(kappa=(20.0, 20.0))
    np.testing.assert_array_equal(one.label_scores(data.bags), both.label_scores(data.bags))
    found = fitted(kappa={"textual": 7.0})  # the other one is searched
    assert found.settings_["kappa"]["textual"] == 7.0
    tried = {s["kappa"]["visual"] for s, _ in found.search_}
    assert len(tried) > 3
    assert {s["kappa"]["textual"] for s, _ in found.search_} == {7.0}
    restored = pickle.loads(pickle.dumps(clone(named)))
    assert restored.kappa == named.kappa
    views, Y = two_views(3)  # one view of each kind: numbers, and entries of the other kind are not looked at
    mixed = MIMLMix(**{**FIXED, "kappa": [1.0, 4.0], "nu": [2.0, "auto"]}).fit(MultiViewBags(views), Y)
    assert (mixed.settings_["kappa"], mixed.settings_["nu"]) == (4.0, 2.0)
    with pytest.raises(DataError, match="kappa names the views"):
        fitted(kappa={"sound": 1.0})
    with pytest.raises(DataError, match="3 entries for the 2 views"):
        fitted(kappa=[1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="kappa of MIMLMix must be"):
        fitted(kappa={"visual": 0.0})


class KnownQuality:
    """Stands for held-out bags: a quality that is known for all settings."""

    def __init__(self, function):
        self.quality = function


def test_search_finds_what_each_view_wants():
    """A separable quality whose best settings are known; the first view's lies far beyond the grid."""
    wanted = {("kappa", "a"): 30000.0, ("kappa", "b"): 10.0, "alpha_train": 20.0, "eta": 10.0, "xi": 0.03}

    def quality(s):
        return 1.0 - 0.1 * sum(abs(np.log10(max(s[k], 1e-3) / wanted[k])) for k in wanted)

    given = {("kappa", "a"): "auto", ("kappa", "b"): "auto", "nu": 10.0, "alpha_train": "auto", "eta": "auto",
             "xi": "auto"}  # fmt: skip
    found, tried = choose_settings(KnownQuality(quality), given)
    assert found == {**wanted, "nu": 10.0}
    assert max(value for _, value in tried) == pytest.approx(1.0)
    assert tried[0][0]["kappa"] == {"a": 300.0, "b": 300.0}
    # a given value is never touched
    found, _ = choose_settings(KnownQuality(quality), {**given, ("kappa", "a"): 42.0})
    assert found["kappa", "a"] == 42.0
    assert found["kappa", "b"] == 10.0

    def flat(s):  # rises for ever, but by less than a step beyond the grid must gain
        return 0.001 * np.log10(s["kappa"])

    found, _ = choose_settings(KnownQuality(flat), {"kappa": "auto", "eta": 3.0, "xi": 0.1})
    assert found["kappa"] == 1000.0

    def crossed(s):  # at the first value of kappa eta = 0 is best; the best pair has topics
        return 0.5 if s["eta"] == 0.0 else 0.9 - 0.5 * abs(np.log10(s["kappa"] / 10.0))

    found, _ = choose_settings(KnownQuality(crossed), {"kappa": "auto", "eta": "auto", "xi": 0.1})
    assert found["kappa"] == 10.0
    assert found["eta"] > 0.0
