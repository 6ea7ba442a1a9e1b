"""One bag explained: the values of all labels for the bag and for each of its parts, and where parts lie."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from bagwise.actions.looking.projection import Projection
from bagwise.actions.looking.answers import number_or_none
from bagwise.bags.dataset import UNKNOWN
from bagwise.base import MIMLClassifier
from bagwise.inspection import annotate, instance_scores, last_estimator
from bagwise.media.places import medium_of, place_columns

if TYPE_CHECKING:
    from bagwise.actions.looking.session import Session

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
        self._parts: OrderedDict[tuple[int, bool, bytes], Any] = OrderedDict()

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
        with session.mutex:
            if key in self._parts:
                self._parts.move_to_end(key)
                return self._parts[key]
        labels, values = self.answers_of(number, known if given else None)
        found = labels[: self.most_parts], values[: self.most_parts]
        with session.mutex:
            self._parts[key] = found
            while len(self._parts) > _KEPT:
                self._parts.popitem(last=False)
        return found

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
            "corrected": int(session.spoken[number]),
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
            return {"kind": "pictures", **_pictures(pictures[a:b])}
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


def knows_probabilities(model: Any) -> bool:
    """Whether ``annotate`` gives probabilities; a model that annotates in its own way always does."""
    if not isinstance(model, MIMLClassifier):
        return False
    return model.traits.probabilities or type(model)._annotations is not MIMLClassifier._annotations


def _pictures(pictures: np.ndarray) -> dict[str, Any]:
    """Grey values from 0 to 255, row by row."""
    top = max(float(pictures.max(initial=0)), 1.0)
    top = 255.0 if top > 16 else 16.0 if top > 1 else 1.0
    grey = np.clip(np.asarray(pictures, dtype=np.float64) / top * 255, 0, 255).astype(int)
    return {"height": grey.shape[1], "width": grey.shape[2], "grey": grey.reshape(len(grey), -1).tolist()}
