"""Tests between methods: paired t-test on repeats, Friedman and Bonferroni-Dunn over data sets.

References
----------
.. [1] Demšar (2006). Statistical comparisons of classifiers over multiple data sets. JMLR 7, 1-30.
.. [2] Iman, Davenport (1980). Approximations of the critical region of the Friedman statistic. Communications
   in Statistics A 9, 571-595.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import stats

from bagwise.errors import DataError
from papers.pages.cells import Direction, Mark, ResultTable

Source = Literal["ours", "published"]
_SAME = 1e-12  # relative; two ways to add up the same errors differ by less


class PairedT(NamedTuple):
    """Outcome of a paired t-test: which way the first differs ("" if not significantly), and the p value."""

    difference: Literal["", "higher", "lower"]
    p: float


class Friedman(NamedTuple):
    """Friedman's chi-square and the F statistic of Iman and Davenport, with their p values."""

    chi2: float
    p_chi2: float
    F: float
    p_F: float


def paired_t(ours: Any, other: Any, alpha: float = 0.05) -> PairedT:
    """Two-tailed paired t-test on matched repeats.

    Identical vectors, up to rounding, or fewer than two pairs are no difference (p = 1). Pairs with a NaN do
    not count.

    Examples
    --------
    >>> paired_t([0.81, 0.83, 0.80, 0.84], [0.71, 0.75, 0.69, 0.72]).difference
    'higher'
    >>> paired_t([0.81, 0.83], [0.81, 0.83])
    PairedT(difference='', p=1.0)
    """
    ours, other = np.asarray(ours, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if ours.shape != other.shape or ours.ndim != 1:
        raise DataError(
            f"paired vectors needed, one value per repeat; got shapes {ours.shape}, {other.shape}"
        )
    known = np.isfinite(ours) & np.isfinite(other)
    ours, other = ours[known], other[known]
    if len(ours) < 2 or np.allclose(ours, other, rtol=_SAME, atol=_SAME * 1e-3):
        return PairedT("", 1.0)
    d = ours - other
    error = d.std(ddof=1) / math.sqrt(len(d))
    # the same distance in every repeat has no spread to doubt it
    p = 0.0 if error == 0 else float(2 * stats.t.sf(abs(d.mean()) / error, len(d) - 1))
    return PairedT(("higher" if d.mean() > 0 else "lower") if p < alpha else "", p)


def marks(table: ResultTable, alpha: float = 0.05) -> dict[tuple[str, str, str], Mark]:
    """Whether each cell of ours is significantly worse or better than the reference, by matched repeats.

    Returns
    -------
    dict of (dataset, method, measure) to {"", "worse", "better"}
        Cells of the reference, unfinished ones, and those without two repeats in common with it, get "".

    Examples
    --------
    >>> from papers.pages.cells import Cell
    >>> def cell(method, *values):
    ...     return Cell("Scene", method, "auc", "higher", 0.5, values=values, keys=("1", "2", "3"))
    >>> cells = cell("A", 0.7, 0.8, 0.9), cell("B", 0.41, 0.5, 0.62)
    >>> marks(ResultTable("p:1", "", "", "A", ("Scene",), ("A", "B"), ("auc",), cells))
    {('Scene', 'A', 'auc'): '', ('Scene', 'B', 'auc'): 'worse'}
    """
    found: dict[tuple[str, str, str], Mark] = {}
    for cell in table.cells:
        place = (cell.dataset, cell.method, cell.measure)
        found[place] = ""
        if table.reference in (None, cell.method) or cell.direction == "none":
            continue
        reference = table.cell(cell.dataset, str(table.reference), cell.measure)
        if cell.count is not None or reference.count is not None:
            continue
        theirs = dict(zip(reference.keys, reference.values))
        pairs = [(x, theirs[key]) for key, x in zip(cell.keys, cell.values) if key in theirs]
        difference = paired_t([x for x, _ in pairs], [x for _, x in pairs], alpha).difference
        if difference:
            found[place] = "better" if difference == cell.direction else "worse"
    return found


def average_ranks(matrix: Any, higher_is_better: bool) -> np.ndarray:
    """Mean rank of each method over data sets; 1 is best, ties share ranks, NaN is ranked last.

    Parameters
    ----------
    matrix : array of shape (n_datasets, k_methods)
        A measure.
    higher_is_better : bool
        Direction of the measure.

    Examples
    --------
    >>> average_ranks([[0.9, 0.8, 0.8], [0.7, 0.6, np.nan]], higher_is_better=True)
    array([1.  , 2.25, 2.75])
    """
    return _ranks(matrix, higher_is_better).mean(axis=0)


def friedman(matrix: Any, higher_is_better: bool) -> Friedman:
    """Friedman's test that all methods rank alike, and Iman and Davenport's sharper form of it [2]_.

    Both statistics are corrected for ties, and equal the formulas of [1]_ where there are none.

    Parameters
    ----------
    matrix : array of shape (n_datasets, k_methods)
        A measure; at least two of each. NaN ranks last.
    higher_is_better : bool
        Direction of the measure.

    Examples
    --------
    >>> found = friedman([[0.9, 0.8, 0.7], [0.8, 0.7, 0.6], [0.9, 0.5, 0.6]], higher_is_better=True)
    >>> round(found.chi2, 3), round(found.F, 3)
    (4.667, 7.0)
    """
    ranks = _ranks(matrix, higher_is_better)
    n, k = ranks.shape
    if n < 2 or k < 2:
        raise DataError(
            f"Friedman's test needs two methods on two data sets, got {k} methods on {n} data sets"
        )
    # Spread of mean ranks over the spread within data sets, which without ties is k (k + 1) / 12.
    spread = ((ranks - (k + 1) / 2) ** 2).sum() / (n * (k - 1))
    if spread == 0:  # all methods tie everywhere
        return Friedman(0.0, 1.0, 0.0, 1.0)
    chi2 = min(n * ((ranks.mean(axis=0) - (k + 1) / 2) ** 2).sum() / spread, n * (k - 1))
    rest = n * (k - 1) - chi2
    F = math.inf if rest <= 1e-9 * n * k else (n - 1) * chi2 / rest
    p_F = stats.f.sf(F, k - 1, (k - 1) * (n - 1))
    return Friedman(float(chi2), float(stats.chi2.sf(chi2, k - 1)), float(F), float(p_F))


def bonferroni_dunn(k: int, n: int, alpha: float = 0.05) -> float:
    """Critical difference of average ranks between a control and k - 1 other methods on n data sets.

    CD = q sqrt(k (k + 1) / (6 n)), where q is exceeded by a normal variable, on either side, with probability
    alpha / (k - 1).

    Examples
    --------
    >>> round(bonferroni_dunn(7, 6, 0.1), 2), round(bonferroni_dunn(7, 8, 0.1), 2)
    (2.99, 2.59)
    """
    if k < 2 or n < 1 or not 0 < alpha < 1:
        raise DataError(f"needs k >= 2 methods, n >= 1 data sets, 0 < alpha < 1; got {k}, {n}, {alpha}")
    return float(stats.norm.isf(alpha / (k - 1) / 2) * math.sqrt(k * (k + 1) / (6 * n)))


@dataclass(frozen=True)
class Overall:
    """Comparison of methods over data sets in one measure.

    Attributes
    ----------
    measure, source, alpha : str, {"ours", "published"}, float
        What was compared, and the level.
    reference : str or None
        The control.
    datasets : tuple of str
        Those that count: the reference has a value there.
    ranks : dict of str to float
        Average rank of every method that takes part, in the order of the table.
    left_out : dict of str to tuple of str
        Methods that do not take part, and the data sets where they have no value.
    friedman : Friedman or None
        None with fewer than two methods or data sets.
    cd : float or None
        Critical difference to the reference; None likewise.
    different : dict of str to {"worse", "better"}
        Methods whose average rank differs from the reference's by at least ``cd``, and which way.
    """

    measure: str
    source: Source
    alpha: float
    reference: str | None
    datasets: tuple[str, ...]
    ranks: dict[str, float]
    left_out: dict[str, tuple[str, ...]]
    friedman: Friedman | None
    cd: float | None
    different: dict[str, Mark]


def overall(table: ResultTable, measure: str, alpha: float | None = None, source: Source = "ours") -> Overall:
    """Average ranks, Friedman's test and Bonferroni-Dunn's comparison with the reference.

    Data sets count where the reference has a value (without a reference: where any method has one). Published
    figures that are not available rank last, as the papers do it. Of ours, only methods that have values on
    all those data sets take part: what was not run is no defeat.

    Parameters
    ----------
    table : ResultTable
        The cells.
    measure : str
        Which measure; its direction must be known.
    alpha : float, optional
        Level; that of the table by default.
    source : {"ours", "published"}
        Whose figures.

    Examples
    --------
    >>> from papers.pages.cells import Cell
    >>> def cell(dataset, method, mean):
    ...     return Cell(dataset, method, "auc", "higher", mean)
    >>> cells = (cell("X", "A", 0.9), cell("X", "B", 0.7), cell("X", "C", 0.8))
    >>> cells += (cell("Y", "A", 0.8), cell("Y", "B", 0.6))
    >>> found = overall(ResultTable("p:1", "", "", "A", ("X", "Y"), ("A", "B", "C"), ("auc",), cells), "auc")
    >>> found.ranks, found.left_out
    ({'A': 1.0, 'B': 2.0}, {'C': ('Y',)})
    """
    direction: Direction = table.direction(measure)
    if direction == "none":
        raise DataError(f"table {table.id}: measure {measure!r} has no better direction, so nothing to rank")
    alpha = table.alpha if alpha is None else alpha
    values = {m: [_value(table, d, m, measure, source) for d in table.datasets] for m in table.methods}
    leaders = [table.reference] if table.reference is not None else list(table.methods)
    rows = [i for i in range(len(table.datasets)) if any(not math.isnan(values[m][i]) for m in leaders)]
    datasets = tuple(table.datasets[i] for i in rows)
    absent = {m: tuple(table.datasets[i] for i in rows if math.isnan(values[m][i])) for m in table.methods}
    strict = len(datasets) if source == "published" else 1  # how many absent values leave a method out
    left_out = {m: sets for m, sets in absent.items() if rows and len(sets) >= strict}
    methods = [m for m in table.methods if m not in left_out and rows]
    matrix = np.array([[values[m][i] for m in methods] for i in rows]).reshape(len(rows), len(methods))
    n, k = matrix.shape
    ranks = average_ranks(matrix, direction == "higher") if matrix.size else np.empty(0)
    ranked = {m: float(r) for m, r in zip(methods, ranks)}
    test, cd, different = None, None, {}
    if n >= 2 and k >= 2:
        test = friedman(matrix, direction == "higher")
        if table.reference is not None:
            cd = bonferroni_dunn(k, n, alpha)
            different = _different(ranked, table.reference, cd)
    return Overall(measure, source, alpha, table.reference, datasets, ranked, left_out, test, cd, different)


def _different(ranks: dict[str, float], reference: str, cd: float) -> dict[str, Mark]:
    away = {m: rank - ranks[reference] for m, rank in ranks.items() if m != reference}
    return {m: "worse" if d > 0 else "better" for m, d in away.items() if abs(d) >= cd - 1e-12}


def _value(table: ResultTable, dataset: str, method: str, measure: str, source: Source) -> float:
    cell = table.cell(dataset, method, measure)
    ours = None if cell.count is not None else cell.mean  # a mean over some fits ranks nowhere
    value = ours if source == "ours" else cell.published_mean
    return math.nan if value is None else value


def _ranks(matrix: Any, higher_is_better: bool) -> np.ndarray:
    """Ranks within each row, 1 for the best; NaN behind all values, tied with other NaN."""
    matrix = np.asarray(matrix, dtype=np.float64)
    if matrix.ndim != 2 or not matrix.size:
        raise DataError(f"ranks need a matrix of data sets x methods, got shape {matrix.shape}")
    costs = np.where(np.isnan(matrix), np.inf, -matrix if higher_is_better else matrix)
    return stats.rankdata(costs, axis=1)
