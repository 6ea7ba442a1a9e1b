import time

import numpy as np
import pytest

from bagwise.datasets import make_digits


def test_labels_are_the_digits_that_occur():
    data = make_digits(n_bags=200)
    for i, names in enumerate(data.label_sets):
        a, b = data.bags.offsets[i : i + 2]
        assert names == [str(d) for d in np.unique(data.instance_Y[a:b])]


def test_pictures_show_the_digit_and_match_the_features():
    from sklearn.datasets import load_digits

    source = load_digits()
    data = make_digits(n_bags=60)
    info = data.bags.instance_info
    assert info["picture"].dtype == np.uint8
    assert np.array_equal(source.target[info["source"]], data.instance_Y)
    assert np.array_equal(source.images[info["source"]], info["picture"])
    assert np.allclose(data.bags.X, info["picture"].reshape(-1, 64) / 16)
    assert data.bags.X.dtype == np.float32


@pytest.mark.parametrize("seed", range(3))
def test_train_and_test_share_no_picture(seed):
    data = make_digits(n_bags=2000, random_state=seed)
    train, test = (set(data[part].bags.instance_info["source"].tolist()) for part in ("train", "test"))
    assert not train & test
    assert len(train) > 1100 and len(test) > 400  # nearly all pictures of both pools are used
    assert len(data["test"]) == 600


def test_sizes_seed_and_ids():
    data = make_digits(n_bags=300, min_size=2, max_size=5)
    assert set(data.bags.sizes.tolist()) == {2, 3, 4, 5}
    assert len(set(data.bags.bag_ids.tolist())) == 300
    assert data.bags.equals(make_digits(n_bags=300, min_size=2, max_size=5).bags)
    assert not data.bags.equals(make_digits(n_bags=300, min_size=2, max_size=5, random_state=1).bags)


@pytest.mark.parametrize("test_size", [0.0, 1.0])
def test_one_part_may_be_empty(test_size):
    data = make_digits(n_bags=20, test_size=test_size)
    assert len(data["test"]) == 20 * test_size


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="min_size=3, max_size=2"):
        make_digits(min_size=3, max_size=2)
    with pytest.raises(ValueError, match="test_size"):
        make_digits(test_size=1.5)


def test_half_a_million_instances_in_seconds():
    start = time.perf_counter()
    data = make_digits(n_bags=110_000, pictures=False)
    assert data.bags.n_instances > 480_000 and "picture" not in data.bags.instance_info
    assert time.perf_counter() - start < 10
