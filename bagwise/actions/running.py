"""Going over data block by block: runs of bags in memory, parts of shards, here or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from os import PathLike
from typing import Any

import numpy as np

from bagwise.base.blocks import Block, blocks_of_shards
from bagwise.compute.dask import on_cluster
from bagwise.compute.journal import checkpoint as keep_sums
from bagwise.compute.parts import map_parts, watched
from bagwise.errors import BagwiseError
from bagwise.shards import ShardedBags
from bagwise.utils.progress import progress as progress_bar

_BLOCK = 200_000  # instances scored at a time, which bounds memory and moves the progress bar

Step = Callable[[Any, Block], Any]


class Running(ExitStack):
    """A cluster, a checkpoint and a progress bar around a run, as far as they are wanted.

    Parameters
    ----------
    what : str
        What is being done.
    data : Dataset or ShardedBags
        The data; a cluster and a checkpoint are for shards alone.
    cluster, checkpoint : optional
        See `bagwise.on_cluster` and `bagwise.checkpoint`.
    step : callable, optional
        Moves a bar.
    say : callable, optional
        Called with a line about the cluster or the checkpoint.
    progress : bool, default=False
        Whether to draw a bar on a terminal.
    """

    def __init__(
        self,
        what: str,
        data: Any,
        cluster: Any = None,
        checkpoint: str | PathLike[str] | None = None,
        step: Callable[..., None] | None = None,
        say: Callable[[str], None] = lambda line: None,
        progress: bool = False,
    ) -> None:
        super().__init__()
        self.what, self.n_passes, self.step = what, 0, step
        if not isinstance(data, ShardedBags):
            if cluster is not None or checkpoint is not None:
                raise BagwiseError(
                    "a cluster and a checkpoint are for shards: bagwise convert DATA shards/ makes them"
                )
        if progress:
            self.step = self.enter_context(progress_bar(what))
        if cluster is not None:
            found = self.enter_context(on_cluster(cluster))
            say(f"{found.n_workers} workers; watch them at {found.dashboard_link}")
        if checkpoint is not None:
            journal = self.enter_context(keep_sums(checkpoint))
            if journal.n_known:
                say(f"going on from {checkpoint}: {journal.n_known} passes are known")
        if self.step is not None and isinstance(data, ShardedBags):

            def report(name: str, k: int, n: int) -> None:
                assert self.step is not None
                self.n_passes += k == 1
                about = f"pass {self.n_passes} ({name.rpartition('.')[2]})"
                self.step(description=f"{self.what}: {about}, part {k} of {n}")

            self.enter_context(watched(report))

    def over(self, step: Step, params: Any, *sets: Any, labels: bool = True) -> Iterator[Any]:
        """``step(params, block)`` of all blocks, in order; of shards on the cluster, if there is one.

        Without ``labels`` those of data in memory are left out: there may be many of them.
        """
        for data in sets:
            if isinstance(data, ShardedBags):
                yield from map_parts(step, params, blocks_of_shards(data))
                continue
            cuts, Y = runs(data.bags), data.Y if labels else np.zeros((len(data), 0), dtype=np.int8)
            for k, (a, b) in enumerate(cuts):
                yield step(params, Block(data.bags[a:b], Y[a:b], np.ones(b - a)))
                if self.step is not None:
                    self.step(description=f"{self.what}: block {k + 1} of {len(cuts)}", total=len(cuts))


def runs(bags: Any, size: int | None = None, first: int | None = None) -> list[tuple[int, int]]:
    """Runs of bags with about ``size`` instances each, of which the first may be shorter."""
    size = _BLOCK if size is None else size
    ends = np.cumsum(bags.sizes)
    cuts = np.searchsorted(ends, np.arange(first or size, ends[-1] if len(ends) else 0, size))
    cuts = np.unique(np.concatenate([[0], cuts, [len(bags)]]))
    return [(int(a), int(b)) for a, b in zip(cuts[:-1], cuts[1:])] or [(0, 0)]
