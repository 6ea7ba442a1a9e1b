"""What was tried, laid out for a page."""

from __future__ import annotations

import csv

from papers.pages.cells import Cell, ResultTable, Tried
from papers.pages.layout import report, tried_grids, tried_sentence
from papers.pages.render import render
from papers.pages.summary import summary


def cell(ours, dataset="X", measure="auc", std=0.01, published_std=0.02, **more):
    spread = {"published_mean": 0.8, "published_std": published_std, "decimals": 2}
    return Cell(dataset, "A", measure, "higher", ours, std, **spread, **more)


def tried(change, changed, **more):
    """A change to the cell of the same place, which has .70 without it."""
    return Tried(change, changed, cell(0.7, changed.dataset, changed.measure), **more)


def table(found, datasets=("X",), measures=("auc",)):
    cells = tuple(cell(0.7, d, m, note="For a reason.") for d in datasets for m in measures)
    return ResultTable(
        "p:1", "T", "F.", "A", tuple(datasets), ("A",), tuple(measures), cells, tried=tuple(found)
    )


def texts(grid):
    return [[entry[0].text for entry in row] for row in grid.entries]


def test_changes_are_rows_below_what_is_published_and_unchanged():
    found = table([tried("wide", cell(0.81)), tried("narrow", cell(0.6, count=(2, 3)))])
    (grid,) = tried_grids(found)
    assert grid.title == "Tried with A: AUC ↑" and grid.columns == ("X",)
    assert grid.rows == ("published", "unchanged", "wide", "narrow")
    assert texts(grid) == [["0.80±0.02"], ["0.70±0.01 ▼"], ["0.81±0.01 ✓"], ["0.60±0.01 (2 of 3)"]]
    assert [row[0][0].kind for row in grid.entries] == ["published", "worse", "inside", ""]
    assert tried_sentence(found, found.cells[0]) == "Tried: wide 0.81 ✓; narrow 0.60 (2 of 3)."
    assert "tried: one change each" in report(found).legend
    for style in ("text", "markdown", "html", "latex"):
        assert "narrow" in render(found, style)


def test_many_data_sets_are_rows_and_missing_figures_dashes():
    names = ["V", "W", "X", "Y", "Z"]
    found = table([tried("wide", cell(0.9, name)) for name in names], names)
    (grid,) = tried_grids(found)
    assert grid.rows == tuple(names) and grid.columns == ("published", "unchanged", "wide")
    assert texts(grid)[0] == ["0.80±0.02", "0.70±0.01 ▼", "0.90±0.01 ▲"] and grid.corner == "data set"
    two = table(
        [tried("wide", cell(0.9)), tried("wide", cell(0.9, measure="accuracy")), tried("flat", cell(0.8))],
        measures=("auc", "accuracy"),
    )
    (grid,) = tried_grids(two)
    assert grid.columns == ("X, AUC ↑", "X, Accuracy ↑") and texts(grid)[-1] == ["0.80±0.01 ✓", "–"]


def test_sets_with_other_changes_have_grids_of_their_own():
    found = table([tried("wide", cell(0.9)), tried("flat", cell(0.9, "Y"))], ("X", "Y"))
    assert [grid.rows[-1] for grid in tried_grids(found)] == ["wide", "flat"]
    assert tried_grids(table([])) == [] and tried_sentence(table([]), found.cells[0]) == ""


def test_the_summary_says_what_was_tried_below_the_reason():
    found = [tried("wide", cell(0.81)), tried("wide", cell(0.6, "Y"))]
    text, _ = summary([table(found, ("X", "Y"))], {"p": ("P", "")}, "folder", "")
    assert (
        "p:1, Y, A, AUC: 0.70±0.01 against 0.80±0.02. For a reason.\n  - Tried (X, AUC): wide 0.81 ✓." in text
    )
    assert "\n  - Tried (Y, AUC): wide 0.60 ▼." in text


def test_a_noisier_figure_is_no_nearer_where_no_std_is_published():
    """What is compared with our own std stays compared with the one without the change."""
    noisy = cell(0.6, std=0.3, published_std=None)
    assert noisy.inside == "inside"
    found = Tried("noisy", noisy, cell(0.7, published_std=None))
    assert found.inside == "worse"
    frame = table([found]).frame()
    assert frame.column("inside").to_pylist() == ["worse", "worse"]


def test_failures_repeats_and_reasons_are_said():
    found = table(
        [
            tried("gone", cell(None, missing="failed: no memory"), why="Too little is known."),
            tried(
                "more", cell(0.81, values=(0.8, 0.81, 0.82), keys=("a", "b", "c")), why="Too little is known."
            ),
        ]
    )
    (grid,) = tried_grids(found)
    assert texts(grid)[2:] == [["– (failed)"], ["0.81±0.01 ✓ (3 repeats)"]]
    assert grid.notes[2] == ((1,),) and grid.footnotes == ("failed: no memory",)
    for style in ("text", "markdown", "html", "latex"):
        page = render(found, style)
        assert page.count("Too little is known.") == 1 and "no memory" in page
    assert "0.81$\\pm$0.01 (inside) (3 repeats)" in render(found, "latex")


def test_what_was_tried_has_no_mark_of_significance():
    values = {"values": (0.7, 0.71, 0.72), "keys": ("a", "b", "c")}
    better = {"values": (0.9, 0.91, 0.93), "keys": ("a", "b", "c")}
    cells = tuple(
        Cell("X", name, "auc", "higher", 0.7, 0.01, published_mean=0.8, **own)
        for name, own in (("A", better), ("B", values))
    )
    changed = Tried("wide", cells[1], cells[1])
    found = ResultTable("p:1", "T", "F.", "A", ("X",), ("A", "B"), ("auc",), cells, tried=(changed,))
    rows = list(csv.DictReader(render(found, "csv").splitlines()))
    assert [(row["method"], row["change"], row["mark"]) for row in rows] == [
        ("A", "", ""),
        ("B", "", "worse"),
        ("B", "wide", ""),
    ]
