"""One head per file: what turns encoded instances into scores of bags.

A head is a ``torch.nn.Module`` made with ``(width, n_labels, pooling, rng)`` and two methods:

- ``forward(H, at)``: scores (n_bags, n_labels) from encoded instances ``H`` (n_instances, width); ``at``
  holds the offsets of the bags and the bag number of every instance;
- ``instances(H, at)``: what each instance says for each label (n_instances, n_labels), and ``alone(H, at)``:
  the score that a bag of this instance alone would get. `bagwise.models.DeepMIML` says what the first means
  for each head.

``POOLINGS`` of a file lists the kinds that it knows, the default first. Heads import torch, so this file does
not import them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

HEADS = {
    "attention": "GatedAttention",
    "instance": "InstancePooling",
    "pool": "EmbeddingPooling",
    "prototype": "Prototypes",
    "transformer": "SetTransformer",
}
POOLINGS = {
    "attention": ("softmax",),
    "instance": ("linear", "power"),
    "pool": ("all", "mean", "max", "lse"),
    "prototype": ("lse", "max"),
    "transformer": ("softmax",),
}


def head_class(name: str) -> Any:
    """The module behind a name; imports torch."""
    return getattr(import_module(f"bagwise.models.deep.heads.{name}"), HEADS[name])
