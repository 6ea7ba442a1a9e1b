import gzip

import numpy as np
import pytest
from scipy import io as scipy_io
from scipy import sparse

from bagwise import Bags, Dataset
from bagwise.errors import DataError
from bagwise.io import matlab, write


def column(items):
    found = np.empty((len(items), 1), dtype=object)
    for k, item in enumerate(items):
        found[k, 0] = item
    return found


def save(folder, name="toy.mat", **variables):
    scipy_io.savemat(folder / name, variables)
    return folder / name


def refused(path, word, at=None, line=None, **options):
    with pytest.raises(DataError) as caught:
        matlab.read(path, **options)
    assert (caught.value.path, caught.value.line) == (str(at or path), line)
    assert word in caught.value.message


# columns are instances; the third label is left out of Y
LETTERS = {
    "X": column(
        [np.array([[1, 2], [3, 4], [5, 6]], dtype=np.uint8), np.array([[7], [8], [9]], dtype=np.uint8)]
    ).T,
    "y": column([np.array([[1, 0, 0], [0, 0, 1]]), np.array([[0, 1, 0]])]).T,
    "Y": np.array([[1, 0], [0, 1]]),
    "Y_backup": np.array([[1, 0, 1], [0, 1, 0]]),
}


def test_letters_by_hand(tmp_path):
    path = save(tmp_path, **LETTERS)
    data = matlab.read(path)
    assert data.bags.X.tolist() == [[1, 3, 5], [2, 4, 6], [7, 8, 9]]
    assert data.bags.offsets.tolist() == [0, 2, 3]
    assert data.Y.tolist() == [[1, 0, 1], [0, 1, 0]]
    assert data.instance_Y.tolist() == [0, 2, 1]
    known = matlab.read(path, labels="Y", label_names=["I", "L"])
    assert known.Y.tolist() == [[1, 0], [0, 1]]
    assert known.instance_Y.tolist() == [0, -1, 1]
    assert known.label_names == ("I", "L")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"y": LETTERS["y"][:, :1]}, "y has 1 cells for 2 bags"),
        ({"y": column([np.eye(3), np.eye(3)[:1]])}, "features"),
        ({"y": column([np.ones((2, 3)), np.eye(3)[:1]])}, "instance 1 has several labels"),
        ({"y": column([np.eye(3)[:2], np.eye(3)[:1]])}, "instance 2 of bag 0 has label 1"),
        ({"Y_backup": np.array([[1, 0, 1]])}, "labels for 1 bags, there are 2"),
        ({"Y_backup": np.array([[1, 0, 1], [0, 2, 0]])}, "bag 2 has the value 2 for label 2"),
        ({"X": column([np.ones((3, 2)), np.full((3, 1), np.nan)])}, "bag 1, feature 0 is nan"),
        ({"X": column([np.ones((3, 2)), "text"])}, "X{2} must be a matrix"),
        ({"X": column([np.ones((3, 2)), {"a": 1}])}, "X{2} is a struct"),
        ({"X": np.ones((3, 2))}, "no known layout"),
    ],
)
def test_broken_letters(tmp_path, changes, word):
    refused(save(tmp_path, **(LETTERS | changes)), word)


def test_no_labels(tmp_path):
    refused(save(tmp_path, **LETTERS), "no label matrix 'Z'", labels="Z")
    refused(save(tmp_path, **LETTERS), "2 label names for 3", label_names=["a", "b"])
    refused(save(tmp_path, X=column([np.ones((1, 2))])), "no label matrix 'Y'")


def test_bags_with_targets(tmp_path):
    bags = column([np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [5.0, 6.0]]), np.array([[7.0, 8.0]])])
    path = save(tmp_path, bags=bags, targets=np.array([[1, -1, -1], [1, 1, -1]]))
    data = matlab.read(path)
    assert data.bags.X.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert data.Y.tolist() == [[1, 1], [0, 1], [0, 0]]
    turned = save(tmp_path, "t.mat", bags=column([b.T for b in bags.flat]), Y=data.Y)
    assert matlab.read(turned).bags.equals(data.bags)
    assert matlab.read(
        save(tmp_path, "u.mat", X=column([np.ones((2, 2))]), Y=[[1]]), instances="rows"
    ).Y.shape == (1, 1)
    with pytest.raises(ValueError, match="'rows' or 'columns'"):
        matlab.read(path, instances="diagonal")


