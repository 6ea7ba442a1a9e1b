"""Random data sets for the tests of readers and writers, and when two of them are the same."""

import numpy as np
from hypothesis import strategies as st
from scipy import sparse

from bagwise import Bags, Dataset
from bagwise.bags import MultiViewBags

# Any letter but no control characters: those are tested one by one where a format allows them.
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=6)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=8)


@st.composite
def bags(draw, offsets, ids, info=True, any_sparse=True):
    n, d = int(offsets[-1]), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    X = (rng.standard_normal((n, d)) * 10.0 ** rng.integers(-30, 30, (n, d))).astype(dtype)
    if any_sparse and draw(st.booleans()):
        X[rng.random((n, d)) < 0.6] = 0
        X = sparse.csr_array(X)
    names = draw(st.none() | st.lists(NAMES, min_size=d, max_size=d, unique=True))
    facts = {}
    if info:
        makers = {
            "box": lambda: rng.integers(0, 99, (n, 4)).astype(np.int16),
            "grid": lambda: rng.random((n, 2, 3)).astype(np.float32),
            "time": lambda: np.arange(n).astype("datetime64[ms]"),
            "flag": lambda: rng.random(n) < 0.5,
            "word": lambda: np.array([draw(TEXTS) for _ in range(n)], dtype=str),
            "gaps": lambda: np.array([draw(st.none() | TEXTS) for _ in range(n)], dtype=object),
            "nan": lambda: np.full(n, np.inf),
        }
        for key in draw(st.lists(st.sampled_from(sorted(makers)), unique=True, max_size=3)):
            facts[key] = makers[key]()
    return Bags(X, offsets, bag_ids=ids, instance_info=facts, feature_names=names)


@st.composite
def data_sets(draw):
    """Data sets with all that a `Dataset` can hold, each part now and then absent."""
    n_bags = draw(st.integers(0, 5))
    ids = None
    if draw(st.booleans()):
        ids = np.array(draw(st.lists(NAMES, min_size=n_bags, max_size=n_bags, unique=True)), dtype=str)

    def offsets():
        sizes = draw(st.lists(st.integers(0, 3), min_size=n_bags, max_size=n_bags))
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    if draw(st.booleans()):
        views = draw(st.lists(NAMES.map("v".__add__), min_size=1, max_size=3, unique=True))
        container = MultiViewBags({view: draw(bags(offsets(), ids)) for view in views})
    else:
        container = draw(bags(offsets(), ids))
    names = tuple(draw(st.lists(NAMES, min_size=1, max_size=4, unique=True)))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    Y = rng.integers(0, 2, (n_bags, len(names)))

    def instance_labels(one):
        return rng.integers(-1, len(names), one.n_instances)

    known = None
    if draw(st.booleans()):
        if isinstance(container, MultiViewBags):
            known = {
                view: instance_labels(one) for view, one in container.views.items() if draw(st.booleans())
            }
            known = known or None
        else:
            known = instance_labels(container)
    groups = draw(st.sampled_from([None, np.arange(n_bags) % 2, np.array(["é"] * n_bags, dtype=str)]))
    splits = {}
    if draw(st.booleans()):
        splits = {"train": np.arange(n_bags)[::2], "odd": rng.permutation(n_bags), "none": np.arange(0)}
    about = {key: draw(TEXTS) for key in ("name", "description", "citation", "licence")}
    return Dataset(container, Y, names, instance_Y=known, groups=groups, splits=splits, **about)


def assert_same(a, b, about=True):
    """Every fact of the one is a fact of the other."""
    assert type(a.bags) is type(b.bags)
    pairs = [(a.bags, b.bags)]
    if isinstance(a.bags, MultiViewBags):
        assert a.bags.view_names == b.bags.view_names
        pairs = [(a.bags[view], b.bags[view]) for view in a.bags.view_names]
    for one, other in pairs:
        assert one.equals(other)
        assert one.has_bag_ids == other.has_bag_ids
        if about:
            assert one.dtype == other.dtype
            for key, values in one.instance_info.items():
                kinds = values.dtype, other.instance_info[key].dtype
                assert kinds[0] == kinds[1] or {kind.kind for kind in kinds} <= set("UO")
                assert values.shape == other.instance_info[key].shape
        assert list(one.instance_info) == list(other.instance_info)
    assert a.label_names == b.label_names
    np.testing.assert_array_equal(a.Y, b.Y)
    assert (a.instance_Y is None) == (b.instance_Y is None)
    if isinstance(a.instance_Y, dict):
        assert list(a.instance_Y) == list(b.instance_Y)
        for view in a.instance_Y:
            np.testing.assert_array_equal(a.instance_Y[view], b.instance_Y[view])
    elif a.instance_Y is not None:
        np.testing.assert_array_equal(a.instance_Y, b.instance_Y)
    assert (a.groups is None) == (b.groups is None)
    if a.groups is not None:
        np.testing.assert_array_equal(a.groups, b.groups)
    assert list(a.splits) == list(b.splits)
    for part in a.splits:
        np.testing.assert_array_equal(a.splits[part], b.splits[part])
    if about:
        for key in ("name", "description", "citation", "licence"):
            assert getattr(a, key) == getattr(b, key)


def small_set():
    """Three bags with unusual names, one of them empty, two of three instances known."""
    return Dataset(
        Bags(
            np.array([[1.5, -2.0], [0.25, 3.0], [4.0, 1e-30]], dtype=np.float32),
            [0, 2, 2, 3],
            bag_ids=["a", "ß", "c"],
            instance_info={"box": np.arange(12).reshape(3, 4), "word": np.array(["x", "", "öl"])},
            feature_names=["width", "height"],
        ),
        [["robin", "wren"], [], ["wren"]],
        instance_Y=["robin", None, "wren"],
        groups=["day 1", "day 1", "day 2"],
        splits={"train": [0, 2], "test": [1]},
        name="small",
        licence="CC0",
    )
