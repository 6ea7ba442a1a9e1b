"""Scores of bags by models of other bags."""

import numpy as np

from bagwise.models._shared.held_out import held_out_scores


def test_every_bag_is_scored_by_models_of_other_bags():
    Y = (np.random.default_rng(0).random((50, 4)) < 0.3).astype(int)
    Y[:, 3] = 0
    Y[7, 3] = 1  # one bag alone: no model of the others knows this label
    seen = []

    def score(train, test):
        assert not set(train) & set(test)
        seen.extend(test)
        return np.ones((len(test), 4))

    scores = held_out_scores(score, Y)
    assert sorted(seen) == list(range(50))
    assert np.isfinite(scores[:, :3]).all() and np.isnan(scores[7, 3])
    weights = np.ones(50)
    weights[10:20] = 0
    assert np.isnan(held_out_scores(score, Y, weights)[10:20]).all()
    assert np.isnan(held_out_scores(score, Y[:5])).all()  # too few to hold any out
    seen.clear()
    held_out_scores(score, Y, most=40)
    assert len(seen) == 50 // 3


def test_several_kinds_of_scores_are_held_out_together():
    Y = np.tile([[0, 1], [1, 1], [1, 0]], (8, 1))

    def score(train, test):
        return np.stack([np.tile(test[:, None], 2), np.tile(-test[:, None], 2)])

    first, second = held_out_scores(score, Y)
    np.testing.assert_array_equal(first[:, 0], np.arange(24))
    np.testing.assert_array_equal(second, -first)
