"""A small set transformer: instances look at each other, then gated attention per label."""

from __future__ import annotations

import torch
from torch import nn

from bagwise.models.deep.heads.attention import GatedAttention

_HEADS, _INDUCING = 4, 16


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
        heads = _HEADS if width % _HEADS == 0 else 1
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
