"""Statistics of results: against scipy, brute force, and facts of the literature."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from bagwise.errors import DataError
from papers.pages.cells import Cell, Curve, ResultFigure, ResultTable
from papers.pages.statistics import average_ranks, bonferroni_dunn, friedman, marks, overall, paired_t

NA = None
METHODS = ("MIMLfast", "DBA", "KISAR", "MIMLBoost", "MIMLkNN", "MIMLSVM", "RankLossSIM")
SETS = ("Letter Carroll", "Letter Frost", "MSRC v2", "Reuters", "Bird Song", "Scene")
# Huang, Gao, Zhou (2014), Table 2: means.
COVERAGE = (
    (0.380, 0.909, 0.870, 0.730, 0.460, 0.905, 0.389),
    (0.375, 0.857, 0.906, 0.728, 0.463, 0.884, 0.372),
    (0.238, 0.837, 0.254, NA, 0.312, 0.256, 0.239),
    (0.035, 0.089, 0.036, NA, 0.043, 0.050, 0.036),
    (0.150, 0.292, 0.186, NA, 0.175, 0.173, 0.133),
    (0.207, 0.334, 0.204, NA, 0.222, 0.225, 0.237),
)
RANKING = (
    (0.130, 0.622, 0.873, 0.477, 0.194, 0.710, 0.134),
    (0.134, 0.580, 0.705, 0.478, 0.199, 0.810, 0.138),
    (0.108, 0.675, 0.131, NA, 0.165, 0.125, 0.107),
    (0.014, 0.062, 0.016, NA, 0.023, 0.031, 0.016),
    (0.036, 0.132, 0.067, NA, 0.059, 0.054, 0.027),
    (0.189, 0.348, 0.185, NA, 0.207, 0.212, 0.222),
)


def mimlfast_table():
    cells = [
        Cell(SETS[i], METHODS[j], name, "lower", published_mean=rows[i][j])
        for name, rows in (("coverage_norm", COVERAGE), ("ranking_loss", RANKING))
        for i, j in itertools.product(range(6), range(7))
    ]
    names = ("coverage_norm", "ranking_loss")
    return ResultTable("mimlfast:2", "T", "P.", "MIMLfast", SETS, METHODS, names, tuple(cells), alpha=0.1)


# ---------------------------------------------------------------------- paired t-test


def test_paired_t_is_that_of_scipy():
    rng = np.random.default_rng(0)
    for n in (2, 3, 10, 30):
        for shift in (0.0, 0.5, -2.0):
            a, b = rng.normal(size=n), rng.normal(size=n) + shift
            expected = stats.ttest_rel(a, b)
            found = paired_t(a, b)
            assert found.p == pytest.approx(expected.pvalue, rel=1e-9)
            side = "higher" if expected.statistic > 0 else "lower"
            assert found.difference == (side if expected.pvalue < 0.05 else "")


def test_paired_t_edges():
    assert paired_t([0.1, 0.2], [0.1, 0.2]) == ("", 1.0)
    assert paired_t([0.1 + 0.2, 0.2], [0.3, 0.1 + 0.1]) == ("", 1.0), "differs by rounding only"
    assert paired_t([], []) == ("", 1.0) and paired_t([1.0], [0.0]) == ("", 1.0)
    assert paired_t([2.0, 2.0, 2.0], [1.0, 1.0, 1.0]) == ("higher", 0.0)
    assert paired_t([1.0, 2.0, np.nan, 3.0], [0.0, 0.5, 1.0, 2.0]) == paired_t([1, 2, 3], [0, 0.5, 2])
    with pytest.raises(DataError, match="shapes"):
        paired_t([1.0, 2.0], [1.0])


def test_marks_pair_by_key_and_know_directions():
    keys = ("a", "b", "c", "d")
    ours = np.array([0.50, 0.61, 0.42, 0.71])

    def cell(method, measure, direction, values, keys):
        values = tuple(map(float, values))
        return Cell("S", method, measure, direction, float(np.mean(values)), 0.1, values, tuple(keys))

    other = (ours + [0.10, 0.11, 0.09, 0.12])[::-1]  # another order: only keys can pair them
    cells = [
        *(cell("A", m, d, ours, keys) for m, d in (("up", "higher"), ("down", "lower"), ("x", "none"))),
        *(
            cell("B", m, d, other, keys[::-1])
            for m, d in (("up", "higher"), ("down", "lower"), ("x", "none"))
        ),
        cell("C", "up", "higher", [0.1, 0.2], ("e", "f")),
        Cell("S", "C", "down", "lower", missing="no"),
    ]
    table = ResultTable("t", "", "", "A", ("S",), ("A", "B", "C"), ("up", "down", "x"), tuple(cells))
    found = marks(table)
    assert len(found) == len(cells)
    assert {k: v for k, v in found.items() if v} == {("S", "B", "up"): "better", ("S", "B", "down"): "worse"}
    assert not any(marks(ResultTable("t", "", "", None, *_names(table), table.cells)).values())


def _names(table):
    return table.datasets, table.methods, table.measures


# ---------------------------------------------------------------------- ranks


def brute_ranks(row, higher):
    """A method's rank: 1 + those strictly better + half of those equal."""
    cost = [math.inf if math.isnan(x) else (-x if higher else x) for x in row]
    return [1 + sum(d < c for d in cost) + (sum(d == c for d in cost) - 1) / 2 for c in cost]


