"""Which row belongs to which bag: by id where both sides have ids, by position only where one has none."""

from __future__ import annotations

from typing import Any

from bagwise.errors import DataError, quoted


def in_bag_order(values: Any, bags: Any, what: str = "labels") -> Any:
    """Rows of a pandas DataFrame or Series in the order of the bags, matched by bag id.

    An index counts as bag ids unless it is the default one (0, 1, 2, ...), or holds numbers where ids are
    text; then rows are taken in order. So they are when the bags were given no ids. What has no index
    is returned as it is.

    Parameters
    ----------
    values : anything
        Labels, weights or groups, a row per bag.
    bags : Bags or MultiViewBags
        The bags.
    what : str, default="labels"
        What the values are, for messages.

    Examples
    --------
    >>> import pandas as pd
    >>> from bagwise.bags import Bags
    >>> bags = Bags.from_list([[[1.0]], [[2.0]]], bag_ids=["a", "b"])
    >>> in_bag_order(pd.Series([1, 2], index=["b", "a"]), bags).tolist()
    [2, 1]
    """
    if not (hasattr(values, "iloc") and hasattr(values, "index")):
        return values
    order = _order_by_id(values.index, bags, what)
    return values if order is None else values.iloc[order]


def _order_by_id(index: Any, bags: Any, what: str) -> list[int] | None:
    """Rows in the order of the bags; None where rows go by position."""
    ids, keys = bags.bag_ids.tolist(), index.tolist()
    counted = type(index).__name__ == "RangeIndex" and keys == list(range(len(keys)))
    if keys == ids:
        return None
    place = {key: k for k, key in enumerate(keys)}
    same = len(place) == len(keys) == len(ids) and place.keys() == set(ids)
    if not bags.ids_given:
        return [place[i] for i in ids] if same and not counted else None
    if counted:
        if same:
            raise DataError(
                f"the {what} have the default index 0 to {len(keys) - 1}, and the bags have these numbers as "
                f"ids in another order; set the index to bag ids, or give the {what} in the order of the "
                "bags as an array (.to_numpy())"
            )
        return None
    if all(isinstance(i, str) for i in ids) and all(type(k) is int for k in keys):
        known = set(ids)
        if not any(str(k) in known for k in keys):
            return None  # a part of a default index
        raise DataError(
            f"the index of the {what} holds numbers ({keys[0]}), bag ids are text ({ids[0]!r}); "
            f"bring both to one type, such as {what}.index.astype(str)"
        )
    advice = (
        f"the index of the {what} is taken for bag ids; for rows in the order of the bags give an array "
        "(.to_numpy())"
    )
    if len(place) != len(keys):
        twice = next(key for k, key in enumerate(keys) if place[key] != k)
        raise DataError(f"bag {quoted(twice)} has two rows of {what}; {advice}")
    if len(set(ids)) != len(ids):
        twice = next(i for k, i in enumerate(ids) if i in ids[:k])
        raise DataError(f"two bags have the id {quoted(twice)}; {what} cannot be matched to them by id")
    missing = [i for i in ids if i not in place]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise DataError(f"no {what} for bag {quoted(missing[0])}{more}; {advice}")
    if len(keys) != len(ids):
        known = set(ids)
        extra = next(key for key in keys if key not in known)
        raise DataError(
            f"the {what} have a row for {quoted(extra)}, which is not among the bags; "
            "choose the rows with .loc[bags.bag_ids]"
        )
    return [place[i] for i in ids]
