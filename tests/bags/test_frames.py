"""Long tables in and out: labels in every spelling, list columns, foreign columns, frames of predictions."""

import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bagwise
from bagwise import Bags, Dataset, MultiViewBags
from bagwise.bags.columns import doubt
from bagwise.errors import DataError, DataWarning
from bagwise.inspection import label_names, prediction_frame
from bagwise.models import MIMLDummy
from bagwise.preprocessing import OnInstances

LONG = pd.DataFrame({"bag_id": ["y", "x", "y", "z"], "f": [1.0, 2.0, 3.0, 4.0], "g": [0.5, 0, 0, 1]})
SETS = {"x": ["wren"], "y": ["robin", "wren"], "z": []}
EXPECTED = [["robin", "wren"], ["wren"], []]  # bags are y, x, z
FLAGS = pd.DataFrame([[0, 1], [1, 1], [0, 0]], index=["x", "y", "z"], columns=["robin", "wren"])


@pytest.mark.parametrize(
    "labels",
    [
        SETS,
        {k: ";".join(v) for k, v in SETS.items()},
        pd.Series(SETS),
        pd.Series({k: " ; ".join(v) for k, v in SETS.items()}),
        FLAGS,
        FLAGS.iloc[::-1],
        FLAGS.rename_axis("bag_id").reset_index(),
        pd.DataFrame({"labels": SETS}),
        pl.DataFrame({"bag_id": ["z", "x", "y"], "labels": ["", "wren", "wren;robin"]}),
        pa.table({"bag_id": ["z", "x", "y"], "robin": [0, 0, 1], "wren": [0, 1, 1]}),
        {**SETS, "not in the table": ["wren"]},
    ],
)
def test_labels_by_bag_id(labels):
    data = Dataset.from_frame(LONG, labels=labels)
    assert data.bags.bag_ids.tolist() == ["y", "x", "z"]
    assert data.label_sets == EXPECTED and data.label_names == ("robin", "wren")
    assert data.bags.feature_names == ("f", "g")


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_labels_in_a_column(make):
    columns = LONG.to_dict("list")
    texts = [";".join(SETS[i]) for i in columns["bag_id"]]
    lists = [SETS[i] for i in columns["bag_id"]]
    for column in (texts, lists):
        assert Dataset.from_frame(make({**columns, "labels": column})).label_sets == EXPECTED
        assert Dataset.from_frame(make({**columns, "birds": column}), labels="birds").label_sets == EXPECTED
    flags = {f"label:{name}": [int(name in SETS[i]) for i in columns["bag_id"]] for name in ("robin", "wren")}
    assert Dataset.from_frame(make({**columns, **flags})).label_sets == EXPECTED
    assert not Dataset.from_frame(make(columns)).has_labels
    with pytest.raises(DataError, match="bag 'y' has different values in the column 'birds'"):
        Dataset.from_frame(make({**columns, "birds": ["a", "a", "b", "c"]}), labels="birds")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"x": ["wren"], "y": []}, "no labels for bag 'z'"),
        (FLAGS.iloc[[0, 1, 2, 1]], "bag 'y' has two rows of labels"),
        (FLAGS.reset_index(drop=True), "no labels for bag 'y' and 2 more"),
        (pl.DataFrame({"id": ["x"], "labels": ["wren"]}), "no column 'bag_id'"),
        ([["wren"], [], []], "labels are names of columns"),
        (np.eye(3), "labels are names of columns"),
    ],
)
def test_labels_that_do_not_fit(labels, words):
    with pytest.raises(DataError, match=words):
        Dataset.from_frame(LONG, labels=labels)


def test_a_bag_index_of_pandas():
    assert Bags.from_frame(LONG.set_index("bag_id")).equals(Bags.from_frame(LONG))


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_one_column_of_lists(make):
    table = make(
        {"bag_id": ["y", "x", "y"], "embedding": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "n": [1, 2, 3]}
    )
    bags = Bags.from_frame(table, features="embedding", info=["n"])
    assert bags.X.tolist() == [[1, 2], [5, 6], [3, 4]] and bags.feature_names is None
    assert bags.instance_info["n"].tolist() == [1, 3, 2]
    assert Dataset.from_frame(table, features="embedding", labels={"x": [], "y": "a"}).bags.n_features == 2
    assert Bags.from_frame(table, features="n").X.ravel().tolist() == [1, 3, 2]