@pytest.mark.parametrize("higher", [True, False])
def test_average_ranks_by_counting(higher):
    rng = np.random.default_rng(1)
    for _ in range(20):
        matrix = rng.integers(0, 4, size=(rng.integers(1, 6), rng.integers(1, 7))).astype(float)
        matrix[rng.random(matrix.shape) < 0.2] = np.nan
        expected = np.mean([brute_ranks(row, higher) for row in matrix], axis=0)
        np.testing.assert_allclose(average_ranks(matrix, higher), expected)


def test_friedman_is_that_of_scipy_with_and_without_ties():
    rng = np.random.default_rng(2)
    for ties in (False, True):
        matrix = rng.integers(0, 5, size=(8, 5)).astype(float) if ties else rng.normal(size=(8, 5))
        expected = stats.friedmanchisquare(*matrix.T)
        found = friedman(matrix, True)
        assert found.chi2 == pytest.approx(expected.statistic) == friedman(-matrix, False).chi2
        assert found.p_chi2 == pytest.approx(expected.pvalue)
        # Iman and Davenport's F is that of a two-way analysis of variance of the ranks
        ranks = stats.rankdata(matrix, axis=1)
        n, k = ranks.shape
        between = n * ((ranks.mean(0) - (k + 1) / 2) ** 2).sum() / (k - 1)
        rest = ((ranks - ranks.mean(0)) ** 2).sum() / ((n - 1) * (k - 1))
        assert found[2] == pytest.approx(between / rest)
        assert found.p_F == pytest.approx(stats.f.sf(between / rest, k - 1, (n - 1) * (k - 1)))


def test_friedman_edges():
    assert friedman(np.ones((3, 4)), True) == (0.0, 1.0, 0.0, 1.0)
    agreed = friedman([[3.0, 2.0, 1.0]] * 4, True)
    assert agreed.chi2 == pytest.approx(8) and agreed[2:] == (math.inf, 0.0)
    assert friedman([[1.0, 2.0], [1.0, 2.0]], True).chi2 == pytest.approx(2)
    for shape in ((1, 3), (3, 1)):
        with pytest.raises(DataError, match="two methods on two data sets"):
            friedman(np.ones(shape), True)
    with pytest.raises(DataError, match="matrix"):
        average_ranks([1.0, 2.0], True)


def test_critical_values_of_bonferroni_dunn():
    # Demšar (2006), Table 5 (b), k = 2..10. Its 2.724 at k = 9 is 2.734 in truth: the value at 0.05 / 8.
    tables = {
        0.10: (1.645, 1.960, 2.128, 2.241, 2.326, 2.394, 2.450, 2.498, 2.539),
        0.05: (1.960, 2.241, 2.394, 2.498, 2.576, 2.638, 2.690, 2.734, 2.773),
    }
    for alpha, row in tables.items():
        for k, q in enumerate(row, 2):
            n = k * (k + 1) / 6  # at which the critical difference is q
            found = bonferroni_dunn(k, 1, alpha) / math.sqrt(n)
            assert found == pytest.approx(q, abs=1e-3)
    assert bonferroni_dunn(7, 6, 0.1) == pytest.approx(2.99, abs=0.005)
    assert bonferroni_dunn(7, 8, 0.1) == pytest.approx(2.59, abs=0.005)
    with pytest.raises(DataError, match="k >= 2"):
        bonferroni_dunn(1, 3)


# ---------------------------------------------------------------------- over data sets


def test_published_ranks_of_mimlfast():
    table = mimlfast_table()
    for measure in table.measures:
        found = overall(table, measure, source="published")
        assert found.ranks["MIMLfast"] == 1.5 and found.ranks["RankLossSIM"] == 2.25
        assert found.cd == pytest.approx(2.99, abs=0.005) and found.alpha == 0.1
        assert found.different == {"DBA": "worse", "MIMLBoost": "worse", "MIMLSVM": "worse"}
        assert not found.left_out and found.datasets == SETS
        assert overall(table, measure, source="ours").ranks == {}


