"""The network of one member: scaled instances, an encoder, a head that makes bags of encoded instances.

A head is a ``torch.nn.Module`` made with ``(width, n_labels, pooling)``:

- ``forward(H, at)``: scores (n_bags, n_labels) from encoded instances ``H`` (n_instances, width); ``at``
  holds the offsets of the bags and the bag number of every instance;
- ``instances(H, at)``: what each instance says for each label (n_instances, n_labels), and ``alone(H, at)``:
  the score that a bag of this instance alone would get. `bagwise.models.DeepMIML` says what the first means
  for each head.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from bagwise.compute.torch_ops import (
    attended,
    gated,
    linear_relu,
    segment_logsumexp,
    segment_max,
    segment_mean,
    segment_softmax,
)

_BLOCK = 64  # columns that the products of GPUs take at a time
_PER_LABEL = 4  # prototypes
_N_HEADS, _INDUCING = 4, 16  # of the set transformer


class Plan(NamedTuple):
    """What a network is made of; weights are kept apart, as arrays."""

    head: str
    pooling: str
    n_features: int
    n_labels: int
    hidden: int
    depth: int
    dropout: float


class Network(nn.Module):
    """Encoder (``depth`` layers of ``hidden`` units) and head."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        widths = [plan.n_features] + [plan.hidden] * plan.depth
        self.encoder = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths[:-1], widths[1:]))
        self.dropout = plan.dropout
        self.head = HEADS[plan.head](plan.hidden, plan.n_labels, plan.pooling)

    def forward(self, X, at):
        """Scores of bags: (n, n_features) to (n_bags, n_labels)."""
        return self.head(self.encode(X), at)

    def encode(self, X):
        """Encodings of instances (n, hidden)."""
        for layer in self.encoder:
            X = linear_relu(X, layer.weight, layer.bias, self.dropout if self.training else 0.0)  # type: ignore[arg-type]
        return X

    def instances(self, X, at):
        """What every instance says for every label."""
        return self.head.instances(self.encode(X), at)

    def alone(self, X, at):
        """Score that a bag of each instance alone would get."""
        return self.head.alone(self.encode(X), at)


def weights_of(network: nn.Module) -> dict[str, np.ndarray]:
    """Weights as plain arrays, for files that hold no code."""
    return {name: value.detach().float().cpu().numpy().copy() for name, value in network.state_dict().items()}


def take_weights(network: nn.Module, weights: dict[str, np.ndarray]) -> None:
    """Go on from what `weights_of` gave."""
    network.load_state_dict({name: torch.as_tensor(np.array(value)) for name, value in weights.items()})


def network_with(plan: Plan, weights: dict[str, np.ndarray], device: Any, dtype: Any) -> Network:
    """The network of a plan with given weights, ready to predict."""
    with torch.random.fork_rng(devices=[]):
        network = Network(plan)
    take_weights(network, weights)
    return network.to(device=device, dtype=dtype).eval()


