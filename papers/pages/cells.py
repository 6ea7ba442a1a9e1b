"""What an experiment found beside what the paper reports: cells, tables of cells, and curves."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import pyarrow as pa

from bagwise.errors import DataError

Direction = Literal["higher", "lower", "none"]
Mark = Literal["", "worse", "better"]
Inside = Literal["", "inside", "better", "worse"]

_DIRECTIONS, _MARKS = ("higher", "lower", "none"), ("", "worse", "better")
NOT_RUN, _NO_EXPERIMENT = "not run", "no such experiment in the paper"
_PERCENT_DECIMALS, _DECIMALS = 1, 3  # where nothing is published that would tell


@dataclass(frozen=True)
class Cell:
    """One measure of one method on one data set: ours, and as published.

    Parameters
    ----------
    dataset, method, measure : str
        Names as published, such as "Letter Frost", "MLR", "hamming_loss_percent".
    direction : {"higher", "lower", "none"}
        Where better values lie.
    mean, std : float, optional
        Ours over all repeats.
    values : tuple of float
        One per repeat, in the order of repeats; empty when nothing was run.
    keys : tuple of str
        Which repeat each value belongs to, such as "seed 3, fold 7". Tests pair values by it.
    published_mean, published_std : float, optional
        As published.
    published_mark : {"", "worse", "better"}
        Published significance versus the proposed method.
    count : (int, int), optional
        Fits there are of fits there should be, where some are missing; such a cell gets no verdict.
    missing : str
        Why there is no value of ours, or why only some fits count; "" when all is there.
    note : str
        A sentence that explains a cell outside the published mean ± std; may be "".
    fit_seconds, predict_seconds, peak_mb : float, optional
        Means over repeats.
    decimals : int, optional
        Digits after the point; by default as many as the published figures need. A `ResultTable` sets it to
        what the whole published column has, since 0.150 is no less exact than 0.153.

    Examples
    --------
    >>> cell = Cell("Scene", "ours", "auc", "higher", mean=0.7151, published_mean=0.70, published_std=0.01)
    >>> cell.inside  # 0.72 with the published two decimals; 0.71 is the upper end
    'better'
    """

    dataset: str
    method: str
    measure: str
    direction: Direction = "none"
    mean: float | None = None
    std: float | None = None
    values: tuple[float, ...] = ()
    keys: tuple[str, ...] = ()
    published_mean: float | None = None
    published_std: float | None = None
    published_mark: Mark = ""
    missing: str = ""
    note: str = ""
    fit_seconds: float | None = None
    predict_seconds: float | None = None
    peak_mb: float | None = None
    decimals: int | None = None
    count: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        where = f"cell {self.dataset!r}, {self.method!r}, {self.measure!r}"
        if self.direction not in _DIRECTIONS:
            raise DataError(f"{where}: direction {self.direction!r} is none of {', '.join(_DIRECTIONS)}")
        if self.published_mark not in _MARKS:
            raise DataError(f"{where}: published_mark {self.published_mark!r} is not '', 'worse' or 'better'")
        if len(self.keys) != len(self.values):
            raise DataError(
                f"{where}: {len(self.values)} values and {len(self.keys)} keys; give one key each"
            )
        if len(set(self.keys)) != len(self.keys):
            raise DataError(f"{where}: a key occurs twice, so repeats cannot be paired")
        if any(";" in key for key in self.keys):
            raise DataError(f"{where}: a key holds ';', which parts the keys in CSV files")
        for name in ("mean", "std", "published_mean", "published_std"):
            if not _is_number(getattr(self, name)):
                object.__setattr__(self, name, None)  # NaN means the same as None: one spelling from here on

    @property
    def inside(self) -> Inside:
        """Where ours lies: "inside" the published mean ± std, "better", "worse", or "" if it cannot be said.

        Both bounds belong to the inside, and figures are compared as they are shown: with the decimals of the
        published ones. Where no std is published, the distance is compared with our own std instead; without
        one either, inside means equal. Nothing is said of a mean over some of the fits.
        """
        return self.judged(self.std)

    def judged(self, own_std: float | None) -> Inside:
        """Where ours lies, with this std in place of ours where none is published."""
        if (
            self.count is not None
            or self.mean is None
            or self.published_mean is None
            or self.direction == "none"
        ):
            return ""
        decimals = self.shown_decimals
        reach = self.published_std if self.published_std is not None else round(own_std or 0.0, decimals)
        above = round(self.mean, decimals) - self.published_mean
        if abs(above) <= reach + 1e-9 * max(1.0, abs(self.published_mean)):
            return "inside"
        return "better" if (above > 0) == (self.direction == "higher") else "worse"

    @property
    def reason(self) -> str:
        """Why there is no value of ours; never empty where there is none."""
        return self.missing or ("" if self.mean is not None else NOT_RUN)

    @property
    def shown_decimals(self) -> int:
        """Digits after the point with which the figures are shown and compared."""
        return _column_decimals((self,)) if self.decimals is None else self.decimals


@dataclass(frozen=True)
class Tried:
    """What became of a cell when something behind it was changed.

    Parameters
    ----------
    change : str
        What was changed.
    cell, unchanged : Cell
        With the change and without it: both of the short run, whatever the table beside shows.
    why : str
        What the suite says of all changes to this cell.
    """

    change: str
    cell: Cell
    unchanged: Cell
    why: str = ""

    @property
    def inside(self) -> Inside:
        """Where the figure lies; a change that makes figures noisier brings them no nearer."""
        return self.cell.judged(self.unchanged.std)


@dataclass(frozen=True)
class ResultTable:
    """The cells of one published table.

    Parameters
    ----------
    id : str
        Such as "ored-logistic:3".
    title : str
        What the table shows.
    protocol : str
        One sentence: splits, repeats, tuning.
    reference : str, optional
        The proposed method; others are tested against it.
    datasets, methods, measures : tuples of str
        Names in order.
    cells : tuple of Cell
        In any order.
    remarks : tuple of str
        Sentences below the table.
    alpha : float, default=0.05
        Level of the comparison over data sets (Bonferroni-Dunn); the paired t-test is always at 0.05.
    glossary : tuple of (str, str)
        Names in the table and what they stand for.
    tried : tuple of Tried
        What was tried where cells lie outside the published figures.

    Examples
    --------
    >>> cells = Cell("Scene", "A", "auc", mean=0.5), Cell("Scene", "B", "auc", missing="slow")
    >>> table = ResultTable("paper:1", "AUC", "One run.", "A", ("Scene",), ("A", "B"), ("auc",), cells)
    >>> table.cell("Scene", "B", "auc").reason
    'slow'
    >>> table.frame().select(["method", "mean", "missing"]).to_pylist()[0]
    {'method': 'A', 'mean': 0.5, 'missing': ''}
    """

    id: str
    title: str
    protocol: str
    reference: str | None
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    measures: tuple[str, ...]
    cells: tuple[Cell, ...]
    remarks: tuple[str, ...] = ()
    alpha: float = 0.05
    glossary: tuple[tuple[str, str], ...] = ()
    tried: tuple[Tried, ...] = ()

    def __post_init__(self) -> None:
        if self.reference is not None and self.reference not in self.methods:
            raise DataError(f"table {self.id}: the reference {self.reference!r} is none of its methods")
        seen: set[tuple[str, str, str]] = set()
        for cell in self.cells:
            place = (cell.dataset, cell.method, cell.measure)
            self._check(*place)
            if place in seen:
                raise DataError(f"table {self.id}: two cells for {', '.join(map(repr, place))}")
            seen.add(place)
        shown = {name: _column_decimals(c for c in self.cells if c.measure == name) for name in self.measures}
        cells = (replace(c, decimals=shown[c.measure]) if c.decimals is None else c for c in self.cells)
        object.__setattr__(self, "cells", tuple(cells))

    def cell(self, dataset: str, method: str, measure: str) -> Cell:
        """The cell of that place; where the paper has no such experiment, an empty one that says so."""
        self._check(dataset, method, measure)
        found = self._places.get((dataset, method, measure))
        return found or Cell(dataset, method, measure, self.direction(measure), missing=_NO_EXPERIMENT)

    def direction(self, measure: str) -> Direction:
        """Where better values of a measure lie."""
        return next((cell.direction for cell in self.cells if cell.measure == measure), "none")

    def frame(self) -> pa.Table:
        """One row per cell, in the order of measures, data sets and methods; then what was tried."""
        order = ((d, m, s) for s in self.measures for d in self.datasets for m in self.methods)
        places = (self._places[place] for place in order if place in self._places)
        rows = [{"table": self.id, **_row(cell), "change": ""} for cell in places]
        for one in self.tried:
            rows.append({"table": self.id, **_row(one.cell), "inside": one.inside, "change": one.change})
        names = [("table", pa.string()), *_COLUMNS, ("change", pa.string())]
        return pa.Table.from_pylist(rows, schema=pa.schema(names))

    @cached_property
    def _places(self) -> dict[tuple[str, str, str], Cell]:
        return {(cell.dataset, cell.method, cell.measure): cell for cell in self.cells}

    def _check(self, dataset: str, method: str, measure: str) -> None:
        for name, known, kind in (
            (dataset, self.datasets, "data set"),
            (method, self.methods, "method"),
            (measure, self.measures, "measure"),
        ):
            if name not in known:
                raise DataError(f"table {self.id} has no {kind} {name!r}; it has {', '.join(known)}")


@dataclass(frozen=True)
class Curve:
    """Points of one line: ``mean`` against ``x``; ``std`` is empty, or one each (None where unknown).

    Examples
    --------
    >>> Curve("ours", (10.0, 20.0), (0.5, 0.75)).std
    ()
    """

    name: str
    x: tuple[float, ...]
    mean: tuple[float, ...]
    std: tuple[float | None, ...] = ()

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.x) or len(self.std) not in (0, len(self.x)):
            raise DataError(
                f"curve {self.name!r}: {len(self.x)} x values, {len(self.mean)} means, {len(self.std)} stds"
            )


@dataclass(frozen=True)
class ResultFigure:
    """The curves of one published figure.

    Parameters
    ----------
    id, title : str
        Such as "ored-logistic:fig8" and what it shows.
    x_label, y_label : str
        Names of the axes.
    x_log : bool
        Whether the x axis is logarithmic.
    curves, published : tuples of Curve
        Ours, and those of the paper as far as known.
    remarks : tuple of str
        Sentences below; they say why a curve is missing.
    y_log : bool, default=False
        Whether the y axis is logarithmic.
    glossary : tuple of (str, str)
        Names in the figure and what they stand for.

    Examples
    --------
    >>> curve = Curve("A", (1.0,), (2.0,), (0.5,))
    >>> figure = ResultFigure("paper:fig1", "Time", "bags", "seconds", curves=(curve,))
    >>> figure.frame().to_pylist()
    [{'figure': 'paper:fig1', 'curve': 'A', 'source': 'ours', 'x': 1.0, 'mean': 2.0, 'std': 0.5}]
    """

    id: str
    title: str
    x_label: str
    y_label: str
    x_log: bool = False
    curves: tuple[Curve, ...] = ()
    published: tuple[Curve, ...] = ()
    remarks: tuple[str, ...] = ()
    y_log: bool = False
    glossary: tuple[tuple[str, str], ...] = ()

    def frame(self) -> pa.Table:
        """One row per point."""
        rows = [
            {"figure": self.id, "curve": curve.name, "source": source, "x": x, "mean": mean, "std": std}
            for source, curves in (("ours", self.curves), ("published", self.published))
            for curve in curves
            for x, mean, std in zip(curve.x, curve.mean, curve.std or (None,) * len(curve.x))
        ]
        names = [(name, pa.string()) for name in ("figure", "curve", "source")]
        numbers = [(name, pa.float64()) for name in ("x", "mean", "std")]
        return pa.Table.from_pylist(rows, schema=pa.schema(names + numbers))


_COLUMNS = [
    *((name, pa.string()) for name in ("dataset", "method", "measure", "direction")),
    ("mean", pa.float64()),
    ("std", pa.float64()),
    ("published_mean", pa.float64()),
    ("published_std", pa.float64()),
    ("inside", pa.string()),
    ("published_mark", pa.string()),
    ("missing", pa.string()),
    ("note", pa.string()),
    *((name, pa.float64()) for name in ("fit_seconds", "predict_seconds", "peak_mb")),
    ("decimals", pa.int64()),
    ("values", pa.list_(pa.float64())),
    ("keys", pa.list_(pa.string())),
]


def _row(cell: Cell) -> dict[str, object]:
    row = {name: getattr(cell, name) for name, _ in _COLUMNS}
    return {**row, "missing": cell.reason}


def _column_decimals(cells: Iterable[Cell]) -> int:
    """Most digits after the point among published figures."""
    cells = tuple(cells)
    figures = [x for cell in cells for x in (cell.published_mean, cell.published_std) if x is not None]
    if figures:
        return max(map(_decimals, figures))
    return _PERCENT_DECIMALS if cells and cells[0].measure.endswith("_percent") else _DECIMALS


def _decimals(x: float) -> int:
    """Digits after the point of the shortest decimal that is this number.

    Examples
    --------
    >>> _decimals(0.183), _decimals(12.0), _decimals(1e-05)
    (3, 0, 5)
    """
    digits, _, exponent = repr(float(x)).partition("e")
    after = len(digits.partition(".")[2].rstrip("0"))
    return max(0, after - int(exponent or 0))


def _is_number(x: float | None) -> bool:
    return x is not None and math.isfinite(x)
