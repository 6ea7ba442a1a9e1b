"""Every Triton kernel beside the operations of torch that it takes the place of, on one GPU.

    python benchmarks/triton_or_torch.py [estep ored mimlfast mm_mil gate] [--times 5] [--quick]

A kernel stays where it is 1.5 times as fast. For each kernel, pass and whole fit: milliseconds with Triton
and without, and their ratio; "all but" rows are a pass where one kernel alone is left to torch. Single
kernels of MIMLFast are timed as recorded graphs, as they run in a fit. Needs torch, Triton and a GPU; data
are generated.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import bagwise.compute.devices as devices

# before any other module of ours asks for the kernels: a switch in their way
_REAL = devices.triton_kernels
_SWITCH = SimpleNamespace(on=True, without=None)


def _switched(module: str) -> Any:
    kernels = _REAL(module)
    if not _SWITCH.on or kernels is None:
        return None
    if _SWITCH.without is None:
        return kernels
    return SimpleNamespace(**{**vars(kernels), **_SWITCH.without})


devices.triton_kernels = _switched

from bagwise import Bags  # noqa: E402
from bagwise.base.blocks import Block  # noqa: E402
from bagwise.compute import torch_ops  # noqa: E402
from bagwise.compute.scaling import learn_scaling  # noqa: E402
from bagwise.compute.torch_ops import Segments  # noqa: E402
from bagwise.datasets import make_msra_like  # noqa: E402

GPU = torch.device("cuda")


# ---------------------------------------------------------------------- measuring


def best(run: Callable[[], Any], times: int) -> float:
    """Milliseconds of the quickest of some runs, after one that compiles and warms up."""
    run()
    found = []
    for _ in range(times):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return 1e3 * min(found)


def replayed(run: Callable[[], Any], times: int) -> float:
    """Milliseconds of one run as part of a recorded graph: without what Python takes to start kernels."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            run()
    return best(graph.replay, times) / 20.0


def beside(name: str, run: Callable[[], Any], times: int, timer: Callable[..., float] = best) -> None:
    """Print the time of a run with Triton, without, and their ratio."""
    _SWITCH.on = True
    mine = timer(run, times)
    _SWITCH.on = False
    try:
        theirs = timer(run, times)
    except torch.cuda.OutOfMemoryError:
        theirs = float("nan")
        torch.cuda.empty_cache()
    finally:
        _SWITCH.on = True
    print(f"{name:<78} triton {mine:10.3f} ms   torch {theirs:10.3f} ms   x {theirs / mine:6.2f}", flush=True)


# ---------------------------------------------------------------------- data


def _sets(n_bags: int, size: int, d: int, n_labels: int, per_bag: int) -> tuple[Bags, np.ndarray]:
    """Bags with sets of one size; every instance is of one of its bag's labels, and each is there."""
    rng = np.random.default_rng(0)
    labels = rng.permuted(np.tile(np.arange(n_labels), (n_bags, 1)), axis=1)[:, :per_bag]
    firsts = np.tile(np.arange(per_bag), (n_bags, 1))
    which = np.concatenate([firsts, rng.integers(0, per_bag, (n_bags, size - per_bag))], axis=1)
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


def _ragged(n_bags: int, mean: int) -> np.ndarray:
    sizes = 1 + np.random.default_rng(0).poisson(mean - 1, n_bags)
    return np.concatenate([[0], np.cumsum(sizes)])


# ---------------------------------------------------------------------- ORed


def estep(times: int, quick: bool) -> None:
    """The expectation step of ORed: `_few_cover_kernel` up to 4 labels a bag, `_cover_kernel` above."""
    from bagwise.models.ored import gpu as union

    for background in (False, True):
        for k in (1, 2, 3, 4, 5, 6, 8, 10, 12):
            n_bags, size = (20_000 if k > 8 or quick else 100_000), 16
            offsets = np.arange(0, n_bags * size + 1, size)
            rng = np.random.default_rng(0)
            Y = np.zeros((n_bags, 20), dtype=np.int8)
            np.put_along_axis(Y, rng.permuted(np.tile(np.arange(19), (n_bags, 1)), axis=1)[:, :k], 1, axis=1)
            Y[:, 19] = background
            logits = torch.randn(n_bags * size, 20, device=GPU)
            out = torch.empty_like(logits)
            how = {"background": background, "max_labels": 16, "device": GPU}
            groups, _ = union.groups_of(offsets, Y, np.ones(n_bags), **how)
            name = f"ORed E-step, {n_bags} x 16, sets of {k:2d}{', background' if background else ''}"
            run = partial(union.union_residuals, logits, groups, out)
            beside(name, run, times)


