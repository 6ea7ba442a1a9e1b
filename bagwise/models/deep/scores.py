"""Scores of bags and instances: the mean over the networks of an ensemble."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bagwise.bags import runs
from bagwise.compute.scaling import Scaling
from bagwise.compute.threads import torch_threads
from bagwise.models.deep.feed import Feed
from bagwise.models.deep.network import Plan, network_with

_BLOCK = 1 << 24  # numbers of instances scored at a time


def mean_scores(
    plan: Plan, members: list[Any], scaling: Scaling, bags: Any, what: str, device: Any
) -> np.ndarray:
    """Mean over members of what a network says: "forward", "instances" or "alone".

    Parameters
    ----------
    plan : Plan
        What the networks are made of.
    members : list of dict
        Weights of each.
    scaling : Scaling
        How instances are scaled.
    bags : Bags
        What is scored.
    what : str
        The method of `Network` that is asked.
    device : torch.device
        Where.
    """
    # On the processor in double precision: a bag gets the same score in any company.
    dtype = torch.float64 if device.type == "cpu" else torch.float32
    networks = [network_with(plan, weights, device, dtype) for weights in members]
    out = []
    width = max(plan.n_features, plan.hidden)
    with torch.no_grad(), torch_threads(bags.n_instances * width * plan.hidden):
        for a, b in runs(np.asarray(bags.offsets), max(1, _BLOCK // width)):
            feed = Feed(bags[a:b], scaling, device, dtype=dtype)
            for batch in feed.batches(np.arange(b - a), max(b - a, 1)):
                scores = sum(getattr(network, what)(batch.X, batch.at).double() for network in networks)
                out.append((scores / len(networks)).cpu().numpy())
    return np.concatenate(out)
