"""What models have learned, to the last bit; and fits that are stopped in their midst."""

import numpy as np
import pytest

from bagwise import Bags, checkpoint
from bagwise.compute import journal as journals


def learned(model):
    """Everything learned, flat."""
    found = {}
    for name, value in vars(model).items():
        if name.endswith("_") and not name.startswith("_"):
            found |= dict(_flat(name, value))
    return found


def _flat(name, value):
    if isinstance(value, Bags):
        value = (value.X, value.offsets)
    if isinstance(value, (list, tuple)):
        for k, item in enumerate(value):
            yield from _flat(f"{name}[{k}]", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(f"{name}[{key}]", item)
    elif isinstance(value, (np.ndarray, float, int)):
        yield name, np.asarray(value)


def same_bits(one, other):
    first, second = learned(one), learned(other)
    assert first.keys() == second.keys() and len(first) > 3
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], err_msg=name)


def stopped_fit(model, shards, folder, monkeypatch, after):
    """Begin a fit with a journal in this folder, and stop it after so many passes."""
    keep, left = journals.Journal.keep, [after]

    def stop(self, value):
        keep(self, value)
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    monkeypatch.setattr(journals.Journal, "keep", stop)
    with pytest.raises(KeyboardInterrupt), checkpoint(folder):
        model.fit(shards)