def ored(times: int, quick: bool) -> None:
    """One value and gradient and the whole fit of ORed."""
    from bagwise.models import ORedLogisticRegression

    bags, Y = _sets(50_000 if quick else 500_000, 10, 128, 20, 3)
    problem = _likelihood(bags, Y)
    W = 0.05 * np.random.default_rng(0).normal(size=problem.shape)
    size = f"{len(bags)} bags x 10 x 128, 20 labels, sets of 3"
    beside(f"ORed value and gradient, {size}", partial(problem.value_and_gradient, W), times)
    del problem
    torch.cuda.empty_cache()
    for settings in ({"alpha": 1.0, "background": False, "decision": "union"}, {}):
        model = ORedLogisticRegression(device="cuda", **settings)
        name = f"ORed whole fit, {len(bags)} bags, {'defaults' if not settings else 'one fit'}"
        beside(name, lambda model=model: model.fit(bags, Y), min(times, 2))
    model = ORedLogisticRegression(device="cuda")
    beside("ORed whole fit, 20000 bags, defaults", lambda: model.fit(bags[:20_000], Y[:20_000]), 2)
    msra = _msra(3000 if quick else 10_000)
    model = ORedLogisticRegression(alpha=1.0, background=False, decision="union", device="cuda")
    name = f"ORed whole fit, MSRA-like, {len(msra[0])} bags"
    beside(name, lambda: model.fit(*msra), min(times, 2))


def _likelihood(bags: Bags, Y: np.ndarray) -> Any:
    from bagwise.models._shared.gpu import Instances
    from bagwise.models.ored.fit import Setup, Treatment, likelihood_of

    inference = {"method": "auto", "max_labels": 16, "n_threads": 16}
    block, scaling = Block(bags, Y, np.ones(len(bags))), learn_scaling(bags.X[:100_000], "standard")
    how = Treatment(False, 16, "candidates", 0.0, inference)
    setup = Setup(how, np.arange(Y.shape[1]), scaling, None, True)
    return likelihood_of(setup, Instances(bags.X, GPU, scaling), block)


def _msra(n_bags: int) -> tuple[Bags, np.ndarray]:
    data = make_msra_like(n_bags=n_bags, random_state=0)
    return data.bags.with_X(data.bags.X.astype(np.float32)), data.Y


# ---------------------------------------------------------------------- MIMLFast


def mimlfast(times: int, quick: bool) -> None:
    """Every kernel of a mini-batch, recorded; passes; whole fits."""
    from bagwise.models import MIMLFast

    bags, Y = _msra(3000 if quick else 30_000)
    trainer = _trainer(bags, Y)
    trainer.epoch()
    torch.cuda.synchronize()
    steps = trainer.steps
    _each(steps, times)
    for without in (None, "best_of_bags", "slopes_to", "used", "adam"):
        _SWITCH.without = None if without is None else _one_by_torch(steps, without)
        steps._recorded = None
        name = f"MIMLFast one pass, MSRA-like, {len(bags)} bags" + (f", all but {without}" if without else "")
        _SWITCH.on = True
        steps._recorded = None
        if without is None:
            mine = best(trainer.epoch, times)
            _SWITCH.on, steps._recorded = False, None
            theirs = best(trainer.epoch, times)
            _SWITCH.on = True
            print(f"{name:<78} triton {mine:10.3f} ms   torch {theirs:10.3f} ms   x {theirs / mine:6.2f}")
        else:
            ours = best(trainer.epoch, times)
            print(f"{name:<78} {ours:10.3f} ms, x {ours / mine:6.2f} of all with Triton", flush=True)
    _SWITCH.without = None
    del trainer, steps
    model = MIMLFast(device="cuda", random_state=0)
    beside(f"MIMLFast whole fit, MSRA-like, {len(bags)} bags", lambda: model.fit(bags, Y), times)


