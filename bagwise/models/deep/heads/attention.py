"""Gated attention per label in additive form: what the instances say adds up to the score of the bag."""

from __future__ import annotations

from torch import nn

from bagwise.compute.torch_ops import attended, gated, segment_softmax

_BLOCK = 64


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
        # V, U and w above each other make one product; cards are quick for widths of whole blocks only.
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
