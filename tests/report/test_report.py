"""Tables, pictures, and tables in files."""

import json
import math

import matplotlib
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bagwise import Bags, Dataset
from bagwise.datasets import make_digits, make_multi_view
from bagwise.errors import DataError
from bagwise.metrics import evaluate
from bagwise.report import comparison_table, heat_map, plot_bags, plot_instance_scores
from bagwise.report.results import annotation_table, as_json, prediction_table, write_tables
from bagwise.report.tables import measure_title
from bagwise.utils import progress as bars
from bagwise.utils.tables import table

ROWS = {
    "a": {"ranking_loss": 0.25, "average_precision": 0.5, "seconds": 3.0},
    "b": {"ranking_loss": 0.125, "average_precision": math.nan},
}


# ---------------------------------------------------------------------- tables of text


def test_text_table_is_aligned():
    lines = comparison_table(ROWS).splitlines()
    assert lines[0].split("  ")[-1] == "seconds"
    ends = [line.index(value) + len(value) for line, value in zip(lines[1:], ("0.250", "0.125"))]
    assert ends[0] == ends[1] == lines[0].index("ranking loss ↓") + len("ranking loss ↓")
    assert lines[2].count("–") == 2


def test_best_values_know_their_direction():
    text = comparison_table(ROWS, style="markdown", mark_best=True)
    assert "**0.125**" in text and "**0.500**" in text and "**3.000**" not in text
    turned = comparison_table(ROWS, style="markdown", mark_best=True, transpose=True)
    assert turned.splitlines()[2] == "| ranking loss ↓ | 0.250 | **0.125** |"


def test_evaluations_are_rows():
    row = evaluate([[1, 0], [0, 1]], [[0.9, 0.1], [0.2, 0.8]], [[1, 0], [0, 1]])
    text = comparison_table({"ours": row}, ["hamming_loss", "average_precision"], decimals=1)
    assert text.splitlines()[1].split() == ["ours", "0.0", "1.0"]


def test_measure_title():
    assert measure_title("roc_auc") == "ROC AUC ↑" and measure_title("macro_f1") == "macro F1 ↑"
    assert measure_title("instance_accuracy_given_labels") == "instance accuracy given labels ↑"
    assert measure_title("seconds") == "seconds"


