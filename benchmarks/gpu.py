"""Speed on a GPU, beside the processor and beside plain torch, all in one run.

    python benchmarks/gpu.py [attention mimlfast mimlfast_large ored estep gp mm_mil pairs] [--sival FILE.npz]

Needs torch and a GPU; `attention` takes 25 GB of its memory, `mimlfast_large` 30 GB of it and 60 GB of the
machine's. The best of several runs is printed.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from miml_gp import generated

from bagwise import Bags, read
from bagwise.base.blocks import Block
from bagwise.compute.scaling import learn_scaling
from bagwise.compute.torch_ops import Segments
from bagwise.datasets import make_msra_like
from bagwise.metrics import ranking_loss
from bagwise.models import MIMLGP, MMMIL, MIMLFast, ORedLogisticRegression
from bagwise.models._shared.gpu import Instances
from bagwise.models.deep.fit_members import bag_losses
from bagwise.models.deep.network import Network, Plan
from bagwise.models.distance.kernels import hausdorff_distances
from bagwise.models.mm_mil.fit_smooth import BagLosses
from bagwise.models.mm_mil.gpu import Answers, FeaturesOf, GpuFeatures
from bagwise.models.ored.fit import Setup, Treatment, likelihood_of
from bagwise.models.ored.gpu import groups_of, union_residuals
from bagwise.models.ored.predict import UnionPass
from bagwise.models.svm.kernels import set_kernel

GPU = torch.device("cuda")


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
    X = torch.empty((n_bags * size, d), dtype=torch.bfloat16, device=GPU)
    for first in range(0, len(X), 1_000_000):
        X[first : first + 1_000_000] = torch.randn(1_000_000, d, device=GPU)
    Y = (torch.rand(n_bags, n_labels, device=GPU) < 0.2).float()
    ours = Network(Plan("attention", "softmax", d, n_labels, 256, 1, 0.0)).to(GPU)
    plain = PlainAttention(d, 256, n_labels).to(GPU)

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
        return ours(X[a * size : b * size], Segments.of(np.arange(0, (b - a) * size + 1, size), GPU))

    mine = best(lambda: one_pass(flat, ours), times)
    theirs = best(
        lambda: one_pass(lambda a, b: plain(X[a * size : b * size].view(b - a, size, d)), plain), times
    )
    print(
        "attention, one pass over 100,000 bags x 100 x 512 (bf16): "
        f"{1e3 * mine:.1f} ms, plain torch {1e3 * theirs:.1f} ms"
    )
    try:
        from torchmil.models import ABMIL
    except ImportError:
        print("torchmil is not installed: its ABMIL was not measured")
        return

    def abmil_pass(labels):
        for k in range(labels):  # it knows one label: one network for each
            extractor = torch.nn.Sequential(torch.nn.Linear(d, 256), torch.nn.ReLU())
            network = ABMIL(in_shape=(d,), att_dim=128, gated=True, feat_ext=extractor).to(GPU)
            optimiser = torch.optim.AdamW(network.parameters(), fused=True)
            for a in range(0, n_bags, batch):
                b = min(a + batch, n_bags)
                optimiser.zero_grad(set_to_none=True)
                with torch.autocast("cuda", torch.bfloat16):
                    _, losses = network.compute_loss(Y[a:b, k], X[a * size : b * size].view(b - a, size, d))
                next(iter(losses.values())).backward()
                optimiser.step()

    one, all_labels = best(lambda: abmil_pass(1), times), best(lambda: abmil_pass(n_labels), 2)
    print(
        f"torchmil's ABMIL, the same pass: {1e3 * one:.1f} ms for one label, {1e3 * all_labels:.1f} for ten"
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


def mimlfast_large(times: int) -> None:
    small = make_msra_like(n_bags=33_000, random_state=0)
    train, copies = 30_000, 100
    given = np.asarray(small.bags[:train].X, dtype=np.float32)
    X = np.empty((copies * len(given), given.shape[1]), dtype=np.float32)
    there = torch.as_tensor(given).to(GPU)
    for k in range(copies):  # every copy with noise of its own
        noisy = there + 0.1 * there.std(dim=0) * torch.randn_like(there)
        X[k * len(given) : (k + 1) * len(given)] = noisy.cpu().numpy()
    offsets = np.asarray(small.bags.offsets[: train + 1])
    starts = [offsets[:-1] + k * offsets[-1] for k in range(copies)]
    bags = Bags(X, np.concatenate([*starts, [copies * offsets[-1]]]))
    Y = np.tile(small.Y[:train], (copies, 1))
    del there
    test = small.bags[train:].with_X(small.bags[train:].X.astype(np.float32))
    model = MIMLFast(device="cuda", random_state=0)
    start = time.perf_counter()
    model.fit(bags, Y)
    seconds = time.perf_counter() - start
    loss = ranking_loss(small.Y[train:], model.decision_function(test))
    print(
        f"MIMLFast, {bags.shape} bags x features, {X.nbytes / 1e9:.1f} GB: {seconds:.1f} s, loss {loss:.4f}"
    )


def gp(times: int) -> None:
    bags, Y = generated(30_000, 99)
    model = MIMLGP(width=1.0, rank=300, factor="pivoted", n_probes=2, tol=0.01, device="cuda")
    whole = best(lambda: model.fit(bags, Y), min(times, 3))
    here = MIMLGP(width=1.0, rank=300, factor="pivoted", n_probes=2, tol=0.01, device="cpu")
    start = time.perf_counter()
    here.fit(bags, Y)
    seconds = time.perf_counter() - start
    one, other = (m.decision_function(bags[:1000]) for m in (here, model))
    apart = np.abs(one - other).max() / np.abs(one).max()
    print(
        f"MIML-GP, 30,000 bags x 99 labels, rank {model.rank_}: GPU {whole:.2f} s, {model.n_iter_} M steps; "
        f"processor {seconds:.1f} s; scores differ by {apart:.1e} of the largest"
    )


def _sets(n_bags: int, size: int, d: int, n_labels: int, per_bag: int) -> tuple[Bags, np.ndarray]:
    """Bags with sets of one size; every instance is of one of its bag's labels, and each is there."""
    rng = np.random.default_rng(0)
    labels = rng.permuted(np.tile(np.arange(n_labels), (n_bags, 1)), axis=1)[:, :per_bag]
    which = np.concatenate(
        [np.tile(np.arange(per_bag), (n_bags, 1)), rng.integers(0, per_bag, (n_bags, size - per_bag))], axis=1
    )
    carried = np.take_along_axis(labels, which, axis=1).ravel()
    generator = torch.Generator(GPU).manual_seed(0)
    centres = 0.5 * torch.randn(n_labels, d, device=GPU, generator=generator)
    X = np.empty((n_bags * size, d), dtype=np.float32)
    for first in range(0, len(X), 1 << 20):
        of = torch.as_tensor(carried[first : first + (1 << 20)]).to(GPU)
        noise = torch.randn(len(of), d, device=GPU, generator=generator)
        X[first : first + (1 << 20)] = (centres[of] + noise).cpu().numpy()
    Y = np.zeros((n_bags, n_labels), dtype=np.int8)
    np.put_along_axis(Y, labels, 1, axis=1)
    return Bags(X, np.arange(0, n_bags * size + 1, size)), Y