# five instances: two images {0, 1}, then one {1}; the bag index parts the first two
PARTIAL = {
    "data": np.arange(10.0).reshape(5, 2),
    "target": sparse.csc_array(np.array([[1, 0, 1, 0, 0], [0, 1, 0, 1, 1.0]])),
    "partial_target": sparse.csc_array(np.array([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1.0]])),
}


def test_partial_labels_by_hand(tmp_path):
    path = save(tmp_path, **PARTIAL)
    runs = matlab.read(path)
    assert runs.bags.sizes.tolist() == [4, 1]
    assert runs.Y.tolist() == [[1, 1], [0, 1]]
    assert runs.instance_Y.tolist() == [0, 1, 0, 1, 1]
    index = tmp_path / "index.csv"
    index.write_text("instance,run,bag\n1,1,10\n2,1,10\n4,1,11\n3,1,11\n5,2,12\n")
    data = matlab.read(path, bag_index=index, label_names=["cow", "grass"])
    assert data.bags.bag_ids.tolist() == [10, 11, 12]
    assert data.bags.sizes.tolist() == [2, 2, 1]
    assert data.label_sets == [["cow", "grass"], ["cow", "grass"], ["grass"]]
    scattered = matlab.read(path, bag_index=[1, 2, 2, 1, 3])
    assert scattered.bags.X[:, 0].tolist() == [0, 6, 2, 4, 8]
    assert scattered.instance_Y.tolist() == [0, 1, 1, 0, 1]


def test_broken_partial_labels(tmp_path):
    path = save(tmp_path, **PARTIAL)
    refused(path, "bag 3 joins instances with different label sets (instance 5)", bag_index=[1, 1, 3, 3, 3])
    refused(path, "2 entries for 5 instances", bag_index=[1, 1])
    refused(save(tmp_path, "a.mat", **(PARTIAL | {"data": np.ones((4, 2))})), "data is (4, 2)")
    wrong = PARTIAL | {"target": np.array([[1, 0, 1, 0, 1], [0, 1, 0, 1, 0]])}
    refused(save(tmp_path, "b.mat", **wrong), "instance 1 of bag 2 has label 0")
    huge = sparse.csc_array((2**30, 5))
    refused(save(tmp_path, "c.mat", **(PARTIAL | {"target": huge, "partial_target": huge})), "too many")


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("", None, "an empty bag index"),
        ("instance,run\n1,1\n", 1, "no column 'bag'"),
        ("instance,bag\n1,1\n2,x\n", 3, "value 2 is 'x'"),
        ("instance,bag\n1,1\n2,1,1\n", 3, "found 3"),
        ("instance,bag\n1,1\n0,1\n", 3, "instance number is 0"),
        ("instance,bag\n1,1\n2,1\n", None, "2 instances, the data have 5"),
        ("instance,bag\n1,1\n2,1\n3,1\n4,1\n4,2\n", 6, "instance 4 occurs twice"),
        ("instance,bag\n1,1\n2,1\n3,1\n4,1\n9,2\n", 6, "beyond 5"),
    ],
)
def test_broken_bag_index(tmp_path, text, line, word):
    index = tmp_path / "index.csv"
    index.write_text(text)
    refused(save(tmp_path, **PARTIAL), word, at=index, line=line, bag_index=index)


TABLE = np.array([[2, 0.1, 0.2, 3], [1, 0.3, 0.4, 7], [2, 0.5, 0.6, 3]])


def test_tables_by_hand(tmp_path):
    first = save(tmp_path, "a.mat", data=TABLE)
    data = matlab.read(first)
    assert data.bags.bag_ids.tolist() == [2, 1]
    assert data.bags.X.tolist() == [[0.1, 0.2], [0.5, 0.6], [0.3, 0.4]]
    assert data.label_sets == [["3"], ["7"]]
    second = save(tmp_path, "b.mat", data=TABLE + [0, 0, 0, 1])
    both = matlab.read_many([first, second])
    assert both.bags.bag_ids.tolist() == ["a/2", "a/1", "b/2", "b/1"]
    assert both.label_sets == [["3"], ["7"], ["4"], ["8"]]
    named = matlab.read(first, label_names=list("abcdefg"))
    assert named.Y.shape == (2, 7)
    assert named.label_sets == [["c"], ["g"]]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ((2, 3, 4), "bag 2 has the label 4 here and 3"),
        ((1, 3, 0), "row 2: the class is 0"),
        ((1, 0, 1.5), "row 2: the bag number is 1.5"),
        ((1, 0, np.nan), "row 2: the bag number is nan"),
        ((1, 2, np.inf), "bag 1, feature 1 is inf"),
    ],
)
def test_broken_tables(tmp_path, change, word):
    table = TABLE.copy()
    table[change[:2]] = change[2]
    refused(save(tmp_path, data=table), word)


