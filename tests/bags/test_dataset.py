"""Labels and data sets."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from bagwise import Bags, Dataset, MultiViewBags
from bagwise.bags.labels import label_matrix, label_sets
from bagwise.errors import DataError

NAMES = ["robin", "wren", "owl"]


@given(st.lists(st.sets(st.sampled_from(NAMES)), min_size=1, max_size=6))
def test_every_spelling_of_labels_gives_the_same_matrix(sets):
    expected = np.array([[name in s for name in NAMES] for s in sets], dtype=np.int8)
    spellings = [
        [sorted(s) for s in sets],
        expected,
        expected.astype(bool),
        expected.astype(float),
        expected.tolist(),
        sparse.csr_array(expected),
        pd.DataFrame(expected, columns=NAMES),
        pd.DataFrame(expected[:, ::-1], columns=NAMES[::-1]),  # by name, not by position
    ]
    for labels in spellings:
        Y, names = label_matrix(labels, NAMES)
        np.testing.assert_array_equal(Y, expected)
        assert Y.dtype == np.int8 and names == tuple(NAMES)
    assert [set(s) for s in label_sets(expected, NAMES)] == sets


def test_defaults_for_names():
    assert label_matrix([["b"], ["a", "b"]])[1] == ("a", "b")
    assert label_matrix(np.eye(2))[1] == ("label_0", "label_1")
    assert label_matrix(["x", "y", "x"])[0].tolist() == [[1, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("labels", "names", "words"),
    [
        ([["robbin"]], NAMES, "'robbin'; did you mean 'robin'"),
        ([[0, 2]], None, "value 2"),
        (np.array([[0.0, np.nan]]), None, "nan"),
        (np.eye(2), NAMES, "3 label names for 2 columns"),
        (np.eye(3), ["a", "b", "a"], "'a' occurs twice"),
        ([[0, 1], [1]], None, "0/1 matrix"),
        ([1, 0], None, "0/1 matrix"),
        (pd.DataFrame(np.eye(2), columns=["robin", "wren"]), NAMES, "owl"),
    ],
)
def test_bad_labels(labels, names, words):
    with pytest.raises(DataError, match=words):
        label_matrix(labels, names)


def small():
    bags = Bags.from_list([np.full((n, 2), n, dtype=float) for n in (2, 1, 3)], bag_ids=["a", "b", "c"])
    return Dataset(
        bags,
        [["owl"], ["robin", "wren"], ["wren"]],
        instance_Y=["owl", None, "robin", "wren", "", "wren"],
        groups=[1, 1, 2],
        splits={"train": [0, 2], "test": [1]},
        name="birds",
    )


def test_cutting_a_data_set_cuts_everything():
    data = small()
    assert data.instance_Y.tolist() == [0, -1, 1, 2, -1, 2]
    cut = data[[2, 0]]
    assert cut.label_sets == [["wren"], ["owl"]]
    assert cut.instance_Y.tolist() == [2, -1, 2, 0, -1]
    assert cut.groups.tolist() == [2, 1]
    assert cut.bags.bag_ids.tolist() == ["c", "a"]
    assert data["train"].bags.bag_ids.tolist() == ["a", "c"]
    assert data[1:].instance_Y.tolist() == [1, 2, -1, 2]
    assert np.shares_memory(data[1:].bags.X, data.bags.X)
    assert data[np.array([True, False, False])].label_sets == [["owl"]]
    assert data.cardinality == pytest.approx(4 / 3)
    with pytest.raises(KeyError, match="'train', 'test'"):
        data["valid"]


def test_labelled_bags_carry_the_truth_into_folds():
    bags = small().labelled_bags()
    assert bags[[1]].instance_info["label"].tolist() == [1]


def test_several_views_with_instance_labels():
    views = MultiViewBags(
        {"a": Bags.from_list([np.ones((2, 1)), np.ones((1, 1))]), "b": Bags.from_list([np.ones((1, 2)), []])}
    )
    data = Dataset(views, [["x", "y"], ["x"]], instance_Y={"a": [0, 1, 0], "b": [1]})
    assert data[[1]].instance_Y["a"].tolist() == [0] and len(data[[1]].instance_Y["b"]) == 0
    with pytest.raises(TypeError, match="mapping"):
        Dataset(views, [["x"], ["x"]], instance_Y=[0, 0, 0, 0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"Y": [["owl"]]}, "1 rows of labels for 3 bags"),
        ({"instance_Y": [0, 0]}, r"\(2,\)"),
        ({"instance_Y": [0, 0, 0, 0, 0, 7]}, r"bag 'c'\) has the label 7"),
        ({"instance_Y": ["owl", "x", "", "", "", ""]}, "unknown label 'x'"),
        ({"groups": [1]}, "1 groups"),
        ({"label_names": ["owl", "wren"]}, "robin"),
    ],
)
def test_bad_data_sets(change, words):
    data = small()
    given_labels = {"Y": data.label_sets, "instance_Y": None, "groups": None, "label_names": ()} | change
    with pytest.raises(DataError, match=words):
        Dataset(data.bags, **given_labels)


def test_from_frame():
    table = pa.table(
        {
            "bag_id": ["x", "y", "x"],
            "f": [1.0, 2.0, 3.0],
            "wren": [1, 0, 1],
            "owl": [0, 0, 0],
            "who": ["wren", None, ""],
        }
    )
    data = Dataset.from_frame(table, labels=["wren", "owl"], instance_label="who", name="t")
    assert data.Y.tolist() == [[1, 0], [0, 0]]
    assert data.instance_Y.tolist() == [0, -1, -1]
    assert data.bags.feature_names == ("f",)
    by_id = Dataset.from_frame(table, features=["f"], labels={"x": ["wren"], "y": []})
    assert by_id.label_sets == [["wren"], []]
    changed = table.set_column(2, "wren", pa.array([1, 0, 0]))
    with pytest.raises(DataError, match=r"bag 'x'.*'wren'"):
        Dataset.from_frame(changed, features=["f"], labels=["wren"])
    with pytest.raises(DataError, match="bag 'y'"):
        Dataset.from_frame(table, features=["f"], labels={"x": ["wren"]})


def test_pieces_are_joined():
    one = Dataset(
        Bags([[1.0], [2.0]], [0, 2], bag_ids=["a"]),
        [["wren"]],
        instance_Y=[0, -1],
        groups=[1],
        splits={"p": [0]},
    )
    two = Dataset(
        Bags([[3.0]], [0, 1], bag_ids=["b"]), [["robin"]], groups=[2], splits={"p": [0], "q": [0]}, name="two"
    )
    both = Dataset.concat([one, two])
    assert both.label_names == ("robin", "wren") and both.label_sets == [["wren"], ["robin"]]
    assert both.instance_Y.tolist() == [1, -1, -1] and both.groups.tolist() == [1, 2] and both.name == ""
    assert {name: which.tolist() for name, which in both.splits.items()} == {"p": [0, 1], "q": [1]}
    assert Dataset.concat(iter([one])) is one
    with pytest.raises(DataError, match="some pieces have groups"):
        Dataset.concat([one, Dataset(two.bags, two.Y, two.label_names)])
    with pytest.raises(DataError, match="at least one"):
        Dataset.concat([])
