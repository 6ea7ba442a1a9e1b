"""Generated bags of Gaussian clusters, in one view or several, with known instance labels.

In all sets an instance that causes no label (background) has the instance label -1, and every label of a
bag has at least one instance that carries it: the standard assumption holds exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import ndtri

from bagwise.bags import Bags, MultiViewBags
from bagwise.bags.dataset import Dataset
from bagwise.datasets.draws import (
    BACKGROUND,
    bag_names,
    check_range,
    check_share,
    described,
    draw_centres,
    draw_label_sets,
    draw_roles,
    draw_sizes,
    gaussian_instances,
    generator,
    shuffle_within,
    to_offsets,
)


def make_miml(
    n_bags: int = 300,
    n_labels: int = 6,
    n_features: int = 20,
    *,
    min_size: int = 3,
    max_size: int = 10,
    cardinality: float = 2.0,
    skew: float = 0.5,
    noise: float = 0.2,
    separation: float = 4.0,
    random_state: Any = 0,
) -> Dataset:
    """Bags shaped like a public multi-instance multi-label set: one Gaussian cluster per label.

    Parameters
    ----------
    n_bags, n_labels, n_features : int
        Shape of the set.
    min_size, max_size : int
        Range of the number of instances per bag; a bag with more labels than that grows by the difference.
    cardinality : float, default=2.0
        Mean number of labels per bag.
    skew : float, default=0.5
        Popularity of labels: the weight of the k-th is ``k ** -skew``; 0 makes all alike.
    noise : float, default=0.2
        Chance that an instance which no label needs is background.
    separation : float, default=4.0
        Distance of a label's cluster from the background, in standard deviations.
    random_state : int, Generator or None, default=0
        Seed.

    Returns
    -------
    Dataset
        With ``instance_Y``; -1 marks background. Instances are float32.

    Examples
    --------
    >>> make_miml(n_bags=50, n_labels=4, n_features=5, min_size=4, max_size=4)
    Dataset('miml': Bags(50 bags, 200 instances, 5 features, dense float32), 4 labels, instance labels known)
    """
    check_range(min_size, max_size)
    check_share(noise=noise)
    rng = generator(random_state)
    Y = draw_label_sets(rng, n_bags, n_labels, cardinality, skew)
    labels, offsets = draw_roles(rng, Y, draw_sizes(rng, min_size, max_size, Y.sum(axis=1)), noise)
    centres = draw_centres(rng, n_labels, n_features, separation)
    X = gaussian_instances(rng, centres, labels)
    return described("miml", X, offsets, Y, labels, "One Gaussian cluster per label and one of background.")


def make_sub_concepts(
    n_bags: int = 300,
    n_labels: int = 5,
    n_sub: int = 3,
    n_features: int = 10,
    *,
    min_size: int = 3,
    max_size: int = 8,
    cardinality: float = 1.5,
    noise: float = 0.2,
    separation: float = 5.0,
    random_state: Any = 0,
) -> Dataset:
    """Labels that look different from case to case: ``n_sub`` Gaussian clusters per label.

    The clusters of a label have their mean at the origin, where the background lies, so a single
    direction per label cannot tell its instances from background: one needs sub-concepts.

    Parameters
    ----------
    n_bags, n_labels, n_features : int
        Shape of the set.
    n_sub : int, default=3
        Sub-concepts (clusters) per label.
    min_size, max_size, cardinality, noise, random_state
        See `make_miml`.
    separation : float, default=5.0
        Root mean square distance of a label's clusters from the background, in standard deviations.

    Returns
    -------
    Dataset
        With ``instance_Y``, and ``bags.instance_info["sub_concept"]``: 0 to ``n_sub - 1``, -1 for background.

    Examples
    --------
    >>> data = make_sub_concepts(n_bags=40, n_sub=2)
    >>> sorted(set(data.bags.instance_info["sub_concept"].tolist()))
    [-1, 0, 1]
    """
    check_range(min_size, max_size)
    check_share(noise=noise)
    rng = generator(random_state)
    Y = draw_label_sets(rng, n_bags, n_labels, cardinality)
    labels, offsets = draw_roles(rng, Y, draw_sizes(rng, min_size, max_size, Y.sum(axis=1)), noise)
    sub = np.where(labels == BACKGROUND, BACKGROUND, rng.integers(0, n_sub, len(labels)))
    centres = draw_centres(rng, n_labels * n_sub, n_features, separation)
    if n_sub > 1:
        by_label = centres.reshape(n_labels, n_sub, n_features)
        by_label -= by_label.mean(axis=1, keepdims=True)
        by_label *= separation / np.sqrt((by_label**2).sum(axis=2).mean(axis=1))[:, None, None]
    which = np.where(labels == BACKGROUND, BACKGROUND, labels * n_sub + sub)
    X = gaussian_instances(rng, centres, which)
    about = f"{n_sub} Gaussian clusters per label, centred on the background."
    return described("sub_concepts", X, offsets, Y, labels, about, {"sub_concept": sub})


def make_correlated_labels(
    n_bags: int = 500,
    n_labels: int = 10,
    n_features: int = 20,
    *,
    correlation: float = 0.8,
    n_topics: int = 2,
    min_size: int = 3,
    max_size: int = 8,
    cardinality: float = 2.5,
    noise: float = 0.2,
    separation: float = 2.0,
    random_state: Any = 0,
) -> Dataset:
    """Labels that occur together more often than their popularity explains.

    A label is on where a latent Gaussian exceeds a threshold. The latent values of a bag share
    ``n_topics`` hidden factors with weight ``correlation``; the thresholds alone fix how popular each
    label is, so ``correlation=0`` gives independent labels of the same popularity to compare with.

    Parameters
    ----------
    n_bags, n_labels, n_features : int
        Shape of the set.
    correlation : float, default=0.8
        Share of the latent variance that the hidden factors explain, 0 to 1.
    n_topics : int, default=2
        Number of hidden factors; fewer make labels depend on each other more.
    min_size, max_size, noise, random_state
        See `make_miml`.
    cardinality : float, default=2.5
        Mean number of labels per bag. Bags without any label do occur; they hold background alone.
    separation : float, default=2.0
        Distance of a label's cluster from the background: small, so that knowing other labels helps.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> import numpy as np
    >>> def strongest(data):
    ...     C = np.corrcoef(data.Y.T)
    ...     return float(abs(C - np.eye(len(C))).max())
    >>> strongest(make_correlated_labels(2000)) > 3 * strongest(make_correlated_labels(2000, correlation=0))
    True
    """
    check_range(min_size, max_size)
    check_share(noise=noise, correlation=correlation)
    if not 0 < cardinality < n_labels:
        raise ValueError(f"cardinality must lie between 0 and n_labels={n_labels}, got {cardinality}")
    rng = generator(random_state)
    loadings = rng.standard_normal((n_topics, n_labels))
    loadings /= np.linalg.norm(loadings, axis=0)  # unit variance whatever the number of factors
    factors = rng.standard_normal((n_bags, n_topics))
    own = rng.standard_normal((n_bags, n_labels))
    latent = np.sqrt(correlation) * (factors @ loadings) + np.sqrt(1.0 - correlation) * own
    # frequencies fall from the first to the last label and add up to the cardinality
    popularity = np.clip(np.linspace(1.5, 0.5, n_labels) * cardinality / n_labels, 1e-6, 0.95)
    Y = (latent > -ndtri(popularity)).astype(np.int8)
    labels, offsets = draw_roles(rng, Y, draw_sizes(rng, min_size, max_size, Y.sum(axis=1)), noise)
    centres = draw_centres(rng, n_labels, n_features, separation)
    X = gaussian_instances(rng, centres, labels)
    about = "Label sets from a latent Gaussian of low rank; one Gaussian cluster per label."
    return described("correlated_labels", X, offsets, Y, labels, about)


def make_multi_target(
    n_bags: int = 200,
    n_targets: int = 3,
    n_features: int = 10,
    *,
    min_size: int = 3,
    max_size: int = 10,
    positive: float = 0.5,
    separation: float = 5.0,
    random_state: Any = 0,
) -> Dataset:
    """Binary bags: a positive bag holds exactly one instance of one of several targets.

    Parameters
    ----------
    n_bags, n_features : int
        Shape of the set.
    n_targets : int, default=3
        Number of target clusters; any of them makes a bag positive.
    min_size, max_size : int
        Range of the number of instances per bag.
    positive : float, default=0.5
        Share of positive bags, met exactly up to rounding.
    separation : float, default=5.0
        Distance of targets from the background, in standard deviations.
    random_state : int, Generator or None, default=0
        Seed.

    Returns
    -------
    Dataset
        One label, "positive"; ``instance_Y`` is 0 for target instances and -1 for background;
        ``bags.instance_info["target"]`` says which target (-1: none).

    Examples
    --------
    >>> data = make_multi_target(n_bags=20)
    >>> int(data.Y.sum()), int((data.instance_Y == 0).sum())
    (10, 10)
    """
    check_range(min_size, max_size)
    check_share(positive=positive)
    rng = generator(random_state)
    y = np.zeros(n_bags, dtype=np.int8)
    y[rng.permutation(n_bags)[: round(positive * n_bags)]] = 1
    sizes = draw_sizes(rng, min_size, max_size, n_bags=n_bags)
    offsets = to_offsets(sizes)
    first = shuffle_within(rng, np.repeat(np.arange(n_bags), sizes))[offsets[:-1]]  # one instance of each bag
    target = np.full(offsets[-1], BACKGROUND, dtype=np.int64)
    target[first[y == 1]] = rng.integers(0, n_targets, int(y.sum()))
    centres = draw_centres(rng, n_targets, n_features, separation)
    X = gaussian_instances(rng, centres, target)
    truth = np.where(target == BACKGROUND, BACKGROUND, 0)
    about = f"A positive bag holds one instance of one of {n_targets} targets."
    return described("multi_target", X, offsets, y[:, None], truth, about, {"target": target}, ("positive",))


# ----------------------------------------------------------------------
# Generated bags seen in several ways: continuous views, views of counts, and views that are missing


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