def test_tables_that_do_not_fit(tmp_path):
    first = save(tmp_path, "a.mat", data=TABLE)
    refused(save(tmp_path, "b.mat", data=np.ones((3, 2))), "expected rows of bag, features and class")
    refused(first, "class 3 has no name", label_names=["a", "b"])
    refused(first, "bag_index is for files", bag_index=[1, 2, 3])
    with pytest.raises(DataError, match=r"5 columns, a\.mat has 4"):
        matlab.read_many([first, save(tmp_path, "c.mat", data=np.ones((3, 5)))])
    with pytest.raises(DataError, match="no variable 'data'"):
        matlab.read_many([first, save(tmp_path, "d.mat", other=1)])
    with pytest.raises(DataError, match="'a/2' occurs twice"):
        matlab.read_many([first, first])
    with pytest.raises(ValueError, match="at least one file"):
        matlab.read_many([])


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_round_trip(tmp_path, kind):
    X = np.array([[0.0, 1.5], [2.0, 0.0], [0.1, 0.2]])
    bags = Bags(
        sparse.csr_array(X) if kind == "sparse" else X,
        [0, 2, 2, 3],
        bag_ids=["x", "y", "z"],
        feature_names=["a", "longer"],
    )
    data = Dataset(bags, [["robin", "wren"], [], ["wren"]], instance_Y=[1, -1, 1])
    path = tmp_path / "back.mat"
    matlab.write(data, path)
    back = matlab.read(path)
    assert back.bags.equals(bags)
    assert back.label_names == data.label_names
    assert back.Y.tolist() == data.Y.tolist()
    assert back.instance_Y.tolist() == [1, -1, 1]
    loaded = scipy_io.loadmat(path)
    assert loaded["bags"].shape == (3, 1)
    assert loaded["Y"].tolist() == [[1, 1], [0, 0], [0, 1]]


def test_round_trip_of_plain_bags(tmp_path):
    data = Dataset(Bags.from_list([np.ones((1, 2)), np.zeros((1, 2))], bag_ids=[5, 3]), np.array([[1], [0]]))
    matlab.write(data, tmp_path / "p.mat")
    back = matlab.read(tmp_path / "p.mat")
    assert back.bags.equals(data.bags)
    packed = tmp_path / "p.mat.gz"
    packed.write_bytes(gzip.compress((tmp_path / "p.mat").read_bytes()))
    assert matlab.read(packed).bags.equals(data.bags)


def test_duplicate_ids_and_instance_labels(tmp_path):
    bags = column([np.ones((2, 2)), np.zeros((1, 2))])
    refused(save(tmp_path, bags=bags, Y=np.eye(2), bag_ids=np.array([[4], [4]])), "bag id 4 occurs twice")
    wrong = column([np.array([[1]]), np.array([[2]])])
    refused(save(tmp_path, bags=bags, Y=np.eye(2), instance_labels=wrong), "one label number for each")
    hollow = column([sparse.csc_array((2**31 - 1, 2)), sparse.csc_array((1, 2))])
    refused(save(tmp_path, bags=hollow, Y=np.eye(2)), "instances in sparse matrices")


def test_what_cannot_be_written(tmp_path):
    data = Dataset(Bags([[np.inf]], [0, 1]), [["x"]])
    with pytest.raises(DataError, match="is inf") as caught:
        matlab.write(data, tmp_path / "x.mat")
    assert caught.value.path == str(tmp_path / "x.mat")
    with pytest.raises(DataError, match="is inf"):
        write(data, tmp_path / "x.mat")


def test_recognises_and_refuses_other_files(tmp_path):
    path = save(tmp_path, **LETTERS)
    assert matlab.recognises(path, path.read_bytes())
    assert matlab.recognises(path, b"MATLAB 7.3 MAT-file, Platform: PCWIN64")
    assert not matlab.recognises(path, b"bag,f1\n")
    path.write_bytes(path.read_bytes()[:-30])
    refused(path, "truncated")
    refused(tmp_path / "none.mat", "no such file")
