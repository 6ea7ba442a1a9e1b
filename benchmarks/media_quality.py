"""How well whole files and the parts in them are named after training on labels of whole files alone.

python benchmarks/media_quality.py [textures digits superpixels documents slides ...]

Media with known truth are generated in a temporary folder; models learn from the first two thirds of the
files and answer for the rest. Files: macro-averaged average precision of the labels and share of files
with exactly the right set. Parts: of those that a true span covers by half or more, the share whose
largest score is that of the span's label. "pooled" is a logistic regression on means of a file's parts,
its parts judged as files of one part; "copied" trains one on parts that have all labels of their file.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from bagwise import Dataset
from bagwise.datasets import make_collages, make_documents, make_slides
from bagwise.media import EmbeddingsToBags, ImagesToBags, TextToBags, find_files
from bagwise.media.labels import instance_labels
from bagwise.media.labels.span import Span
from bagwise.metrics import mean_average_precision
from bagwise.models import BagClassifier

KINDS = {
    "textures": (lambda f: make_collages(f, 180), ImagesToBags()),
    "superpixels": (lambda f: make_collages(f, 180), ImagesToBags("superpixels")),
    "digits": (lambda f: make_collages(f, 300, kind="digits"), ImagesToBags(grid=[3, 6])),
    "documents": (lambda f: make_documents(f, 300), TextToBags()),
    "slides": (lambda f: make_slides(f, 90, suffix=".npz"), EmbeddingsToBags()),
}


def logistic(sparse):
    scaler = MaxAbsScaler() if sparse else StandardScaler()
    return make_pipeline(scaler, OneVsRestClassifier(LogisticRegression(C=1.0, max_iter=2000)))


def means(bags):
    rows = [np.asarray(bags[i].mean(axis=0)).ravel() for i in range(len(bags))]
    return np.array(rows)


def pooled(train, Y, test):
    model = logistic(False).fit(means(train), Y)
    parts = test.X.toarray() if test.is_sparse else test.X
    return model.predict_proba(means(test)), model.predict_proba(parts)


def copied(train, Y, test):
    model = logistic(train.is_sparse).fit(train.X, Y[train.index])
    parts = model.predict_proba(test.X)
    return np.array([parts[test.index == i].max(axis=0) for i in range(len(test))]), parts


def ours(train, Y, test):
    model = BagClassifier(random_state=0).fit(train, Y)
    return model.predict_proba(test), model.instance_scores(test)


def judged(kind):
    make, maker = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        truth = make(Path(folder))
        bags = maker.fit_transform(find_files(folder))
    data = Dataset(bags, [truth.labels[name] for name in bags.bag_ids])
    places = {"x", "y", "width", "height", "start_char", "end_char"}
    spans = [Span(s["file"], s["label"], **{k: v for k, v in s.items() if k in places}) for s in truth.spans]
    known = instance_labels(spans, bags, data.label_names)
    cut = 2 * len(bags) // 3
    train, test, Y = bags[:cut], bags[cut:], np.asarray(data.Y)
    known = known[bags.index >= cut]
    print(f"{kind}: {len(train)} + {len(test)} files, {bags.n_instances} parts, {Y.shape[1]} labels")
    for name, model in (("pooled", pooled), ("copied", copied), ("BagClassifier", ours)):
        start = time.process_time()
        whole, parts = model(train, Y[:cut], test)
        seconds = time.process_time() - start
        exact = ((whole > 0.5) == Y[cut:]).all(axis=1).mean()
        right = (parts.argmax(axis=1) == known)[known >= 0].mean()
        precision = mean_average_precision(Y[cut:], whole)
        print(f"  {name:14s} files {precision:.3f}, exact {exact:.3f}, parts {right:.3f}, {seconds:.0f} s")


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    words.add_argument("kinds", nargs="*", help=f"among {', '.join(KINDS)}; all by default")
    for kind in words.parse_args().kinds or KINDS:
        judged(kind)
