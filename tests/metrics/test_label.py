"""Label measures against plain loops and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from bagwise.errors import DataError
from bagwise.metrics import macro_f1, mean_average_precision, roc_auc, top_labels


def loop_precision(y, s):
    """Sum over thresholds, from the top, of the recall gained times the precision there."""
    value, recall = 0.0, 0.0
    for threshold in sorted(set(s), reverse=True):
        chosen = [t for t, v in zip(y, s) if v >= threshold]
        value += (sum(chosen) / sum(y) - recall) * sum(chosen) / len(chosen)
        recall = sum(chosen) / sum(y)
    return value


def loop_auc(y, s):
    pairs = [(p > n) + 0.5 * (p == n) for p, t in zip(s, y) if t for n, u in zip(s, y) if not u]
    return np.mean(pairs) if pairs else np.nan


def loop_top(s, n):
    best = sorted(range(len(s)), key=lambda l: (-s[l], l))[:n]
    return [l in best for l in range(len(s))]


def mean(values):
    values = [v for v in values if not np.isnan(v)]
    return np.mean(values) if values else np.nan


@st.composite
def predictions(draw):
    n_bags, n_labels = draw(st.sampled_from([0, 1, 2, 7, 30, 150])), draw(st.sampled_from([1, 2, 9, 20]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    Y = (rng.random((n_bags, n_labels)) < rng.choice([0.0, 0.1, 0.5, 1.0], n_labels)).astype(int)
    S = rng.choice(rng.normal(size=draw(st.sampled_from([1, 3, 1000]))), Y.shape)
    train_Y = (rng.random((5, n_labels)) < 0.3).astype(int)
    return Y, S.astype(draw(st.sampled_from([np.float32, np.float64]))), train_Y


@settings(max_examples=50, deadline=None)
@given(predictions())
def test_mean_average_precision_and_auc_equal_their_definitions(data):
    Y, S, train_Y = data
    labels = [l for l in range(Y.shape[1]) if Y[:, l].any()]
    precisions = {l: loop_precision(Y[:, l].tolist(), S[:, l].tolist()) for l in labels}
    assert mean_average_precision(Y, S) == pytest.approx(mean(list(precisions.values())), nan_ok=True)
    trained = [precisions[l] for l in labels if train_Y[:, l].any()]
    assert mean_average_precision(Y, S, train_Y=train_Y) == pytest.approx(mean(trained), nan_ok=True)
    areas = [loop_auc(Y[:, l], S[:, l]) for l in range(Y.shape[1])]
    assert roc_auc(Y, S) == pytest.approx(mean(areas), nan_ok=True)
    assert roc_auc(Y[:, 0], S[:, 0]) == pytest.approx(areas[0], nan_ok=True)


def test_against_scikit_learn_on_many_bags():
    rng = np.random.default_rng(5)
    Y, S = rng.integers(0, 2, (3000, 11)), rng.integers(0, 500, (3000, 11)) / 7
    assert mean_average_precision(Y, S) == pytest.approx(sk.average_precision_score(Y, S, average="macro"))
    assert roc_auc(Y, S) == pytest.approx(sk.roc_auc_score(Y, S, average="macro"))
    P = top_labels(S, 5)
    assert macro_f1(Y, S, n_top=5) == pytest.approx(sk.f1_score(Y, P, average="macro", zero_division=0))


@settings(max_examples=50, deadline=None)
@given(predictions(), st.integers(0, 6))
def test_top_labels(data, n):
    S = data[1]
    expected = np.array([loop_top(s, n) for s in S.tolist()], dtype=bool).reshape(S.shape)
    np.testing.assert_array_equal(top_labels(S, n), expected)


def test_top_labels_beyond_one_block_of_rows_and_with_infinities():
    S = np.random.default_rng(6).integers(0, 3, (2500, 6)).astype(float)
    S[::7, 2] = -np.inf
    S[::5, 4] = np.inf
    np.testing.assert_array_equal(top_labels(S, 2), [loop_top(s, 2) for s in S.tolist()])


@settings(max_examples=50, deadline=None)
@given(predictions())
def test_macro_f1_equals_its_definition(data):
    Y, S, train_Y = data
    for train in (None, train_Y):
        source = Y if train is None else train
        n = max(1, round(source.sum() / len(source))) if len(source) else 1
        P = [loop_top(s, n) for s in S.tolist()]
        values = []
        for l in range(Y.shape[1]):
            if not Y[:, l].any() or (train is not None and not train[:, l].any()):
                continue
            tp = sum(y[l] and p[l] for y, p in zip(Y, P))
            fp = sum(not y[l] and p[l] for y, p in zip(Y, P))
            fn = sum(y[l] and not p[l] for y, p in zip(Y, P))
            values.append(2 * tp / (2 * tp + fp + fn))
        assert macro_f1(Y, S, train_Y=train) == pytest.approx(mean(values), nan_ok=True)
        sets = np.array(P, dtype=int).reshape(Y.shape)
        assert macro_f1(Y, sets, n_top=None, train_Y=train) == pytest.approx(mean(values), nan_ok=True)


def test_labels_without_positives_or_negatives_are_left_out():
    Y, S = [[1, 0, 1], [0, 0, 1]], [[0.3, 0.1, 0.2], [0.4, 0.5, 0.6]]
    assert roc_auc(Y, S) == 0
    assert mean_average_precision(Y, S) == 0.75  # labels 0 and 2: 1/2 and 1
    assert mean_average_precision(Y, S, train_Y=[[1, 1, 0]]) == 0.5
    assert np.isnan(roc_auc([1, 1], [0.2, 0.3]))
    assert np.isnan(mean_average_precision([[0, 0]], [[0.2, 0.3]]))
    assert np.isnan(macro_f1([[1, 0]], [[0.2, 0.3]], train_Y=[[0, 1]]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_average_precision([[1, 0]], [[1, 2]], train_Y=[[1]]), "train_Y with 2 labels"),
        (lambda: roc_auc([1, 0], [[0.1, 0.2]]), r"shape of Y, \(2,\)"),
        (lambda: roc_auc([1, 3], [0.1, 0.2]), "found 3 in row 1"),
        (lambda: roc_auc([1, 0], [0.1, np.nan]), "NaN, found one in row 1"),
        (lambda: top_labels([0.1, 0.2], 1), r"\(n_bags, n_labels\)"),
        (lambda: top_labels([[0.1, 0.2]], -1), "0 or more; received -1"),
        (lambda: top_labels([[0.1, 0.2]], 1.5), "received 1.5"),
        (lambda: macro_f1([[1, 0]], [[0.1, 0.2]], n_top="most"), "received 'most'"),
        (lambda: macro_f1([[1, 0]], [[0.1, 0.2]], n_top=None), "found 0.1"),
    ],
)
def test_wrong_input_is_refused(call, message):
    with pytest.raises(DataError, match=message):
        call()
