"""What "auto" stands for: pooling, rate, device, precision, bags per step, unions; what is held out."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.compute.devices import torch_device
from bagwise.models._shared.held_out import MultilabelKFold

# How each head may pool, the default first; here, since this file does without torch.
POOLINGS = {
    "attention": ("softmax",),
    "instance": ("linear", "power"),
    "pool": ("all", "mean", "max", "lse"),
    "prototype": ("lse", "max"),
    "transformer": ("softmax",),
}
_FOLDS = 5  # parts of the bags, of which each member sees all but one
_MOST_UNIONS = 10_000  # bags
_LARGE = 100_000  # instances from which products on a GPU are taken in bfloat16
_MANY = 1_000_000  # instances from which steps on a GPU take more bags
_WORTH_A_GPU = 1_000_000  # numbers
_MOST_SPREAD = 100_000  # bags up to which labels are spread evenly over the parts; beyond, chance does it


def chosen_pooling(head: str, pooling: str) -> str:
    """How a head pools; refuses what it does not know.

    Examples
    --------
    >>> chosen_pooling("pool", "auto"), chosen_pooling("pool", "max")
    ('all', 'max')
    """
    kinds = POOLINGS[head]
    if pooling == "auto":
        return kinds[0]
    if pooling not in kinds:
        known = ", ".join(map(repr, kinds))
        raise ValueError(f"pooling={pooling!r}, but the head {head!r} knows {known}")
    return pooling


def chosen_rate(head: str, rate: float | str) -> float:
    """How far a step of a head goes.

    Examples
    --------
    >>> chosen_rate("transformer", "auto"), chosen_rate("pool", "auto"), chosen_rate("pool", 0.01)
    (0.001, 0.006, 0.01)
    """
    if rate == "auto":
        return 1e-3 if head == "transformer" else 6e-3
    return float(rate)


def chosen_device(device: str, n_numbers: float) -> Any:
    """Where to work on so many numbers; "auto" takes a GPU only where its calls cost less than they save."""
    small = device == "auto" and n_numbers < _WORTH_A_GPU
    return torch_device("cpu" if small else device, "DeepMIML")


def chosen_precision(mixed_precision: bool | str, device: Any, n_instances: int) -> bool:
    """Whether products are taken in bfloat16."""
    if mixed_precision == "auto":
        return device.type == "cuda" and n_instances >= _LARGE
    return bool(mixed_precision)


def bags_per_step(batch_size: int | str, device: Any, n_bags: int, n_instances: int) -> int:
    """Bags of a mini-batch."""
    if batch_size != "auto":
        return int(batch_size)
    most = 16_384 if device.type == "cuda" and n_instances >= _MANY else 1024
    return int(np.clip(n_bags // 16, 16, most))


def share_of_unions(unions: float | str, n_bags: int) -> float:
    """Share of the bags that are joined with another one.

    Examples
    --------
    >>> share_of_unions("auto", 100), share_of_unions("auto", 1_000_000), share_of_unions(0.2, 5)
    (0.5, 0.0, 0.2)
    """
    if unions == "auto":
        return 0.5 if n_bags <= _MOST_UNIONS else 0.0
    return float(unions)


def held_out_parts(n_bags: int, n_members: int, rng: Any, labels: Any) -> np.ndarray:
    """Which member every bag is held out by; -1 for all where there are too few bags to hold some out.

    ``labels`` is a function that gives the labels: with very many bags nobody looks at them. There are five
    parts at least, so that members of a small ensemble see four fifths of the bags.

    Examples
    --------
    >>> rng, Y = np.random.RandomState(0), np.eye(2, dtype=np.int8)[np.arange(20) % 2]
    >>> np.bincount(held_out_parts(20, 2, rng, lambda: Y)).tolist()
    [4, 4, 4, 4, 4]
    """
    n_parts = max(n_members, _FOLDS)
    if n_bags < 2 * n_parts:
        return np.full(n_bags, -1)
    seed = rng.randint(2**31 - 1)
    if n_bags > _MOST_SPREAD:
        return np.random.RandomState(seed).permutation(n_bags) % n_parts
    Y = labels()
    parts = np.full(n_bags, -1)
    for k, (_, test) in enumerate(MultilabelKFold(n_parts, random_state=seed).split(Y, np.maximum(Y, 0))):
        parts[test] = k
    return parts
