"""Learning of MM-MIL, label by label: where to start, then one of three ways to minimise Eq. (7).

Starts and solvers ask a `Problem`, the bags of one label, for losses with their gradient, for some instances
and for the size of activations. In memory each question is answered at once. On shards and on a GPU all
labels and starts climb together: one pass over the bags answers the questions of all that wait.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bagwise.base.blocks import Block, Blocks, evenly, gathered
from bagwise.compute.memo import remembered
from bagwise.compute.optim import Lockstep, minimise
from bagwise.compute.parts import add, map_parts, map_reduce
from bagwise.compute.scaling import Scaling, apply_scaling
from bagwise.compute.segment import segment_argmax
from bagwise.compute.threads import small_products
from bagwise.errors import quoted, warn
from bagwise.models.mm_mil.fit_em import Solution, activations, dense_rows, solve_em
from bagwise.models.mm_mil.fit_features import Kernel, gaussian_kernel
from bagwise.models.mm_mil.fit_smooth import BagLosses, Descended, solve_smooth, starting_points

EXPERT_ITERATIONS = 30  # of the regression that only makes a start
MOST_ROWS = 2000  # instances, and witnesses, of positive bags that are clustered
_MOST_NUMBERS = 16e6  # in the rows that the starts of all labels of shards cluster

Places = dict[int, tuple[np.ndarray, np.ndarray]]  # by block: numbers of bags and of instances in it


def solve(problem: Problem, starts: list[np.ndarray], solver: str, max_iter: int, tol: float) -> Solution:
    """Minimise Eq. (7) from several starts by the solver of this name; the best point met is kept."""
    if solver == "smooth":
        return solve_smooth(problem, starts, max_iter, tol)
    block = problem.steps.block  # these choose among all bags at once, in memory
    data = block.Phi, block.offsets, problem.labels, problem.lam, problem.beta
    runs = [solve_em(data, P, max_iter, tol, printed=solver == "paper") for P in starts]
    return min(runs, key=lambda run: run.value)


def start_and_solve(problem: Problem, settings: dict[str, Any]) -> Solution:
    """Start and solve for one label; the same settings and seed give the same model."""
    rng = np.random.RandomState(settings["seed"])
    starts = starting_points(problem, settings["n_init"], rng)
    return solve(problem, starts, settings["solver"], settings["max_iter"], settings["tol"])


def learn_label(labels: np.ndarray, Phi: Any, offsets: np.ndarray, settings: dict[str, Any]) -> Solution:
    """Start and solve for one label in memory."""
    problem = problem_in_memory(Phi, offsets, labels.astype(np.float64), settings)
    problem.experts[0, problem.beta] = _expert_of(Phi, offsets, problem.labels, problem.beta)
    with small_products(Phi.shape[0] * Phi.shape[1] * 2 * problem.n_clusters):
        return start_and_solve(problem, settings)


@remembered
def _expert_of(Phi: Any, offsets: np.ndarray, labels: np.ndarray, beta: float) -> np.ndarray:
    """The expert to start from: settings share it whose features and penalty of experts are the same."""
    problem = problem_in_memory(Phi, offsets, labels, {"n_clusters": 1, "lam": 1.0, "beta": beta})
    return inherited_expert(problem.inherited())


def learn_blocks(
    blocks: Blocks, scaling: Scaling, kernel: Kernel | None, settings: dict[str, Any]
) -> list[Solution | None]:
    """Start and solve for every label of shards that some bags carry and some do not; None for the others."""
    n_features = len(scaling.shift) if kernel is None else kernel.whitening.shape[1]
    parts = blocks.map(partial(prepared, scaling, kernel), list(range(len(blocks))))
    places = _OnShards(blocks, n_features * blocks.n_labels)
    steps = Lockstep(lambda questions: map_reduce(answers, questions, parts, joined))
    return side_by_side(steps, blocks.labels()[0], n_features, places, [settings])[0]


def side_by_side(
    steps: Lockstep, Y: np.ndarray, n_features: int, places: Any, settings: Sequence[dict[str, Any]]
) -> list[list[Solution | None]]:
    """Start and solve together, with each of the settings for every label that varies; else None."""
    labels = np.flatnonzero(Y.min(axis=0) < Y.max(axis=0)).tolist()
    experts: dict[tuple[int, float], np.ndarray] = {}
    problems = [
        Problem(steps, l, Y[:, l], n_features, places, each, experts) for each in settings for l in labels
    ]
    every = [each for each in settings for _ in labels]
    with small_products(0.0):
        if len(settings) > 1:  # those that share an expert to start from find it once
            asked = {(problem.label, problem.beta): problem.expert for problem in problems}
            experts |= zip(asked, steps.each(list(asked.values())))
        tasks = [partial(start_and_solve, problem, each) for problem, each in zip(problems, every)]
        found = iter(steps.each(tasks))
    return [[next(found) if l in labels else None for l in range(Y.shape[1])] for _ in settings]


# ---------------------------------------------------------------------- what starts and solvers ask


class Problem:
    """What starts and solvers ask of the bags of one label.

    ``steps`` (`InMemory` or `Lockstep`) answers questions (``ask``) and runs several functions that ask
    (``each``). Questions begin with their kind, that of a function ``answer_...`` below. ``label`` is one of
    the columns that ``steps`` knows; ``labels`` say which bags carry it, ``places(labels, rng)`` which
    positive bags and instances are clustered. ``experts`` holds those to start from that are known already,
    by label and penalty.
    """

    def __init__(
        self,
        steps: Any,
        label: int,
        labels: np.ndarray,
        n_features: int,
        places: Callable[[np.ndarray, Any], Places],
        settings: dict[str, Any],
        experts: dict[tuple[int, float], np.ndarray],
    ) -> None:
        self.steps, self.label, self.labels, self.n_features = steps, label, labels, n_features
        self.places, self.experts = places, experts
        self.n_clusters, self.lam, self.beta = settings["n_clusters"], settings["lam"], settings["beta"]

    def smooth(self) -> Descended:
        """Eq. (7) with a soft maximum."""
        return Descended(self._losses(None), self.n_features, self.n_clusters, self.lam, self.beta)

    def inherited(self) -> Descended:
        """Logistic regression of instances on the labels of their bags."""
        n, n_positive = len(self.labels), float(self.labels.sum())
        # both kinds of bags weigh the same, together as many as there are
        weights = 0.5 * n / max(n - n_positive, 1), 0.5 * n / max(n_positive, 1)
        return Descended(self._losses(weights), self.n_features, 1, 1.0, self.beta)

    def _losses(self, weights: Any) -> Callable[[np.ndarray, float], tuple[float, float, np.ndarray]]:
        return lambda P, sharpness: self.steps.ask(("losses", self.label, P.copy(), sharpness, weights))

    def expert(self) -> np.ndarray:
        """What `inherited_expert` finds."""
        found = self.experts.get((self.label, self.beta))
        return inherited_expert(self.inherited()) if found is None else found

    def rows(self, expert: np.ndarray, rng: Any) -> tuple[np.ndarray, np.ndarray]:
        """Of some positive bags the instance that the expert likes best, and some of their instances."""
        best, some = self.steps.ask(("rows", expert, self.places(self.labels, rng)))
        return np.concatenate(best), np.concatenate(some)

    def activation(self, P: np.ndarray) -> float:
        """Mean size of activations of all instances."""
        total, n = self.steps.ask(("activation", P.copy()))
        return total / n


def inherited_losses(Phi: Any, offsets: np.ndarray, labels: np.ndarray, weights: Any) -> BagLosses:
    """Losses of instances that inherit the label of their bag and share its weight (negative, positive)."""
    sizes = np.diff(offsets)
    of_bags = np.where(labels > 0, weights[1], weights[0]) / sizes
    singles = np.arange(Phi.shape[0] + 1)
    return BagLosses(Phi, singles, np.repeat(labels, sizes), np.repeat(of_bags, sizes))


def inherited_expert(objective: Descended) -> np.ndarray:
    """Logistic regression of instances on the labels of their bags, (n_features + 1,).

    An instance weighs one over the size of its bag; both classes weigh the same, as many bags as there are.
    """
    start = np.zeros(objective.shape)
    return minimise(objective, start, max_iter=EXPERT_ITERATIONS).x[:, 0]


# ---------------------------------------------------------------------- answers


class Prepared(NamedTuple):
    """Features of a block, its bags and labels, and its place among the blocks."""

    Phi: Any
    offsets: np.ndarray
    Y: np.ndarray
    number: int


def prepared(scaling: Scaling, kernel: Kernel | None, number: int, block: Block) -> Prepared:
    """Features of one block."""
    Phi = apply_scaling(block.bags.X, scaling)
    if kernel is not None:
        Phi = gaussian_kernel(Phi, kernel.landmarks, kernel.sigma2) @ kernel.whitening
    return Prepared(Phi, block.bags.offsets, block.Y, number)


class InMemory:
    """Bags of one label in memory: questions are answered at once, and functions run one after the other."""

    def __init__(self, block: Prepared) -> None:
        self.block = block
        self._losses: dict[Any, BagLosses] = {}  # by weights of the bags: hundreds of questions share them

    def ask(self, question: Any) -> Any:
        """The answer to a question."""
        kind, *given = question
        if kind != "losses":
            return ANSWERS[kind](self.block, *given)
        label, P, sharpness, weights = given
        if weights not in self._losses:
            self._losses[weights] = losses_of(self.block, label, weights)
        return self._losses[weights](P, sharpness)

    def each(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """What functions return."""
        return [function() for function in functions]


def problem_in_memory(Phi: Any, offsets: np.ndarray, labels: np.ndarray, settings: dict[str, Any]) -> Problem:
    """The problem of features and bags in memory."""
    steps = InMemory(Prepared(Phi, offsets, labels[:, None], 0))
    return Problem(steps, 0, labels, Phi.shape[1], partial(places_in_memory, offsets), settings, {})


def places_in_memory(offsets: np.ndarray, labels: np.ndarray, rng: np.random.RandomState) -> Places:
    """Positive bags whose witnesses are clustered, and instances of all positive bags."""
    positive = np.flatnonzero(labels > 0)
    rows = np.flatnonzero(np.repeat(labels > 0, np.diff(offsets)))
    if len(rows) > MOST_ROWS:
        rows = np.sort(rng.choice(rows, MOST_ROWS, replace=False))
    return {0: (positive[evenly(len(positive), MOST_ROWS)], rows)}


class _OnShards:
    """The same on shards: from numbers among all to numbers within each block."""

    def __init__(self, blocks: Blocks, numbers_per_row: int) -> None:
        self.ends, self.sizes = np.cumsum(blocks.part_bags), blocks.sizes()
        self.offsets = np.concatenate([[0], np.cumsum(self.sizes)])
        self.most = int(min(MOST_ROWS, max(100, _MOST_NUMBERS // numbers_per_row)))

    def __call__(self, labels: np.ndarray, rng: Any) -> Places:
        """Some positive bags and some of the instances of all positive bags, evenly spaced, in each block."""
        positive = np.flatnonzero(labels > 0)
        bags = positive[evenly(len(positive), self.most)]
        ends = np.cumsum(self.sizes[positive])
        drawn = evenly(int(ends[-1]), self.most)
        owner = np.searchsorted(ends, drawn, side="right")
        rows = self.offsets[positive[owner]] + drawn - (ends[owner] - self.sizes[positive[owner]])
        found = {}
        for k, end in enumerate(self.ends.tolist()):
            first = int(self.ends[k - 1]) if k else 0
            low, high = self.offsets[first], self.offsets[end]
            some_bags = bags[(bags >= first) & (bags < end)] - first
            some_rows = rows[(rows >= low) & (rows < high)] - low
            if some_bags.size or some_rows.size:
                found[k] = (some_bags, some_rows)
        return found


def answers(questions: list[Any], block: Prepared) -> list[Any]:
    """Answers of one block to all questions: sums, or lists of rows."""
    return [ANSWERS[kind](block, *given) for kind, *given in questions]


def joined(a: list[Any], b: list[Any]) -> list[Any]:
    """Answers of two blocks together: sums are added, rows follow each other."""
    return [[p + q for p, q in zip(x, y)] if isinstance(x, list) else add(x, y) for x, y in zip(a, b)]


def losses_of(block: Prepared, label: int, weights: Any) -> BagLosses:
    """Losses of the bags of a block; with weights, of its instances as single bags."""
    labels = block.Y[:, label].astype(np.float64)
    if weights is None:
        return BagLosses(block.Phi, block.offsets, labels)
    return inherited_losses(block.Phi, block.offsets, labels, weights)


def answer_losses(block: Prepared, label: int, P: np.ndarray, sharpness: float, weights: Any) -> Any:
    """Smooth and hard loss, and the gradient of the smooth one."""
    return losses_of(block, label, weights)(P, sharpness)


def answer_rows(block: Prepared, expert: np.ndarray, places: Places) -> list[list[np.ndarray]]:
    """The instances of some bags that the expert likes best, and some instances."""
    none = np.empty(0, dtype=np.int64)
    bags, rows = places.get(block.number, (none, none))
    best = none
    if bags.size:
        best = segment_argmax(np.asarray(block.Phi @ expert[:-1]), block.offsets)[bags]
    return [[dense_rows(block.Phi, kind)] if kind.size else [] for kind in (best, rows)]


def answer_activation(block: Prepared, P: np.ndarray) -> tuple[float, int]:
    """Sum and number of the sizes of activations."""
    sizes = np.abs(activations(block.Phi, P))
    return float(sizes.sum()), sizes.size


ANSWERS: dict[str, Callable[..., Any]] = {
    "losses": answer_losses,
    "rows": answer_rows,
    "activation": answer_activation,
}


# ---------------------------------------------------------------------- bags that contradict each other


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
        "satisfy both, and random splits will leak: merge the copies or drop them"
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
    found = []
    for a, b in zip(offsets[:-1], offsets[1:]):
        total = hashlib.blake2b(digest_size=16)
        for key in sorted(keys[a:b]):
            total.update(len(key).to_bytes(8, "little") + key)
        found.append(total.digest())
    return np.array(found, dtype="S16")
