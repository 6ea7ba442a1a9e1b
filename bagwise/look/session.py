"""What a page, or a program, asks while a person looks at bags through the eyes of a model.

`open_session` opens data, a model and corrections; all that a `Session` answers is plain data. Each kind of
question has a file of its own, which the session hands it to.
"""

from __future__ import annotations

import threading
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.actions.data import File, Opened, bags_for, open_data, open_for
from bagwise.bags import Bags, MultiViewBags
from bagwise.bags.dataset import UNKNOWN, Dataset
from bagwise.datasets import is_registered
from bagwise.errors import BagwiseError, DataError
from bagwise.look.answers import Answers, number_or_none, spread
from bagwise.look.corrections import Corrections
from bagwise.look.explaining import Explainer
from bagwise.look.originals import Originals
from bagwise.look.overview import overview, quality_curve
from bagwise.look.table import Table
from bagwise.media.gathering import collect
from bagwise.media.recipe import transformers
from bagwise.persistence import load


class Session:
    """Data, the answers of a model, and corrections; see `open_session`.

    Attributes
    ----------
    names : list of str
        Labels: those of the model, then those that only the data know, then those that people added.
    table : Table
        Bags sorted and filtered, and the next bag to look at.
    seen : bool array of shape (n_bags,)
        Bags that were opened.
    corrected : int array of shape (n_bags,)
        Number of corrections of each bag that stand.
    """

    def __init__(
        self,
        dataset: Dataset,
        model: Any,
        corrections: Corrections,
        *,
        source: dict[str, Any] | None = None,
        root: Path | None = None,
        opened: Opened | None = None,
    ) -> None:
        self.dataset, self.corrections, self.root = dataset, corrections, root
        self.source = source or {"data": dataset.name, "model": None, "where": {}}
        bags = dataset.bags if model is None else bags_for(model, dataset)
        if isinstance(bags, MultiViewBags):
            raise DataError(f"has the views {', '.join(bags.view_names)}; look at one with view=...")
        expected = getattr(model, "n_features_in_", bags.n_features)
        if expected != bags.n_features:
            raise DataError(f"the model takes {expected} features, the data have {bags.n_features}")
        self.bags: Bags = bags
        self.sizes = bags.sizes
        self.mutex = threading.RLock()
        self.ids = [str(bag) for bag in bags.bag_ids.tolist()]
        self.numbers = {bag: number for number, bag in enumerate(self.ids)}
        self.seen = np.zeros(len(bags), dtype=bool)
        self.answers = None if model is None else Answers(model, bags)
        known = () if self.answers is None else self.answers.names
        self._base_names = list(dict.fromkeys([*known, *dataset.label_names]))
        self.model_version = 0
        self._thread: threading.Thread | None = None
        self._applied = -1
        self._sync()
        self.table = Table(self)
        self.originals = Originals(self, None if opened is None else opened.paths)
        self.explainer = Explainer(self)
        self.left_out = [] if opened is None else [*map(list, opened.unreadable)]
        self.left_out += (
            [] if opened is None else [[name, "nothing was found in it"] for name in opened.empty]
        )

    # ------------------------------------------------------------------ scoring

    def start(self) -> None:
        """Score the bags in a thread of its own."""
        if self.answers is not None and self._thread is None:
            self._thread = threading.Thread(target=self.answers.fill, daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Wait until all bags are scored."""
        if self.answers is not None:
            self.start()
            assert self._thread is not None
            self._thread.join()
            if self.answers.failed:
                raise BagwiseError(f"the model cannot score these bags: {self.answers.failed}")

    def stop(self) -> None:
        """Leave the rest unscored."""
        if self.answers is not None:
            self.answers.stopped = True

    def use(self, answers: Answers, model_path: str) -> None:
        """Look through another model from now on."""
        with self.mutex:
            self.answers = answers
            self.source = {**self.source, "model": model_path}
            self.corrections.model = Path(model_path).name
            self._base_names = list(dict.fromkeys([*answers.names, *self._base_names]))
            self.model_version += 1
            self._applied = -1
            self.explainer = Explainer(self)
            self._sync()

    # ------------------------------------------------------------------ what is known

    def _sync(self) -> None:
        """Take in corrections that came since, by whomever."""
        with self.mutex:
            self.corrections.refresh()
            if self.corrections.version == self._applied:
                return
            self.names = list(dict.fromkeys([*self._base_names, *self.corrections.labels()]))
            self.column = {name: k for k, name in enumerate(self.names)}
            self.given_columns = np.array([self.column[n] for n in self.dataset.label_names], dtype=np.int64)
            truth = np.full((len(self.ids), len(self.names)), UNKNOWN, dtype=np.int8)
            if self.dataset.has_labels:
                truth[:] = 0
                truth[:, self.given_columns] = self.dataset.Y
            self._truth = truth
            self.corrected = np.zeros(len(self.ids), dtype=np.int32)
            for bag in self.corrections.bags():
                if bag in self.numbers:
                    self._overlay(bag, truth[self.numbers[bag]])
            self._applied = self.corrections.version

    def _overlay(self, bag: str, row: np.ndarray) -> None:
        """Put what people said of one bag and its parts over a row of labels."""
        self.corrected[self.numbers[bag]] = self.corrections.count(bag)
        if self.corrections.accepted(bag):
            row[row == UNKNOWN] = 0
        for answer in self.corrections.parts(bag).values():
            if answer.label in self.column:
                row[self.column[answer.label]] = 1
        for name, said in self.corrections.bag(bag).items():
            if name in self.column:
                row[self.column[name]] = {"yes": 1, "no": 0}.get(said, UNKNOWN)

    @property
    def truth(self) -> np.ndarray:
        """What is known of every bag and label: 1, 0, or -1; corrections overrule the data."""
        self._sync()
        return self._truth

    @property
    def version(self) -> list[int]:
        """Changes whenever an answer may: model, bags scored, corrections."""
        self._sync()
        done = 0 if self.answers is None else self.answers.done
        return [self.model_version, done, self.corrections.version]

    def wide(self, matrix: np.ndarray, fill: Any) -> np.ndarray:
        """A matrix over the model's labels, with columns for the other labels."""
        if matrix.shape[1] == len(self.names):
            return matrix
        return spread(matrix, len(self.names), fill)

    def shown(self, truth: np.ndarray, rows: slice = slice(None)) -> np.ndarray:
        """Which labels bags carry as they are shown: what is known, and else what is predicted."""
        if self.answers is None:
            return truth == 1
        return np.where(truth == UNKNOWN, self.wide(self.answers.chosen[rows], False), truth == 1)

    def wrong(self, truth: np.ndarray) -> np.ndarray:
        """Where what is predicted is not what is known; only labels that the model has."""
        assert self.answers is not None
        n = self.answers.chosen.shape[1]
        known = truth[:, :n]
        return self.wide((known != UNKNOWN) & (self.answers.chosen != (known == 1)), False)

    def wide_truth(self, names: list[str]) -> np.ndarray:
        """What is known, with a column for each of these names; -1 for labels that nobody knows here."""
        truth = self.truth
        wide = np.full((len(truth), len(names)), UNKNOWN, dtype=np.int8)
        for k, name in enumerate(names):
            if name in self.column:
                wide[:, k] = truth[:, self.column[name]]
        return wide

    def label(self, label: str | None) -> int | None:
        """Column of a label by name."""
        if label is None or label == "":
            return None
        self._sync()
        if label not in self.column:
            raise DataError(f"no label {label!r} among the {len(self.names)} of these data and this model")
        return self.column[label]

    # ------------------------------------------------------------------ asking

    def overview(self) -> dict[str, Any]:
        """What there is: labels with counts, quality and calibration where truth is known, the model."""
        return overview(self)

    def curve(self, label: str) -> dict[str, Any]:
        """Precision, recall and number of bags predicted over the threshold of one label."""
        return quality_curve(self, self.label(label))

    def explain(self, number: int, *, given: bool = False) -> dict[str, Any]:
        """All about one bag: its labels, its parts with the values of all labels, and its medium.

        Parameters
        ----------
        number : int
            Place of the bag in the data, from 0.
        given : bool, default=False
            Whether parts are labelled within the labels that the bag is known to carry.
        """
        self._check(number)
        return self.explainer.explain(number, given)

    def see(self, number: int) -> None:
        """Count a bag as looked at."""
        self._check(number)
        self.seen[number] = True

    def _check(self, number: int) -> None:
        if not 0 <= number < len(self.ids):
            raise DataError(f"no bag {number}; there are {len(self.ids)}, counted from 0")

    # ------------------------------------------------------------------ correcting

    def correct(
        self, number: int, answer: str, *, part: int | None = None, label: str | None = None
    ) -> dict[str, Any]:
        """Write down one correction; see `Corrections.add`."""
        self._check(number)
        bag, size = self.ids[number], int(self.sizes[number])
        if part is not None and not 0 <= part < size:
            raise DataError(f"bag {bag!r} has {size} parts, counted from 0; got {part}")
        label = None if label is None else " ".join(label.split())
        if label is not None and not 0 < len(label) <= 200:
            raise DataError("a label has 1 to 200 characters")
        truth = self.truth
        labels = None
        if answer == "accepted":
            shown = self.shown(truth[number : number + 1], slice(number, number + 1))[0]
            labels = [name for name, held in zip(self.names, shown) if held]
        if part is None:
            before = self._before_bag(number, label)
        else:
            before = {"answer": self.corrections.part(bag, part).to_dict()}
            seen, values = self.explainer.part(number, part)
            if seen is not None:
                before |= {"label": self.names[seen], "probability": number_or_none(values[seen])}
        entry = self.corrections.add(bag, answer=answer, part=part, label=label, before=before, labels=labels)
        self._update(number)
        return entry

    def _before_bag(self, number: int, label: str | None) -> dict[str, Any]:
        before: dict[str, Any] = {"answer": self.corrections.bag(self.ids[number]).get(label or "")}
        column = self.column.get(label or "", -1)
        if self.answers is not None and 0 <= column < len(self.answers.names):
            before["probability"] = number_or_none(self.answers.values[number, column])
            before["predicted"] = bool(self.answers.chosen[number, column])
        return before

    def undo(self, which: str | None = None) -> dict[str, Any] | None:
        """Take back a correction, by default the last; None if there is none."""
        entry = self.corrections.undo(which)
        if entry is not None and entry["bag"] in self.numbers:
            self._update(self.numbers[entry["bag"]])
        return entry

    def _update(self, number: int) -> None:
        """Take in one correction without going through all bags."""
        with self.mutex:
            bag = self.ids[number]
            mentioned = set(self.corrections.bag(bag))
            mentioned |= {a.label for a in self.corrections.parts(bag).values() if a.label is not None}
            if self.corrections.version != self._applied + 1 or not mentioned <= set(self.column):
                self._sync()
                return
            row = np.full(len(self.names), UNKNOWN, dtype=np.int8)
            if self.dataset.has_labels:
                row[:] = 0
                row[self.given_columns] = self.dataset[[number]].Y[0]
            self._overlay(bag, row)
            self._truth[number] = row
            self._applied = self.corrections.version


# ---------------------------------------------------------------------- opening


def open_session(
    data: File,
    model: File | None = None,
    *,
    corrections: File | None = None,
    author: str | None = None,
    originals: File | None = None,
    **where: Any,
) -> Session:
    """Open data, and a model if one is given, for looking.

    Parameters
    ----------
    data : path or name
        The data set: a file, a folder of originals, or the name of a registered set.
    model : path, optional
        Model file; without one the data are looked at alone.
    corrections : path, optional
        File of corrections; by default ``corrections.jsonl`` beside the data, and in the working folder for
        a registered set.
    author : str, optional
        Who corrects; by default whoever is logged in.
    originals : path, optional
        Folder of the recordings, pictures or texts that bags were cut from; by default that of the data.
    **where
        Part, view, format and options of a data set, see `open_data`; ``labels``, ``n_jobs``, ``say`` and
        ``step`` for raw files, see `open_for`.

    Examples
    --------
    >>> session = open_session("digits", options={"n_bags": 20})
    >>> session.table.rows(limit=1)["rows"][0]["id"]
    'n00'
    """
    fitted = None if model is None else load(model)
    opened = _opened(data, where) if fitted is None else open_for(fitted, data, in_memory=True, **where)
    dataset = opened.data
    if not len(dataset):
        raise DataError("holds no bags to look at", path=data)
    named = is_registered(str(data))
    beside = Path(data).absolute()
    place = Path.cwd() if named else beside if beside.is_dir() else beside.parent
    kept = Corrections(
        place / "corrections.jsonl" if corrections is None else corrections,
        str(data) if named else beside.name,
        author=author,
        model=None if model is None else Path(model).name,
    )
    root = Path(originals) if originals is not None else None if named else place
    plain = {
        name: str(value) if isinstance(value, PathLike) else value
        for name, value in where.items()
        if value is not None and not callable(value)
    }
    source = {"data": str(data), "model": None if model is None else str(model), "where": plain}
    return Session(dataset, fitted, kept, source=source, root=root, opened=opened)


def explain(data: File, bag: str, model: File | None = None, **more: Any) -> dict[str, Any]:
    """Say all about one bag: its labels, its parts with the values of all labels, and where they lie.

    Parameters
    ----------
    data : path or name
        The data set, or raw files.
    bag : str
        Id of the bag.
    model : path, optional
        Model file.
    **more
        As for `open_session`.

    Examples
    --------
    >>> found = explain("digits", "n03", options={"n_bags": 20})
    >>> found["size"] == len(found["parts"]), found["view"]["kind"]
    (True, 'pictures')
    """
    session = open_session(data, model, **more)
    if bag not in session.numbers:
        raise DataError(f"no bag {bag!r}; the first is {session.ids[0]!r}", path=data)
    return {**session.explain(session.numbers[bag]), "names": session.names}


def _opened(data: File, where: dict[str, Any]) -> Opened:
    """Data to look at without a model: a data set, or raw files, cut as `bagwise gather` cuts them."""
    given = {name: where[name] for name in ("part", "view", "format", "options") if where.get(name)}
    path = Path(data)
    raw = path.is_dir() or any(path.name.lower().endswith(kind.suffixes) for kind in transformers())
    try:
        whole = open_data(data, **given)
        return Opened(whole, whole)
    except DataError:
        if given or not raw or not path.exists():
            raise
    how = {name: where[name] for name in ("labels", "n_jobs", "say", "step") if where.get(name)}
    found = collect(data, how.pop("labels", None), **how)
    return Opened(found.dataset, found.dataset, found.empty, found.unreadable, found.paths)
