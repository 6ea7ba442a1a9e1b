"""The containers, against plain lists of arrays."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.model_selection import KFold, train_test_split

from bagwise import Bags, MultiViewBags
from bagwise.bags import _rows, first_not_finite
from bagwise.errors import DataError


def random_bags(sizes, n_features=3, kind="dense", seed=0):
    """Bags, and the same as a list of arrays."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(sum(sizes), n_features)) * (rng.random((sum(sizes), n_features)) < 0.6)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    parts = [X[a:b] for a, b in zip(offsets[:-1], offsets[1:])]
    info = {"box": rng.normal(size=(sum(sizes), 4)), "word": np.array([f"w{i}" for i in range(sum(sizes))])}
    matrix = sparse.csr_array(X) if kind == "csr" else X
    return Bags(matrix, offsets, bag_ids=[f"b{i}" for i in range(len(sizes))], instance_info=info), parts


def dense(matrix):
    return matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)


def assert_same(bags, parts):
    assert len(bags) == len(parts)
    for bag, part in zip(bags, parts):
        np.testing.assert_array_equal(dense(bag), part)


sizes_strategy = st.lists(st.integers(0, 4), min_size=1, max_size=8)
kinds = st.sampled_from(["dense", "csr"])


@given(sizes_strategy, kinds, st.data())
def test_every_way_of_indexing_agrees_with_lists(sizes, kind, data):
    bags, parts = random_bags(sizes, kind=kind)
    n = len(parts)
    assert bags.shape == (n, 3)
    np.testing.assert_array_equal(bags.sizes, sizes)
    np.testing.assert_array_equal(bags.index, np.repeat(np.arange(n), sizes))
    i = data.draw(st.integers(-n, n - 1))
    np.testing.assert_array_equal(dense(bags[i]), parts[i])
    key = slice(
        data.draw(st.integers(-n, n)), data.draw(st.integers(-n, n)), data.draw(st.sampled_from([1, 2, -1]))
    )
    assert_same(bags[key], parts[key])
    chosen = data.draw(st.lists(st.integers(-n, n - 1), max_size=6))
    for spelling in (chosen, np.array(chosen, dtype=np.int64)):
        gathered = bags[spelling]
        assert_same(gathered, [parts[j] for j in chosen])
        assert gathered.bag_ids.tolist() == [f"b{j % n}" for j in chosen]
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    assert_same(bags[mask], [p for p, keep in zip(parts, mask) if keep])
    assert_same(bags[mask, ...], [p for p, keep in zip(parts, mask) if keep])
    assert_same(bags[:, [2, 0]], [p[:, [2, 0]] for p in parts])


@given(sizes_strategy, kinds, st.data())
def test_facts_are_cut_along(sizes, kind, data):
    bags, _ = random_bags(sizes, kind=kind)
    chosen = data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=6))
    rows = [r for j in chosen for r in range(bags.offsets[j], bags.offsets[j + 1])]
    cut = bags[chosen]
    np.testing.assert_array_equal(cut.instance_info["box"], bags.instance_info["box"][rows])
    assert cut.instance_info["word"].tolist() == [f"w{r}" for r in rows]
    run = bags[1:3]
    a, b = bags.offsets[min(1, len(bags))], bags.offsets[min(3, len(bags))]
    np.testing.assert_array_equal(run.instance_info["box"], bags.instance_info["box"][a:b])


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_slices_share_memory(kind):
    bags, _ = random_bags([2, 3, 1, 4], kind=kind)
    cut = bags[1:3]
    if kind == "csr":
        assert np.shares_memory(cut.X.data, bags.X.data)
    else:
        assert np.shares_memory(cut.X, bags.X)
        assert np.shares_memory(bags[2], bags.X)
    assert np.shares_memory(cut.instance_info["box"], bags.instance_info["box"])


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_concat_pickle_singletons_save_open(kind, tmp_path):
    bags, parts = random_bags([2, 0, 3], kind=kind)
    joined = Bags.concat([bags, bags[1:]])
    assert_same(joined, parts + parts[1:])
    assert joined.bag_ids.tolist() == ["b0", "b1", "b2", "b1", "b2"]
    assert pickle.loads(pickle.dumps(bags)).equals(bags)
    singles = bags.singletons()
    assert len(singles) == 5 and singles.X is bags.X
    assert_same(singles, list(np.concatenate(parts)[:, None]))
    bags.save(tmp_path / "store")
    opened = Bags.open(tmp_path / "store")
    assert opened.equals(bags)
    if kind == "dense":
        assert isinstance(opened.X, np.memmap) or isinstance(opened.X.base, np.memmap)
    bags[:1].save(tmp_path / "store")  # replaces the folder as a whole
    assert len(Bags.open(tmp_path / "store")) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["store"]


