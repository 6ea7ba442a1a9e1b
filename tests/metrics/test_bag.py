"""Bag measures against plain loops, literal cases, and scikit-learn where the definitions meet."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn import metrics as sk

from bagwise.errors import DataError
from bagwise.metrics import _kernels, average_precision, coverage, hamming_loss, one_error, ranking_loss
from bagwise.metrics import bag as bag_module


def positions(s, ties):
    """Rank of every label, best = 1."""
    if ties == "sklearn":
        return [sum(w >= v for w in s) for v in s]
    order = sorted(range(len(s)), key=lambda l: (s[l], l))  # ascending and stable, so the last ranks first
    return [len(s) - order.index(l) for l in range(len(s))]


def loop(Y, S, ties, degenerate):
    """One-error, coverage, ranking loss and average precision, straight from their definitions."""
    errors, depths, losses, precisions = [], [], [], []
    for y, s in zip(Y, S):
        relevant = [l for l in range(len(y)) if y[l]]
        rest = [l for l in range(len(y)) if not y[l]]
        rank = positions(list(s), ties)
        depths.append(max((rank[l] for l in relevant), default=0))
        if not relevant or not rest:
            if degenerate == "count":
                errors.append(0.0 if relevant else 1.0)
                losses.append(0.0)
                precisions.append(1.0)
            continue
        tied = [l for l in range(len(s)) if s[l] == max(s)]
        right = all(y[l] for l in tied) if ties == "sklearn" else any(y[l] for l in tied)
        errors.append(0.0 if right else 1.0)
        losses.append(np.mean([s[l] <= s[m] for l in relevant for m in rest]))
        precisions.append(np.mean([sum(rank[m] <= rank[l] for m in relevant) / rank[l] for l in relevant]))
    mean = [np.mean(v) if v else np.nan for v in (errors, losses, precisions)]
    return mean[0], np.mean(depths) - 1 if depths else np.nan, mean[1], mean[2]


@st.composite
def predictions(draw):
    n_bags, n_labels = draw(st.integers(0, 9)), draw(st.sampled_from([1, 2, 3, 5, 12, 40]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    density = draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
    Y = (rng.random((n_bags, n_labels)) < density).astype(
        draw(st.sampled_from([np.int64, np.int8, bool, float]))
    )
    n_values = draw(st.sampled_from([1, 2, 4, 1000]))
    values = np.concatenate([[-np.inf, np.inf, -0.0, 0.0], rng.normal(size=n_values)])
    S = rng.choice(values[draw(st.sampled_from([0, 2, 4])) :], Y.shape)
    return Y, S.astype(draw(st.sampled_from([np.float32, np.float64])))


def check_all(Y, S):
    for ties in ("reference", "sklearn"):
        for degenerate in ("skip", "count"):
            expected = loop(Y, S, ties, degenerate)
            rules = {"ties": ties, "degenerate": degenerate}
            got = (
                one_error(Y, S, **rules),
                coverage(Y, S, ties=ties),
                ranking_loss(Y, S, **rules),
                average_precision(Y, S, **rules),
            )
            assert all(type(value) is float for value in got)
            np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
            normalised = coverage(Y, S, normalised=True, ties=ties)
            np.testing.assert_allclose(normalised, expected[1] / Y.shape[1], rtol=1e-12, atol=1e-12)


@settings(max_examples=80, deadline=None)
@given(predictions())
def test_each_measure_equals_its_definition(data):
    check_all(*data)


@settings(max_examples=40, deadline=None)
@given(predictions(), st.booleans())
def test_counting_and_sorting_agree_exactly(data, worst_of_ties):
    Y, S = data
    for y, s in zip(Y.astype(bool), S):
        relevant = np.flatnonzero(y)
        if relevant.size == 0:
            continue
        counted = _kernels._by_counting(s, relevant, relevant.size, worst_of_ties)
        by_sorting = _kernels._by_sorting(s, y, relevant.size, worst_of_ties)
        assert counted[:2] == by_sorting[:2]
        assert counted[2] == pytest.approx(by_sorting[2], rel=1e-13)


def test_long_label_sets_take_the_sorted_path():
    rng = np.random.default_rng(0)
    Y = rng.random((6, 400)) < np.array([0.02, 0.15, 0.4, 0.9, 1.0, 0.0])[:, None]
    assert Y[2].sum() > _kernels._COUNT_UP_TO > Y[0].sum()
    check_all(Y, rng.integers(0, 60, Y.shape).astype(float))


@pytest.mark.parametrize(
    ("y", "precision", "depth", "sklearn_precision"),
    [((1, 0, 0), 1 / 3, 2, 1 / 3), ((0, 1, 0), 1 / 2, 1, 1 / 3), ((1, 0, 1), 5 / 6, 2, 2 / 3)],
)
def test_worked_ties(y, precision, depth, sklearn_precision):
    Y, S = [y], [[0.5, 0.5, 0.5]]
    assert average_precision(Y, S) == pytest.approx(precision)
    assert coverage(Y, S) == depth
    assert ranking_loss(Y, S) == 1
    assert one_error(Y, S) == 0
    assert average_precision(Y, S, ties="sklearn") == pytest.approx(sklearn_precision)
    assert coverage(Y, S, ties="sklearn") == 2
    assert one_error(Y, S, ties="sklearn") == 1


def test_degenerate_bags():
    S = [[0.1, 0.2], [0.3, 0.4]]
    nothing, everything = [[0, 0], [0, 0]], [[1, 1], [1, 1]]
    for measure, counted in [(one_error, (1, 0)), (ranking_loss, (0, 0)), (average_precision, (1, 1))]:
        for Y, value in zip((nothing, everything), counted):
            assert np.isnan(measure(Y, S))
            assert measure(Y, S, degenerate="count") == value
    assert coverage(nothing, S) == -1  # 0 in the mean, before the -1
    assert coverage(everything, S) == 1
    assert coverage([[0, 0], [1, 0]], S) == 0  # ranks 0 and 2


@settings(max_examples=40, deadline=None)
@given(predictions())
def test_scikit_learn_rules(data):
    Y, S = data
    if Y.shape[0] == 0 or Y.shape[1] == 1 or not np.isfinite(S).all():
        return
    Y, n_labels = Y.astype(int), Y.shape[1]
    rules = {"ties": "sklearn", "degenerate": "count"}
    assert ranking_loss(Y, S, **rules) == pytest.approx(sk.label_ranking_loss(Y, S))
    theirs = sk.label_ranking_average_precision_score(Y, S)
    assert average_precision(Y, S, **rules) == pytest.approx(theirs)
    assert coverage(Y, S, ties="sklearn") == pytest.approx(sk.coverage_error(Y, S) - 1)
    assert coverage(Y, S, ties="sklearn", normalised=True) == pytest.approx(
        (sk.coverage_error(Y, S) - 1) / n_labels
    )
    assert hamming_loss(Y, S > 0) == pytest.approx(sk.hamming_loss(Y, (S > 0).astype(int)))


def test_without_ties_and_degenerate_bags_all_rules_agree_with_scikit_learn():
    rng = np.random.default_rng(3)
    Y = rng.integers(0, 2, (200, 9))
    Y[:, 0], Y[:, 1] = 0, 1
    S = rng.random(Y.shape)
    assert ranking_loss(Y, S) == pytest.approx(sk.label_ranking_loss(Y, S))
    assert average_precision(Y, S) == pytest.approx(sk.label_ranking_average_precision_score(Y, S))
    assert coverage(Y, S) == pytest.approx(sk.coverage_error(Y, S) - 1)
    assert (
        one_error(Y, S)
        == np.mean(Y[np.arange(200), S.argmax(axis=1)] == 0)
        == one_error(Y, S, ties="sklearn")
    )


def test_sparse_read_only_and_strided_input():
    rng = np.random.default_rng(4)
    Y, S = rng.integers(0, 2, (8, 5)), rng.random((8, 5))
    expected = average_precision(Y, S)
    frozen = S.copy()
    frozen.flags.writeable = False
    for Z in (frozen, np.asfortranarray(S), np.repeat(S, 2, axis=1)[:, ::2], S.tolist()):
        assert average_precision(csr_matrix(Y), Z) == expected
        assert average_precision(np.asfortranarray(Y.astype(bool)), Z) == expected
    assert coverage(csr_matrix(Y), S, normalised=True) == coverage(Y, S, normalised=True)


def test_hamming_loss():
    assert hamming_loss([[1, 0], [0, 0]], [[0, 1], [0, 0]]) == 0.5
    assert np.isnan(hamming_loss(np.zeros((0, 2)), np.zeros((0, 2))))


@pytest.mark.parametrize("name", ["one_error", "coverage", "ranking_loss", "average_precision"])
@pytest.mark.parametrize(
    ("Y", "S", "message"),
    [
        ([[1, 0]], [[0.1, 0.2, 0.3]], r"shape of Y, \(1, 2\); received shape \(1, 3\)"),
        ([[1, 0], [0, 2]], [[0.1, 0.2]] * 2, "found 2 in label column 1 of bag row 1"),
        ([[0.5, 0]], [[0.1, 0.2]], "found 0.5 in label column 0 of bag row 0"),
        ([[1, 0], [0, 1]], [[0.1, 0.2], [np.nan, 0.1]], "NaN, found one in label column 0 of bag row 1"),
        ([1, 0], [0.1, 0.2], r"\(n_bags, n_labels\)"),
        ([["a", "b"]], [[0.1, 0.2]], "received values of type"),
        ([[1, 0]], [["a", "b"]], "to hold numbers"),
        (np.zeros((3, 0)), np.zeros((3, 0)), "at least one label"),
    ],
)
def test_wrong_input_is_refused(name, Y, S, message):
    with pytest.raises(DataError, match=message):
        getattr(bag_module, name)(Y, S)


def test_unknown_rules_are_refused():
    with pytest.raises(DataError, match="ties to be one of 'reference', 'sklearn'"):
        coverage([[1, 0]], [[0.1, 0.2]], ties="worst")
    with pytest.raises(DataError, match="degenerate to be one of"):
        ranking_loss([[1, 0]], [[0.1, 0.2]], degenerate="drop")


def test_the_number_of_threads_changes_nothing(monkeypatch):
    rng = np.random.default_rng(5)
    Y, S = rng.random((300, 60)) < rng.random((300, 1)), rng.random((300, 60)).round(1)
    monkeypatch.setattr(_kernels, "_WORTH_A_THREAD", 1)
    results = []
    for n_threads in (1, 2, 5):
        monkeypatch.setattr(_kernels, "cores", lambda n=n_threads: n)
        arrays = [*_kernels.rank_bags(Y, S, False), _kernels.rank_labels(Y, S)]
        results.append([array.tobytes() for array in arrays])
    assert results[0] == results[1] == results[2]
