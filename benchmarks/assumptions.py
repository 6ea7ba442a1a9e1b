"""Which deep head keeps the multi-instance assumption: AUC on sets with a shortcut that turns round.

    python benchmarks/assumptions.py [--members 2]

A bag carries a label exactly if it holds an instance that causes it. Each set offers something else that goes
with the label in training and against it in the test part: 1 is a model that learned the rule, below .5
one that took the shortcut.
"""

from __future__ import annotations

import argparse

from sklearn.metrics import roc_auc_score

from bagwise.datasets import make_absence_trap, make_counting_trap, make_order_trap
from bagwise.models import DeepMIML, ORedLogisticRegression, PooledClassifier

SETS = {"absence": make_absence_trap, "counting": make_counting_trap, "order": make_order_trap}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=2)
    arguments = parser.parse_args()
    heads = ("attention", "instance", "pool", "prototype", "transformer")
    models = {head: DeepMIML(head, arguments.members, random_state=0) for head in heads}
    models |= {"prototype, max": DeepMIML("prototype", arguments.members, pooling="max", random_state=0)}
    models |= {
        "ORedLogisticRegression": ORedLogisticRegression(),
        "pooled forest": PooledClassifier(random_state=0),
    }
    print(f"{'model':24}" + "".join(f"{name:>10}" for name in SETS))
    for name, model in models.items():
        row = []
        for make in SETS.values():
            data = make(random_state=0)
            train, test = data["train"], data["test"]
            scores = model.fit(train.bags, train.Y).decision_function(test.bags)
            row.append(roc_auc_score(test.Y, scores))
        print(f"{name:24}" + "".join(f"{value:10.3f}" for value in row), flush=True)


if __name__ == "__main__":
    main()
