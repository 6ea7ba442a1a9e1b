import gzip
from pathlib import Path

import pytest

from bagwise.errors import DataError
from bagwise.io import c45

MUSK = "M-1,1_1+1,42,-198,1.\nM-1,1_1+2,42,-191,1.\nN-j,7_1,0.5,2E-1,0.\n"
FOX = "127,926,1.5,0,1.\n32,4,0,1,0.\n127,925,-7,0.25,1.\n"
NAMES = (
    "| the columns\n0,1.\nbag_id: 32,127.\ninst_id: 4,925,926.\n1: continuous scale=0.01.\n10: continuous.\n"
)


def write(folder, text, name="toy.data"):
    path = folder / name
    path.write_text(text)
    return path


def refused(path, line, word, at=None, **options):
    with pytest.raises(DataError) as caught:
        c45.read(path, **options)
    assert (caught.value.path, caught.value.line) == (str(at or path), line)
    assert word in caught.value.message


def test_values_by_hand(tmp_path):
    data = c45.read(write(tmp_path, MUSK))
    assert data.bags.X.tolist() == [[42.0, -198.0], [42.0, -191.0], [0.5, 0.2]]
    assert data.bags.bag_ids.tolist() == ["M-1", "N-j"]
    assert data.bags.instance_info["instance"].tolist() == ["1_1+1", "1_1+2", "7_1"]
    assert data.label_names == ("positive",)
    assert data.Y.tolist() == [[1], [0]]
    assert data.bags.feature_names is None
    assert data.name == "toy"


def test_rows_of_a_bag_need_not_be_adjacent(tmp_path):
    path = write(tmp_path, FOX)
    write(tmp_path, NAMES, "toy.names")
    data = c45.read(path)
    assert data.bags.bag_ids.tolist() == [127, 32]
    assert data.bags.X.tolist() == [[1.5, 0.0], [-7.0, 0.25], [0.0, 1.0]]
    assert data.bags.instance_info["instance"].tolist() == [926, 925, 4]
    assert data.bags.feature_names == ("1", "10")
    assert data.Y.tolist() == [[1], [0]]
    assert c45.read(path, names=False).bags.feature_names is None
    assert c45.read(path, label_names=["fox"]).label_names == ("fox",)


def test_other_labels(tmp_path):
    path = write(tmp_path, "a,1,0,owl.\nb,1,0,fox\n")
    assert c45.read(path).label_sets == [["owl"], ["fox"]]
    assert c45.read(path, label_names=["owl", "cat", "fox"]).Y.tolist() == [[1, 0, 0], [0, 0, 1]]
    refused(path, 2, "unknown label 'fox'", label_names=["owl", "cat"])
    write(tmp_path, "owl,cat.\n", "toy.names")
    refused(path, None, "0 columns are named", at=tmp_path / "toy.names")
    assert c45.read(write(tmp_path, "a,1,0,0.\nb,1,0,1.\n", "x.data"), label_names=["0", "1"]).Y.tolist() == [
        [1, 0],
        [0, 1],
    ]


@pytest.mark.parametrize(
    ("old", "new", "line", "word"),
    [
        ("-191,1.", "-191,0.", 2, "bag 'M-1' has the label '0' here and '1'"),
        ("-191,1.", "1.", 2, "expected 5 columns as on line 1, found 4"),
        ("-191,1.", "-191,8,1.", 2, "found 6"),
        ("-191,1.", "-191,.", 2, "no label"),
        ("-191,1.", "x,1.", 2, "value 2 is 'x'"),
        ("-191,1.", "nan,1.", 2, "is nan"),
        ("-191,1.", "?,1.", 2, "value 2 is missing"),
        ("M-1,1_1+2,42", ",1_1+2,42", 2, "an empty name"),
        ("M-1,1_1+2,42", "M" * 300 + ",1_1+2,42", 2, "300 characters"),
        (",7_1,0.5,2E-1,0.", ",7_1", 3, "at least 4 columns"),
    ],
)
def test_broken_text_names_the_line(tmp_path, old, new, line, word):
    refused(write(tmp_path, MUSK.replace(old, new)), line, word)


@pytest.mark.parametrize(
    ("old", "new", "line", "word"),
    [
        ("10: continuous.\n", "", None, "3 columns are named"),
        ("10: continuous.", "10: a,b.", 6, "not continuous"),
        ("10: continuous.", "10 continuous.", 6, "expected <column>"),
    ],
)
def test_broken_names(tmp_path, old, new, line, word):
    path = write(tmp_path, FOX)
    refused(path, line, word, at=write(tmp_path, NAMES.replace(old, new), "toy.names"))


def test_declared_labels(tmp_path):
    path = write(tmp_path, FOX.replace(",0.\n", ",2.\n"))
    write(tmp_path, NAMES, "toy.names")
    refused(path, 2, "unknown label '2'")


def test_truncated_encoding_bomb(tmp_path):
    refused(write(tmp_path, ""), None, "no rows")
    packed = tmp_path / "toy.data.gz"
    packed.write_bytes(gzip.compress(MUSK.encode()))
    assert len(c45.read(packed)) == 2
    packed.write_bytes(gzip.compress(MUSK.encode())[:-9])
    refused(packed, None, "truncated gzip")
    packed.write_bytes(gzip.compress(b" " * 1_000_000))
    refused(packed, None, "larger max_bytes", max_bytes=1000)
    latin = tmp_path / "latin.data"
    latin.write_bytes(MUSK.encode() + b"\xe4,1,2,3,1.\n")
    refused(latin, 4, "not UTF-8")


def test_recognises(tmp_path):
    path = write(tmp_path, FOX)
    assert c45.recognises(path, FOX.encode())
    assert c45.recognises(Path("x.data.gz"), MUSK.encode())
    assert not c45.recognises(Path("x.csv"), MUSK.encode())
    table = b"T,2,8,3,5,1\nI,5,12,3,7,2\n"
    assert not c45.recognises(path, table)
    write(tmp_path, NAMES, "toy.names")
    assert c45.recognises(path, table)
