"""Where torch works: "auto", "cpu", "cuda" or "cuda:1". The only place that asks for a card."""

from __future__ import annotations

from typing import Any

from bagwise.errors import BagwiseError


def load_torch(who: str) -> Any:
    """Import torch, or say how to get it.

    Parameters
    ----------
    who : str
        What needs it, for the message.
    """
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"{who} needs torch: pip install 'bagwise[torch]'") from error
    return torch


def torch_device(device: str, who: str = "device") -> Any:
    """The torch device of a name; "auto" is the card if there is one.

    Examples
    --------
    >>> import pytest
    >>> torch = pytest.importorskip("torch")
    >>> torch_device("cpu").type
    'cpu'
    """
    torch = load_torch(who)
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    chosen = torch.device(device)
    if chosen.type == "cuda":
        count = torch.cuda.device_count()
        if not torch.cuda.is_available() or (chosen.index or 0) >= count:
            cards = "no card" if count == 0 else f"{count} card(s), cuda:0 to cuda:{count - 1}"
            raise BagwiseError(f"device={device!r}, but torch sees {cards}; use device='auto' or 'cpu'")
    return chosen


def cuda_there() -> bool:
    """Whether torch is installed and sees a card; never raises."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())
