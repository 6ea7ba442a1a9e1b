"""Speed on a card, beside the processor and beside plain torch, all in one run.

    python benchmarks/gpu.py [attention mimlfast pairs] [--sival sival.npz] [--times 5]

Needs torch and a card; `attention` takes 25 GB of its memory. The best of several runs is printed.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from bagwise import read
from bagwise.datasets import make_msra_like
from bagwise.kernels.torch_ops import Segments
from bagwise.metrics import ranking_loss
from bagwise.models import MIMLFast
from bagwise.models.deep.losses import bag_losses
from bagwise.models.deep.network import Network, Plan
from bagwise.models.distance.hausdorff import hausdorff_distances
from bagwise.models.svm.set_kernel import set_kernel

CARD = torch.device("cuda")


def best(run, times: int) -> float:
    """Seconds of the quickest of some runs, after one that warms up."""
    run()
    found = []
    for _ in range(times):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return min(found)


class PlainAttention(torch.nn.Module):
    """Gated attention as it is usually written: plain layers, softmax over a padded batch."""

    def __init__(self, d: int, hidden: int, n_labels: int) -> None:
        super().__init__()
        self.encoder = torch.nn.Sequential(torch.nn.Linear(d, hidden), torch.nn.ReLU())
        self.V, self.U = torch.nn.Linear(hidden, hidden // 2), torch.nn.Linear(hidden, hidden // 2)
        self.weights, self.scores = torch.nn.Linear(hidden // 2, n_labels), torch.nn.Linear(hidden, n_labels)

    def forward(self, X):
        """Scores of bags (n, n_labels) from (n, size, d)."""
        H = self.encoder(X)
        logits = self.weights(torch.tanh(self.V(H)) * torch.sigmoid(self.U(H)))
        return (torch.softmax(logits.float(), dim=1) * self.scores(H).float()).sum(dim=1)


def attention(times: int) -> None:
    n_bags, size, d, n_labels, batch = 100_000, 100, 512, 10, 16_384
    X = torch.empty((n_bags * size, d), dtype=torch.bfloat16, device=CARD)
    for first in range(0, len(X), 1_000_000):
        X[first : first + 1_000_000] = torch.randn(1_000_000, d, device=CARD)
    Y = (torch.rand(n_bags, n_labels, device=CARD) < 0.2).float()
    ours = Network(Plan("attention", "softmax", d, n_labels, 256, 1, 0.0)).to(CARD)
    plain = PlainAttention(d, 256, n_labels).to(CARD)

    def one_pass(scores, network):
        optimiser = torch.optim.AdamW(network.parameters(), fused=True)
        for a in range(0, n_bags, batch):
            b = min(a + batch, n_bags)
            optimiser.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16):
                Z = scores(a, b)
            bag_losses("bce", Z.float(), Y[a:b]).mean().backward()
            optimiser.step()

    def flat(a, b):
        return ours(X[a * size : b * size], Segments.of(np.arange(0, (b - a) * size + 1, size), CARD))

    mine = best(lambda: one_pass(flat, ours), times)
    theirs = best(
        lambda: one_pass(lambda a, b: plain(X[a * size : b * size].view(b - a, size, d)), plain), times
    )
    print(
        "attention, one pass over 100,000 bags x 100 x 512 (bf16): "
        f"{1e3 * mine:.1f} ms, plain torch {1e3 * theirs:.1f} ms"
    )


def mimlfast(times: int) -> None:
    data = make_msra_like(n_bags=33_000, random_state=0)
    bags = data.bags.with_X(data.bags.X.astype(np.float32))
    train, test = slice(0, 30_000), slice(30_000, None)
    for device in ("cuda", "cpu"):
        model = MIMLFast(device=device, random_state=0, n_jobs=-1)
        seconds = best(
            lambda model=model: model.fit(bags[train], data.Y[train]), times if device == "cuda" else 1
        )
        loss = ranking_loss(data.Y[test], model.decision_function(bags[test]))
        print(
            f"MIMLFast, {bags[train].shape} bags x features, whole fit, {device}: "
            f"{seconds:.2f} s, loss {loss:.4f}"
        )


def pairs(times: int, path: str | None) -> None:
    if path:
        bags = read(path).bags
        X, offsets = np.asarray(bags.X, dtype=np.float64), np.asarray(bags.offsets)
    else:
        rng = np.random.default_rng(0)
        X, offsets = rng.normal(size=(47_355, 30)), np.linspace(0, 47_355, 1501).astype(np.int64)
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)
    W, gamma = np.ones(len(X)), 1.0 / X.shape[1]
    card = torch.as_tensor(X, dtype=torch.float32).to(CARD)
    index = torch.as_tensor(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))).to(CARD)

    def plain():
        sums = []
        for first in range(0, len(card), 4096):
            K = torch.exp(-gamma * torch.cdist(card[first : first + 4096], card).square_())
            out = torch.zeros(len(offsets) - 1, len(K), device=CARD)
            sums.append(out.index_add_(0, index, K.T.contiguous()))
        whole = torch.zeros(len(offsets) - 1, len(offsets) - 1, device=CARD)
        return whole.index_add_(0, index, torch.cat(sums, dim=1).T.contiguous())

    mine = best(lambda: set_kernel(X, offsets, W, gamma=gamma, device="cuda"), times)
    here = best(lambda: set_kernel(X, offsets, W, gamma=gamma), 1)
    print(
        f"set kernel, {len(offsets) - 1} bags, {len(X)} instances: card {1e3 * mine:.1f} ms with transfers, "
        f"plain torch {1e3 * best(plain, times):.1f} ms without, processor {here:.1f} s"
    )
    mine = best(lambda: hausdorff_distances(X, offsets, kind="average", device="cuda"), times)
    here = best(lambda: hausdorff_distances(X, offsets, kind="average"), 1)
    print(
        f"Hausdorff (average), the same bags: card {1e3 * mine:.1f} ms with transfers, processor {here:.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["attention", "mimlfast", "pairs"])
    parser.add_argument("--sival")
    parser.add_argument("--times", type=int, default=5)
    arguments = parser.parse_args()
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    for what in arguments.what:
        if what == "pairs":
            pairs(arguments.times, arguments.sival)
        else:
            {"attention": attention, "mimlfast": mimlfast}[what](arguments.times)


if __name__ == "__main__":
    main()
