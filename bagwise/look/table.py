"""The table of bags: sorted, filtered and cut into pages; and which bag to look at next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise.bags.dataset import UNKNOWN
from bagwise.errors import DataError
from bagwise.look.answers import Recent, number_or_none

if TYPE_CHECKING:
    from bagwise.look.session import Session


ORDERS = ("number", "id", "size", "score", "uncertain", "rare", "wrong", "corrected")
SHOWN = ("all", "uncertain", "wrong", "unseen", "corrected")
_MOST_ROWS = 500  # of one page
_MOST_KEPT = 32  # orders remembered
_UNCERTAIN = 0.5  # a value between 1/4 and 3/4 for some label


class Table:
    """Bags in the orders that a person may wish.

    Numbers to sort by, and sorted bags, are kept until answers, corrections or what was seen change.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._kept = Recent(_MOST_KEPT, session.mutex)

    # ------------------------------------------------------------------ numbers to sort by

    def measure(self, name: str, label: int | None = None) -> np.ndarray:
        """A number per bag: size, score, uncertain, rare, wrong or corrected; NaN where it is not known.

        With a label, "score", "uncertain" and "wrong" speak of that label alone.
        """
        if name not in ("score", "uncertain", "wrong"):
            label = None
        truth = self.session.truth
        return self._kept.get((name, label, *self.session.version), lambda: self._measure(name, label, truth))

    def _measure(self, name: str, label: int | None, truth: np.ndarray) -> np.ndarray:
        session, answers = self.session, self.session.answers
        if name == "size":
            return np.asarray(session.bags.sizes, dtype=np.float64)
        if name == "corrected":
            return session.corrected.astype(np.float64)
        if name == "rare":
            # surprise of the rarest label that a bag carries, by truth where known and else by prediction
            carried = session.shown(truth)
            surprise = -np.log(np.maximum(carried.sum(axis=0), 1) / max(len(carried), 1))
            return np.where(carried, surprise, 0.0).max(axis=1, initial=0.0)
        if answers is None:
            return np.full(len(truth), np.nan)
        if name == "wrong":
            differ = session.wrong(truth)
            found = differ.sum(axis=1) if label is None else differ[:, label]
        else:
            values = answers.values
            if label is not None:
                values = session.wide(values, np.nan)[:, label : label + 1]
            if not values.shape[1]:
                return np.full(len(truth), np.nan)
            with np.errstate(invalid="ignore"):
                found = (
                    values.max(axis=1) if name == "score" else 1.0 - 2.0 * np.abs(values - 0.5).min(axis=1)
                )
            if name == "uncertain":  # what people answered is not uncertain any more
                answered = session.corrected > 0
                if label is not None:
                    answered = answered & (truth[:, label] != UNKNOWN)
                found = np.where(answered, 0.0, found)
        return np.where(np.arange(len(truth)) >= answers.done, np.nan, found.astype(np.float64))

    # ------------------------------------------------------------------ the table

    def order(
        self,
        show: str = "all",
        label: int | None = None,
        q: str = "",
        sort: str = "number",
        down: bool = False,
    ) -> np.ndarray:
        """Numbers of the bags that pass the filter, in the order wished."""
        for value, known, what in ((show, SHOWN, "shown are"), (sort, ORDERS, "are sorted by")):
            if value not in known:
                raise DataError(f"bags {what} {', '.join(known)}; got {value!r}")
        session, truth = self.session, self.session.truth
        key = ("order", show, label, q, sort, down, *session.version)
        if show == "unseen":
            key += (int(session.seen.sum()),)
        return self._kept.get(key, lambda: self._order(truth, show, label, q, sort, down))

    def _order(self, truth: np.ndarray, show: str, label: int | None, q: str, sort: str, down: bool) -> Any:
        which = np.flatnonzero(self._kept_rows(truth, show, label, q))
        if sort == "id":
            ids = self.session.ids
            which = np.array(sorted(which.tolist(), key=ids.__getitem__), dtype=np.int64)
        elif sort != "number":
            values = self.measure(sort, label)[which]
            values = np.where(np.isnan(values), np.inf, -values if down else values)
            return which[np.argsort(values, kind="stable")]
        return which[::-1] if down else which

    def _kept_rows(self, truth: np.ndarray, show: str, label: int | None, q: str) -> np.ndarray:
        session = self.session
        keep = np.ones(len(truth), dtype=bool)
        if label is not None:
            keep = truth[:, label] == 1
            if session.answers is not None:
                keep = keep | session.wide(session.answers.chosen, False)[:, label]
        if show == "uncertain":
            keep &= np.nan_to_num(self.measure("uncertain", label), nan=-1.0) > _UNCERTAIN
        elif show == "wrong":
            keep &= np.nan_to_num(self.measure("wrong", label), nan=0.0) > 0
        elif show == "unseen":
            keep &= ~session.seen & (session.corrected == 0)
        elif show == "corrected":
            keep &= session.corrected > 0
        if q:
            wanted = q.casefold()
            keep &= np.fromiter((wanted in bag.casefold() for bag in session.ids), bool, len(session.ids))
        return keep

    def rows(
        self,
        *,
        show: str = "all",
        label: str | None = None,
        q: str = "",
        sort: str = "number",
        down: bool = False,
        offset: int = 0,
        limit: int = 50,
    ) -> dict[str, Any]:
        """One page of the table of bags.

        Parameters
        ----------
        show : {"all", "uncertain", "wrong", "unseen", "corrected"}, default="all"
            Which bags.
        label : str, optional
            Only bags that carry this label or are predicted to.
        q : str, optional
            Only bags with this in their id.
        sort : {"number", "id", "size", "score", "uncertain", "rare", "wrong", "corrected"}
            By what to sort; with a label, by its score.
        down : bool, default=False
            Whether large values come first.
        offset, limit : int
            Which rows of the answer.
        """
        number = self.session.label(label)
        which = self.order(show, number, q, sort, down)
        offset = max(offset, 0)
        page = which[offset : offset + min(max(limit, 0), _MOST_ROWS)]
        rows = [self.row(int(i), number) for i in page]
        return {"total": len(which), "offset": offset, "rows": rows, "version": self.session.version}

    def row(self, i: int, label: int | None = None) -> dict[str, Any]:
        """One line of the table; with a label, its score."""
        session = self.session
        row: dict[str, Any] = {
            "number": i,
            "id": session.ids[i],
            "size": int(session.sizes[i]),
            "known": np.flatnonzero(session.truth[i] == 1).tolist(),
            "seen": bool(session.seen[i]),
            "corrected": int(session.corrected[i]),
        }
        for name in ("score", "uncertain", "wrong", "rare"):
            row[name] = number_or_none(self.measure(name, label)[i])
        answers = session.answers
        if answers is not None and i < answers.done:
            row["chosen"] = np.flatnonzero(answers.chosen[i]).tolist()
        return row

    # ------------------------------------------------------------------ the next bag

    def next(self, by: str = "order", after: int = -1, label: str | None = None) -> int | None:
        """Number of the bag to look at next; None when all were looked at.

        Parameters
        ----------
        by : {"order", "uncertainty", "rarity", "label"}, default="order"
            In order, the most uncertain or the rarest bag not seen yet, or the most uncertain one of a label.
        after : int, default=-1
            Number of the bag just looked at.
        label : str, optional
            For "label".
        """
        session = self.session
        if by not in ("order", "uncertainty", "rarity", "label"):
            raise DataError(f"next goes by order, uncertainty, rarity or label; got {by!r}")
        if by == "order":
            return after + 1 if after + 1 < len(session.ids) else None
        number = session.label(label) if by == "label" else None
        left = ~session.seen & (session.corrected == 0)
        if 0 <= after < len(left):
            left[after] = False
        if number is not None:
            wanted = np.zeros_like(left)
            wanted[self.order("all", number)] = True
            left &= wanted
        values = self.measure("rare" if by == "rarity" else "uncertain", number)
        values = np.nan_to_num(values, nan=-1.0)  # not scored yet: after those that are
        best = int(np.where(left, values, -np.inf).argmax())
        return best if left[best] else None