class GatedAttention(nn.Module):
    r"""Weighted sum of scores of instances, weights and scores per label.

    Notes
    -----
    .. math::

        a_{il} = softmax_{i \in b}(u_l \cdot (\tanh(V h_i) \odot \sigma(U h_i))), \quad
        s_{il} = w_l \cdot h_i + b_l, \quad z_l = \sum_{i \in b} a_{il} s_{il}

    (gated attention of Ilse, Tomczak, Welling 2018, per label, with the classifier before the sum as in
    additive MIL of Javed et al. 2022). What an instance says is its contribution :math:`a_{il} s_{il}`; a
    weight alone is no explanation, since a weight may rest on an instance that speaks against the label.
    """

    def __init__(self, width: int, n_labels: int, pooling: str) -> None:
        super().__init__()
        self.inner, self.n_labels = max(width // 2, 8), n_labels
        self.used = 2 * self.inner + n_labels
        # V, U and w above each other make one product; GPUs are quick for widths of whole blocks only.
        self.project = nn.Linear(width, -(-self.used // _BLOCK) * _BLOCK)
        self.weights = nn.Linear(self.inner, n_labels, bias=False)

    def forward(self, H, at):
        """Scores of bags: (n, width) to (n_bags, n_labels)."""
        logits, scores = self._logits_and_scores(H)
        return attended(logits, scores, at)

    def instances(self, H, at):
        """Contribution of every instance to the score of its bag."""
        logits, scores = self._logits_and_scores(H)
        return segment_softmax(logits, at) * scores

    def _logits_and_scores(self, H):
        """Of attention and of every instance; a processor leaves out columns that only fill the block."""
        rows = slice(None) if H.is_cuda else slice(self.used)
        projected = nn.functional.linear(H, self.project.weight[rows], self.project.bias[rows])
        gates, scores = gated(projected, self.inner, self.n_labels)
        return self.weights(gates).to(scores.dtype), scores

    def alone(self, H, at):
        """Score of a bag of one instance: its weight is 1."""
        rows = slice(2 * self.inner, self.used)
        return nn.functional.linear(H, self.project.weight[rows], self.project.bias[rows])


class InstancePooling(nn.Module):
    r"""Bags from probabilities of instances, :math:`p_{il} = \sigma(w_l \cdot h_i + b_l)`.

    Notes
    -----
    ``linear``: :math:`P_l = \sum_i p_{il}^2 / \sum_i p_{il}` (linear softmax). ``power``:
    :math:`P_l = \sum_i p_{il}^{1 + n_l} / \sum_i p_{il}^{n_l}` with a learned :math:`n_l > 0`: 0 is the mean,
    infinity the maximum. The score is the log-odds of :math:`P_l`. What an instance says are its own
    log-odds.
    """

    def __init__(self, width: int, n_labels: int, pooling: str) -> None:
        super().__init__()
        self.scores = nn.Linear(width, n_labels)
        # softplus of it, which begins as 1
        self.power = nn.Parameter(torch.full((n_labels,), 0.54)) if pooling == "power" else None

    def forward(self, H, at):
        """Scores of bags: (n, width) to (n_bags, n_labels)."""
        S = self.alone(H, at)
        S = S.to(torch.promote_types(S.dtype, torch.float32))
        log_p, log_q = nn.functional.logsigmoid(S), nn.functional.logsigmoid(-S)
        n = 1.0 if self.power is None else nn.functional.softplus(self.power)
        # log-odds of the weighted mean, from sums of logarithms: P near 0 or 1 loses no digits
        return segment_logsumexp(n * log_p + log_p, at) - segment_logsumexp(n * log_p + log_q, at)

    def alone(self, H, at):
        """Log-odds of every instance."""
        return self.scores(H)

    instances = alone


class EmbeddingPooling(nn.Module):
    r"""Linear scores of pooled encodings: :math:`z_l = w_l \cdot pool_{i \in b}(h_i) + b_l`.

    Notes
    -----
    ``lse`` is :math:`\log \frac1n \sum_i e^{h_i}`, between mean and maximum. No instance is scored inside a
    bag: what one says is the score that a bag of it alone would get.
    """

    def __init__(self, width: int, n_labels: int, pooling: str) -> None:
        super().__init__()
        self.pooling = pooling
        self.scores = nn.Linear(width * (3 if pooling == "all" else 1), n_labels)

    def forward(self, H, at):
        """Scores of bags: (n, width) to (n_bags, n_labels)."""
        kinds = ("mean", "max", "lse") if self.pooling == "all" else (self.pooling,)
        return self.scores(torch.cat([self._pooled(kind, H, at) for kind in kinds], dim=1))

    def _pooled(self, kind, H, at):
        if kind == "mean":
            return segment_mean(H, at)
        if kind == "max":
            return segment_max(H, at)
        sizes = at.offsets.diff().to(H.dtype)[:, None]
        return segment_logsumexp(H, at) - torch.log(sizes)

    def alone(self, H, at):
        """Score of a bag of one instance: its mean, maximum and log-sum-exp are the instance."""
        return self.scores(torch.cat([H, H, H], dim=1) if self.pooling == "all" else H)

    instances = alone


class Prototypes(nn.Module):
    r"""Cosines between encodings and four learned directions per label.

    Notes
    -----
    :math:`s_{il} = \tau (\log \sum_p e^{\kappa \cos(h_i, c_{lp})}) / \kappa + b_l` with :math:`\kappa = 8`;
    the bag takes the largest of its instances (``max``) or :math:`\log \sum_i e^{s_{il}}` (``lse``). What an
    instance says is :math:`s_{il}`.
    """

    sharpness = 8.0

    def __init__(self, width: int, n_labels: int, pooling: str) -> None:
        super().__init__()
        self.pooling = pooling
        self.n_labels = n_labels
        self.prototypes = nn.Parameter(torch.randn(n_labels * _PER_LABEL, width) / math.sqrt(width))
        self.scale = nn.Parameter(torch.tensor(2.0))  # softplus of it
        self.bias = nn.Parameter(torch.full((n_labels,), -1.0))

    def forward(self, H, at):
        """Scores of bags: (n, width) to (n_bags, n_labels)."""
        S = self.alone(H, at)
        return segment_max(S, at) if self.pooling == "max" else segment_logsumexp(S, at)

    def alone(self, H, at):
        """Score of every instance."""
        H = nn.functional.normalize(H.to(torch.promote_types(H.dtype, torch.float32)), dim=1)
        cosines = H @ nn.functional.normalize(self.prototypes, dim=1).to(H.dtype).T
        near = torch.logsumexp(self.sharpness * cosines.view(len(H), self.n_labels, _PER_LABEL), dim=2)
        scale = 4.0 * nn.functional.softplus(self.scale)
        return scale * (near - math.log(_PER_LABEL)) / self.sharpness + self.bias

    instances = alone


class SetTransformer(nn.Module):
    r"""One block of attention through inducing points (Lee et al. 2019), then `GatedAttention`.

    Notes
    -----
    Sixteen learned points look at the instances of a bag, and the instances look at what those saw: cost
    grows with the number of instances, not its square. Contributions add up as in the head "attention", but
    each belongs to an instance *in this bag*: another bag around it changes it.
    """

    def __init__(self, width: int, n_labels: int, pooling: str) -> None:
        super().__init__()
        heads = _N_HEADS if width % _N_HEADS == 0 else 1
        self.points = nn.Parameter(torch.randn(1, _INDUCING, width) * width**-0.5)
        self.gather = nn.MultiheadAttention(width, heads, batch_first=True)
        self.give = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.mix = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.pool = GatedAttention(width, n_labels, pooling)

    def forward(self, H, at):
        """Scores of bags: (n, width) to (n_bags, n_labels)."""
        return self.pool(self._aware(H, at), at)

    def instances(self, H, at):
        """Contribution of every instance to the score of its bag."""
        return self.pool.instances(self._aware(H, at), at)

    def alone(self, H, at):
        """Score of a bag of one instance."""
        return self.pool.alone(self._block(H[:, None], None)[:, 0], at)

    def _aware(self, H, at):
        """Encodings that know the other instances of their bag; the only place with padding."""
        sizes = at.offsets.diff()
        longest = int(sizes.max())
        place = torch.arange(len(H), device=H.device) - at.offsets[:-1][at.index]
        padded = H.new_zeros(len(sizes), longest, H.shape[1]).index_put((at.index, place), H)
        empty = torch.arange(longest, device=H.device) >= sizes[:, None]
        return self._block(padded, empty)[at.index, place]

    def _block(self, X, empty):
        points = self.points.expand(len(X), -1, -1).to(X.dtype)
        seen = self.norms[0](
            points + self.gather(points, X, X, key_padding_mask=empty, need_weights=False)[0]
        )
        X = self.norms[1](X + self.give(X, seen, seen, need_weights=False)[0])
        return self.norms[2](X + self.mix(X))


HEADS: dict[str, Any] = {
    "attention": GatedAttention,
    "instance": InstancePooling,
    "pool": EmbeddingPooling,
    "prototype": Prototypes,
    "transformer": SetTransformer,
}
