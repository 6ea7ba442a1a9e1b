"""MIMLfast: speed on generated data of the shape of MSRA.

    python benchmarks/mimlfast.py speed rate scale labels cold

All ratios come from one run. CPU seconds are those of the whole process.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import platform
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from scipy import sparse

from bagwise.compute.threads import Workers
from bagwise.datasets import make_digits, make_msra_like
from bagwise.metrics import ranking_loss
from bagwise.models import MIMLFast
from bagwise.models.mimlfast.fit import initial_state, make_plan, make_trainer
from bagwise.models.mimlfast.fit_sgd import scaled_copy
from bagwise.models.mimlfast.predict import N_SLICES, learn_scale, make_forward

N, N_TEST = 30_000, 3_000
LITERAL = [(15.0, 5e-4), (15.0, 1e-4), (3.0, 1e-3), (3.0, 5e-3)]  # feature norm, gamma_0


class Clock:
    """Wall and CPU seconds of a block, and the growth of resident memory at its peak."""

    def __enter__(self):
        self._stop, self._base, self._peak = threading.Event(), _resident(), 0
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def _watch(self):
        while not self._stop.wait(0.005):
            self._peak = max(self._peak, _resident())

    def __exit__(self, *error):
        self.wall, self.cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        self._stop.set()
        self._thread.join()
        self.growth = max(self._peak, _resident()) - self._base


def _resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def numpy_sgd_seconds(Z, offsets, Y, W0, W, gamma, n_steps):
    """Seconds per step of Algorithm 1 in plain NumPy from a given state, and draws per step.

    The bag is projected once per step, not once per draw.
    """
    rng = np.random.default_rng(0)
    W0, W = W0.astype(float), W.astype(float)
    dummy, K, C = Y.shape[1], W.shape[1], 10.0
    draws = 0
    start = time.process_time()
    for _ in range(n_steps):
        b = rng.integers(len(Y))
        X = Z[offsets[b] : offsets[b + 1]]
        relevant, others = np.flatnonzero(Y[b]), np.flatnonzero(Y[b] == 0)
        q = rng.integers(len(relevant) + 1)
        y = dummy if q == len(relevant) else relevant[q]
        if y != dummy:
            others = np.append(others, dummy)
        P = X @ W0.T
        F = P @ W[y].T
        i, k = divmod(F.argmax(), K)
        for v in range(1, len(others) + 1):
            draws += 1
            y_bar = others[rng.integers(len(others))]
            G = P @ W[y_bar].T
            j, k_bar = divmod(G.argmax(), K)
            if G[j, k_bar] > F[i, k] - 1:
                rate = gamma * np.sum(1.0 / np.arange(1, len(others) // v + 1))
                w, w_bar = W[y, k].copy(), W[y_bar, k_bar].copy()
                W[y, k] += rate * P[i]
                W[y_bar, k_bar] -= rate * P[j]
                W0 -= rate * (np.outer(w_bar, X[j]) - np.outer(w, X[i]))
                for u in (W[y, k], W[y_bar, k_bar]):
                    u *= min(1.0, C / np.linalg.norm(u))
                W0 *= np.minimum(1.0, C / np.linalg.norm(W0, axis=0))
                break
    return (time.process_time() - start) / n_steps, draws / n_steps


def numpy_pass_seconds(data, steps, n_passes=6, n_steps=200):
    """CPU seconds of a pass of the NumPy version: its steps at the start of each of some passes.

    As training goes on, fewer labels violate anything and more must be drawn to find one, so steps from a
    random start alone would be too cheap. The compiled version, which does the same, brings the state from
    pass to pass.
    """
    norm, gamma = LITERAL[0]
    few = np.arange(2000)
    with Workers(1) as workers:
        trainer = _trainer(data, workers, solver="sgd", step_size=gamma, feature_norm=norm)
        state = trainer.state
        instances, offsets = scaled_copy(trainer.forward, few)
        print("| passes done | us per NumPy step | draws per step |\n|---|---|---|")
        found = []
        for done in range(n_passes):
            if done:
                trainer.epoch()
            seconds, draws = numpy_sgd_seconds(
                instances.dense.astype(float), offsets, data.Y[few], state["A"].T, state["W"], gamma, n_steps
            )
            found.append(seconds)
            print(f"| {done} | {1e6 * seconds:.0f} | {draws:.0f} |", flush=True)
    return steps * float(np.mean(found))


def speed(args):
    data = make_msra_like(N + N_TEST)
    bags, Y, test, Y_test = data.bags[:N], data.Y[:N], data.bags[N:], data.Y[N:]
    small = data[:2000]
    for solver in ("sgd", "minibatch"):  # compile
        MIMLFast(solver=solver, max_iter=1, random_state=0).fit(small.bags, small.Y)
    steps = int(Y[: N - 2000].sum()) + N - 2000
    print(f"\nSteps per pass: {steps}.\n")
    numpy_pass = numpy_pass_seconds(data[: N - 2000], steps)
    print(
        "\n| solver | feature norm, step | CPU s per pass | passes | CPU s | wall s | held-out rl | test rl |"
    )
    print("|---|---|---|---|---|---|---|---|")
    print(f"| NumPy literal | 15, 5e-4 | {numpy_pass:.1f} (extrapolated) | | | | | |")
    rows = []
    for norm, gamma in LITERAL[: 1 if args.quick else None]:
        model = MIMLFast(
            solver="sgd", step_size=gamma, feature_norm=norm, validation=2000 / N, max_iter=args.passes,
            n_iter_no_change=args.passes, random_state=0,
        )  # fmt: skip
        with Clock() as clock:
            model.fit(bags, Y)
        done = len(model.objective_)
        to_best = clock.cpu * model.n_iter_ / done
        rows.append((min(model.objective_), to_best, clock.cpu / done))
        _speed_row(
            f"compiled literal (best pass {model.n_iter_})",
            f"{norm:g}, {gamma:g}",
            model,
            clock,
            test,
            Y_test,
        )
    best_rl, best_cpu, literal_pass = min(rows)
    clocks = []
    for k in range(3):
        model = MIMLFast(random_state=k, n_jobs=args.threads)
        with Clock() as clock:
            model.fit(bags, Y)
        _speed_row(f"default ({model.solver_}), seed {k}", "15, 0.015", model, clock, test, Y_test)
        reached = 1 + int(np.argmax(np.array(model.objective_) <= best_rl))
        clocks.append((clock.wall, clock.cpu, len(model.objective_), reached, min(model.objective_)))
    wall, cpu, n, reached, rl = np.median(clocks, axis=0)
    print(
        f"\n- default: {wall:.2f} s to the end, {wall / n:.2f} s per pass with validation (goals 6 and 0.8)"
    )
    print(f"- per pass over NumPy (one thread): {numpy_pass / (wall / n):.0f}x by the clock, "
          f"{numpy_pass / (cpu / n):.0f}x in CPU seconds (goal 50)")  # fmt: skip
    print(f"- per pass over the compiled literal SGD, CPU: {literal_pass / (cpu / n):.1f}x")
    print(f"- CPU to the literal SGD's best held-out loss ({best_rl:.4f}): {best_cpu:.1f} s against "
          f"{cpu * reached / n:.1f} s, {best_cpu / (cpu * reached / n):.1f}x less (goal 10)")  # fmt: skip
    print(f"- final held-out ranking loss: {rl:.4f}, {100 * (1 - rl / best_rl):.0f} % lower (goal 10 %)")


def _speed_row(name, setting, model, clock, test, Y_test):
    n = len(model.objective_)
    loss = ranking_loss(Y_test, model.decision_function(test))
    print(f"| {name} | {setting} | {clock.cpu / n:.2f} | {n} | {clock.cpu:.1f} | {clock.wall:.1f} "
          f"| {min(model.objective_):.4f} | {loss:.4f} |", flush=True)  # fmt: skip


def _trainer(data, workers, **settings):
    plan = make_plan(MIMLFast(n_sub_concepts=5, batch_size=512, max_iter=20, **settings), len(data.bags))
    scale = learn_scale(data.bags.X, "auto", plan.norm)
    forward = make_forward(data.bags, data.Y, scale, plan, workers)
    state = initial_state(np.random.default_rng(0), forward.shape, forward.n_inputs)
    ids = np.arange(len(data.bags))
    return make_trainer(plan, forward, ids, state, np.random.default_rng(0), plan.max_iter)


def _product_rate(workers, shapes, seconds=0.3):
    """GFLOP of single-precision products, one per thread at a time, per second and per CPU second."""
    rng = np.random.default_rng(0)
    pairs = [(rng.random((a, b), np.float32), rng.random((b, c), np.float32)) for a, b, c in shapes]
    outs = [[x @ y for x, y in pairs] for _ in range(workers.n_threads)]
    counts = [0] * workers.n_threads
    start, cpu = time.perf_counter(), time.process_time()

    def work(s):
        while time.perf_counter() < start + seconds:
            for (x, y), out in zip(pairs, outs[s]):
                np.matmul(x, y, out=out)
            counts[s] += 1

    workers.map(work, range(workers.n_threads))
    flops = sum(counts) * sum(2.0 * a * b * c for a, b, c in shapes) / 1e9
    return np.array([flops / (time.perf_counter() - start), flops / (time.process_time() - cpu)])


def rate(args):
    data = make_msra_like(N)
    m, K, n_all, d = 100, 5, 100, 226
    flops = 2.0 * data.bags.n_instances * (2 * d * m + K * n_all * m) / 1e9
    own_shapes = [(576, d, m), (576, m, K * n_all), (d, 576, m)]
    square, own, reached, done = [], [], [], []
    with Workers(args.threads, N_SLICES) as workers:
        trainer = _trainer(data, workers, solver="minibatch")
        trainer.epoch()
        for _ in range(6):  # products and passes in turn, so that a busy machine slows both
            square.append(_product_rate(workers, [(2048, 2048, 2048)]))
            own.append(_product_rate(workers, own_shapes))
            start, cpu = time.perf_counter(), time.process_time()
            trainer.epoch()
            spent = np.array([time.perf_counter() - start, time.process_time() - cpu])
            idle = (
                2e-9 * d * m * (data.bags.n_instances - trainer.steps.n_active.sum())
            )  # skipped: no gradient
            reached.append(flops / spent)
            done.append((flops - idle) / spent)
    square, own, reached, done = (np.max(values, axis=0) for values in (square, own, reached, done))
    wall, cpu = flops / reached
    print(f"\n{workers.n_threads} threads: {wall:.3f} s, {cpu:.3f} CPU s per pass over {N} bags")
    print(f"{flops:.1f} GFLOP of products, {flops * done[1] / reached[1]:.1f} done: "
          "instances without a gradient are left out of the last one")  # fmt: skip
    print("\n| | GFLOP per s | per CPU s | share by the clock | share in CPU s |\n|---|---|---|---|---|")
    for name, r in (("the pass", reached), ("the pass, products done", done)):
        print(f"| {name} | {r[0]:.0f} | {r[1]:.0f} | | |")
    for name, r in (("square products 2048", square), ("the three products of the pass alone", own)):
        shares = (f"{100 * reached[k] / r[k]:.0f} % ({100 * done[k] / r[k]:.0f} % done)" for k in (0, 1))
        print(f"| {name} | {r[0]:.0f} | {r[1]:.0f} | " + " | ".join(shares) + " |")


def _scale_row(n, threads):
    """One size in a process of its own: memory freed by an earlier fit would hide the growth."""
    data = make_msra_like(n)
    settings = {"solver": "minibatch", "batch_size": 512, "max_iter": 2, "n_jobs": threads, "random_state": 0}
    MIMLFast(**settings).fit(data.bags[:1000], data.Y[:1000])  # loads the compiled code
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # memory that was freed but kept would hide growth
    with Clock() as clock:
        MIMLFast(validation=0, **settings).fit(data.bags, data.Y)
    return data.bags.X.nbytes, clock.wall, clock.cpu, clock.growth


def scale(args):
    heads = "bags", "data MB", "s per pass", "us per bag and pass", "CPU us", "growth of memory, MB"
    print("\n| " + " | ".join(heads) + " | (data + growth) / data |\n" + "|---" * 7 + "|")
    for n in (5_000, 10_000, 30_000, 100_000, 300_000):
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            size, wall, cpu, growth = pool.submit(_scale_row, n, args.threads).result()
        per_bag = [1e6 * seconds / 2 / n for seconds in (wall, cpu)]
        print(f"| {n} | {size / 1e6:.0f} | {wall / 2:.2f} | {per_bag[0]:.1f} | {per_bag[1]:.1f} "
              f"| {growth / 1e6:.0f} | {1 + growth / size:.2f} |", flush=True)  # fmt: skip


def labels(args):
    print("\n| labels | s per pass over 10,000 bags | CPU us per bag | growth of memory, MB |")
    print("|---|---|---|---|")
    for n in (10, 30, 100, 300, 1000, 5000):
        data = make_msra_like(10_000, n)
        with Clock() as clock, Workers(args.threads, N_SLICES) as workers:
            trainer = _trainer(data, workers, solver="minibatch")
            trainer.epoch()
            start, cpu = time.perf_counter(), time.process_time()
            trainer.epoch()
            seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        print(f"| {n} | {seconds:.2f} | {cpu / 0.01:.0f} | {clock.growth / 1e6:.0f} |", flush=True)


def _cold_row(solver, text):
    """First fit and predict of a process with an empty cache of compiled code, then the same again."""
    data = make_digits(n_bags=300)
    bags = data.bags
    if text:
        X = np.where(np.random.default_rng(0).random(bags.X.shape) < 0.1, bags.X, 0.0)
        bags = bags.with_X(sparse.csr_array(X))
    seconds = []
    for _ in range(2):
        start = time.process_time()
        MIMLFast(solver=solver, random_state=0, n_jobs=1).fit(bags, data.Y).predict(bags)
        seconds.append(time.process_time() - start)
    return seconds


def cold(args):
    print("\n| solver | instances | first fit + predict, CPU s | again |\n|---|---|---|---|")
    for solver in ("asgd", "minibatch"):
        for text in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                os.environ["NUMBA_CACHE_DIR"] = folder
                with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                    first, again = pool.submit(_cold_row, solver, text).result()
            kind = "sparse, text-like" if text else "dense"
            print(f"| {solver} | {kind} | {first:.1f} | {again:.2f} |", flush=True)


SECTIONS = {"speed": speed, "rate": rate, "scale": scale, "labels": labels, "cold": cold}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", default=list(SECTIONS), choices=list(SECTIONS))
    parser.add_argument("--threads", type=int, help="threads of the default solver")
    parser.add_argument("--passes", type=int, default=12, help="passes of the literal SGD")
    parser.add_argument("--quick", action="store_true", help="one setting of the literal SGD only")
    arguments = parser.parse_args()
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores seen, NumPy {np.__version__}"
    )
    for section in arguments.sections:
        print(f"\n## {section}", flush=True)
        SECTIONS[section](arguments)
