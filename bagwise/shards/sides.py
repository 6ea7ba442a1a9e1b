"""Which bags of shards are for testing: drawn within every part, or by the names of groups."""

from __future__ import annotations

import hashlib

import numpy as np

__all__ = ["side_at_random", "side_of_groups"]


def side_at_random(n_bags: int, test_size: float, seed: list[int]) -> np.ndarray:
    """Mask of test bags of a part; their number is right on the average over parts.

    Examples
    --------
    >>> int(side_at_random(100, 0.3, [0, 1]).sum())
    30
    """
    rng = np.random.default_rng(seed)
    test = np.zeros(n_bags, dtype=bool)
    wanted = test_size * n_bags
    n_test = int(wanted) + int(rng.random() < wanted - int(wanted))
    test[rng.permutation(n_bags)[:n_test]] = True
    return test


def side_of_groups(names: list[str], test_size: float, seed: int) -> np.ndarray:
    """Mask of test bags; a group's side depends on its name alone, so that no part need know another.

    Examples
    --------
    >>> side_of_groups(["site 1", "site 2", "site 1"], 0.5, 0)[[0, 2]].tolist() in ([True] * 2, [False] * 2)
    True
    """
    drawn = {name: _share(name, seed) for name in set(names)}
    return np.array([drawn[name] < test_size for name in names], dtype=bool)


def _share(name: str, seed: int) -> float:
    """A number from 0 to 1 that depends on a name and a seed alone."""
    drawn = hashlib.blake2b(name.encode(), digest_size=8, salt=str(seed).encode()[:16]).digest()
    return int.from_bytes(drawn, "little") / 2.0**64