def _value_and_gradient(bags: Bags, Y: np.ndarray, times: int) -> None:
    inference = {"method": "auto", "max_labels": 16, "n_threads": 16}
    how = Treatment(False, 16, "candidates", 0.0, inference)
    scaling = learn_scaling(bags.X[:100_000], "standard")
    setup, store = Setup(how, np.arange(20), scaling, None, True), Instances(bags.X, GPU, scaling)
    problem = likelihood_of(setup, store, Block(bags, Y, np.ones(len(bags))))
    W = 0.05 * np.random.default_rng(0).normal(size=problem.shape)
    once = best(lambda: problem.value_and_gradient(W), times)
    again = [problem.value_and_gradient(W)[1] for _ in range(2)]
    print(
        f"ORed, {len(bags)} bags, {bags.n_instances} x 128, 20 labels, sets of 3: value and gradient "
        f"{1e3 * once:.2f} ms; the same bits twice: {bool((again[0] == again[1]).all())}"
    )


def ored(times: int) -> None:
    bags, Y = _sets(1_000_000, 10, 128, 20, 3)
    _value_and_gradient(bags, Y, times)
    model = ORedLogisticRegression(device="cuda")
    whole = best(lambda: model.fit(bags, Y), min(times, 2))
    print(f"ORed, whole fit with held-out bags: {whole:.2f} s, {model.n_iter_} iterations")
    few = bags[:2000]
    right = (model.predict(few) == Y[:2000]).mean()
    other = ORedLogisticRegression(device="cpu", n_jobs=-1)
    start = time.perf_counter()
    other.fit(bags[:50_000], Y[:50_000])
    here = time.perf_counter() - start
    start = time.perf_counter()
    model.fit(bags[:50_000], Y[:50_000])
    there = time.perf_counter() - start
    apart = np.abs(other.decision_function(few) - model.decision_function(few)).max()
    print(f"ORed, 50,000 of them: GPU {there:.2f} s, processor {here:.2f} s; scores differ by {apart:.1e}")
    print(f"ORed, labels of 2,000 training bags right: {right:.4f}")


def estep(times: int) -> None:
    for k in (1, 3, 6, 8, 10, 12):
        _estep(k, times)