def test_arrays_of_equal_length_in_every_library():
    X = np.arange(6, dtype=np.float32).reshape(3, 2)
    tables = [
        pd.DataFrame({"bag_id": [1, 1, 2], "e": list(X)}),
        pl.DataFrame({"bag_id": [1, 1, 2], "e": X}),
        pa.table({"bag_id": [1, 1, 2], "e": pa.FixedSizeListArray.from_arrays(X.ravel(), 2)}),
    ]
    for table in tables:
        bags = Bags.from_frame(table, features="e")
        assert bags.dtype == np.float32
        np.testing.assert_array_equal(bags.X, X)
    with pytest.raises(DataError, match="features='e'"):
        Bags.from_frame(tables[0])


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        ([[1.0, 2.0], [3.0]], r"row 1 \(bag 'x'\) has 1 numbers in column 'e', row 0 has 2"),
        ([[1.0, 2.0], None], r"row 1 \(bag 'x'\) has no list"),
        ([[1.0, 2.0], [3.0, None]], r"row 1 \(bag 'x'\) has a null"),
        ([["a"], ["b"]], "must be numbers"),
    ],
)
def test_lists_that_are_no_instances(lists, words):
    with pytest.raises(DataError, match=words):
        Bags.from_frame(pa.table({"bag_id": ["y", "x"], "e": lists}), features="e")


