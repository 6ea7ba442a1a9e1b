"""Parts of pictures to vectors by a network of timm whose weights are on this machine already.

Nothing is downloaded: weights come from a file that is given, or from what the Hugging Face tools or
torch have fetched before.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np

from bagwise.errors import DataError, OptionalDependencyError

__all__ = ["embedded_parts"]

_BATCH = 32


def embedded_parts(
    rgb: np.ndarray, boxes: np.ndarray, backbone: str, weights: str | None, device: str
) -> np.ndarray:
    """One row per box: the part, stretched to the network's input, through the network."""
    import torch
    from torch.nn import functional

    model, size, mean, std = _loaded(backbone, weights, device)
    picture = torch.from_numpy(np.ascontiguousarray(rgb.transpose(2, 0, 1)))
    rows = []
    with torch.inference_mode():
        for first in range(0, len(boxes), _BATCH):
            parts = [
                functional.interpolate(
                    picture[None, :, top:bottom, left:right], size=size, mode="bilinear", antialias=True
                )
                for left, top, right, bottom in boxes[first : first + _BATCH].tolist()
            ]
            batch = (torch.cat(parts) - mean) / std
            rows.append(model(batch.to(device)).float().cpu().numpy())
    X = np.concatenate(rows)
    if X.ndim != 2:
        raise DataError(f"the backbone {backbone!r} gives shape {X.shape[1:]} per part, expected a vector")
    return np.ascontiguousarray(X, dtype=np.float32)


@lru_cache(maxsize=2)
def _loaded(backbone: str, weights: str | None, device: str) -> tuple[Any, tuple[int, int], Any, Any]:
    try:
        import timm
        import torch
    except ImportError:
        raise OptionalDependencyError("backbone= needs torch and timm: pip install torch timm") from None
    try:
        model = timm.create_model(backbone, pretrained=False, num_classes=0)
    except (RuntimeError, ValueError, KeyError) as error:
        what = " ".join(str(error).split())[:120]
        raise DataError(f"timm knows no backbone {backbone!r} ({what}); see timm.list_models()") from None
    config = dict(model.pretrained_cfg or {})
    file = weights if weights is not None else _weights_at_hand(backbone, config)
    _load(model, file)
    _, high, wide = config.get("input_size") or (3, 224, 224)
    mean = torch.tensor(config.get("mean") or (0.485, 0.456, 0.406)).view(1, 3, 1, 1)
    std = torch.tensor(config.get("std") or (0.229, 0.224, 0.225)).view(1, 3, 1, 1)
    return model.eval().to(device), (high, wide), mean, std


def _load(model: Any, file: str) -> None:
    """Weights from a file, without running anything that may be in it."""
    import torch

    state: Any
    try:
        if file.endswith(".safetensors"):
            from safetensors.torch import load_file

            state = load_file(file)
        else:
            state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        what = " ".join(str(error).split())[:120]
        raise DataError(f"holds no weights that can be read safely ({what})", path=file) from None
    for key in ("state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    missing, _ = model.load_state_dict(state, strict=False)  # the classifier's own layer is not used
    if missing:
        raise DataError(f"lacks {len(missing)} tensors of this backbone, such as {missing[0]}", path=file)


def _weights_at_hand(backbone: str, config: dict[str, Any]) -> str:
    """File of weights that was fetched before."""
    if config.get("file") and os.path.isfile(config["file"]):
        return str(config["file"])
    name = config.get("hf_hub_id")
    if name:
        from huggingface_hub import try_to_load_from_cache

        for file in ("model.safetensors", "pytorch_model.bin"):
            found = try_to_load_from_cache(name, file)
            if isinstance(found, str) and os.path.isfile(found):
                return found
    if config.get("url"):
        import torch

        found = os.path.join(torch.hub.get_dir(), "checkpoints", os.path.basename(config["url"]))
        if os.path.isfile(found):
            return found
    where = f" (hf download {name})" if name else ""
    raise DataError(
        f"weights of {backbone!r} are not on this machine, and nothing is downloaded by itself; fetch them "
        f"first{where}, or give their file as weights="
    )