def test_dense_input_is_not_copied_and_other_numbers_are_converted():
    X = np.ones((4, 2), dtype=np.float32)
    assert Bags(X, [0, 4]).X is X
    assert Bags(X.astype(np.uint8), [0, 4]).dtype == np.float32
    assert Bags(X.astype(np.int64), [0, 4]).dtype == np.float64
    assert Bags(np.asfortranarray(np.ones((4, 3))), [0, 4]).X.flags.c_contiguous


def test_sparse_input_is_made_canonical_on_a_copy():
    twice = sparse.csr_array((np.ones(3), np.array([1, 1, 0]), np.array([0, 3])), shape=(1, 2))
    bags = Bags(twice, [0, 1])
    assert bags.X.toarray().tolist() == [[1.0, 2.0]]
    assert len(twice.data) == 3


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Bags(np.ones((3, 2)), [0, 2]), "number of instances, 3"),
        (lambda: Bags(np.ones((3, 2)), [0, 3, 2, 3]), "bag 1"),
        (lambda: Bags(np.ones((3, 2)), [1, 3]), "from 0 to"),
        (lambda: Bags(np.ones((3, 2)), [0.0, 3.0]), "integers"),
        (lambda: Bags(np.ones(3), [0, 3]), "2-D"),
        (lambda: Bags(np.array([["a"]]), [0, 1]), "numbers"),
        (lambda: Bags(np.ones((3, 2)), [0, 3], bag_ids=["a", "b"]), "bag_ids"),
        (lambda: Bags(np.ones((3, 2)), [0, 3], instance_info={"t": [1]}), "'t'"),
        (lambda: Bags(np.ones((3, 2)), [0, 3], feature_names=["a"]), "feature_names"),
        (lambda: Bags.from_list([np.ones((1, 2)), np.ones((1, 3))]), "bag 1 has 3 features"),
        (lambda: Bags.from_list([np.ones((1, 2)), np.ones(2)], bag_ids=["x", "y"]), "'y'"),
        (lambda: Bags.from_list([]), "at least one"),
        (lambda: Bags.concat([random_bags([1])[0], random_bags([1], n_features=4)[0]]), "4 features"),
    ],
)
def test_errors_say_what_is_wrong(make, words):
    with pytest.raises(DataError, match=words):
        make()


@pytest.mark.parametrize("key", [5, -4, [5], np.array([0.5]), [True], "id", np.zeros((2, 2), int), (0, 1, 2)])
def test_wrong_keys_raise_index_errors(key):
    bags, _ = random_bags([1, 1, 1])
    with pytest.raises(IndexError):
        bags[key]


def test_never_becomes_an_array_by_accident():
    bags, _ = random_bags([2, 2])
    with pytest.raises(TypeError, match="OnInstances"):
        np.asarray(bags)


