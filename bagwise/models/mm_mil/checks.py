"""Training bags that say the opposite of each other."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from bagwise.base.blocks import Block, Blocks, gathered
from bagwise.compute.memo import remembered
from bagwise.compute.parts import map_parts
from bagwise.errors import quoted, warn


def warn_of_contradictions(blocks: Blocks) -> None:
    """Warn if bags with the same instances, in whatever order, carry different labels."""
    digests = np.concatenate(list(map_parts(_fingerprints, None, blocks)))
    _, first, which = np.unique(digests, return_index=True, return_inverse=True)
    Y = blocks.labels()[0]
    others = first[which]
    differs = (Y[others] != Y).any(axis=1)
    if not differs.any():
        return
    pair = np.array([others[differs.argmax()], differs.argmax()])
    one, other = (quoted(i) for i in gathered(blocks, pair, 1).bags.bag_ids)
    warn(
        f"{len(np.unique(others[differs]))} bags occur again with other labels "
        f"(first: bags {one} and {other}), of {len(first)} distinct bags among {len(Y)}; no model can "
        "satisfy both, and random splits will leak: merge the copies or drop them",
        UserWarning,
    )


def _fingerprints(_: None, block: Block) -> np.ndarray:
    return _of_bags(block.bags.X, block.bags.offsets)


@remembered
def _of_bags(X: Any, offsets: np.ndarray) -> np.ndarray:
    """What the set of instances of each bag comes to, in 16 bytes."""
    if hasattr(X, "indptr"):
        X = X.copy()
        X.sort_indices()
        X.eliminate_zeros()
        keys = [X.indices[a:b].tobytes() + X.data[a:b].tobytes() for a, b in zip(X.indptr[:-1], X.indptr[1:])]
    else:
        X = np.ascontiguousarray(X + 0.0)  # -0.0 becomes 0.0
        keys = [row.tobytes() for row in X]
    found = [_digest(sorted(keys[a:b])) for a, b in zip(offsets[:-1], offsets[1:])]
    return np.array(found, dtype="S16")


def _digest(keys: list[bytes]) -> bytes:
    total = hashlib.blake2b(digest_size=16)
    for key in keys:
        total.update(len(key).to_bytes(8, "little") + key)
    return total.digest()
