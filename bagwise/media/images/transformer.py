"""Pictures to bags of cells of a grid or of superpixels, described by numbers or by a network of timm.

Weights of a network are on this machine already: nothing is downloaded. They come from a file that is given,
or from what the Hugging Face tools or torch have fetched before.
"""

from __future__ import annotations

import os
from functools import lru_cache
from os import PathLike
from typing import Any

import numpy as np

from bagwise.base.parameters import Anything, Choice, Number, Several, Whole
from bagwise.errors import DataError, in_one_line, optional
from bagwise.media.base import COMMON, ToBags
from bagwise.media.images.decode import picture_from_array, read_picture
from bagwise.media.images.describe import GROUPS, describe, feature_names, grid, outlines, superpixels
from bagwise.media.parts import Part

__all__ = ["ImagesToBags"]

_BATCH = 32  # parts that go through the network together


class ImagesToBags(ToBags):
    """Pictures to bags: cells of a grid at several scales or superpixels, described by how they look.

    Takes files (JPEG, PNG, TIFF, WebP, GIF, BMP and whatever else Pillow reads) and arrays of shape
    (height, width) or (height, width, channels) of 8 or 16 bits, or of numbers from 0 to 1. Pictures are
    turned upright as their EXIF says; transparent parts become white; of an animation the first frame is
    taken. Each instance knows its place: ``x``, ``y``, ``width``, ``height`` in pixels of the upright
    original and, for superpixels, its outline as ``polygon``.

    Parameters
    ----------
    cut : "grid" or "superpixels", default="grid"
        What an instance is.
    grid : sequence of int, default=(4, 8)
        With "grid": number of cells along the longer side, one grid for each number; cells are about square.
    n_superpixels : int, default=64
        With "superpixels": about how many (SLIC).
    compactness : float, default=10
        With "superpixels": larger values make them more like squares, smaller ones follow colours.
    describe : sequence of str, default=("colour", "texture", "gradients", "position")
        Which numbers describe a part; all of them together are 69, see Notes.
    max_side : int, default=1024
        Larger pictures are reduced by a whole factor until their longer side is at most this, and that is
        said. At most 4096, so that memory stays bounded.
    backbone : str, optional
        In place of ``describe``: name of a network of timm. Needs torch and timm, and weights that are on
        this machine already; nothing is downloaded.
    weights : path, optional
        File of weights of the backbone (``.safetensors``, or ``.pth`` read with ``weights_only=True``).
    device : str, default="cpu"
        Where the backbone runs, as torch names it.
    n_jobs : int, optional
        Processes that read pictures.
    cache : path, optional
        Folder for parts already made.

    Attributes
    ----------
    n_features_out_ : int
        Number of features of an instance.

    Notes
    -----
    "colour" gives 9 numbers: mean, spread and skew of grey, of red minus green and of yellow minus blue.
    "texture" gives 20: shares of the ten uniform local binary patterns whatever their rotation, for
    neighbours one and two pixels away. "gradients" gives 37: histograms of the direction of edges (nine
    bins) in the four quarters of the part, and the mean strength of edges. "position" gives 3: centre and
    size within the picture.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.media import ImagesToBags
    >>> picture = np.zeros((40, 80, 3), dtype=np.uint8)
    >>> picture[:, 40:] = (255, 0, 0)
    >>> bags = ImagesToBags(grid=[2]).fit_transform([picture])
    >>> bags.instance_info["x"], bags.X[:, bags.feature_names.index("red-green mean")]
    (array([ 0., 40.]), array([0., 1.], dtype=float32))
    """

    medium = "image"
    suffixes = (
        ".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".bmp", ".gif", ".ppm", ".pgm", ".pbm", ".jp2",
        ".jfif", ".avif", ".tga",
    )  # fmt: skip
    _parameters = {
        "cut": Choice("grid", "superpixels"),
        "grid": Several(Whole(1, 256)),
        "n_superpixels": Whole(1, 10_000),
        "compactness": Number(above=0),
        "describe": Several(Choice(*GROUPS)),
        "max_side": Whole(8, 4096),
        "backbone": (Choice(None), Anything("the name of a network of timm")),
        "weights": (Choice(None), Anything("a file of weights")),
        "device": Anything("a device as torch names it, such as 'cpu' or 'cuda'"),
        **COMMON,
    }

    def __init__(
        self,
        cut="grid",
        *,
        grid=(4, 8),
        n_superpixels=64,
        compactness=10.0,
        describe=GROUPS,
        max_side=1024,
        backbone=None,
        weights=None,
        device="cpu",
        n_jobs=None,
        cache=None,
    ):
        self.cut = cut
        self.grid = grid
        self.n_superpixels = n_superpixels
        self.compactness = compactness
        self.describe = describe
        self.max_side = max_side
        self.backbone = backbone
        self.weights = weights
        self.device = device
        self.n_jobs = n_jobs
        self.cache = cache

    def _part(self, source: Any) -> Part:
        if isinstance(source, (str, PathLike)):
            picture = read_picture(source, self.max_side)
        else:
            picture = picture_from_array(source, self.max_side)
        high, wide = picture.rgb.shape[:2]
        if self.cut == "grid":
            cuts = [grid(high, wide, cells) for cells in self.grid]
        else:
            cuts = [superpixels(picture.rgb, self.n_superpixels, self.compactness)]
        scale_x, scale_y = picture.width / wide, picture.height / high
        boxes = np.concatenate([cut.boxes for cut in cuts])
        left, top, right, bottom = (boxes * [scale_x, scale_y, scale_x, scale_y]).T
        places = {"x": left, "y": top, "width": right - left, "height": bottom - top}
        if self.cut == "superpixels":
            places["polygon"] = outlines(cuts[0], scale_x, scale_y)
        if self.backbone is None:
            X = describe(picture.rgb, cuts, self.describe)
        else:
            weights = None if self.weights is None else os.fspath(self.weights)
            X = embedded_parts(picture.rgb, boxes, self.backbone, weights, self.device)
        return Part(X, places, picture.notes)

    def _names(self) -> list[str] | None:
        return feature_names(self.describe) if self.backbone is None else None


# ---------------------------------------------------------------------- networks


def embedded_parts(
    rgb: np.ndarray, boxes: np.ndarray, backbone: str, weights: str | None, device: str
) -> np.ndarray:
    """One row per box: the part, stretched to the network's input, through the network."""
    model, size, mean, std = _loaded(backbone, weights, device)
    import torch

    picture = torch.from_numpy(np.ascontiguousarray(rgb.transpose(2, 0, 1)))
    rows = []
    with torch.inference_mode():
        for first in range(0, len(boxes), _BATCH):
            parts = [
                torch.nn.functional.interpolate(
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
    advice = "backbone= needs torch and timm: pip install torch timm"
    timm, torch = optional("timm", advice), optional("torch", advice)
    try:
        model = timm.create_model(backbone, pretrained=False, num_classes=0)
    except (RuntimeError, ValueError, KeyError) as error:
        what = f"timm knows no backbone {backbone!r} ({in_one_line(error)})"
        raise DataError(f"{what}; see timm.list_models()") from None
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
        what = f"holds no weights that can be read safely ({in_one_line(error)})"
        raise DataError(what, path=file) from None
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
