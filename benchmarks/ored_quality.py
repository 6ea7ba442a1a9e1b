"""ORed logistic regression beside pooled statistics on public sets, and beside copied labels on sentences.

    python benchmarks/ored_quality.py sets|text --data FOLDER [--folds 5] [--only N ...] [--development]

No suite covers these: they compare defaults with the simplest rules, not with a paper. Every model sees the
same folds, and nothing is chosen on them. CPU seconds of one core.
"""

import argparse
import os
import time
import warnings

import numpy as np
from scipy import sparse
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bagwise import Bags, load_dataset
from bagwise.compute.segment import segment_max
from bagwise.metrics import average_precision, ranking_loss
from bagwise.model_selection import MultilabelKFold
from bagwise.models import MIMLDummy, ORedLogisticRegression, PooledClassifier

SETS = ("miml_birds", "letter_frost", "letter_carroll", "msrcv2", "miml_scene")
MODELS = {
    "ORed LR (default)": lambda: ORedLogisticRegression(),
    "ORed LR, union of instance labels": lambda: ORedLogisticRegression(decision="union"),
    "mean, min, max + extra-trees": lambda: PooledClassifier(
        ExtraTreesClassifier(200, random_state=0), statistics=("mean", "min", "max")
    ),
    "mean + logistic regression": lambda: PooledClassifier(
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)), statistics=("mean",)
    ),
    "dummy": lambda: MIMLDummy(),
}


