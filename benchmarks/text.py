"""BagClassifier on documents of sentences, at full size, beside ORed and two simple logistic regressions.

    python benchmarks/text.py mltm_dbpedia mltm_reuters --part valid|test [--train N] [--models NAME ...]

All models learn from the published training part and answer for another. Documents: average precision,
ranking loss, macro-averaged AUC and Hamming loss; sentences, where their topic is known: share of sentences
that get it, macro-averaged AUC of the scores, and the share where the topics of the document are given.
Logistic regressions have C = 1 and see tf-idf; with "copied" labels sentences have the topics of their
document, and a document gets the largest of its sentences.
"""

import argparse
import time
import warnings

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from bagwise import load_dataset, metrics
from bagwise.compute.segment import segment_max
from bagwise.models import BagClassifier, ORedLogisticRegression
from bagwise.models.auto.fit_linear import sum_rows

SETS = ("mltm_dbpedia", "mltm_reuters")


def restricted(F, Y, index):
    """The best label of each sentence among those of its document."""
    inside = np.where(Y[index] > 0, F, -np.inf)
    return np.where(Y[index].any(axis=1), inside.argmax(axis=1), -1)


def estimator(make):
    """A model of bagwise as a function of training and new documents."""

    def answer(train, new):
        model = make().fit(train.bags, train.Y)
        known = None if new.instance_Y is None else model.annotate(new.bags, new.Y)
        scores = model.predict_proba(new.bags) - 0.5
        facts = getattr(model, "weights_", None) or {"alpha": model.alpha_, "background": model.background_}
        return scores, model.instance_scores(new.bags), model.annotate(new.bags), known, facts

    return answer


def copied(train, new):
    """Logistic regression on sentences with the labels of their document."""
    tfidf = TfidfTransformer().fit(train.bags.X)
    X, Z = tfidf.transform(train.bags.X), tfidf.transform(new.bags.X)
    models = [LogisticRegression(max_iter=300).fit(X, y[train.bags.index]) for y in train.Y.T]
    F = np.column_stack([model.decision_function(Z) for model in models])
    return segment_max(F, new.bags.offsets), F, F.argmax(axis=1), restricted(F, new.Y, new.bags.index), {}


def summed(train, new):
    """Logistic regression on the words of whole documents; sentences are short documents to it."""
    documents = [sum_rows(sparse.csr_array(data.bags.X), data.bags.offsets) for data in (train, new)]
    tfidf = TfidfTransformer().fit(documents[0])
    models = [LogisticRegression(max_iter=300).fit(tfidf.transform(documents[0]), y) for y in train.Y.T]
    S, F = (
        np.column_stack([model.decision_function(tfidf.transform(X)) for model in models])
        for X in (documents[1], new.bags.X)
    )
    return S, F, F.argmax(axis=1), restricted(F, new.Y, new.bags.index), {}


MODELS = {
    "BagClassifier": estimator(lambda: BagClassifier(random_state=0, n_jobs=2)),
    "ORed": estimator(ORedLogisticRegression),
    "copied": copied,
    "summed": summed,
}


def report(name, title, new, answer, wall, cpu):
    """One line of figures."""
    S, F, labels, known, facts = answer
    Y, there = new.Y, new.Y.any(axis=0) & ~new.Y.all(axis=0)
    figures = {
        "ap": metrics.average_precision(Y, S),
        "rank": metrics.ranking_loss(Y, S),
        "auc": roc_auc_score(Y[:, there], S[:, there], average="macro"),
        "hamming": metrics.hamming_loss(Y, S > 0),
    }
    if new.instance_Y is not None:
        z = np.asarray(new.instance_Y)
        T = z[:, None] == np.arange(Y.shape[1])
        figures["sentences"] = (labels == z).mean()
        figures["sentence-auc"] = roc_auc_score(T, F, average="macro")
        figures["sentences-known"] = (known == z).mean()
    line = " ".join(f"{key}={value:.4f}" for key, value in figures.items())
    print(f"{name} {title}: {line} wall={wall:.1f} cpu={cpu:.1f} {facts}", flush=True)


def main():
    """Print a line per set and model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--part", default="valid", choices=("valid", "test"))
    parser.add_argument("--train", type=int, help="take so many training documents")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.sets:
        train, new = (load_dataset(name, part=part) for part in ("train", options.part))
        if options.train:
            rng = np.random.default_rng(0)
            train = train[np.sort(rng.permutation(len(train.bags))[: options.train])]
        for title in options.models:
            wall, cpu = time.perf_counter(), time.process_time()
            answer = MODELS[title](train, new)
            report(name, title, new, answer, time.perf_counter() - wall, time.process_time() - cpu)


if __name__ == "__main__":
    main()
