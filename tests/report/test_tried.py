"""What was tried, laid out for a page."""

from __future__ import annotations

from bagwise.report.pages.cells import Cell, ResultTable, Tried
from bagwise.report.pages.layout import report
from bagwise.report.pages.render import render
from bagwise.report.pages.summary import summary
from bagwise.report.pages.tried import tried_grids, tried_sentence


def cell(ours, dataset="X", measure="auc", **more):
    return Cell(
        dataset,
        "A",
        measure,
        "higher",
        ours,
        0.01,
        published_mean=0.8,
        published_std=0.02,
        decimals=2,
        **more,
    )


def table(tried, datasets=("X",), measures=("auc",)):
    cells = tuple(cell(0.7, d, m, note="For a reason.") for d in datasets for m in measures)
    return ResultTable(
        "p:1", "T", "F.", "A", tuple(datasets), ("A",), tuple(measures), cells, tried=tuple(tried)
    )


def texts(grid):
    return [[entry[0].text for entry in row] for row in grid.entries]


def test_changes_are_rows_below_what_is_published_and_in_the_table():
    found = table([Tried("wide", cell(0.81)), Tried("narrow", cell(0.6, count=(2, 3)))])
    (grid,) = tried_grids(found)
    assert grid.title == "Tried with A: AUC ↑" and grid.columns == ("X",)
    assert grid.rows == ("published", "in the table", "wide", "narrow")
    assert texts(grid) == [["0.80±0.02"], ["0.70±0.01 ▼"], ["0.81±0.01 ✓"], ["0.60±0.01 (2 of 3)"]]
    assert [row[0][0].kind for row in grid.entries] == ["published", "ours", "inside", ""]
    assert tried_sentence(found, found.cells[0]) == "Tried: wide 0.81 ✓; narrow 0.60 (2 of 3)."
    assert "tried: one change each" in report(found).legend
    for style in ("text", "markdown", "html", "latex"):
        assert "narrow" in render(found, style)


def test_many_data_sets_are_rows_and_missing_figures_dashes():
    names = ["V", "W", "X", "Y", "Z"]
    found = table([Tried("wide", cell(0.9, name)) for name in names], names)
    (grid,) = tried_grids(found)
    assert grid.rows == tuple(names) and grid.columns == ("published", "in the table", "wide")
    assert texts(grid)[0] == ["0.80±0.02", "0.70±0.01 ▼", "0.90±0.01 ▲"] and grid.corner == "data set"
    two = table(
        [Tried("wide", cell(0.9)), Tried("wide", cell(0.9, measure="accuracy")), Tried("flat", cell(0.8))],
        measures=("auc", "accuracy"),
    )
    (grid,) = tried_grids(two)
    assert grid.columns == ("X, AUC ↑", "X, Accuracy ↑") and texts(grid)[-1] == ["0.80±0.01 ✓", "–"]


def test_sets_with_other_changes_have_grids_of_their_own():
    found = table([Tried("wide", cell(0.9)), Tried("flat", cell(0.9, "Y"))], ("X", "Y"))
    assert [grid.rows[-1] for grid in tried_grids(found)] == ["wide", "flat"]
    assert tried_grids(table([])) == [] and tried_sentence(table([]), found.cells[0]) == ""


def test_the_summary_says_what_was_tried_below_the_reason():
    tried = [Tried("wide", cell(0.81)), Tried("wide", cell(0.6, "Y"))]
    text, _ = summary([table(tried, ("X", "Y"))], {"p": ("P", "")}, "folder", "")
    assert (
        "p:1, Y, A, AUC: 0.70±0.01 against 0.80±0.02. For a reason.\n  - Tried (X, AUC): wide 0.81 ✓." in text
    )
    assert "\n  - Tried (Y, AUC): wide 0.60 ▼." in text
