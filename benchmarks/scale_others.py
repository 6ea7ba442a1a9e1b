"""What one would do without bagwise, on the same shards: seconds per pass and quality side by side.

    python benchmarks/scale.py others FOLDER

scikit-learn's `SGDClassifier.partial_fit` on instances that inherit all labels of their bag, a bag scored by
its best instance; and, where torchmil is installed (pip install torchmil), its ABMIL, one per label as it
knows one label, trained with Adam on a DataLoader with torchmil's own collation.
"""

from __future__ import annotations

import time

import numpy as np

from bagwise import ShardedBags
from bagwise.compute.segment import segment_max
from bagwise.metrics import evaluate
from bagwise.models import MIMLFast, ORedLogisticRegression


def others(folder: str, parts: int) -> None:
    shards = ShardedBags.open(folder)
    shards = shards[: int(shards.part_bags[: min(parts + 1, shards.n_parts)].sum())]
    train, test = shards.split(0.1)
    held = test.sample(min(2000, len(test)), random_state=0)
    print(
        f"{train.n_instances:,} instances in {len(train):,} bags to learn from, {len(held):,} bags held out"
    )
    for name, learn in (
        ("SGDClassifier.partial_fit", by_sgd),
        ("torchmil's ABMIL, DataLoader", by_torchmil),
        ("MIMLFast, 3 rounds", by_mimlfast),
        ("ORed, 15 iterations", by_ored),
    ):
        found = learn(train, held)
        if found is None:
            print(f"{name:30s} not installed")
            continue
        seconds, passes, scores = found
        quality = evaluate(held.Y, scores)
        print(f"{name:30s} {seconds:7.1f} s, {seconds / passes:6.2f} s per pass, "
              f"ranking loss {quality['ranking_loss']:.4f}, "
              f"average precision {quality['average_precision']:.4f}", flush=True)  # fmt: skip


def by_sgd(train, held):
    from sklearn.linear_model import SGDClassifier

    start = time.perf_counter()
    models = [SGDClassifier(loss="log_loss", random_state=0) for _ in train.label_names]
    for data in train:
        Y = data.Y[data.bags.index]
        for label, model in enumerate(models):
            model.partial_fit(data.bags.X, Y[:, label], classes=[0, 1])
    took = time.perf_counter() - start
    scores = np.column_stack([m.decision_function(held.bags.X) for m in models])
    return took, 1, segment_max(scores, held.bags.offsets)


def by_torchmil(train, held, batch: int = 64):
    try:
        import torch
        from torchmil.data import collate_fn
        from torchmil.models import ABMIL
    except ImportError:
        return None

    class Stream(torch.utils.data.IterableDataset):
        """Bags of all parts, shuffled within each."""

        def __iter__(self):
            rng = np.random.default_rng(0)
            for data in train:
                X, Y, at = torch.from_numpy(data.bags.X), torch.from_numpy(data.Y), data.bags.offsets
                for bag in rng.permutation(len(data)):
                    yield {"X": X[at[bag] : at[bag + 1]], "Y": Y[bag]}

    torch.manual_seed(0)
    models = torch.nn.ModuleList([ABMIL((train.n_features,)) for _ in train.label_names])
    adam = torch.optim.Adam(models.parameters(), lr=1e-3)
    start = time.perf_counter()
    for bags in torch.utils.data.DataLoader(Stream(), batch_size=batch, collate_fn=collate_fn):
        adam.zero_grad()
        losses = [
            model.compute_loss(bags["Y"][:, k], bags["X"], bags["mask"])[1] for k, model in enumerate(models)
        ]
        sum(next(iter(loss.values())) for loss in losses).backward()
        adam.step()
    took = time.perf_counter() - start
    found = []
    with torch.no_grad():
        for first in range(0, len(held), 500):
            part = held[first : first + 500].bags
            items = [{"X": torch.from_numpy(np.ascontiguousarray(x))} for x in part]
            bags = collate_fn(items)
            found.append(torch.stack([m.predict(bags["X"], bags["mask"], False) for m in models], 1))
    return took, 1, torch.cat(found).double().numpy()


def by_mimlfast(train, held):
    start = time.perf_counter()
    model = MIMLFast(max_iter=3, random_state=0, n_sub_concepts=1).fit(train)
    return time.perf_counter() - start, 3, model.decision_function(held.bags)


def by_ored(train, held):
    start = time.perf_counter()
    model = ORedLogisticRegression(alpha=1.0, background=False, decision="union", max_iter=15).fit(train)
    return time.perf_counter() - start, model.n_iter_, model.decision_function(held.bags)