def row(*cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def sets(folder, n_folds):
    row("set", "model", "Hamming loss", "average precision", "ranking loss", "CPU s of a fit")
    row(*["---"] * 6)
    for name in SETS:
        data = load_dataset(name, data_home=folder)
        folds = list(MultilabelKFold(n_folds, random_state=0).split(data.bags, data.Y))
        for title, make in MODELS.items():
            figures = []
            for train, test in folds:
                start = time.process_time()
                model = make().fit(data.bags[train], data.Y[train])
                seconds = time.process_time() - start
                bags, Y = data.bags[test], data.Y[test]
                P = model.predict_proba(bags)
                wrong = (model.predict(bags) != Y).mean()
                figures.append((wrong, average_precision(Y, P), ranking_loss(Y, P), seconds))
            hamming, precision, ranking, seconds = np.mean(figures, axis=0)
            row(name, title, f"{hamming:.4f}", f"{precision:.3f}", f"{ranking:.3f}", f"{seconds:.2f}")


def stories(folder, part, n_documents, rng, topics=None, share_without=0.25):
    """Documents of two or three Reuters stories of one topic or none, which is that of their sentences."""
    data = load_dataset("mltm_reuters", data_home=folder, part=part)
    n_labels = data.Y.sum(axis=1)
    topic = np.where(n_labels == 1, data.Y.argmax(axis=1), -1)
    if topics is None:
        topics = np.flatnonzero(np.bincount(topic[n_labels == 1], minlength=data.Y.shape[1]) >= 20)
    some = rng.permutation(np.flatnonzero((n_labels == 1) & np.isin(topic, topics))).tolist()
    none = rng.permutation(np.flatnonzero(n_labels == 0)).tolist()
    rows, truth, sizes, Y = [], [], [], np.zeros((n_documents, len(topics)), dtype=np.int8)
    for document in range(n_documents):
        sizes.append(0)
        for _ in range(rng.integers(2, 4)):
            story = (none if rng.random() < share_without else some).pop()  # each story once
            first, last = data.bags.offsets[story : story + 2]
            label = int(np.searchsorted(topics, topic[story])) if topic[story] >= 0 else -1
            Y[document, label] |= label >= 0
            rows.append(np.arange(first, last))
            truth.append(np.full(last - first, label))
            sizes[-1] += last - first
    X = data.bags.X[np.concatenate(rows)]
    return X, np.concatenate([[0], np.cumsum(sizes)]), Y, np.concatenate(truth), topics


def text_sets(folder):
    rng = np.random.default_rng(0)
    *train, topics = stories(folder, "train", 1500, rng)
    *test, _ = stories(folder, "test", 500, rng, topics)
    yield "Reuters stories joined, a quarter of the sentences without topic", train, test
    kept = [np.flatnonzero(part[2].any(axis=1)) for part in (train, test)]
    yield "... documents without any topic left out", *(chosen(*pair) for pair in zip((train, test), kept))
    parts = [load_dataset("mltm_dbpedia", data_home=folder, part=part) for part in ("train", "test")]
    parts[0] = parts[0][np.sort(rng.permutation(len(parts[0].bags))[:1500])]
    dbpedia = [[d.bags.X, d.bags.offsets, d.Y, d.instance_Y] for d in parts]
    yield "DBpedia, 1,500 documents", *dbpedia
    yield (
        "... three of ten topics hidden",
        *([X, o, Y[:, :7], np.where(z < 7, z, -1)] for X, o, Y, z in dbpedia),
    )
    yield "... sentences joined by six: most label sets impossible", *(joined(*part, 6) for part in dbpedia)


def development_sets(folder):
    """The same kinds of documents without the published test parts, for looking at while settling rules."""
    rng = np.random.default_rng(5)
    *drawn, _ = stories(folder, "train", 1200, rng)
    parts = [chosen(drawn, np.arange(900)), chosen(drawn, np.arange(900, 1200))]
    yield "Reuters stories joined, a quarter of the sentences without topic", *parts
    kept = [np.flatnonzero(part[2].any(axis=1)) for part in parts]
    yield "... documents without any topic left out", *(chosen(*pair) for pair in zip(parts, kept))
    sets = [load_dataset("mltm_dbpedia", data_home=folder, part=part) for part in ("train", "valid")]
    sets = [d[np.sort(rng.permutation(len(d.bags))[:n])] for d, n in zip(sets, (1200, 400))]
    dbpedia = [[d.bags.X, d.bags.offsets, d.Y, d.instance_Y] for d in sets]
    yield "... sentences joined by six: most label sets impossible", *(joined(*part, 6) for part in dbpedia)
    yield "... joined by three", *(joined(*part, 3) for part in dbpedia)
    yield "DBpedia, 1,200 documents", *dbpedia


def chosen(part, which):
    X, offsets, Y, z = part
    bags = Bags(X, offsets)
    return [bags[which].X, bags[which].offsets, Y[which], z[np.isin(bags.index, which)]]


def joined(X, offsets, Y, z, n):
    """Every n sentences of a document made one, which then carries several topics."""
    index = np.repeat(np.arange(len(Y)), np.diff(offsets))
    place = (np.arange(len(index)) - offsets[index]) // n
    _, piece = np.unique(index * 1000 + place, return_inverse=True)
    gather = sparse.csr_array((np.ones(len(piece)), (piece, np.arange(len(piece)))))
    new_offsets = np.concatenate([[0], np.cumsum(-(-np.diff(offsets) // n))])
    T = gather @ (z[:, None] == np.arange(Y.shape[1])).astype(float) > 0
    return [sparse.csr_array(gather @ X), new_offsets, Y, T]


def text(sets, only):
    row(
        "set",
        "model",
        "sentences: macro-AUC",
        "top-1",
        "bags: macro-AUC",
        "average precision",
        "CPU s",
        "chosen",
    )
    row(*["---"] * 8)
    for number, (title, train, test) in enumerate(sets, 1):
        if only and number not in only:
            continue
        tfidf = TfidfTransformer().fit(train[0])
        bags, new = (Bags(sparse.csr_array(tfidf.transform(X)), o) for X, o, *_ in (train, test))
        Y, T = train[2], test[3]
        T = T if T.ndim == 2 else T[:, None] == np.arange(Y.shape[1])
        start = time.process_time()
        copied = [LogisticRegression(max_iter=300).fit(bags.X, y[bags.index]) for y in Y.T]
        F = np.column_stack([model.decision_function(new.X) for model in copied])
        report(title, "logistic regression, copied labels", F, segment_max(F, new.offsets), T, test[2],
               time.process_time() - start, "")  # fmt: skip
        start = time.process_time()
        model = ORedLogisticRegression().fit(bags, Y)
        seconds = time.process_time() - start
        chosen = f"alpha {model.alpha_:g}, background {model.background_}, {model.bag_probability_}"
        report(title, "ORed LR (default)", model.instance_scores(new), model.predict_proba(new), T, test[2],
               seconds, chosen)  # fmt: skip


def report(title, model, F, S, T, Y, seconds, chosen):
    known = np.flatnonzero(T.any(axis=1))
    there, also = T.any(axis=0), Y.any(axis=0) & ~Y.all(axis=0)
    figures = (
        roc_auc_score(T[:, there], F[:, there], average="macro"),
        T[known, F[known].argmax(axis=1)].mean(),
        roc_auc_score(Y[:, also], S[:, also], average="macro"),
        average_precision(Y, S),
    )
    row(title, model, *(f"{value:.3f}" for value in figures), f"{seconds:.1f}", chosen)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("sets", "text"))
    parser.add_argument("--data", metavar="FOLDER", default=os.environ.get("BAGWISE_DATA"))
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--development", action="store_true", help="no document of the test parts")
    parser.add_argument("--only", nargs="+", type=int, help="of the sets of sentences, 1 to 5")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.what == "sets":
        sets(options.data, options.folds)
    else:
        documents = development_sets if options.development else text_sets
        text(documents(options.data), options.only)


if __name__ == "__main__":
    main()