def test_rich_table_keeps_numbers_whole_and_markup_literal():
    from rich.console import Console

    console = Console(width=60, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(comparison_table(ROWS, style="rich", mark_best=True))
    console.print(table(["label", "bags"], [["[red]", 12]], style="rich", align="lr"))
    text = console.export_text()
    assert "0.125" in text and "precision ↑" in text and "[red]" in text
    assert max(map(len, text.splitlines())) <= 60


def test_markdown_escapes_bars():
    assert table(["x"], [["a|b"]], style="markdown").splitlines()[2] == "| a\\|b |"


# ---------------------------------------------------------------------- files


def test_names_that_collide_with_columns(tmp_path):
    scores = np.array([[1.0, -1.0]])
    found = prediction_table(["x"], scores, scores > 0, ["labels", "wren"])
    assert found.column_names == ["bag_id", "labels", "score.labels", "wren"]
    bags = Bags.from_list([[[1.0]]], instance_info={"label": ["seen"], "box": np.ones((1, 4))})
    found = annotation_table(bags, np.array([0]), scores, ["wren", "gull"])
    assert found.column_names == ["bag_id", "instance", "label", "score", "info.label"]


def test_bag_ids_of_any_kind():
    scores = np.zeros((2, 1))
    for ids in ([1, 2], ["a", "b"], np.array(["a", 3], dtype=object)):
        assert len(prediction_table(np.asarray(ids), scores, scores > 0, ["x"]).column("bag_id")) == 2


def test_csv_quotes_what_needs_it(tmp_path):
    import csv

    part = pa.table({"bag_id": ['a "quoted", id', "b\nc"], "labels": [["x", "y"], []]})
    assert write_tables([part, part], tmp_path / "t.csv") == 4
    with open(tmp_path / "t.csv", newline="") as handle:
        rows = list(csv.reader(handle))
    assert rows[1] == ['a "quoted", id', "x;y"] and rows[2] == ["b\nc", ""] and len(rows) == 5
    write_tables([part, part], tmp_path / "t.parquet")
    assert pq.read_table(tmp_path / "t.parquet").num_rows == 4


def test_a_stream_that_breaks_leaves_nothing(tmp_path):
    def parts():
        yield pa.table({"x": [1]})
        raise RuntimeError("broken")

    for name in ("t.csv", "t.parquet"):
        with pytest.raises(RuntimeError, match="broken"):
            write_tables(parts(), tmp_path / name)
    with pytest.raises(DataError, match="nothing to write"):
        write_tables([], tmp_path / "t.csv")
    assert list(tmp_path.iterdir()) == []


def test_json_of_anything():
    value = {
        "a": math.inf,
        1: np.int8(3),
        "c": (np.bool_(True), None),
        "d": np.array([np.nan, 1.5]),
        "e": "ü",
    }
    assert json.loads(as_json(value)) == {"a": None, "1": 3, "c": [True, None], "d": [None, 1.5], "e": "ü"}


# ---------------------------------------------------------------------- pictures


@pytest.fixture(scope="module")
def digits():
    return make_digits(n_bags=20)


def drawn(figure, path):
    figure.savefig(path)
    return matplotlib.image.imread(path)


def test_plot_bags_colours_right_and_wrong(digits, tmp_path):
    found = digits.instance_Y.copy()
    found[0] = (found[0] + 1) % 10
    found[1] = -1
    figure = plot_bags(digits, found, n_bags=3, title="three bags")
    assert drawn(figure, tmp_path / "x.png").shape[2] == 4
    n = digits.bags.offsets[3]
    assert len(figure.axes[0].images) == n
    texts = [text for text in figure.axes[0].texts if text.get_ha() == "center"]
    colours = [text.get_color() for text in texts]
    assert len(set(colours[2:])) == 1 and colours[0] == colours[1] != colours[2]
    # the true label stands behind a wrong one, and a frame tells it apart without colours
    truth = [digits.label_names[k] for k in digits.instance_Y[:2]]
    assert [text.get_text() for text in texts[:2]] == [
        f"{digits.label_names[found[0]]} ({truth[0]})",
        f"– ({truth[1]})",
    ]
    frames = [patch for patch in figure.axes[0].patches if type(patch).__name__ == "Rectangle"]
    assert len(frames) == 2


def test_right_and_wrong_differ_for_the_colour_blind():
    """By the matrices of Machado, Oliveira and Fernandes (2009) for no red, no green and no blue cones."""
    from matplotlib.colors import to_rgb

    from bagwise.report.plots import _RIGHT, _WRONG

    blind = [
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ]
    linear = [np.power(to_rgb(colour), 2.2) for colour in (_RIGHT, _WRONG)]
    for matrix in blind:
        right, wrong = (np.clip(np.asarray(matrix) @ c, 0, 1) ** (1 / 2.2) for c in linear)
        assert np.linalg.norm(right - wrong) > 0.4


def test_plot_bags_without_truth_is_neutral(digits, tmp_path):
    bare = Dataset(digits.bags, digits.Y, digits.label_names)
    P = np.full((digits.bags.n_instances, 10), 0.1)
    figure = plot_bags(bare, digits.instance_Y, P, n_bags=2)
    drawn(figure, tmp_path / "x.png")
    assert any("10%" in text.get_text() for text in figure.axes[0].texts)


def test_plots_say_what_is_missing(digits):
    plain = make_digits(n_bags=20, pictures=False)
    with pytest.raises(DataError, match="plot_instance_scores"):
        plot_bags(plain, plain.instance_Y)
    with pytest.raises(DataError, match="shape"):
        plot_bags(digits, digits.instance_Y[:-1])
    with pytest.raises(DataError, match="shape"):
        plot_instance_scores(digits, np.zeros((3, 10)))
    with pytest.raises(DataError, match="one view"):
        plot_bags(make_multi_view(n_bags=5), np.zeros(3))
    with pytest.raises(DataError, match="names"):
        heat_map(np.eye(2), ["a"])
    with pytest.raises(DataError, match="matrix"):
        heat_map(np.ones(2), ["a"])


def test_plot_instance_scores_and_heat_map(digits, tmp_path):
    scores = np.random.default_rng(0).normal(size=(digits.bags.n_instances, 10))
    figure = plot_instance_scores(digits, scores, n_bags=4, title="scores")
    assert figure.axes[0].images[0].get_array().shape == (10, digits.bags.offsets[4])
    low, high = figure.axes[0].images[0].get_clim()
    assert low == -high  # zero is in the middle
    drawn(figure, tmp_path / "x.png")
    drawn(heat_map(np.full((2, 2), np.nan), ["a", "b"]), tmp_path / "y.png")


def test_no_figure_is_left_open(digits):
    import matplotlib.pyplot

    before = matplotlib.pyplot.get_fignums()
    plot_bags(digits, digits.instance_Y, n_bags=2)
    assert matplotlib.pyplot.get_fignums() == before


# ---------------------------------------------------------------------- progress


def test_progress_is_silent_in_a_pipe(capsys):
    assert list(bars.track(iter("ab"), "letters")) == ["a", "b"]
    with bars.progress("work", total=2) as advance:
        advance(description="half")
        advance()
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_progress_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(bars, "on_terminal", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert list(bars.track([1, 2], "letters")) == [1, 2]
    captured = capsys.readouterr()
    assert captured.out == "" and "letters" in captured.err
    assert list(bars.track([1, 2], "letters", enabled=False)) == [1, 2]
    assert capsys.readouterr().err == ""
