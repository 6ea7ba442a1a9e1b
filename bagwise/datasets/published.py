"""Generated sets of published sizes: that of the largest set of MIMLfast, and those of MIMLmix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from bagwise.bags import Bags, MultiViewBags
from bagwise.bags.dataset import Dataset
from bagwise.datasets.draws import (
    BACKGROUND,
    bag_names,
    check_share,
    draw_centres,
    draw_roles,
    generator,
    to_offsets,
)

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
    centres = draw_centres(rng, first[-1], n_latent, separation)
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
    centres = np.vstack([centres, np.zeros((1, n_latent), dtype=np.float32)])
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


# ----------------------------------------------------------------------
# Generated sets of the sizes on which MIMLmix was published, with labels that go together


@dataclass(frozen=True)
class _View:
    name: str
    per_bag: float  # mean number of instances per bag
    width: int  # words or features
    words: float  # mean number of words per instance; 1: single words; 0: continuous
    noise: float  # share of words drawn from a distribution that all labels share
    focus: float  # concentration of a label's words (small: few words); distance of clusters if continuous


_SIZES: dict[str, tuple[int, int, int, float, tuple[_View, ...]]] = {
    # bags, labels, groups of labels, mean labels per bag, views
    "citeseer": (
        9719,
        500,
        50,
        3.1,
        (_View("content", 35.7, 2000, 1, 0.6, 0.03), _View("citations", 48.3, 2000, 1, 0.7, 0.03)),
    ),
    "imageclef": (
        1000,
        78,
        12,
        4.5,
        (_View("visual", 18.4, 1000, 75, 0.95, 0.1), _View("textual", 2.6, 806, 1, 0.2, 0.01)),
    ),
    "iaprtc": (4500, 244, 30, 3.3, (_View("regions", 5.09, 28, 0, 0.0, 3.5),)),
}


def make_mimlmix_like(
    size: str = "citeseer",
    n_bags: int | None = None,
    *,
    correlation: float = 0.95,
    missing: float = 0.0,
    noise: Mapping[str, float] | None = None,
    random_state: Any = 0,
) -> Dataset:
    """Bags drawn from the model of MIMLmix: topics give labels, labels give the instances of every view.

    Parameters
    ----------
    size : {"citeseer", "imageclef", "iaprtc"}, default="citeseer"
        Two views of single words (500 labels); a view of count vectors and one of single words (78 labels);
        one continuous view (244 labels). Numbers of labels, features and instances per bag are the published
        ones.
    n_bags : int, optional
        Number of bags; by default that of one published training set.
    correlation : float, default=0.95
        Chance that a label comes from the bag's group of labels rather than from overall popularity. At 0
        popularity is all that label sets can teach.
    missing : float, default=0.0
        Share of bags that lack one of their two views, either with equal chance; a bag never lacks both.
    noise : dict of view to float, optional
        Share of a count view's words that come from a distribution that all labels share, for views that are
        to be easier or harder than by default.
    random_state : int, Generator or None, default=0
        Seed.

    Returns
    -------
    Dataset
        With `MultiViewBags` for two views and `Bags` for one; ``instance_Y`` is the label that an instance
        was drawn from.

    Examples
    --------
    >>> make_mimlmix_like("imageclef", 50).bags.view_names
    ('visual', 'textual')
    >>> make_mimlmix_like("iaprtc", 50).bags.n_features
    28
    """
    if size not in _SIZES:
        raise ValueError(f"size must be one of {', '.join(_SIZES)}, got {size!r}")
    check_share(
        correlation=correlation, missing=missing, **{f"noise of {v}": x for v, x in (noise or {}).items()}
    )
    default, _, _, cardinality, _ = _SIZES[size]
    n_bags = default if n_bags is None else n_bags
    rng = generator(random_state)
    # Labels, words and clusters come before anything whose number depends on n_bags: two calls with the same
    # seed and other numbers of bags describe the same world.
    views, preference, worlds = _draw_worlds(rng, size, noise or {})
    Y = _draw_labels(rng, n_bags, preference, cardinality, correlation)
    absent = np.full(n_bags, -1)
    if len(views) > 1:
        absent = np.where(rng.random(n_bags) < missing, rng.integers(0, len(views), n_bags), -1)
    shares = rng.standard_gamma(1.0, Y.shape) * Y  # theta_n ~ Dir(1) over the bag's labels
    shares = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    ids = bag_names(n_bags)
    made, truth = {}, {}
    for v, (view, world) in enumerate(zip(views, worlds)):
        sizes = 1 + rng.poisson(view.per_bag - 1, n_bags)
        labels_of, X = _draw_instances(rng, view, world, shares, np.where(absent == v, 0, sizes))
        offsets = to_offsets(np.where(absent == v, 0, sizes))
        made[view.name] = Bags(X, offsets, bag_ids=ids)
        truth[view.name] = labels_of
    single = len(views) == 1
    return Dataset(
        made[views[0].name] if single else MultiViewBags(made),
        Y,
        instance_Y=truth[views[0].name] if single else truth,
        name="mimlmix_like",
        description="Generated from topics over labels and labels over instances, at a published size.",
        licence="none needed: generated numbers",
    )


def _draw_worlds(
    rng: np.random.Generator, size: str, noise: Mapping[str, float]
) -> tuple[list[_View], np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """Views, label preferences of the groups and what labels look like in every view."""
    _, n_labels, n_groups, _, known = _SIZES[size]
    counts = [view.name for view in known if view.words]
    for name in noise:
        if name not in counts:
            raise ValueError(f"noise names {name!r}; the count views of {size!r} are {counts}")
    views = [replace(view, noise=noise.get(view.name, view.noise)) for view in known]
    preference = _group_preferences(rng, n_labels, n_groups)
    return views, preference, [_draw_world(rng, view, n_labels) for view in views]


def _group_preferences(rng: np.random.Generator, n_labels: int, n_groups: int) -> np.ndarray:
    """How likely each group takes each label; a label belongs to one group, at times to a second one."""
    home = rng.permutation(np.arange(n_labels) % n_groups)
    second = rng.integers(0, n_groups, n_labels)
    preference = np.zeros((n_groups, n_labels))
    weight = rng.dirichlet(np.full(n_labels, 1.0))  # labels differ in popularity, groups do not
    preference[home, np.arange(n_labels)] += weight
    also = rng.random(n_labels) < 0.2
    preference[second[also], np.flatnonzero(also)] += 0.5 * weight[also]
    return preference / preference.sum(axis=1, keepdims=True)


def _draw_labels(
    rng: np.random.Generator, n_bags: int, preference: np.ndarray, cardinality: float, correlation: float
) -> np.ndarray:
    group = rng.integers(0, len(preference), n_bags)
    wanted = 1 + rng.poisson(cardinality - 1.0, n_bags)
    weights = correlation * preference[group] + (1.0 - correlation) * preference.mean(axis=0)
    with np.errstate(divide="ignore"):
        keys = np.log(weights) + rng.gumbel(size=weights.shape)  # the best k: k labels without replacement
    rank = np.argsort(np.argsort(-keys, axis=1), axis=1)
    return ((rank < wanted[:, None]) & (weights > 0)).astype(np.int8)


def _draw_world(rng: np.random.Generator, view: _View, n_labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Word distributions (labels, then the shared one) as cumulative sums, or centres and mixing matrices."""
    if view.words == 0:
        centres = rng.standard_normal((n_labels, view.width)) * view.focus / np.sqrt(view.width)
        mixing = np.eye(view.width) + 0.15 * rng.standard_normal((n_labels, view.width, view.width))
        return centres, mixing
    shared = rng.dirichlet(np.full(view.width, 0.5))
    own = rng.dirichlet(np.full(view.width, view.focus), n_labels)
    words = (1.0 - view.noise) * own + view.noise * shared
    return np.cumsum(words / words.sum(axis=1, keepdims=True), axis=1), shared