def test_ours_compares_only_methods_with_all_figures():
    figures = {"A": (0.9, 0.8, None), "B": (0.7, 0.6, 0.5), "C": (0.8, None, 0.7), "D": (None, None, None)}
    cells = tuple(
        Cell(f"s{i}", m, "auc", "higher", mean=x) for m, row in figures.items() for i, x in enumerate(row)
    )
    table = ResultTable("t", "", "", "B", ("s0", "s1", "s2"), tuple(figures), ("auc",), cells)
    found = overall(table, "auc")
    assert found.datasets == ("s0", "s1", "s2") and found.ranks == {"B": 1.0}
    assert found.left_out == {"A": ("s2",), "C": ("s1",), "D": ("s0", "s1", "s2")}
    assert found.friedman is None and found.cd is None and found.different == {}
    by_a = overall(ResultTable("t", "", "", "A", *_names(table), cells), "auc")
    assert by_a.datasets == ("s0", "s1") and by_a.ranks == {"A": 1.0, "B": 2.0}
    assert by_a.left_out == {"C": ("s1",), "D": ("s0", "s1")} and by_a.friedman is not None
    alone = overall(ResultTable("t", "", "", None, *_names(table), cells), "auc")
    assert alone.cd is None and set(alone.left_out) == {"A", "C", "D"}


def test_no_ranks_without_direction():
    table = ResultTable("t", "", "", None, ("s",), ("A",), ("n",), (Cell("s", "A", "n", mean=1.0),))
    with pytest.raises(DataError, match="no better direction"):
        overall(table, "n")


# ---------------------------------------------------------------------- cells


@pytest.mark.parametrize(
    ("ours", "direction", "expected"),
    [
        (0.17, "lower", "inside"),
        (0.165, "lower", "inside"),  # the lower bound belongs to it
        (0.2014, "lower", "inside"),  # 0.201 as shown
        (0.2016, "lower", "worse"),
        (0.2016, "higher", "better"),
        (0.1644, "lower", "better"),
        (0.1644, "higher", "worse"),
        (0.17, "none", ""),
        (None, "lower", ""),
        (math.nan, "lower", ""),
    ],
)
def test_inside(ours, direction, expected):
    cell = Cell("s", "A", "x", direction, ours, published_mean=0.183, published_std=0.018)
    assert cell.inside == expected
    assert Cell("s", "A", "x", direction, ours).inside == ""


def test_inside_without_published_std_uses_our_own():
    def cell(mean, std):
        return Cell("s", "A", "x", "higher", mean, std, published_mean=0.70, decimals=2)

    assert [cell(0.72, s).inside for s in (0.02, 0.01, None)] == ["inside", "better", "better"]
    assert cell(0.70, None).inside == "inside" and cell(0.5, 0.1).inside == "worse"


def test_decimals_are_those_of_the_published_column():
    cells = (
        Cell("s", "A", "x", "lower", 0.1514, published_mean=0.15, published_std=0.001),
        Cell("s", "B", "x", "lower", 0.1516, published_mean=0.15, published_std=0.0012),
        Cell("s", "A", "y_percent", "lower", 12.0),
    )
    table = ResultTable("t", "", "", "A", ("s", "u"), ("A", "B"), ("x", "y_percent"), cells)
    assert [cell.decimals for cell in table.cells] == [4, 4, 1]
    assert [cell.inside for cell in table.cells] == ["worse", "worse", ""]
    empty = table.cell("u", "B", "x")
    assert empty.mean is None and empty.reason == "no such experiment in the paper"
    assert Cell("s", "A", "x").reason == "not run"
    assert table.frame().num_rows == 3 and table.frame().column("inside").to_pylist()[0] == "worse"


def test_wrong_cells_are_refused():
    with pytest.raises(DataError, match="one key each"):
        Cell("s", "A", "x", values=(1.0,))
    with pytest.raises(DataError, match="occurs twice"):
        Cell("s", "A", "x", values=(1.0, 2.0), keys=("a", "a"))
    with pytest.raises(DataError, match="direction"):
        Cell("s", "A", "x", "up")
    with pytest.raises(DataError, match="published_mark"):
        Cell("s", "A", "x", published_mark="•")
    cell = Cell("s", "A", "x")
    with pytest.raises(DataError, match="two cells"):
        ResultTable("t", "", "", None, ("s",), ("A",), ("x",), (cell, cell))
    with pytest.raises(DataError, match="no method 'A'; it has B"):
        ResultTable("t", "", "", None, ("s",), ("B",), ("x",), (cell,))
    with pytest.raises(DataError, match="reference"):
        ResultTable("t", "", "", "C", ("s",), ("A",), ("x",), (cell,))
    with pytest.raises(DataError, match="2 x values, 1 means"):
        Curve("c", (1.0, 2.0), (1.0,))
    assert ResultFigure("f", "", "", "").frame().num_rows == 0
