"""Long CSV: both layouts, round trips, and errors that name the line."""

import gzip
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_sets import NAMES, assert_same, bags
from scipy import sparse

from bagwise import Bags, Dataset
from bagwise.bags import MultiViewBags
from bagwise.errors import DataError, DataWarning
from bagwise.io import csv, read, write


@st.composite
def long_sets(draw):
    """What one row per instance can hold."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    ids = draw(
        st.sampled_from(
            [
                None,
                np.arange(len(sizes)) * 7,
                np.arange(len(sizes)) + 9_223_372_036_854_775_000,
                np.arange(len(sizes), dtype=np.uint64) + 18_446_744_073_709_551_000,
                np.arange(len(sizes)) - 0.5,
                np.arange(len(sizes)) * 1e300 + 1.0,
            ]
        )
        | st.lists(NAMES.map("b".__add__), min_size=len(sizes), max_size=len(sizes), unique=True).map(
            np.array
        )
    )
    if ids is None:
        ids = np.arange(len(sizes))
    one = draw(bags(np.concatenate([[0], np.cumsum(sizes)]), ids, info=False, any_sparse=False))
    info = {}
    if draw(st.booleans()):
        words = [
            draw(st.sampled_from(["x", "", 'a "b"', "p,q", "two\nlines", "é"])) for _ in range(sum(sizes))
        ]
        info = {
            "word": np.array([*words[:-1], "z"]),
            "n": np.arange(sum(sizes)),
            "f": np.arange(sum(sizes)) + 0.5,
        }
    odd = st.sampled_from(
        ["labels", "bag_id", "lat", "info:x", "label:x", "feature:x", "instance", "", "1,5"]
    )
    names = one.feature_names
    if names is not None and draw(st.booleans()):
        names = draw(st.lists(odd | NAMES, min_size=len(names), max_size=len(names), unique=True))
    one = Bags(one.X, one.offsets, bag_ids=ids, instance_info=info, feature_names=names)
    labels = draw(st.lists(NAMES | st.sampled_from(["", "a;b", " x"]), max_size=4, unique=True))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    known = rng.integers(-1, len(labels), one.n_instances) if labels and draw(st.booleans()) else None
    if known is not None and "" in labels:
        known[known == labels.index("")] = -1
    makers = [lambda n: n % 2, lambda n: n % 2 + 0.5, lambda n: np.array(["01", "1", "1.0", ""])[n % 4]]
    groups = draw(st.sampled_from(makers))(np.arange(len(sizes))) if draw(st.booleans()) else None
    splits = {"train": np.arange(len(sizes)), "dev": np.arange(1)} if draw(st.booleans()) else {}
    Y = rng.integers(0, 2, (len(sizes), len(labels)))
    return Dataset(one, Y if labels else None, labels, instance_Y=known, groups=groups, splits=splits)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=long_sets(), suffix=st.sampled_from([".csv", ".csv.gz"]))
def test_round_trip(tmp_path, data, suffix):
    path = tmp_path / f"set{suffix}"
    write(data, path)
    assert_same(data, read(path), about=False)


def test_float32_comes_back_to_the_bit(tmp_path):
    X = np.array([[0.1, 1e-42], [3.4e38, -1 / 3]], dtype=np.float32)
    write(Dataset(Bags(X, [0, 2]), [["x"]]), tmp_path / "set.csv")
    again = read(tmp_path / "set.csv", dtype=np.float32).bags.X
    assert again.dtype == np.float32
    np.testing.assert_array_equal(again, X)


def test_sparse_is_written_in_full_up_to_a_size(tmp_path, monkeypatch):
    data = Dataset(Bags(sparse.csr_array([[0, 1.5], [0, 0]]), [0, 2]), [["x"]])
    write(data, tmp_path / "set.csv")
    np.testing.assert_array_equal(read(tmp_path / "set.csv").bags.X, [[0, 1.5], [0, 0]])
    monkeypatch.setattr(csv, "MAX_VALUES", 3)
    with pytest.raises(DataError, match=r"up to 3 values, this one has 4"):
        write(data, tmp_path / "other.csv")


def one_bag(**bags_options):
    return Dataset(Bags(np.ones((1, 1)), [0, 1], **bags_options), [["x"]])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (Dataset(MultiViewBags({"v": Bags(np.ones((1, 1)), [0, 1])}), [["x"]]), "CSV holds one view"),
        (Dataset(Bags(np.ones((0, 1)), [0]), np.ones((0, 1), dtype=int)), "the set has no bags"),
        (Dataset(Bags(np.ones((1, 0)), [0, 1]), [["x"]]), "no features"),
        (Dataset(Bags(np.ones((0, 1)), [0, 0]), [["x"]]), "no bag has instances"),
        (one_bag(bag_ids=[""]), "a bag has the empty id ''"),
        (one_bag(bag_ids=["x" * 256]), "256 characters in its id"),
    ],
)
def test_what_csv_cannot_hold_is_refused_before_writing(tmp_path, data, words):
    path = tmp_path / "set.csv"
    path.write_text("older")
    with pytest.raises(DataError, match=words):
        write(data, path)
    assert path.read_text() == "older"


def spoiled(**options):
    bags = Bags.from_list([[[1.0]], [], [[2.0], [3.0]]], bag_ids=["a", "b", "c"], **options)
    return Dataset(bags, [["x"], ["y"], []], splits={"train": [2, 0], "rest": [1], "a;b": [0]}, citation="We")


def test_what_csv_cannot_say_is_dropped_by_name(tmp_path):
    facts = {"box": np.ones((3, 4)), "gap": np.array(["u", None, "w"]), "n": [1, 2, 3]}
    with pytest.warns(DataWarning) as caught:
        write(spoiled(instance_info=facts), tmp_path / "set.csv")
    assert len(caught) == 1 and caught[0].filename == __file__
    said = str(caught[0].message)
    for words in (
        "without instances ('b')",
        "'box'",
        "the order of the part 'train'",
        "'rest'",
        "'a;b'",
        "citation",
    ):
        assert words in said
    again = read(tmp_path / "set.csv")
    assert again.bags.bag_ids.tolist() == ["a", "c"] and again.label_sets == [["x"], []]
    assert {k: v.tolist() for k, v in again.splits.items()} == {"train": [0, 1]}
    assert set(again.bags.instance_info) == {"gap", "n"}
    with pytest.warns(DataWarning, match="names of features"):
        bags = Bags(np.ones((1, 2)), [0, 1], feature_names=["same", "same"])
        write(Dataset(bags, [["x"]]), tmp_path / "set.csv")
    times = Bags(np.ones((1, 1)), [0, 1], instance_info={"t": np.array(["2026-01-02"], "datetime64[D]")})
    write(Dataset(times, [["x"]]), tmp_path / "set.csv")
    assert read(tmp_path / "set.csv").bags.instance_info["t"].tolist() == ["2026-01-02"]


def test_very_many_labels_are_written_as_names(tmp_path):
    names = [f"n{k}" for k in range(1500)]
    Y = np.zeros((2, 1500), dtype=np.int8)
    Y[0, [7, 1499]] = 1
    with pytest.warns(DataWarning, match="order of the labels; labels that no bag has"):
        write(Dataset(Bags(np.ones((2, 1)), [0, 1, 2]), Y, names), tmp_path / "set.csv")
    assert read(tmp_path / "set.csv").label_sets == [["n1499", "n7"], []]


def made(tmp_path, text, name="toy.csv"):
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_bags_need_not_be_sorted(tmp_path):
    data = read(made(tmp_path, "f1,bag,labels\n1,x,p\n2,y,\n3,x,p\n"))
    assert data.bags.bag_ids.tolist() == ["x", "y"]
    assert data.bags.X.ravel().tolist() == [1, 3, 2]
    assert data.label_sets == [["p"], []]
    assert data.name == "toy"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_line_ends_blank_lines_and_byte_order_mark(tmp_path, end, bom):
    lines = ["bag_id,labels,width", "", "é,a;b,1.5", "", "é,a;b,-2e3", "", ""]
    data = read(made(tmp_path, bom + end.join(lines)))
    assert data.bags.bag_ids.tolist() == ["é"]
    assert data.bags.X.ravel().tolist() == [1.5, -2000.0]
    assert data.bags.feature_names == ("width",)


def test_instance_labels_make_bag_labels(tmp_path):
    text = "bag,instance,letter,row,f1,f2\n1,1,A,9,2,6\n1,2,N,8,6,9\n2,1,A,7,1,1\n"
    data = read(made(tmp_path, text), label_names=list("ABN"))
    assert data.label_names == ("A", "B", "N")
    assert data.Y.tolist() == [[1, 0, 1], [1, 0, 0]]
    assert data.instance_Y.tolist() == [0, 2, 0]
    assert data.bags.n_features == 2
    assert data.bags.instance_info["row"].tolist() == [9, 8, 7]


def test_label_columns_and_other_names(tmp_path):
    text = "image;wren;robin;area;colour;what\nx;1;0;2.5;red;wren\nx;1;0;3;blue;\ny;0;1;1;red;robin\n"
    data = read(
        made(tmp_path, text),
        format="csv",
        bag="image",
        labels=["wren", "robin"],
        instance_label="what",
        delimiter=";",
    )
    assert data.label_names == ("wren", "robin")
    assert data.Y.tolist() == [[1, 0], [0, 1]]
    assert data.instance_Y.tolist() == [0, -1, 1]
    assert data.bags.instance_info["colour"].tolist() == ["red", "blue", "red"]
    assert data.bags.feature_names == ("area",)


def test_chosen_features_only(tmp_path):
    text = "bag,labels,a,b,c\nx,p,1,2,3\n"
    data = read(made(tmp_path, text), features=["c", "a"], info=["b"])
    assert data.bags.X.tolist() == [[3, 1]]
    assert data.bags.feature_names == ("c", "a")
    assert data.bags.instance_info["b"].tolist() == [2]


def test_layout_without_header(tmp_path):
    data = read(made(tmp_path, "1,7,0.5,2\n0,9,1,1\n1,7,3,4\n"))
    assert data.label_names == ("positive",)
    assert data.Y.ravel().tolist() == [1, 0]
    assert data.bags.bag_ids.tolist() == [7, 9]
    assert data.bags.sizes.tolist() == [2, 1]
    text = read(made(tmp_path, "1,m-7,0.5,2\n0,m-9,1,1\n"))
    assert text.bags.bag_ids.tolist() == ["m-7", "m-9"]
    several = read(made(tmp_path, "4,7,0.5\n2,9,1\n"))
    assert several.label_names == ("2", "4")


def test_ids_with_leading_zeros_stay_text(tmp_path):
    data = read(made(tmp_path, "bag,labels,f1\n07,p,1\n7,p,1\n"))
    assert data.bags.bag_ids.tolist() == ["07", "7"]


def test_numbers_that_only_the_careful_reader_knows(tmp_path):
    data = read(made(tmp_path, "bag,labels,f1\nx,p,+1.5\nx,p, 2 \n"))
    assert data.bags.X.ravel().tolist() == [1.5, 2.0]


def test_long_rows_and_many_of_them(tmp_path):
    wide = ",".join(["123456789.123456789"] * 3000)
    rows = "".join(f"0,{k},{wide}\n" for k in range(80))
    data = read(made(tmp_path, rows))
    assert data.bags.X.shape == (80, 3000)


HEAD = "bag,labels,f1,f2\nx,p,1,2\n"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (HEAD + "x,p,1\n", 3, "expected 4 columns, found 3"),
        (HEAD + "x,p,1,2,3\n", 3, "expected 4 columns, found 5"),
        (HEAD + "\n\nx,p,1\n", 5, "expected 4 columns"),
        (HEAD + "x,p,1,two\n", 3, "column 'f2' holds 'two', expected a number"),
        ("bag,labels,f1\nx,p,oops\nx,p,1\nx,p,1\n", 2, "column 'f1' holds 'oops'"),
        (HEAD + "x,p,,2\n", 3, "column 'f1' is empty"),
        (HEAD + "x,p,nan,2\n", 3, "bag 'x', feature 'f1' is nan"),
        (HEAD + "y,p,1,2\nx,p,1,inf\n", 4, "bag 'x', feature 'f2' is inf"),
        (HEAD + "x,p,1,1e999\n", 3, "feature 'f2' is inf"),
        (HEAD + "x,p,1_0,2\n", 3, "holds '1_0'"),
        (HEAD + ",p,1,2\n", 3, "empty name"),
        (HEAD + "x,q,1,2\n", 3, "bag 'x' has 'q' here in column 'labels' and 'p' on an earlier row"),
        ("bag,labels,f1,f1\nx,p,1,2\n", 1, "two columns are called 'f1'"),
        ("bag,labels,word\nx,p,one\n", 1, "no column of numbers"),
        ("rec,labels,f1\nx,p,1\n", 1, "name another with bag=..."),
        ("bag,labels,f1\nx,p,NA\nx,p,NA\nx,p,3\n", 2, "column 'f1' holds 'NA', a missing value"),
        ('bag,labels,f1\nx,p,"0,5"\n', 2, "'0,5', a number with a decimal comma; read it with decimal=','"),
        ('bag,labels,f1\nx,p,"1.234,5"\n', 2, "or write 1234.5"),
        ('bag,labels,f1\nx,p,1\nx,p,"1,000"\n', 3, "write 1000 if the mark separates thousands"),
        ("bag,labels,f1,f2\n" + "x,p,1,\n" * 150 + "x,p,1,7\n", 2, "column 'f2' is empty; fill or drop"),
        ("bag,label:p,f1\nx,2,1\n", 2, "column 'label:p' holds 2, expected 0 or 1"),
        ("bag,label:p,f1\nx,1,1\nx,0,1\n", 3, "on an earlier row"),
        ("1,7,0.5\n2.5,7,1\n", 2, "label is 2.5"),
        ("1,7,0.5\n0,7,1\n", 2, "bag 7 has 0 here"),
        ("1,7,0.5\n1,7,x\n", 2, "column 3 holds 'x'"),
        ("1,7,0.5\n1,7\n", 2, "expected 3 columns, found 2"),
        ('bag,labels,f1\nx,"two\nlines",1\nx,"two\nlines",\n', 4, "column 'f1' is empty"),
        (b"bag,labels,f1\nx,p,1\nx,\xff,2\n", 3, "not UTF-8"),
    ],
)
def test_errors_name_the_line(tmp_path, text, line, words):
    path = made(tmp_path, text)
    with pytest.raises(DataError) as caught:
        read(path)
    assert caught.value.line == line
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n", "bag,labels,f1\n", "bag,labels,f1"])
def test_no_rows(tmp_path, text):
    with pytest.raises(DataError, match=r"toy\.csv"):
        read(made(tmp_path, text))


def test_unknown_labels_name_line_and_nearest(tmp_path):
    text = "bag,labels,f1\nx,robin,1\nx,robin,1\ny,wern,1\n"
    with pytest.raises(DataError, match=r"line 4: bag 'y': unknown label 'wern'; did you mean 'wren'"):
        read(made(tmp_path, text), label_names=["robin", "wren"])
    text = "bag,letter,f1\nx,A,1\nx,B,1\n"
    with pytest.raises(DataError, match=r"line 3: .*unknown label 'B'|line 2: bag 'x': unknown label 'B'"):
        read(made(tmp_path, text), label_names=["A"])


@pytest.mark.parametrize("options", [{"bag": "nope"}, {"labels": ["nope"]}, {"features": ["nope"]}])
def test_columns_that_are_not_there(tmp_path, options):
    with pytest.raises(DataError, match=r"line 1: no column 'nope'; the columns are 'bag', 'labels'"):
        read(made(tmp_path, HEAD), **options)


def test_gzip_bomb(tmp_path):
    path = made(tmp_path, gzip.compress(b"bag,labels,f1\n" + b"x,p,1\n" * 1_000_000), "bomb.csv.gz")
    with pytest.raises(DataError, match=r"holds more than 1,000,000 bytes"):
        read(path, max_bytes=1_000_000)


def test_one_long_text_does_not_widen_all(tmp_path):
    text = "bag,labels,word,f1\n" + f"x,p,{'w' * 100_000},1\n" + "x,p,short,1\n" * 20_000
    data = read(made(tmp_path, text))
    assert data.bags.instance_info["word"].dtype == object


# ---------------------------------------------------------------------- what each column is


def columns(tmp_path, names, *rows, **options):
    lines = [",".join(map(str, row)) for row in [names.split(" "), *rows]]
    return read(made(tmp_path, "\n".join(lines) + "\n"), format="csv", **options)


def test_a_file_without_labels_is_bags_to_be_predicted(tmp_path):
    data = columns(tmp_path, "bag f1 f2", ["x", 1, 2], ["y", 3, 4])
    assert not data.has_labels and data.label_names == () and data.Y.shape == (2, 0)
    assert data.label_sets == [[], []] and data.cardinality == 0 and "no labels" in repr(data)
    assert len(data[[1]]) == 1 and not data[[1]].has_labels
    write(data, tmp_path / "again.csv")
    assert_same(data, read(tmp_path / "again.csv"), about=False)
    with pytest.raises(DataError, match="the file has no labels"):
        columns(tmp_path, "bag f1 f2", ["x", 1, 2], label_names=["a"])


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("lat", "fact"), ("start", "fact"), ("target", "fact"), ("recording_id", "fact"), ("label", "fact"),
        ("bag", "fact"), ("class", "fact"), ("Unnamed: 0", "left out"), ("", "left out"),
        ("index", "left out"),
    ],
)  # fmt: skip
def test_foreign_numbers_are_no_features(tmp_path, name, role):
    path = made(tmp_path, f"bag_id,labels,{name},f1\nx,p,5,1\ny,q,6,2\n")
    with pytest.warns(DataWarning, match="not taken as features") as caught:
        data = read(path)
    assert data.bags.X.ravel().tolist() == [1, 2] and data.roles[name] == role
    assert repr(name) in str(caught[0].message)
    assert (name in data.bags.instance_info) == (role == "fact")
    assert caught[0].filename == __file__
    named = read(path, features=[name])
    assert named.bags.X.ravel().tolist() == [5, 6] and named.roles["f1"] == "left out"


def test_a_column_may_say_that_it_is_a_feature(tmp_path):
    data = columns(tmp_path, "bag labels feature:lat", ["x", "p", 5])
    assert data.bags.feature_names == ("lat",)


def test_labels_that_were_not_chosen_are_no_features(tmp_path):
    rows = [["x", 1, 0, 1, 0.5, 1], ["x", 1, 0, 1, 1, 0], ["y", 0, 0, 0, 1, 1]]
    with pytest.warns(DataWarning, match=r"'B', 'C' \(0 and 1 like the labels, the same within each bag\)"):
        data = columns(tmp_path, "bag A B C f g", *rows, labels=["A"])
    assert data.bags.feature_names == ("f", "g") and data.label_names == ("A",)
    assert str(data.roles) == (
        "bag: bag; label: A; 2 features: f, g; "
        "left out: B, C (0 and 1 like the labels, the same within each bag)"
    )
    prefixed = columns(tmp_path, "bag label:A label:B f", ["x", 1, 0, 0.5], labels=["label:A"])
    assert prefixed.label_names == ("A",) and prefixed.bags.feature_names == ("f",)


def test_columns_that_may_be_labels_are_named_when_there_are_none(tmp_path):
    rows = [["x", 1, 0, 0.5, 1], ["x", 1, 0, 1, 0], ["y", 0, 0, 1, 1]]
    with pytest.warns(DataWarning, match=r"the features 'A' hold 0 and 1.*labels=") as caught:
        data = columns(tmp_path, "bag A zero f g", *rows)
    assert data.bags.n_features == 4 and len(caught) == 1
    columns(tmp_path, "bag A f", ["x", 1, 2], ["y", 0, 2])  # bags of one instance tell nothing


def test_empty_columns(tmp_path):
    with pytest.warns(DataWarning, match=r"'f2' \(no value in any row\)"):
        data = read(made(tmp_path, "bag,f1,f2\nx,1,\nx,2,NA\n"))
    assert data.bags.n_features == 1
    late = "bag,f1,note\n" + "x,1,\n" * 150 + "x,1,good\n"
    assert read(made(tmp_path, late)).bags.instance_info["note"][-1] == "good"


def test_decimal_commas_on_request(tmp_path):
    path = made(tmp_path, "bag;labels;f1;f2\nx;p;0,5;1\nx;p; 1,25;2\n")
    assert read(path, format="csv", delimiter=";", decimal=",").bags.X.tolist() == [[0.5, 1], [1.25, 2]]
    with pytest.raises(DataError, match=r"line 2: column 'f1' holds '0,5', a number with a decimal comma"):
        read(path, format="csv", delimiter=";")
    with pytest.raises(DataError, match=r"holds '1\.5'"):
        read(made(tmp_path, "bag;labels;f1\nx;p;1.5\n"), format="csv", delimiter=";", decimal=",")


def test_small_files_start_no_threads(tmp_path):
    # Arrow's may give the text back while Python ends, which aborts a short program
    path = made(tmp_path, HEAD)
    code = (
        "import os, pyarrow.csv, bagwise.io.csv as csv; tasks = lambda: len(os.listdir('/proc/self/task'));"
        f"before = tasks(); csv.read({str(path)!r}); print(tasks() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert int(done.stdout) <= 1, done  # one waits for signals and holds nothing


def test_groups_that_differ_stay_different(tmp_path):
    data = columns(
        tmp_path, "bag labels group f1", *[[k, "p", g, 1] for k, g in enumerate(["01", "1", "1.0"])]
    )
    assert data.groups.tolist() == ["01", "1", "1.0"]
    codes = columns(tmp_path, "bag labels info:code f1", ["x", "p", "007", 1], ["x", "p", "7", 1])
    assert codes.bags.instance_info["code"].tolist() == ["007", "7"]


def test_many_labels_stay_sparse(tmp_path, monkeypatch):
    monkeypatch.setattr("bagwise.bags.labels.KEPT_DENSE", 10)
    monkeypatch.setattr("bagwise.io.npz.KEPT_DENSE", 10)
    rows = [[k, f"n{k};n{k + 1}", 1] for k in range(5)]
    data = columns(tmp_path, "bag labels f1", *rows)
    assert sparse.issparse(data._Y) and data.label_counts.tolist() == [1, 2, 2, 2, 2, 1]
    assert data.label_sets[3] == ["n3", "n4"] and data.Y.shape == (5, 6)
    for suffix in (".csv", ".parquet", ".npz", ".arff", ".mat"):
        write(data, tmp_path / f"set{suffix}")
        assert read(tmp_path / f"set{suffix}").label_sets == data.label_sets
    assert "Y_indices" in np.load(tmp_path / "set.npz")
    monkeypatch.setattr("bagwise.bags.labels.MOST_DENSE", 10)
    with pytest.raises(DataError, match=r"5 bags x 6 labels would take .*Y_sparse"):
        _ = data.Y
    assert data.Y_sparse.shape == (5, 6) and data[:1].Y.shape == (1, 6)