def _draw_instances(
    rng: np.random.Generator,
    view: _View,
    world: tuple[np.ndarray, np.ndarray],
    shares: np.ndarray,
    sizes: Any,
) -> tuple[np.ndarray, Any]:
    bag = np.repeat(np.arange(len(sizes)), sizes)
    labels = _invert(shares, bag, rng.random(len(bag)))
    if view.words == 0:
        centres, mixing = world
        X = np.einsum("nij,nj->ni", mixing[labels], rng.standard_normal((len(bag), view.width)))
        return labels, (X + centres[labels]).astype(np.float32)
    lengths = np.ones(len(bag), dtype=np.int64)
    if view.words > 1:
        lengths += rng.poisson(view.words - 1, len(bag))
    owner = np.repeat(np.arange(len(bag)), lengths)
    word = _invert(world[0], labels[owner], rng.random(len(owner)))
    ones = np.ones(len(owner), dtype=np.float32)
    return labels, sparse.csr_array(sparse.coo_array((ones, (owner, word)), shape=(len(bag), view.width)))


def _invert(cumulative: np.ndarray, row: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Draw a column from the distribution of each given row: all rows lie end to end, one search for all."""
    width = cumulative.shape[1]
    line = (cumulative / cumulative[:, -1:] + np.arange(len(cumulative))[:, None]).ravel()
    found = np.searchsorted(line, row + np.minimum(u, 1.0 - 1e-9), side="right") - row * width
    return found.clip(0, width - 1)
