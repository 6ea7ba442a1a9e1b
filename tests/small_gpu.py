"""A GPU with little memory, for tests: functions that find no room for more than so much."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'bagwise[torch]')")


def full(*_, **__):
    """Find no room at all."""
    raise torch.cuda.OutOfMemoryError


def no_room_beyond(monkeypatch, owner, name, limit, size=len):
    """Let a function fail on first arguments larger than the limit; return the list of sizes asked for."""
    plain, tried = getattr(owner, name), []

    def tight(first, *rest):
        tried.append(size(first))
        if tried[-1] > limit:
            raise torch.cuda.OutOfMemoryError
        return plain(first, *rest)

    monkeypatch.setattr(owner, name, tight)
    return tried