def _trainer(bags: Bags, Y: np.ndarray) -> Any:
    from bagwise.models import MIMLFast
    from bagwise.models.mimlfast.fit import initial_state, make_plan, make_trainer
    from bagwise.models.mimlfast.gpu import scaled_instances
    from bagwise.models.mimlfast.predict import make_forward

    plan = make_plan(MIMLFast(device="cuda", random_state=0), len(bags))
    store, scale = scaled_instances(bags.X, "standard", 1.0, GPU)
    forward = make_forward(bags, Y, scale, plan, None, store=store)
    state = initial_state(np.random.default_rng(0), forward.shape, forward.n_inputs)
    ids = np.arange(len(bags))
    return make_trainer(plan, forward, ids, state, np.random.default_rng(0), 200)


def _one_by_torch(steps: Any, name: str) -> dict[str, Any]:
    """A kernel's place taken by the operations of torch, with the arguments of the kernel."""

    def best_of_bags(S: Any, offsets: Any, counts: Any, K: int, n_all: int) -> Any:
        numbers = torch.arange(len(S), device=S.device)
        index = torch.searchsorted(offsets, numbers, right=True) - 1  # the layout knows it: a little unfair
        return steps._best(S, SimpleNamespace(offsets=offsets, owners=index, real=counts))

    def slopes_to(G: Any, top: Any, which: Any, source: Any, relevant: Any, counts: Any, _: Any) -> Any:
        slopes, loss = steps._slopes(top, relevant, counts > 0)
        steps._scatter(G, slopes, which, source, counts > 0)
        return loss

    def used(which: Any, relevant: Any, counts: Any, K: int) -> Any:
        return steps._used_of(which, relevant.clone(), counts > 0)

    def adam(x: Any, g: Any, mean: Any, square: Any, *_: Any) -> None:
        steps._adam(x, g, mean, square)

    return {name: locals()[name]}


def _each(steps: Any, times: int) -> None:
    from bagwise.models.mimlfast import gpu_triton as kernels

    K, n_all, m = steps.vectors.shape
    steps.batch.zero_()
    batch = steps.layout.batch(steps.batch, steps.forward)
    relevant = steps.relevant.index_select(0, batch.bags)
    S = (batch.X @ steps.A) @ steps.vectors.reshape(-1, m).T
    G = torch.zeros_like(S)
    counts, harmonic = batch.real, steps.harmonic
    found = kernels.best_of_bags(S, batch.offsets, counts, K, n_all)
    plain = {name: _one_by_torch(steps, name)[name] for name in ("best_of_bags", "slopes_to", "used", "adam")}
    grads = torch.randn_like(steps.vectors)
    adam = steps.vectors.clone(), grads, *(torch.rand_like(grads) for _ in range(2)), steps.constants
    rest = steps.batch, steps.max_norm, (0.9, 0.99, 1e-8)
    given = {
        "best_of_bags": (S, batch.offsets, counts, K, n_all),
        "slopes_to": (G, *found, relevant, counts, harmonic),
        "used": (found[1], relevant, counts, K),
        "adam": (*adam, *rest),
    }
    size = f"{len(counts)} bags, {len(S)} rows, {n_all} x {K} x {m}"
    for name, arguments in given.items():

        def run(name: str = name, arguments: Any = arguments) -> Any:
            return (getattr(kernels, name) if _SWITCH.on else plain[name])(*arguments)

        beside(f"MIMLFast {name}, recorded, {size}", run, times, replayed)


# ---------------------------------------------------------------------- MM-MIL


def mm_mil(times: int, quick: bool) -> None:
    """The losses of MM-MIL alone, within a pass, and in whole fits."""
    from bagwise.models import MMMIL
    from bagwise.models.mm_mil.gpu import Answers, FeaturesOf, GpuFeatures, losses

    shapes = (
        (100_000, 10, 3, 5),
        (10_000, 10, 3, 15),
        (1500, 32, 4, 25),
        (90, 6, 2, 5),
    )
    for n_bags, mean, M, columns in shapes:
        at = Segments.of(_ragged(n_bags, mean), GPU)
        F = torch.randn(len(at.index), 2 * M, columns, dtype=torch.float64, device=GPU)
        signs = (2.0 * (torch.rand(n_bags, columns, device=GPU) < 0.8) - 1.0).double()
        v = torch.full((columns,), 3.0, dtype=torch.float64, device=GPU)
        name = f"MM-MIL losses, {n_bags} bags of {mean}, {M} clusters, {columns} columns"
        # the kernel writes over its activations, which stay finite numbers
        beside(name, lambda F=F, at=at, s=signs, v=v: losses(F, at, s, v), times)
    n_bags, n_labels, d, M = (10_000 if quick else 100_000), 5, 100, 3
    bags, Y = _sets(n_bags, 10, d, n_labels, 2)
    scaling = learn_scaling(bags.X[:100_000], "standard")
    answers = Answers(GpuFeatures(bags.X, FeaturesOf(GPU, scaling), d), bags.offsets, Y)
    rng = np.random.default_rng(0)
    asked = [("losses", label, 0.1 * rng.normal(size=(d + 1, 2 * M)), 3.0, None) for label in range(n_labels)]
    beside(f"MM-MIL value and gradient, {n_bags} bags x 10 x 100, 5 labels", partial(answers, asked), times)
    del answers
    torch.cuda.empty_cache()
    for n, kernel in ((n_bags, None), (3000, None), (3000, "rbf")):
        model = MMMIL(M, device="cuda", random_state=0, kernel=kernel, n_landmarks=300)
        name = f"MM-MIL whole fit, {n} bags, kernel {kernel}"
        beside(name, lambda model=model, n=n: model.fit(bags[:n], Y[:n]), 1)


