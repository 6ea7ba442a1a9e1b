"""What all generated sets are made of: sizes, label sets, roles of instances, centres, and words about them.

All functions are vectorised over bags; none loops over bags or instances in Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.dataset import Dataset

BACKGROUND = -1  # an instance that causes no label; the same number as an unknown instance label


def generator(random_state: Any) -> np.random.Generator:
    """A generator from a seed, a generator (used as it is) or None."""
    return np.random.default_rng(random_state)


def check_range(min_size: int, max_size: int) -> None:
    """Refuse a range of bag sizes that is empty or begins below one."""
    if not 1 <= min_size <= max_size:
        raise ValueError(f"expected 1 <= min_size <= max_size, got min_size={min_size}, max_size={max_size}")


def check_share(**shares: float) -> None:
    """Refuse a share outside 0..1."""
    for name, value in shares.items():
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name} is a share between 0 and 1, got {value}")


def to_offsets(sizes: np.ndarray) -> np.ndarray:
    """Where bags of these sizes begin.

    Examples
    --------
    >>> to_offsets(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def bag_names(n_bags: int, prefix: str = "b") -> np.ndarray:
    """Unique names of equal length: b000, b001, ..."""
    width = len(str(max(n_bags - 1, 0)))
    return np.char.add(prefix, np.char.zfill(np.arange(n_bags).astype(str), width))


def shuffle_within(rng: np.random.Generator, index: np.ndarray) -> np.ndarray:
    """Random order of instances that keeps bags together; ``index`` is the bag number of each instance."""
    # Whole part: the bag; fractional part: the lot. One sort instead of one shuffle per bag.
    return np.argsort(index + rng.random(len(index)), kind="stable")


def draw_label_sets(
    rng: np.random.Generator, n_bags: int, n_labels: int, cardinality: float, skew: float = 0.0
) -> np.ndarray:
    """Label sets with a given mean size and labels of unequal popularity (weights ``rank ** -skew``).

    With a cardinality of 1 or more every bag has a label; below 1 a bag has one label or none.
    """
    if not 0 <= cardinality <= n_labels:
        raise ValueError(f"cardinality must lie between 0 and n_labels={n_labels}, got {cardinality}")
    if cardinality < 1 or n_labels == 1:
        wanted = (rng.random(n_bags) < cardinality).astype(np.int64)
    else:
        wanted = 1 + rng.binomial(n_labels - 1, (cardinality - 1) / (n_labels - 1), n_bags)
    # Gumbel noise on log-weights, then the best k: k labels without replacement.
    keys = rng.gumbel(size=(n_bags, n_labels)) - skew * np.log(np.arange(1, n_labels + 1))
    rank = np.argsort(np.argsort(-keys, axis=1), axis=1)
    return (rank < wanted[:, None]).astype(np.int8)


def draw_sizes(
    rng: np.random.Generator, min_size: int, max_size: int, n_causes: np.ndarray | int = 0, n_bags: int = 0
) -> np.ndarray:
    """Bag sizes, uniform over the range, raised where a bag needs room for more causes."""
    n_bags = n_bags or len(np.atleast_1d(n_causes))
    return np.maximum(rng.integers(min_size, max_size + 1, n_bags), n_causes)


def draw_roles(
    rng: np.random.Generator, Y: np.ndarray, sizes: np.ndarray, noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """Label of each instance and offsets of the bags, so that every label of a bag has its cause there.

    Each label takes one instance; each further instance is background with probability ``noise``, else
    it takes one of the bag's labels at random. Bags without labels are background throughout.
    """
    offsets = to_offsets(sizes)
    index = np.repeat(np.arange(len(sizes)), sizes)
    bag_of, label_of = np.nonzero(Y)
    starts = np.searchsorted(bag_of, np.arange(len(sizes)))
    counts = np.bincount(bag_of, minlength=len(sizes))[index]
    place = np.empty(len(index), dtype=np.int64)  # a random rank of each instance within its bag
    place[shuffle_within(rng, index)] = np.arange(len(index)) - offsets[index]
    extra = place >= counts
    lot = np.floor(rng.random(len(index)) * counts).astype(np.int64)
    choice = np.where(extra, lot, place)
    background = (extra & (rng.random(len(index)) < noise)) | (counts == 0)
    labels = np.full(len(index), BACKGROUND, dtype=np.int64)
    rows = np.flatnonzero(~background)
    labels[rows] = label_of[starts[index[rows]] + choice[rows]]
    return labels, offsets


def draw_centres(rng: np.random.Generator, n: int, n_features: int, separation: float) -> np.ndarray:
    """Cluster centres in random directions, ``separation`` away from the origin, where background lies."""
    centres = rng.standard_normal((n, n_features))
    centres *= separation / np.linalg.norm(centres, axis=1, keepdims=True)
    return centres.astype(np.float32)


def gaussian_instances(
    rng: np.random.Generator, centres: np.ndarray, which: np.ndarray, spread: float = 1.0
) -> np.ndarray:
    """Single-precision instances around the chosen centres; background around the origin."""
    X = rng.standard_normal((len(which), centres.shape[1]), dtype=np.float32)
    if spread != 1.0:
        X *= np.float32(spread)
    rows = 1 << 16  # adding in pieces keeps the gathered centres out of memory
    with_origin = np.vstack([centres, np.zeros((1, centres.shape[1]), dtype=np.float32)])
    for start in range(0, len(which), rows):
        X[start : start + rows] += with_origin[which[start : start + rows]]  # -1 is the last row
    return X


def described(
    name: str,
    X: Any,
    offsets: np.ndarray,
    Y: np.ndarray,
    instance_Y: np.ndarray,
    about: str,
    info: dict[str, np.ndarray] | None = None,
    label_names: tuple[str, ...] = (),
    **more: Any,
) -> Dataset:
    """A generated set with bags called b000, b001, ..."""
    return Dataset(
        Bags(X, offsets, bag_ids=bag_names(len(Y)), instance_info=info),
        Y,
        label_names,
        instance_Y=instance_Y,
        name=name,
        description=f"Generated. {about}",
        licence="none needed: generated numbers",
        **more,
    )
