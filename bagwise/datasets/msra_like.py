"""Generated bags of the shape of the largest set of the MIMLfast paper, for measuring speed and scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.bags import Bags
from bagwise.bags.dataset import Dataset
from bagwise.datasets.draws import BACKGROUND, check_share, draw_roles, generator

_CELLS = 1 << 23  # entries of the largest temporary table


def make_msra_like(
    n_bags: int = 30_000,
    n_labels: int = 99,
    n_features: int = 225,
    *,
    bag_size: int = 9,
    cardinality: float = 2.7,
    min_sub: int = 2,
    max_sub: int = 6,
    n_topics: int = 20,
    correlation: float = 2.0,
    n_latent: int = 60,
    separation: float = 4.0,
    noise: float = 0.5,
    random_state: Any = 0,
) -> Dataset:
    """Bags with hidden sub-concepts and correlated labels, 30,000 bags of 9 instances by default.

    Parameters
    ----------
    n_bags, n_labels, n_features : int
        Shape of the set.
    bag_size : int, default=9
        Instances per bag, and the largest number of labels of a bag.
    cardinality : float, default=2.7
        Mean number of labels per bag; every bag has at least one.
    min_sub, max_sub : int
        Range of the number of clusters (sub-concepts) of a label.
    n_topics : int, default=20
        Every bag has a hidden topic; labels of one topic tend to occur together.
    correlation : float, default=2.0
        Standard deviation of the log-weight that a topic gives to a label; 0 makes labels independent.
    n_latent : int, default=60
        Dimension of the space in which the clusters lie, before features mix it.
    separation : float, default=4.0
        Distance of a cluster from the background, in standard deviations of a latent dimension.
    noise : float, default=0.5
        Chance that an instance which no label needs is background.
    random_state : int, Generator or None, default=0
        Seed.

    Returns
    -------
    Dataset
        With ``instance_Y`` (-1 marks background) and ``bags.instance_info["sub_concept"]``, numbered within
        each label. Instances are float32; the scale and the mean of features vary widely, as with
        features that nobody standardised.

    Examples
    --------
    >>> make_msra_like(n_bags=50, n_labels=7, n_features=12, n_latent=6).bags
    Bags(50 bags, 450 instances, 12 features, dense float32)
    """
    check_share(noise=noise)
    if not 1 <= min_sub <= max_sub:
        raise ValueError(f"expected 1 <= min_sub <= max_sub, got min_sub={min_sub}, max_sub={max_sub}")
    rng = generator(random_state)
    Y = _label_sets(rng, n_bags, n_labels, cardinality, bag_size, n_topics, correlation)
    sizes = np.full(n_bags, bag_size, dtype=np.int64)
    labels, offsets = draw_roles(rng, Y, sizes, noise)
    n_sub = rng.integers(min_sub, max_sub + 1, n_labels)
    first = np.concatenate([[0], np.cumsum(n_sub)])
    sub = np.floor(rng.random(len(labels)) * n_sub[labels]).astype(np.int64)
    sub[labels == BACKGROUND] = BACKGROUND
    centres = rng.standard_normal((first[-1], n_latent))
    centres *= separation / np.linalg.norm(centres, axis=1, keepdims=True)
    which = np.where(labels == BACKGROUND, first[-1], first[labels] + sub)
    X = _features(rng, centres, which, n_features)
    bags = Bags(X, offsets, instance_info={"sub_concept": sub})
    about = f"Shaped like MSRA-MM: {min_sub} to {max_sub} clusters per label, {n_topics} topics."
    return Dataset(bags, Y, instance_Y=labels, name="msra_like", description=about)


def _label_sets(rng, n_bags, n_labels, cardinality, most, n_topics, correlation):
    """Sets of labels drawn without replacement by the weights of each bag's topic."""
    if not 1 <= cardinality <= n_labels:
        raise ValueError(f"cardinality must lie between 1 and n_labels={n_labels}, got {cardinality}")
    popularity = -0.5 * np.log(np.arange(1, n_labels + 1))
    weights = (popularity + correlation * rng.standard_normal((n_topics, n_labels))).astype(np.float32)
    topics = rng.integers(0, n_topics, n_bags)
    more = max(n_labels - 1, 1)
    wanted = np.minimum(1 + rng.binomial(n_labels - 1, (cardinality - 1) / more, n_bags), most)
    Y = np.zeros((n_bags, n_labels), dtype=np.int8)
    rows = max(_CELLS // n_labels, 1)
    for start in range(0, n_bags, rows):
        part = slice(start, start + rows)
        # Gumbel noise on log-weights, then the best k: k labels without replacement.
        keys = -weights[topics[part]]
        lots = rng.standard_exponential(keys.shape, dtype=np.float32)
        keys += np.log(np.maximum(lots, np.finfo(np.float32).tiny))
        k = int(wanted[part].max())
        best = np.argpartition(keys, min(k, n_labels - 1), axis=1)[:, :k]
        best = np.take_along_axis(best, np.take_along_axis(keys, best, 1).argsort(axis=1), 1)
        taken = np.arange(k) < wanted[part][:, None]
        bag, place = np.nonzero(taken)
        Y[start + bag, best[bag, place]] = 1
    return Y


def _features(rng, centres, which, n_features):
    """Latent clusters mixed into features of very different scales and means."""
    n_latent = centres.shape[1]
    scale = np.exp(rng.standard_normal(n_features)).astype(np.float32)
    mean = (scale * rng.standard_normal(n_features)).astype(np.float32)
    mix = (rng.standard_normal((n_latent, n_features)) / np.sqrt(n_latent)).astype(np.float32)
    centres = np.vstack([centres, np.zeros((1, n_latent))]).astype(np.float32)
    X = np.empty((len(which), n_features), dtype=np.float32)
    rows = max(_CELLS // n_features, 1)
    for start in range(0, len(which), rows):
        part = slice(start, start + rows)
        latent = centres[which[part]]
        latent += rng.standard_normal(latent.shape, dtype=np.float32)
        block = latent @ mix
        block += 0.3 * rng.standard_normal(block.shape, dtype=np.float32)
        np.multiply(block, scale, out=X[part])
        X[part] += mean
    return X