def test_scikit_learn_splits_bags_like_rows():
    bags, parts = random_bags([1, 2, 3, 1, 2, 3, 1, 2])
    Y = np.arange(16).reshape(8, 2)
    train, test, _, Y_test = train_test_split(bags, Y, test_size=0.25, random_state=0)
    assert isinstance(train, Bags) and len(train) == 6 and len(test) == 2
    assert_same(test, [parts[y[0] // 2] for y in Y_test])
    for fit, held in KFold(4).split(bags):
        assert len(bags[fit]) + len(bags[held]) == 8


# ---------------------------------------------------------------------- tables


def long_table():
    return {
        "bag_id": ["x", "y", "x", "z", "y"],
        "f1": [1.0, 2.0, 3.0, 4.0, 5.0],
        "f2": [10, 20, 30, 40, 50],
        "word": ["a", "b", "c", "d", "e"],
    }


@pytest.mark.parametrize("library", ["pyarrow", "pandas", "polars"])
def test_from_frame(library):
    module = pytest.importorskip(library)
    frame = pa.table(long_table()) if library == "pyarrow" else module.DataFrame(long_table())
    bags = Bags.from_frame(frame, bag="bag_id", features=["f1", "f2"], info=["word"])
    assert bags.bag_ids.tolist() == ["x", "y", "z"]
    assert bags.X.tolist() == [[1, 10], [3, 30], [2, 20], [5, 50], [4, 40]]
    assert bags.instance_info["word"].tolist() == ["a", "c", "b", "e", "d"]
    assert bags.feature_names == ("f1", "f2")
    assert Bags.from_frame(frame).feature_names == ("f1", "f2")  # every numeric column


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bag": "nowhere"}, "nowhere"),
        ({"features": ["f1", "f9"]}, "f9"),
        ({"features": ["word"]}, "word"),
        ({"info": ["colour"]}, "colour"),
    ],
)
def test_from_frame_names_the_column_at_fault(change, words):
    with pytest.raises(DataError, match=words):
        Bags.from_frame(pa.table(long_table()), **change)


def test_from_frame_refuses_missing_values():
    table = long_table() | {"f1": [1.0, None, 3.0, 4.0, 5.0]}
    with pytest.raises(DataError, match=r"row 1.*'f1'"):
        Bags.from_frame(pa.table(table))
    with pytest.raises(DataError, match="row 0"):
        Bags.from_frame(pa.table(long_table() | {"bag_id": [None, "y", "x", "z", "y"]}))


@given(sizes_strategy, kinds)
def test_arrow_round_trip(sizes, kind):
    bags, parts = random_bags(sizes, kind=kind)
    column = bags.to_arrow()
    np.testing.assert_array_equal(column.offsets.to_numpy(), bags.offsets)  # Arrow's offsets are ours
    back = Bags.from_arrow(column, n_features=3)
    assert_same(back, parts)
    assert_same(Bags.from_arrow(column[1:], n_features=3), parts[1:])  # a sliced column
    if kind == "dense":
        assert np.shares_memory(back.X, bags.X) or bags.n_instances == 0


def test_from_arrow_refuses_ragged_and_null_instances():
    with pytest.raises(DataError, match="bag 1 has 1 features"):
        Bags.from_arrow(pa.array([[[1.0, 2.0]], [[3.0]]]))
    with pytest.raises(DataError, match="null"):
        Bags.from_arrow(pa.array([[[1.0]], None]))
    with pytest.raises(DataError, match="expected one list"):
        Bags.from_arrow(pa.array([1.0, 2.0]))


# ---------------------------------------------------------------------- several views


def two_views():
    rgb, rgb_parts = random_bags([2, 0, 1], n_features=3)
    words, word_parts = random_bags([1, 3, 0], n_features=5, kind="csr", seed=1)
    return MultiViewBags({"rgb": rgb, "words": words}), rgb_parts, word_parts


def test_views_are_cut_together():
    mv, rgb, words = two_views()
    assert mv.shape == (3, 8) and mv.view_names == ("rgb", "words")
    assert mv.present.tolist() == [[True, True], [False, True], [True, False]]
    cut = mv[[2, 0]]
    assert_same(cut["rgb"], [rgb[2], rgb[0]])
    assert_same(cut["words"], [words[2], words[0]])
    assert mv[0]["rgb"].shape == (2, 3)
    assert_same(mv[:2, ...]["rgb"], rgb[:2])
    assert len(train_test_split(mv, test_size=1)[0]) == 2
    assert MultiViewBags.concat([mv[:1], mv[1:]]).equals(mv)
    assert mv.select(["rgb"]).view_names == ("rgb",)
    assert pickle.loads(pickle.dumps(mv)).equals(mv)


def test_views_align_by_id():
    a = Bags.from_list([np.ones((1, 2)), np.ones((2, 2))], bag_ids=["x", "y"])
    b = Bags.from_list([np.ones((3, 1)), np.ones((1, 1))], bag_ids=["y", "z"])
    mv = MultiViewBags.align({"a": a, "b": b})
    assert mv.bag_ids.tolist() == ["x", "y", "z"]
    assert mv["a"].sizes.tolist() == [1, 2, 0] and mv["b"].sizes.tolist() == [0, 3, 1]
    with pytest.raises(DataError, match="align"):
        MultiViewBags({"a": a, "b": b})
    with pytest.raises(DataError, match="two bags with the id 'y'"):
        MultiViewBags.align({"a": a[[1, 1]], "b": b})


def test_view_errors():
    mv, _, _ = two_views()
    with pytest.raises(KeyError, match="rgb, words"):
        mv["sound"]
    with pytest.raises(DataError, match="has 2 bags"):
        MultiViewBags({"rgb": mv["rgb"], "words": mv["words"][:2]})
    with pytest.raises(TypeError):
        np.asarray(mv)
    with pytest.raises(DataError, match="at least one view"):
        MultiViewBags({})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("place", [(0, 0), (2, 1), (4, 2)])
def test_first_value_that_is_not_finite(monkeypatch, value, make, place):
    monkeypatch.setattr(_rows, "_BLOCK", 4)  # so that blocks end within rows
    X = np.arange(1.0, 16.0).reshape(5, 3)
    assert first_not_finite(make(X)) is None
    X[place] = value
    X[4, 2] = value
    assert first_not_finite(make(X)) == place