FOREIGN = {
    "lat": "a place or time",
    "start": "a place or time",
    "End Time (s)": "a place or time",
    "target": "labels",
    "label": "labels",
    "label:wren": "labels",
    "class": "labels",
    "Unnamed: 0": "counts rows",
    "": "counts rows",
    "index": "counts rows",
    "id": "an id",
    "patient_id": "an id",
    "imageId": "an id",
    "bag": "an id",
    "fold": "a part or group",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_columns_are_no_features(name):
    assert doubt(name) == FOREIGN[name]
    table = LONG.assign(**{name: [1, 2, 3, 4]})
    with pytest.warns(DataWarning, match="not taken as features") as caught:
        bags = Bags.from_frame(table)
    assert repr(name) in str(caught[0].message) and caught[0].filename == __file__
    assert bags.feature_names == ("f", "g")
    assert Bags.from_frame(table, features=["f", name]).feature_names == ("f", name)
    if name != "label:wren":  # that is a label here
        with pytest.warns(DataWarning, match="not taken as features") as caught:
            data = Dataset.from_frame(table, labels=SETS)
        assert data.roles[name] == "left out" and caught[0].filename == __file__


@pytest.mark.parametrize(
    "name", ["f1", "mfcc_1", "onset_strength", "energy", "x", "y", "valid", "grid", "long_run"]
)
def test_plain_names_are_features(name):
    assert doubt(name) is None


def test_a_column_may_say_that_it_is_a_feature():
    bags = Bags.from_frame(pa.table({"bag_id": [1], "feature:lat": [2.0]}))
    assert bags.feature_names == ("lat",) and bags.X.tolist() == [[2.0]]


def test_further_label_columns_are_no_features():
    table = pd.DataFrame(
        {"bag_id": [1, 1, 2], "A": [1, 1, 0], "B": [0, 0, 1], "C": [1, 1, 1], "D": [0, 0, 0], "f": [1, 0, 1]}
    )
    with pytest.warns(DataWarning, match=r"'B', 'C', 'D' \(0 and 1 like the labels"):
        data = Dataset.from_frame(table, labels=["A"])
    assert data.bags.feature_names == ("f",)
    assert data.roles == {
        "bag_id": "bag", "A": "label", "B": "left out", "C": "left out", "D": "left out", "f": "feature"
    }  # fmt: skip
    assert Dataset.from_frame(table, features=["B", "f"], labels=["A"]).bags.n_features == 2
    with pytest.warns(DataWarning, match="the features 'A', 'B' hold 0 and 1") as caught:
        assert Dataset.from_frame(table).bags.n_features == 5
    assert caught[0].filename == __file__


def full():
    bags = Bags.from_list(
        [np.full((n, 2), n, dtype=float) for n in (2, 1, 3)],
        bag_ids=["a", "b", "c"],
        instance_info={"word": list("uvwxyz"), "box": np.arange(12).reshape(6, 2)},
    )
    return Dataset(
        bags,
        [["owl"], ["robin", "wren"], ["wren"]],
        instance_Y=["owl", None, "robin", "wren", "", "wren"],
        groups=[1, 1, 2],
        splits={"train": [0, 2], "test": [1]},
    )


def test_frames_and_back():
    data = full()
    frame = data.to_frame()
    assert list(frame) == [
        "bag_id", "labels", "group", "splits", "instance_label", "f1", "f2", "info:word", "info:box"
    ]  # fmt: skip
    again = Dataset.from_frame(frame)
    assert again.bags.bag_ids.tolist() == ["a", "b", "c"] and again.label_sets == data.label_sets
    np.testing.assert_array_equal(again.bags.X, data.bags.X)
    np.testing.assert_array_equal(again.instance_Y, data.instance_Y)
    assert again.groups.tolist() == [1, 1, 2]
    assert {k: v.tolist() for k, v in again.splits.items()} == {"train": [0, 2], "test": [1]}
    assert again.bags.instance_info["word"].tolist() == list("uvwxyz")
    unsorted = Dataset(data.bags, data.Y[:, ::-1], ["wren", "robin", "owl"])
    assert "label:wren" in unsorted.to_frame()
    assert Dataset.from_frame(unsorted.to_frame()).label_names == ("wren", "robin", "owl")
    assert list(Dataset(data.bags).to_frame())[:2] == ["bag_id", "f1"]
    with pytest.raises(DataError, match=r"data.bags\[view\].to_frame"):
        Dataset(MultiViewBags({"v": data.bags})).to_frame()


def test_sparse_bags_make_sparse_frames():
    from scipy import sparse

    frame = Bags(sparse.csr_array([[0, 1.5], [0, 0]]), [0, 2], bag_ids=["a"]).to_frame()
    assert frame["f2"].tolist() == [1.5, 0.0] and "Sparse" in str(frame.dtypes["f2"])


def test_predictions_have_names():
    data = full()
    model = make_pipeline(OnInstances(StandardScaler()), MIMLDummy()).fit(data.bags, data.label_sets)
    assert label_names(model) == ("owl", "robin", "wren")
    for method in ("predict", "predict_proba", "decision_function"):
        frame = prediction_frame(model, data.bags, method)
        assert frame.index.tolist() == ["a", "b", "c"] and frame.index.name == "bag_id"
        np.testing.assert_array_equal(frame.to_numpy(), getattr(model, method)(data.bags))
    scores = prediction_frame(model, data.bags, "instance_scores")
    assert scores.index[-1] == ("c", 2) and scores.shape == (6, 3)
    found = prediction_frame(model, data.bags)
    assert Dataset(data.bags[[2, 0]], found.loc[["a", "c"]]).label_names == ("owl", "robin", "wren")
    classes = MIMLDummy().fit(list(np.ones((4, 2, 1))), ["x", "y", "x", "x"])
    assert prediction_frame(classes, np.ones((2, 2, 1)))["class"].tolist() == ["x", "x"]
    assert list(prediction_frame(classes, np.ones((2, 2, 1)), "predict_proba")) == ["x", "y"]
    with pytest.raises(ValueError, match="method is one of"):
        prediction_frame(model, data.bags, "guess")


def test_notebooks_show_tables():
    data = full()
    html = data._repr_html_()
    assert "<table>" in html and "owl" in html and "instances" in html
    odd = Dataset(Bags([[1.0]], [0, 1], bag_ids=["<b>"]), [["<script>"]])
    assert "<script>" not in odd._repr_html_() and "&lt;script&gt;" in odd._repr_html_()
    assert "rgb" in MultiViewBags({"rgb": data.bags})._repr_html_()
    assert "none" in Dataset(data.bags[:0])._repr_html_()


def test_the_package_shows_public_names_alone():
    names = dir(bagwise)
    assert {"Bags", "read", "models", "errors"} <= set(names)
    assert not {"annotations", "import_module", "Any", "TYPE_CHECKING"} & set(names)
    assert all(hasattr(bagwise, name) for name in names)
    code = "import sys, bagwise; dir(bagwise); print({'numba', 'sklearn', 'pyarrow'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "set()"
    from pathlib import Path

    assert (Path(bagwise.__file__).parent / "py.typed").exists()
