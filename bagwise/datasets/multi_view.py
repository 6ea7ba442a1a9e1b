"""Generated bags seen in several ways: continuous views, views of counts, and views that are missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.bags import Bags, MultiViewBags
from bagwise.bags.dataset import Dataset
from bagwise.datasets.draws import (
    bag_names,
    check_range,
    check_share,
    draw_centres,
    draw_label_sets,
    draw_roles,
    draw_sizes,
    gaussian_instances,
    generator,
)


def make_multi_view(
    n_bags: int = 200,
    n_labels: int = 5,
    *,
    gaussian: Sequence[int] = (16,),
    counts: Sequence[int] = (100,),
    missing: float = 0.2,
    at_least_one: bool = True,
    min_size: int = 2,
    max_size: int = 6,
    cardinality: float = 1.5,
    noise: float = 0.2,
    separation: float = 3.0,
    words: int = 15,
    random_state: Any = 0,
) -> Dataset:
    """Bags with several views, each with its own instances, some of them missing.

    Every label of a bag has at least one instance in every view that the bag has.

    Parameters
    ----------
    n_bags, n_labels : int
        Shape of the set.
    gaussian : sequence of int, default=(16,)
        One continuous view per entry, named ``gaussian_0``, ...: its number of features.
    counts : sequence of int, default=(100,)
        One view of word counts per entry, named ``counts_0``, ...: its vocabulary. Its matrix is CSR.
    missing : float, default=0.2
        Chance that a view is missing (has no instance) for a bag.
    at_least_one : bool, default=True
        Whether every bag keeps a view; a bag that would lose all keeps one at random.
    min_size, max_size, cardinality, noise, random_state
        See `bagwise.datasets.make_miml`; sizes are those of a bag within one view.
    separation : float, default=3.0
        Distance of a label's cluster from the background in continuous views. In count views background
        is the uniform distribution over words and a label's distribution is Dirichlet, mostly a few words.
    words : int, default=15
        Mean number of words per instance of a count view; at least one.

    Returns
    -------
    Dataset
        With `MultiViewBags` and ``instance_Y`` as a mapping view -> labels.

    Examples
    --------
    >>> data = make_multi_view(n_bags=30, missing=0.5)
    >>> data.bags.view_names
    ('gaussian_0', 'counts_0')
    >>> bool(data.bags.present.any(axis=1).all()), bool(data.bags.present.all())
    (True, False)
    """
    check_range(min_size, max_size)
    check_share(noise=noise, missing=missing)
    if not gaussian and not counts:
        raise ValueError("make_multi_view needs at least one view; give gaussian=(16,) or counts=(100,)")
    rng = generator(random_state)
    Y = draw_label_sets(rng, n_bags, n_labels, cardinality)
    widths = {f"gaussian_{k}": d for k, d in enumerate(gaussian)}
    widths |= {f"counts_{k}": d for k, d in enumerate(counts)}
    present = _present(rng, n_bags, len(widths), missing, at_least_one)
    ids = bag_names(n_bags)
    views, truth = {}, {}
    for k, (name, width) in enumerate(widths.items()):
        sizes = draw_sizes(rng, min_size, max_size, Y.sum(axis=1)) * present[:, k]
        labels, offsets = draw_roles(rng, Y, sizes, noise)
        if k < len(gaussian):
            X: Any = gaussian_instances(rng, draw_centres(rng, n_labels, width, separation), labels)
        else:
            X = _count_instances(rng, labels, n_labels, width, words)
        views[name] = Bags(X, offsets, bag_ids=ids)
        truth[name] = labels
    return Dataset(
        MultiViewBags(views),
        Y,
        instance_Y=truth,
        name="multi_view",
        description="Generated. Continuous and count views of the same bags, a share of views missing.",
        licence="none needed: generated numbers",
    )


def _present(
    rng: np.random.Generator, n_bags: int, n_views: int, missing: float, at_least_one: bool
) -> np.ndarray:
    lots = rng.random((n_bags, n_views))
    present = lots >= missing
    if at_least_one:
        lost = np.flatnonzero(~present.any(axis=1))
        present[lost, lots[lost].argmax(axis=1)] = True
    return present


def _count_instances(
    rng: np.random.Generator, labels: np.ndarray, n_labels: int, width: int, words: int
) -> sparse.csr_array:
    """Multinomial counts; each label prefers words of its own, background takes all words alike."""
    lengths = np.maximum(rng.poisson(words, len(labels)), 1)
    tables = np.vstack([rng.dirichlet(np.full(width, 0.1), n_labels), np.full((1, width), 1.0 / width)])
    owner = np.repeat(np.arange(len(labels)), lengths)
    label_of_word = labels[owner]
    drawn = np.empty(len(owner), dtype=np.int32)
    for label in range(-1, n_labels):
        chosen = np.flatnonzero(label_of_word == label)
        drawn[chosen] = rng.choice(width, size=len(chosen), p=tables[label])
    ones = np.ones(len(owner), dtype=np.float32)
    return sparse.csr_array(sparse.coo_array((ones, (owner, drawn)), shape=(len(labels), width)))
