import gzip
from pathlib import Path

import pytest

from bagwise.errors import DataError
from bagwise.io import arff_pair

FIRST = "@relation toy_1\n\n@attribute a numeric\n@attribute b numeric\n@attribute c numeric\n\n@data\n"
SECOND = "@relation toy_2\n@attribute n numeric\n@attribute c numeric\n@data\n"
INSTANCES = "0.5,1,0\r\n0.25,2,1\r\n0,3E-1,0\r\n"
BAGS = "2,1\r\n1,0\r\n"


def pair(folder, instances=INSTANCES, bags=BAGS, first=FIRST, second=SECOND):
    (folder / "toy_1.arff").write_text(first + instances, newline="")
    (folder / "toy_2.arff").write_text(second + bags, newline="")
    return folder / "toy_1.arff", folder / "toy_2.arff"


def refused(path, at, line, word, **options):
    with pytest.raises(DataError) as caught:
        arff_pair.read(path, **options)
    assert (caught.value.path, caught.value.line) == (str(at), line)
    assert word in caught.value.message


@pytest.mark.parametrize("name", ["toy_1.arff", "toy_2.arff", "toy", "toy.arff"])
def test_binary_values_by_hand(tmp_path, name):
    pair(tmp_path)
    data = arff_pair.read(tmp_path / name)
    assert data.bags.X.tolist() == [[0.5, 1.0], [0.25, 2.0], [0.0, 0.3]]
    assert data.bags.offsets.tolist() == [0, 2, 3]
    assert data.label_names == ("positive",)
    assert data.Y.tolist() == [[1], [0]]
    assert data.instance_Y.tolist() == [-1, 0, -1]
    assert data.bags.instance_info == {}  # the truth about instances belongs to the Dataset alone
    assert data.bags.feature_names == ("a", "b")
    assert data.name == "toy"
    assert arff_pair.read(tmp_path / name, label_names=["sport"]).label_names == ("sport",)


def test_classes_of_the_bag_say_nothing_about_instances(tmp_path):
    pair(tmp_path, "1,1,0\n2,2,0\n3,3,7\n4,4,2\n", "2,0\n1,7\n1,2\n")
    data = arff_pair.read(tmp_path / "toy")
    assert data.label_names == ("0", "2", "7")
    assert data.Y.tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert data.instance_Y is None
    assert data.bags.instance_info == {}
    named = arff_pair.read(tmp_path / "toy", label_names=list("abcdefgh"))
    assert named.label_sets == [["a"], ["h"], ["c"]]
    refused(
        tmp_path / "toy", tmp_path / "toy_2.arff", None, "class 7 has no name", label_names=["a", "b", "c"]
    )


def test_instances_of_several_classes(tmp_path):
    pair(tmp_path, "1,1,0\n2,2,2\n3,3,7\n4,4,2\n", "2,0\n1,7\n1,2\n")
    data = arff_pair.read(tmp_path / "toy")
    assert data.instance_Y.tolist() == [0, -1, 2, 1]


def test_packed(tmp_path):
    for path in pair(tmp_path):
        (tmp_path / (path.name + ".gz")).write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert len(arff_pair.read(tmp_path / "toy_2.arff.gz")) == 2
    assert len(arff_pair.read(tmp_path / "toy")) == 2


@pytest.mark.parametrize(
    ("changes", "half", "line", "word"),
    [
        ({"instances": "0.5,1,0\n0.25,1\n"}, 0, 9, "expected 3 values in each row, found 2"),
        ({"instances": "0.5,1,0\n0.25,1,1,1\n"}, 0, 9, "found 4"),
        ({"instances": "0.5,1,0\nx,1,1\n"}, 0, 9, "value 1 is 'x'"),
        ({"instances": "0.5,1,0\nnan,1,1\n0,0,0\n"}, 0, 9, "feature 'a' is nan"),
        ({"instances": "0.5,1,0\n1,1,0.5\n0,0,0\n"}, 0, 9, "the class is 0.5"),
        ({"instances": "0.5,1,0\n1,1,1\n0,0,1\n"}, 0, 10, "instance of class 1 in bag 2 of class 0"),
        ({"instances": "0.5,1,0\n1,1,2\n0,0,0\n"}, 0, 9, "instance of class 2"),
        ({"instances": ""}, 0, None, "no rows"),
        ({"bags": "2,1\n3,0\n"}, 1, 6, "more than the 3 instances of toy_1.arff"),
        ({"bags": "2,1\n1e300,0\n"}, 1, 6, "number of instances is 1e+300"),
        ({"bags": "2,1\n9e15,0\n"}, 1, 6, "more than the 3 instances"),
        ({"bags": "2,1\n"}, 1, 5, "2 instances in all, toy_1.arff has 3"),
        ({"bags": "2,1\n-1,0\n"}, 1, 6, "number of instances is -1"),
        ({"bags": "2,1\n1\n"}, 1, 6, "found 1"),
        ({"second": FIRST, "bags": "1,1,1\n"}, 1, 8, "3 columns, expected two"),
        ({"first": FIRST.replace("a numeric", "a string")}, 0, 3, "is string"),
        ({"first": FIRST[:40]}, 0, 4, "expected"),
    ],
)
def test_broken_text_names_the_line(tmp_path, changes, half, line, word):
    paths = pair(tmp_path, **changes)
    refused(paths[0], paths[half], line, word)


def test_partner_bomb_encoding(tmp_path):
    first, second = pair(tmp_path)
    second.unlink()
    refused(first, second, None, "toy_1.arff is one half of a pair")
    (tmp_path / "toy_2.arff.gz").write_bytes(gzip.compress(SECOND.encode() + b"%" * 1_000_000))
    refused(first, tmp_path / "toy_2.arff.gz", None, "larger max_bytes", max_bytes=10_000)
    (tmp_path / "toy_2.arff.gz").write_bytes(gzip.compress(SECOND.encode())[:-9])
    refused(first, tmp_path / "toy_2.arff.gz", None, "truncated gzip")
    second.write_bytes(SECOND.encode() + b"\xff")
    refused(first, second, 5, "not UTF-8")


def test_recognises(tmp_path):
    first, _ = pair(tmp_path)
    assert arff_pair.recognises(first, FIRST.encode())
    assert arff_pair.recognises(tmp_path / "toy", b"")
    assert not arff_pair.recognises(tmp_path / "other", b"")
    assert not arff_pair.recognises(Path("toy.arff"), FIRST.encode())
    assert not arff_pair.recognises(first, b"@relation x\n@attribute bag relational\n")