def _estep(k: int, times: int, n_bags: int = 100_000, size: int = 16) -> None:
    bags = np.arange(0, n_bags * size + 1, size)
    rng = np.random.default_rng(0)
    Y = np.zeros((n_bags, 20), dtype=np.int8)
    np.put_along_axis(Y, rng.permuted(np.tile(np.arange(20), (n_bags, 1)), axis=1)[:, :k], 1, axis=1)
    logits = torch.randn(n_bags * size, 20, device=GPU)
    out = torch.empty_like(logits)
    groups, _ = groups_of(bags, Y, np.ones(n_bags), background=False, max_labels=16, device=GPU)
    mine = best(lambda: union_residuals(logits, groups, out), times)
    copy = best(lambda: out.copy_(logits), times)
    left = len(union_residuals(logits, groups, out)[1])
    host = logits[: 2000 * size].double().cpu().numpy()
    few = UnionPass(bags[:2001], Y[:2000], n_threads=16)
    here = best(lambda: few.run(host, np.ones(2000), residual=True), 3) * n_bags / 2000
    print(
        f"E-step, 100,000 bags x 16 instances, sets of {k:2d}: {1e3 * mine:.2f} ms, copying its input "
        f"{1e3 * copy:.2f} ms, processor about {1e3 * here:.0f} ms; left to the processor {left}"
    )


def mm_mil(times: int) -> None:
    n_bags, n_labels, d, M = 100_000, 5, 100, 3
    bags, Y = _sets(n_bags, 10, d, n_labels, 2)
    scaling = learn_scaling(bags.X[:100_000], "standard")
    answers = Answers(GpuFeatures(bags.X, FeaturesOf(GPU, scaling), d), bags.offsets, Y)
    rng = np.random.default_rng(0)
    points = [0.1 * rng.normal(size=(d + 1, 2 * M)) for _ in range(n_labels)]
    asked = [("losses", label, P, 3.0, None) for label, P in enumerate(points)]
    there = best(lambda: answers(asked), times)
    again = [answers(asked) for _ in range(2)]
    same = all((one[2] == other[2]).all() for one, other in zip(*again))
    part = BagLosses(
        np.asarray(bags[:10_000].X, dtype=np.float64), bags.offsets[:10_001], Y[:10_000, 0].astype(float)
    )
    here = best(lambda: part(points[0], 3.0), 2) * n_bags / 10_000 * n_labels
    print(
        f"MM-MIL, {n_bags} bags, {bags.n_instances} x {d}, {n_labels} labels, {M} clusters: value and "
        f"gradient of all labels {1e3 * there:.2f} ms, one core about {1e3 * here:.0f} ms (scaled up from "
        f"10,000 bags of one label); the same bits twice: {same}"
    )
    model = MMMIL(M, device="cuda", random_state=0)
    whole = best(lambda: model.fit(bags, Y), 1)
    print(f"MM-MIL, whole fit of all of them: {whole:.2f} s, {model.n_iter_} iterations")
    few, labels = bags[:3000], Y[:3000]
    for kernel in (None, "rbf"):
        settings = {"kernel": kernel, "n_landmarks": 300, "random_state": 0}
        models = [MMMIL(M, device=device, n_jobs=2, **settings) for device in ("cuda", "cpu")]
        seconds = []
        for model in models:
            model.fit(few[:100], labels[:100])  # compiles
            start = time.perf_counter()
            model.fit(few, labels)
            seconds.append(time.perf_counter() - start)
        one, other = (model.decision_function(few) for model in models)
        apart, size = np.abs(one - other).max(), np.abs(other).max()
        print(
            f"MM-MIL, 3,000 of the bags, kernel {kernel}: GPU {seconds[0]:.2f} s, two cores "
            f"{seconds[1]:.2f} s; scores differ by {apart / size:.1e} of the largest, label sets by "
            f"{int(((one > 0) != (other > 0)).sum())} of {one.size}"
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
    there = torch.as_tensor(X, dtype=torch.float32).to(GPU)
    index = torch.as_tensor(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))).to(GPU)

    def plain():
        sums = []
        for first in range(0, len(there), 4096):
            K = torch.exp(-gamma * torch.cdist(there[first : first + 4096], there).square_())
            out = torch.zeros(len(offsets) - 1, len(K), device=GPU)
            sums.append(out.index_add_(0, index, K.T.contiguous()))
        whole = torch.zeros(len(offsets) - 1, len(offsets) - 1, device=GPU)
        return whole.index_add_(0, index, torch.cat(sums, dim=1).T.contiguous())

    mine = best(lambda: set_kernel(X, offsets, W, gamma=gamma, device="cuda"), times)
    here = best(lambda: set_kernel(X, offsets, W, gamma=gamma), 1)
    print(
        f"set kernel, {len(offsets) - 1} bags, {len(X)} instances: GPU {1e3 * mine:.1f} ms with transfers, "
        f"plain torch {1e3 * best(plain, times):.1f} ms without, processor {here:.1f} s"
    )
    mine = best(lambda: hausdorff_distances(X, offsets, kind="average", device="cuda"), times)
    here = best(lambda: hausdorff_distances(X, offsets, kind="average"), 1)
    print(
        f"Hausdorff (average), the same bags: GPU {1e3 * mine:.1f} ms with transfers, processor {here:.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["attention", "mimlfast", "ored", "estep", "pairs"])
    parser.add_argument("--sival")
    parser.add_argument("--times", type=int, default=5)
    arguments = parser.parse_args()
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    for what in arguments.what:
        if what == "pairs":
            pairs(arguments.times, arguments.sival)
        else:
            globals()[what](arguments.times)


if __name__ == "__main__":
    main()
