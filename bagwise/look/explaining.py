"""One bag explained: the values of all labels for the bag and for each of its parts, and where parts lie."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import svds

from bagwise.actions.answers import knows_probabilities
from bagwise.bags import Bags
from bagwise.bags.dataset import UNKNOWN
from bagwise.inspection import annotate, instance_scores, last_estimator
from bagwise.look.answers import Recent, number_or_none
from bagwise.media.places import medium_of, place_columns

if TYPE_CHECKING:
    from bagwise.look.session import Session


MOST_PARTS = 2_000  # of one bag that are shown
MOST_TILES = 20_000  # of one slide
_MOST_CELLS = 400_000  # values of labels for parts that one answer holds
_MOST_FEATURES = 12  # columns of the table of bare features
_MOST_PIXELS = 64 * 64  # of a part's picture
_KEPT = 64  # bags whose parts are remembered


class Explainer:
    """Explains single bags of a session; remembers the last ones."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.projection = Projection(session.bags)
        self._parts = Recent(_KEPT, session.mutex)

    @property
    def most_parts(self) -> int:
        """Parts of a bag that are shown: fewer where there are very many labels."""
        most = MOST_TILES if self.session.originals.medium == "slide" else MOST_PARTS
        return max(50, min(most, _MOST_CELLS // max(len(self.session.names), 1)))

    # ------------------------------------------------------------------ parts

    def values(self, number: int, given: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Label of each part shown (-1: none) and the values of the model's labels; without a model, none."""
        session = self.session
        n_parts = min(int(session.sizes[number]), self.most_parts)
        if session.answers is None or n_parts == 0:
            return np.full(n_parts, -1), np.zeros((n_parts, 0), dtype=np.float32)
        known = session.truth[number, : len(session.answers.names)] == 1
        given = given and bool(known.any())
        key = (number, given, known.tobytes() if given else b"")
        most = self.most_parts
        return self._parts.get(
            key, lambda: tuple(a[:most] for a in self.answers_of(number, known if given else None))
        )

    def answers_of(self, number: int, known: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Label and values of all parts of a bag, however many; within the labels ``known``, if given."""
        answers, size = self.session.answers, int(self.session.sizes[number])
        if answers is None or size == 0:
            return np.full(size, -1), np.zeros((size, 0), dtype=np.float32)
        bag = self.session.bags[number : number + 1]
        Y = None if known is None else known[None].astype(np.int8)
        inner = last_estimator(answers.model)
        if knows_probabilities(inner):
            labels, values = annotate(answers.model, bag, Y, return_proba=True)
        else:
            labels = annotate(answers.model, bag, Y) if hasattr(inner, "annotate") else None
            scores = instance_scores(answers.model, bag)
            values = answers.squeezed(scores)
            labels = scores.argmax(axis=1) if labels is None else labels
        return np.asarray(labels), np.asarray(values, dtype=np.float32)

    def part(self, number: int, part: int) -> tuple[int | None, np.ndarray]:
        """Label of one part as the model sees it, and its values; None without a model."""
        labels, values = self.values(number)
        if part >= len(labels) or labels[part] < 0:
            return None, np.zeros(0)
        return int(labels[part]), values[part]

    # ------------------------------------------------------------------ bags

    def explain(self, number: int, given: bool) -> dict[str, Any]:
        """See `Session.explain`."""
        session = self.session
        truth = session.truth[number]
        bag = session.ids[number]
        return {
            "number": number,
            "id": bag,
            "size": int(session.sizes[number]),
            "labels": self._labels(number, bag, truth),
            "parts": self._part_facts(number, bag, given),
            "accepted": session.corrections.accepted(bag),
            "corrected": int(session.corrected[number]),
            "given": given,
            "view": self._view(number),
            "version": session.version,
        }

    def _labels(self, number: int, bag: str, truth: np.ndarray) -> list[dict[str, Any]]:
        session, answers = self.session, self.session.answers
        said = session.corrections.bag(bag)
        scored = answers is not None and number < answers.done
        if answers is not None and not scored:  # asked for before its turn
            one = answers.alone(number)
        rows = []
        for k, name in enumerate(session.names):
            row: dict[str, Any] = {"label": k, "known": int(truth[k]), "answer": said.get(name)}
            if answers is not None and k < len(answers.names):
                values, chosen = (answers.values[number], answers.chosen[number]) if scored else one
                row |= {"value": number_or_none(values[k]), "chosen": bool(chosen[k])}
            rows.append(row)
        return rows

    def _part_facts(self, number: int, bag: str, given: bool) -> list[dict[str, Any]]:
        session = self.session
        labels, values = self.values(number, given)
        said = session.corrections.parts(bag)
        start = int(session.bags.offsets[number])
        known = session.dataset.instance_Y
        rounded = np.round(values.astype(np.float64), 3)
        rounded[~np.isfinite(rounded)] = 0.0
        parts = []
        for p in range(len(labels)):
            fact: dict[str, Any] = {
                "part": p,
                "label": int(labels[p]) if labels[p] >= 0 else None,
                "values": rounded[p].tolist(),
                "answer": said[p].to_dict() if p in said else None,
            }
            if known is not None and known[start + p] != UNKNOWN:
                fact["known"] = session.column[session.dataset.label_names[known[start + p]]]
            parts.append(fact)
        return parts

    # ------------------------------------------------------------------ the medium

    def _view(self, number: int) -> dict[str, Any]:
        """What a page needs to draw the parts: their places in a medium, their pictures, or features."""
        session = self.session
        a = int(session.bags.offsets[number])
        b = min(int(session.bags.offsets[number + 1]), a + self.most_parts)
        info = session.bags.instance_info
        medium = medium_of(info)
        if medium is not None:
            return {"kind": medium, **self._places(medium, a, b), **session.originals.facts(number)}
        pictures = info.get("picture")
        if pictures is not None and pictures.ndim == 3 and np.prod(pictures.shape[1:]) <= _MOST_PIXELS:
            # grey values from 0 to 255, row by row
            shown = np.asarray(pictures[a:b], dtype=np.float64)
            top = max(float(shown.max(initial=0)), 1.0)
            top = 255.0 if top > 16 else 16.0 if top > 1 else 1.0
            grey = np.clip(shown / top * 255, 0, 255).astype(int).reshape(len(shown), -1).tolist()
            return {"kind": "pictures", "height": shown.shape[1], "width": shown.shape[2], "grey": grey}
        features = self._features(a, b)
        return {"kind": "features", **features, **self.projection.place(a, b)}

    def _places(self, medium: str, a: int, b: int) -> dict[str, Any]:
        info = self.session.bags.instance_info
        places: dict[str, Any] = {}
        for name, kind in place_columns(medium).items():
            if name in info:
                column = info[name][a:b]
                places[name] = [str(v) for v in column] if kind is object else np.round(column, 4).tolist()
        files = list(dict.fromkeys(places.pop("file")))
        return {"files": files, "places": places}

    def _features(self, a: int, b: int) -> dict[str, Any]:
        """The features that stand out most in this bag; all of them where there are few."""
        bags = self.session.bags
        rows = bags.X[a:b].toarray() if sparse.issparse(bags.X) else np.asarray(bags.X[a:b])
        names = bags.feature_names or tuple(f"f{k + 1}" for k in range(bags.n_features))
        centre, spread = self.projection.centre, self.projection.spread
        which = np.arange(rows.shape[1])
        if len(which) > _MOST_FEATURES and len(rows):
            distance = np.nan_to_num(np.abs((rows - centre) / spread)).mean(axis=0)
            which = np.sort(np.argsort(-distance, kind="stable")[:_MOST_FEATURES])
        with np.errstate(over="ignore"):
            table = rows[:, which].astype(np.float64)
            shade = np.clip((table - centre[which]) / spread[which], -3, 3)
        return {
            "features": [names[k] for k in which],
            "n_features": int(rows.shape[1]),
            "table": [[float(f"{v:.4g}") if np.isfinite(v) else None for v in row] for row in table],
            "shade": np.round(np.nan_to_num(shade), 2).tolist(),
        }


# ---------------------------------------------------------------------- instances on a plane


_SAMPLE = 2_000  # instances that the plane is learned from
_CLOUD = 300  # of them shown behind the bag's own
_WIDEST = 4_000  # features: beyond, the plane goes through the origin and nothing is centred


class Projection:
    """The first two principal components of a sample of instances, learned when first asked for.

    Examples
    --------
    >>> bags = Bags.from_list([[[0.0, 1.0], [2.0, 1.5]], [[4.0, 0.0]]])
    >>> len(Projection(bags).place(0, 2)["points"])
    2
    """

    def __init__(self, bags: Bags) -> None:
        self.bags = bags

    @cached_property
    def sample(self) -> Any:
        """Rows drawn evenly over the whole set."""
        n = self.bags.n_instances
        return _finite(
            self.bags.X[np.unique(np.linspace(0, max(n - 1, 0), min(n, _SAMPLE)).astype(np.int64))]
        )

    @cached_property
    def centre(self) -> np.ndarray:
        """Mean of every feature."""
        if not self.sample.shape[0]:
            return np.zeros(self.bags.n_features)
        return np.asarray(self.sample.mean(axis=0, dtype=np.float64)).ravel()

    @cached_property
    def spread(self) -> np.ndarray:
        """Standard deviation of every feature, 1 where it is constant."""
        if not self.sample.shape[0]:
            return np.ones(self.bags.n_features)
        X = self.sample
        square = X.multiply(X) if sparse.issparse(X) else np.square(X, dtype=np.float64)
        variance = np.asarray(square.mean(axis=0)).ravel() - self.centre**2
        spread = np.sqrt(np.maximum(variance, 0.0))
        return np.where(spread > 1e-12, spread, 1.0)

    @cached_property
    def axes(self) -> tuple[np.ndarray, np.ndarray]:
        """Directions (2, n_features) and the share of the variance that each explains."""
        X, d = self.sample, self.bags.n_features
        if min(X.shape) < 2:
            return np.eye(2, d), np.zeros(2)
        if sparse.issparse(X) and d > _WIDEST:
            scaled = X @ sparse.diags(1.0 / self.spread)
            if min(scaled.shape) <= 2:
                return np.eye(2, d), np.zeros(2)
            _, s, V = svds(scaled.astype(np.float64), k=2, random_state=0)
            order = np.argsort(-s)
            total = max(float(scaled.multiply(scaled).sum()), 1e-300)
            return _signed(V[order]), s[order] ** 2 / total
        dense = X.toarray() if sparse.issparse(X) else np.asarray(X)
        Z = (dense - self.centre) / self.spread
        gram = Z.T @ Z if Z.shape[1] <= len(Z) else Z @ Z.T
        values, vectors = np.linalg.eigh(gram)
        top = vectors[:, [-1, -2]]
        V = top.T if Z.shape[1] <= len(Z) else (Z.T @ top).T
        norms = np.linalg.norm(V, axis=1, keepdims=True)
        V = np.divide(V, norms, out=np.zeros_like(V), where=norms > 0)
        return _signed(V), np.maximum(values[[-1, -2]], 0) / max(float(values.sum()), 1e-300)

    def _project(self, X: Any) -> np.ndarray:
        W = self.axes[0] / self.spread
        centred = not (sparse.issparse(self.sample) and self.bags.n_features > _WIDEST)
        return np.asarray(X @ W.T) - (self.centre @ W.T if centred else 0.0)

    def place(self, a: int, b: int) -> dict[str, Any]:
        """Points of the rows from ``a`` to ``b``, with the cloud of all and the variance explained."""
        points = np.round(self._project(_finite(self.bags.X[a:b])), 3).tolist() if b > a else []
        n = self.sample.shape[0]
        rows = np.linspace(0, n - 1, min(n, _CLOUD)).astype(np.int64)
        cloud = np.round(self._project(self.sample[rows]), 3).tolist() if n else []
        return {"points": points, "cloud": cloud, "explained": np.round(self.axes[1], 3).tolist()}


def _finite(X: Any) -> Any:
    """Rows with 0 in place of what is missing or infinite: the plane shows what there is."""
    values = X.data if sparse.issparse(X) else X
    if np.isfinite(values).all():
        return X
    X = X.copy()
    if sparse.issparse(X):
        X.data = np.nan_to_num(X.data, posinf=0.0, neginf=0.0)
        return X
    return np.nan_to_num(X, posinf=0.0, neginf=0.0)


def _signed(V: np.ndarray) -> np.ndarray:
    """Directions whose largest entry is positive, so that the picture does not flip between runs."""
    largest = V[np.arange(len(V)), np.abs(V).argmax(axis=1)]
    return V * np.where(largest < 0, -1.0, 1.0)[:, None]
