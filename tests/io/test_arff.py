import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from bagwise import Bags, Dataset
from bagwise.bags import MultiViewBags
from bagwise.errors import DataError
from bagwise.io import arff
from bagwise.io import write as write_set

HEAD = """% birds heard at dawn
@RELATION 'two birds'

@Attribute id {7, '9 b'}
@attribute bag relational
\t@attribute 'f 1' numeric
  @attribute f2 REAL
@end bag
@attribute wren {0,1}
@attribute "it's" {1,0}

@DATA
"""
ROWS = """7,"0.5, 1\\n-2.5E-1,+3", 1, 0
% a comment among the data
'9 b','2,.5',0,1
"""
FIRST_ROW = HEAD.count("\n") + 1


def write(folder, text, name="toy.arff"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refused(path, line, *words, **options):
    with pytest.raises(DataError) as caught:
        arff.read(path, **options)
    assert caught.value.path == str(path)
    assert caught.value.line == line
    for word in words:
        assert word in caught.value.message
    return caught.value


def test_values_by_hand(tmp_path):
    data = arff.read(write(tmp_path, HEAD + ROWS))
    assert data.name == "two birds"
    assert data.bags.X.tolist() == [[0.5, 1.0], [-0.25, 3.0], [2.0, 0.5]]
    assert data.bags.offsets.tolist() == [0, 2, 3]
    assert data.bags.bag_ids.tolist() == ["7", "9 b"]
    assert data.bags.feature_names == ("f 1", "f2")
    assert data.label_names == ("wren", "it's")
    assert data.Y.tolist() == [[1, 0], [0, 1]]
    assert data.instance_Y is None


def test_windows_line_ends_and_gzip(tmp_path):
    path = tmp_path / "toy.arff.gz"
    path.write_bytes(gzip.compress((HEAD + ROWS).replace("\n", "\r\n").encode()))
    assert arff.read(path).Y.tolist() == [[1, 0], [0, 1]]


def test_label_list_decides_and_header_orders(tmp_path):
    head = HEAD.replace("@attribute wren {0,1}", "@attribute wren numeric")
    path = write(tmp_path, head + ROWS)
    write(tmp_path, "<labels><label name=\"it's\"/><label name='wren'></label></labels>", "toy.xml")
    assert arff.read(path).label_names == ("wren", "it's")
    assert arff.read(path, labels=["it's", "wren"]).Y.tolist() == [[0, 1], [1, 0]]


def test_empty_bag(tmp_path):
    data = arff.read(write(tmp_path, HEAD + '7,"",1,0\n'))
    assert data.bags.sizes.tolist() == [0]


@pytest.mark.parametrize(
    ("old", "new", "line", "word"),
    [
        ('-2.5E-1,+3"', '-2.5E-1"', FIRST_ROW, "expected 2 values in each instance, found 1"),
        ('-2.5E-1,+3"', '-2.5E-1,+3,4"', FIRST_ROW, "found 3"),
        ('-2.5E-1,+3"', '-2.5E-1,x"', FIRST_ROW, "value 2 is 'x'"),
        ('-2.5E-1,+3"', '-2.5E-1,?"', FIRST_ROW, "value 2 is missing"),
        ('-2.5E-1,+3"', '-2.5E-1,NaN"', FIRST_ROW, "bag '7', feature 'f2' is nan"),
        ('-2.5E-1,+3"', '-2.5E-1,1e999"', FIRST_ROW, "is inf"),
        ('-2.5E-1,+3"', '-2.5E-1,1_0"', FIRST_ROW, "'1_0'"),
        ("'2,.5',0,1", "'2,.5',0,1,1", FIRST_ROW + 2, "expected 4 fields, found 5"),
        ("'2,.5',0,1", "'2,.5',0", FIRST_ROW + 2, "expected 4 fields, found 3"),
        ("'2,.5',0,1", "'2,.5',0,2", FIRST_ROW + 2, "label \"it's\" is '2'"),
        ("'2,.5',0,1", "'2,.5,0,1", FIRST_ROW + 2, "not closed"),
        ("'9 b','2", "11,'2", FIRST_ROW + 2, "the id '11'"),
        ("'9 b','2", "7,'2", FIRST_ROW + 2, "occurs twice"),
        ("'9 b','2,.5',0,1", "{0 1}", FIRST_ROW + 2, "sparse ARFF"),
        ("@DATA", "@DATE", FIRST_ROW - 1, "expected @attribute or @data"),
        ("@end bag", "", FIRST_ROW - 1, "expected @attribute or @end"),
        ("f2 REAL", "f2 {a,b}", 7, "expected numeric"),
        ("f2 REAL", "'f 1' REAL", 7, "declared twice"),
        ("f2 REAL", "f2 date", 7, "has the type 'date'"),
        ("f2 REAL", "f2 relational", 7, "inside another"),
        ("{0,1}", "{0,1", 9, "do not end with }"),
        ("@attribute wren {0,1}", "@attribute wren", 9, "has the type ''"),
        ("@attribute wren {0,1}", "@attribute wren {a,b}", 9, "neither a label nor the bag id"),
        ("@RELATION", "RELATION", 2, "expected @relation"),
    ],
)
def test_broken_text_names_the_line(tmp_path, old, new, line, word):
    text = HEAD + ROWS
    assert old in text
    refused(write(tmp_path, text.replace(old, new)), line, word)


def test_truncated(tmp_path):
    refused(write(tmp_path, HEAD[: HEAD.index("@DATA")]), 10, "ends before @data")
    refused(write(tmp_path, (HEAD + ROWS)[:-8]), FIRST_ROW + 2, "not closed")
    refused(write(tmp_path, HEAD), None, "no bags")
    path = tmp_path / "cut.arff.gz"
    path.write_bytes(gzip.compress((HEAD + ROWS).encode())[:-20])
    refused(path, None, "truncated gzip")


def test_wrong_encoding_and_bomb(tmp_path):
    path = tmp_path / "latin.arff"
    path.write_bytes(HEAD.replace("wren", "Zaunkönig").encode("latin-1"))
    refused(path, 9, "not UTF-8")
    bomb = tmp_path / "bomb.arff.gz"
    bomb.write_bytes(gzip.compress(HEAD.encode() + b"%" * 5_000_000))
    refused(bomb, None, "larger max_bytes", max_bytes=1_000_000)
    refused(tmp_path / "none.arff", None, "no such file")


def test_no_relation_or_no_label(tmp_path):
    flat = "@relation x\n@attribute a numeric\n@attribute b {0,1}\n@data\n1,0\n"
    refused(write(tmp_path, flat), None, "0 relational attributes")
    text = "\n".join(
        line for line in (HEAD + ROWS).split("\n") if "{0,1}" not in line and "{1,0}" not in line
    )
    refused(write(tmp_path, text), 11, "expected 2 fields, found 4")
    refused(write(tmp_path, HEAD + ROWS), None, "did you mean 'wren'", labels=["wrenn"])


@pytest.mark.parametrize(
    ("xml", "line", "word"),
    [
        ("<labels>\n<label name='wrenn'/></labels>", 2, "did you mean 'wren'"),
        ("<labels>\n<label name='wren'></labels>", 2, "not well-formed"),
        ("<labels>\n<label/></labels>", 2, "without a name"),
        ("<labels><label name='wren'/>\n<label name='wren'/></labels>", 2, "listed twice"),
        ("<labels/>", None, "no <label>"),
        ('<!DOCTYPE x [<!ENTITY a "wren">]><labels><label name="&a;"/></labels>', 1, "no DOCTYPE"),
        ('<?xml version="1.0"?>\n<!doctype x>', 2, "not well-formed"),
    ],
)
def test_broken_label_list(tmp_path, xml, line, word):
    path = write(tmp_path, HEAD + ROWS)
    beside = write(tmp_path, xml, "toy.xml")
    with pytest.raises(DataError, match=word) as caught:
        arff.read(path)
    assert (caught.value.path, caught.value.line) == (str(beside), line)


@pytest.mark.parametrize("name", ["back.arff", "back.arff.gz"])
def test_round_trip(tmp_path, name):
    rng = np.random.default_rng(0)
    bags = Bags.from_list(
        [rng.normal(size=(n, 3)) for n in (2, 0, 4)],
        bag_ids=["x", 'it\'s, "odd"', "100%\\n"],
        feature_names=["a b", "c", "{d}"],
    )
    data = Dataset(bags, [["id", "tab\there"], [], ["bag"]], name="a 'name'")
    arff.write(data, tmp_path / name)
    back = arff.read(tmp_path / name)
    assert back.bags.equals(bags)
    assert back.label_names == data.label_names
    assert back.Y.tolist() == data.Y.tolist()
    assert back.name == data.name


def test_round_trip_sparse_with_label_list(tmp_path):
    X = sparse.csr_array(np.array([[0.0, 1.5], [2.0, 0.0]]))
    data = Dataset(Bags(X, [0, 1, 2], bag_ids=[4, 2]), [["a & b"], ["<c>"]])
    arff.write(data, tmp_path / "s.arff")
    assert arff.write_label_list(data, tmp_path / "s.arff").name == "s.xml"
    back = arff.read(tmp_path / "s.arff")
    assert back.bags.X.tolist() == [[0.0, 1.5], [2.0, 0.0]]
    assert back.bags.bag_ids.tolist() == [4, 2]
    assert back.label_sets == [["a & b"], ["<c>"]]


def test_what_cannot_be_written(tmp_path):
    bad = Dataset(Bags([[np.nan]], [0, 1]), [["x"]])
    with pytest.raises(DataError, match="is nan"):
        arff.write(bad, tmp_path / "x.arff")
    assert not (tmp_path / "x.arff").exists()
    bags = Bags([[1.0]], [0, 1])
    for other, word in [
        (Dataset(MultiViewBags({"a": bags}), [["x"]]), "one view"),
        (Dataset(bags[:0], np.zeros((0, 1))), "without bags"),
        (Dataset(Bags([[1.0]], [0, 1], bag_ids=[""]), [["x"]]), "the empty id ''"),
        (Dataset(Bags([[1.0], [2.0]], [0, 1, 2], bag_ids=["a", "a"]), [["x"], []]), "occurs twice"),
    ]:
        with pytest.raises(DataError, match=word):
            write_set(other, tmp_path / "x.arff")
    with pytest.raises(DataError, match="label list"):
        arff.write_label_list(Dataset(Bags([[1.0]], [0, 1]), [["x\x00"]]), tmp_path / "x.arff")


def test_recognises():
    assert arff.recognises(Path("x.arff"), HEAD.encode())
    assert arff.recognises(Path("x_1.arff"), HEAD.encode())
    assert not arff.recognises(Path("x_1.arff"), b"@relation x\n@attribute a numeric\n")
    assert not arff.recognises(Path("x.arff"), b"a,b,c\n1,2,3\n")
    assert not arff.recognises(Path("x.arff"), b"\n" * 65536)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(HEAD + ROWS) - 1), st.sampled_from("\x00,\"'{}\\%@\n9é"), st.booleans())
def test_any_damage_is_a_data_error(tmp_path_factory, place, letter, cut):
    text = HEAD + ROWS
    text = text[:place] + ("" if cut else letter + text[place + 1 :])
    path = write(tmp_path_factory.mktemp("fuzz"), text)
    try:
        assert isinstance(arff.read(path), Dataset)
    except DataError as error:
        assert error.path == str(path)
