"""Where torch works: "auto", "cpu", "cuda" or "cuda:1". The only place that asks for a GPU."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from bagwise.errors import BagwiseError

# of NVIDIA's GPUs, its boards, AMD's GPUs, and GPUs of Windows seen from Linux
_DRIVERS = ("/dev/nvidiactl", "/dev/nvmap", "/dev/kfd", "/dev/dxg")
_WORTH_A_GPU = 1e7  # pieces of work; below, importing torch and moving the data costs more than is saved


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
    """The torch device of a name; "auto" is the GPU if there is one.

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
            seen = "no GPU" if count == 0 else f"{count} GPU(s), cuda:0 to cuda:{count - 1}"
            raise BagwiseError(f"device={device!r}, but torch sees {seen}; use device='auto' or 'cpu'")
    return chosen


def gpu_for(device: str, work: float) -> Any:
    """The GPU that such work (pairs of instances, numbers of a matrix) goes to, or None: it is done here.

    Examples
    --------
    >>> gpu_for("cpu", 1e12) is None
    True
    """
    if device == "cpu" or (device == "auto" and (work < _WORTH_A_GPU or not gpu_there())):
        return None
    return torch_device("cuda" if device == "auto" else device)


@cache
def triton_kernels(module: str) -> Any:
    """The module with Triton kernels, None where Triton, which compiles them, is not there.

    Examples
    --------
    >>> triton_kernels("bagwise.utils.no_such_module")
    Traceback (most recent call last):
    ...
    ModuleNotFoundError: No module named 'bagwise.utils.no_such_module'
    """
    try:
        return import_module(module)
    except ImportError as error:
        if (error.name or "").startswith("bagwise"):
            raise  # a wrong name is no missing compiler
        return None


def gpu_there(device: str = "cuda") -> bool:
    """Whether there is a GPU, or the one of this name.

    Examples
    --------
    >>> gpu_there("cuda:1000")
    False
    """
    if not _driver_there():
        return False
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available()) and (torch.device(device).index or 0) < torch.cuda.device_count()


def _driver_there() -> bool:
    """Whether the system has a driver of a GPU; importing torch to ask it costs seconds and 200 MB."""
    return sys.platform != "linux" or any(Path(node).exists() for node in _DRIVERS)
