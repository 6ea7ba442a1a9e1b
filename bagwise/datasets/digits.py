"""Bags of handwritten digits: numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from bagwise.bags import Bags
from bagwise.bags.dataset import Dataset
from bagwise.datasets.draws import bag_names, check_range, check_share, draw_sizes, generator, to_offsets

_CITATION = (
    "E. Alpaydin and C. Kaynak. Optical recognition of handwritten digits. UCI Machine Learning "
    "Repository, 1998. The part bundled with scikit-learn."
)


def make_digits(
    n_bags: int = 500,
    min_size: int = 1,
    max_size: int = 8,
    random_state: Any = 0,
    *,
    test_size: float = 0.3,
    pictures: bool = True,
) -> Dataset:
    """Bags are numbers of some digits; the labels of a number are the digits that occur in it.

    The pictures are the 1797 handwritten digits of 8 x 8 pixels bundled with scikit-learn. They are
    divided first: ``data["train"]`` and ``data["test"]`` never show the same picture.

    Parameters
    ----------
    n_bags : int, default=500
        Number of bags, of which the last ``test_size`` are the part "test".
    min_size, max_size : int, default=1 and 8
        Range of the number of digits per number. All digits are equally likely at all places, so a
        number may begin with zeros.
    random_state : int, Generator or None, default=0
        Seed of the numbers and of the division of the pictures.
    test_size : float, default=0.3
        Share of the bags, and of the pictures of every digit, that belong to the part "test".
    pictures : bool, default=True
        Whether to keep the pictures in ``bags.instance_info["picture"]``. Without them, a million
        instances take 290 MB, with them 64 MB more.

    Returns
    -------
    Dataset
        Features are the 64 grey values divided by 16 (float32). ``bags.instance_info`` holds "picture"
        (uint8, n x 8 x 8, grey values 0 to 16) and "source", the number of the picture in
        ``sklearn.datasets.load_digits``.

    Examples
    --------
    >>> data = make_digits(n_bags=100)
    >>> data["train"].bags.instance_info["picture"].shape[1:]
    (8, 8)
    >>> data.label_names[data.instance_Y[0]] in data.label_sets[0]
    True
    """
    check_range(min_size, max_size)
    check_share(test_size=test_size)
    rng = generator(random_state)
    source = load_digits()
    grey = source.data.astype(np.uint8)
    sizes = draw_sizes(rng, min_size, max_size, n_bags=n_bags)
    offsets = to_offsets(sizes)
    digits = rng.integers(0, 10, offsets[-1])
    n_test = round(test_size * n_bags)
    in_test = np.repeat(np.arange(n_bags) >= n_bags - n_test, sizes)
    chosen = _choose_pictures(rng, source.target, digits, in_test, test_size)
    info = {"source": chosen}
    if pictures:
        info["picture"] = grey.reshape(-1, 8, 8)[chosen]
    bags = Bags(
        (grey / np.float32(16)).astype(np.float32)[chosen],
        offsets,
        bag_ids=bag_names(n_bags, "n"),
        instance_info=info,
        feature_names=source.feature_names,
    )
    Y = np.zeros((n_bags, 10), dtype=np.int8)
    Y[np.repeat(np.arange(n_bags), sizes), digits] = 1
    return Dataset(
        bags,
        Y,
        tuple(str(d) for d in range(10)),
        instance_Y=digits,
        name="digits",
        description="Numbers written with handwritten digits; labels are the digits that occur.",
        citation=_CITATION,
        licence="CC BY 4.0",
        splits={"train": np.arange(n_bags - n_test), "test": np.arange(n_bags - n_test, n_bags)},
    )


def _choose_pictures(
    rng: np.random.Generator, target: np.ndarray, digits: np.ndarray, in_test: np.ndarray, test_size: float
) -> np.ndarray:
    """A picture for each digit, from the pool of its part; the two pools have no picture in common."""
    order = rng.permutation(len(target))
    order = order[np.argsort(target[order], kind="stable")]  # shuffled, then by digit
    totals = np.bincount(target, minlength=10)
    starts = np.concatenate([[0], np.cumsum(totals)[:-1]])
    # Rounding never empties a pool that is needed: at least one picture on each side.
    for_test = np.clip(np.round(test_size * totals).astype(np.int64), test_size > 0, totals - (test_size < 1))
    begin = np.where(in_test, starts[digits] + (totals - for_test)[digits], starts[digits])
    count = np.where(in_test, for_test[digits], (totals - for_test)[digits])
    return order[begin + np.floor(rng.random(len(digits)) * count).astype(np.int64)].astype(np.int32)