# ---------------------------------------------------------------------- gated attention


def gate(times: int, quick: bool) -> None:
    """The gates of attention and their gradient alone, and a pass of training."""
    from bagwise.models import DeepMIML
    from bagwise.models.deep.fit_members import bag_losses
    from bagwise.models.deep.network import Network, Plan

    for dtype in (torch.bfloat16, torch.float32):
        for n, width, rest in ((1_600_000, 128, 24), (16_000, 128, 24)):
            P = torch.randn(n, 2 * width + rest, dtype=dtype, device=GPU)
            D, S = torch.randn(n, width, dtype=dtype, device=GPU), torch.randn(n, 10, device=GPU)
            size = f"{n} x {width}, {str(dtype)[6:]}"
            beside(f"gate, {size}", lambda P=P, w=width: torch_ops._gate(P, w), times)
            run = lambda P=P, D=D, S=S, w=width: torch_ops._gate_back(P, D, S, w)  # noqa: E731
            beside(f"gate_back, {size}", run, times)
    del P, D, S
    n_bags, size, d, n_labels, hidden = (20_000 if quick else 100_000), 100, 512, 10, 256
    X = torch.empty((n_bags * size, d), dtype=torch.bfloat16, device=GPU)
    for first in range(0, len(X), 1_000_000):
        X[first : first + 1_000_000] = torch.randn(len(X[first : first + 1_000_000]), d, device=GPU)
    Y = (torch.rand(n_bags, n_labels, device=GPU) < 0.2).float()
    network = Network(Plan("attention", "softmax", d, n_labels, hidden, 1, 0.0)).to(GPU)

    def one_pass(batch: int) -> None:
        optimiser = torch.optim.AdamW(network.parameters(), fused=True)
        for a in range(0, n_bags, batch):
            b = min(a + batch, n_bags)
            optimiser.zero_grad(set_to_none=True)
            at = Segments.of(np.arange(0, (b - a) * size + 1, size), GPU)
            with torch.autocast("cuda", torch.bfloat16):
                Z = network(X[a * size : b * size], at)
            bag_losses("bce", Z.float(), Y[a:b]).mean().backward()
            optimiser.step()

    for batch in (16_384, 512):
        name = f"attention, one pass over {n_bags} bags x 100 x 512 (bf16), batches of {batch}"
        beside(name, lambda batch=batch: one_pass(batch), times)
    X = None
    torch.cuda.empty_cache()
    rng = np.random.default_rng(0)
    X_host = rng.normal(size=(20_000 * 50, 256)).astype(np.float32)
    bags, given = Bags(X_host, np.arange(0, 20_000 * 50 + 1, 50)), Y[:20_000].cpu().numpy().astype(np.int8)
    model = DeepMIML(n_members=2, max_epochs=5, device="cuda", random_state=0)
    beside("attention head, whole fit, 20000 bags x 50 x 256", lambda: model.fit(bags, given), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["estep", "ored", "mimlfast", "mm_mil", "gate"])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small data, to see that it runs")
    arguments = parser.parse_args()
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    for what in arguments.what:
        try:
            globals()[what](arguments.times, arguments.quick)
        except Exception as error:  # one part that fails does not cost the others
            print(f"{what} FAILED: {type(error).__name__}: {error}", flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
