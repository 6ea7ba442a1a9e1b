"""The order of methods at the head of a table, and the page that sums up a paper."""

from __future__ import annotations

from papers.pages.cells import Cell, ResultTable
from papers.pages.parts import order_of, order_sentence
from papers.pages.render import render
from papers.pages.summary import summary


def table(*figures, measure="auc", direction="higher", std=0.01, name="p:1"):
    """A table of one data set; figures are (method, ours, published)."""
    cells = tuple(
        Cell(
            "X", m, measure, direction, ours, 0.01, published_mean=theirs, published_std=std, note=f"Of {m}."
        )
        for m, ours, theirs in figures
    )
    methods = tuple(m for m, _, _ in figures)
    return ResultTable(name, "Title", "Folds.", methods[0], ("X",), methods, (measure,), cells)


def test_order_is_counted_pair_by_pair():
    found = order_of(table(("A", 0.9, 0.8), ("B", 0.7, 0.795), ("C", 0.8, 0.7)))
    assert (found.n_pairs, found.n_same, found.n_clear, found.n_clear_same) == (3, 2, 2, 1)
    assert [(a.method, b.method) for a, b in found.turned] == [("B", "C")]


def test_lower_may_be_better_and_equal_figures_have_no_order():
    found = order_of(table(("A", 0.1, 0.2), ("B", 0.3, 0.2), ("C", 0.2, 0.5), direction="lower"))
    assert (found.n_pairs, found.n_same) == (2, 1)  # A and B are equal in print
    tie = order_of(table(("A", 0.5, 0.4), ("B", 0.5, 0.2)))
    assert (tie.n_pairs, tie.n_same) == (1, 1)  # equal figures of ours contradict nothing


def test_the_head_of_a_table_says_what_became_of_the_order():
    assert "in all 1 pair" in order_sentence(table(("A", 0.9, 0.8), ("B", 0.7, 0.7)))
    turned = table(("A", 0.6, 0.8), ("B", 0.7, 0.7))
    said = "Not found again: A before B on X (AUC)"
    assert said in order_sentence(turned)
    assert said in " ".join(render(turned).split())
    assert order_sentence(table(("A", 0.9, 0.8))) == ""
    many = table(*((name, k / 100, 0.9 - k / 50) for k, name in enumerate("ABCDEF")))
    assert "; and 9 more." in order_sentence(many)


def test_a_page_says_what_held_what_did_not_and_why():
    missing = Cell("X", "C", "auc", "higher", missing="C: not implemented yet", published_mean=0.5)
    one = table(("A", 0.8, 0.8), ("B", 0.6, 0.7))
    one = ResultTable("p:1", "T", "F.", "A", ("X",), ("A", "B", "C"), ("auc",), (*one.cells, missing))
    whole = table(("A", 0.8, 0.8), name="p:2")
    text, pictures = summary(
        [one, whole], {"p": ("P", "Somebody, 2012."), "q": ("Q", "")}, "folder", "Made so."
    )
    assert "2 of 3 compared cells are inside or better; all of p:2. Of the proposed method 2 of 2." in text
    assert "p:1, X, B, AUC: 0.60±0.01 against 0.70±0.01. Of B." in text
    assert "C: not implemented yet (1)" in text
    assert "66.7 %" in text and "## Q" not in text and "Made so." in text
    assert "![Verdicts, table by table](folder/verdicts.png)" in text
    assert pictures["verdicts.png"].startswith(b"\x89PNG")
    assert len(pictures["verdicts.png"]) < 100_000


def test_times_have_no_order():
    times = table(("A", 1.0, 9.0), ("B", 2.0, 8.0), measure="train_time_min", direction="lower")
    assert order_of(times).n_pairs == 0
