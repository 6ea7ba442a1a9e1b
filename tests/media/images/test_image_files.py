"""Pictures of every mode and turn, and files that only pretend to be pictures."""

import io
import random
import resource
import struct
import subprocess
import sys
import types
import zlib

import numpy as np
import pytest

from bagwise.errors import DataError, DataWarning, OptionalDependencyError
from bagwise.media import ImagesToBags
from bagwise.media.images.decode import block_means, picture_from_array, read_picture

Image = pytest.importorskip("PIL.Image")

RNG = np.random.default_rng(0)
RGB = RNG.integers(0, 256, (12, 20, 3), dtype=np.uint8)
GREY = np.round(RGB @ [0.299, 0.587, 0.114]).astype(np.uint8)


def save(tmp_path, image, name, **options):
    image.save(tmp_path / name, **options)
    return tmp_path / name


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "webp", "ppm", "tga"])
def test_formats_without_loss_are_read_exactly(tmp_path, suffix):
    options = {"lossless": True} if suffix == "webp" else {}
    path = save(tmp_path, Image.fromarray(RGB), f"a.{suffix}", **options)
    picture = read_picture(path)
    np.testing.assert_allclose(picture.rgb, RGB / 255, atol=1e-6)
    assert (picture.width, picture.height, picture.notes) == (20, 12, ())


def test_grey_palette_bits_alpha_and_ink(tmp_path):
    white = np.full((12, 20, 1), 128, dtype=np.uint8)
    half = RGB * (128 / 255) + 255 * (127 / 255)
    cases = {
        "grey.png": (Image.fromarray(GREY), GREY / 255),
        "bits.png": (Image.fromarray(GREY > 99), GREY > 99),
        "palette.png": (Image.fromarray(GREY).convert("P"), GREY / 255),
        "alpha.png": (Image.fromarray(np.dstack([RGB, white])), half / 255),
        "wide.png": (Image.fromarray(GREY.astype(np.uint16) * 257), GREY / 255),
        "float.tif": (Image.fromarray((GREY / 255).astype(np.float32)), GREY / 255),
    }
    for name, (image, truth) in cases.items():
        rgb = read_picture(save(tmp_path, image, name)).rgb
        truth = truth[:, :, None] if truth.ndim == 2 else truth
        np.testing.assert_allclose(rgb, np.broadcast_to(truth, rgb.shape), atol=0.01, err_msg=name)
    ink = Image.fromarray(RGB).convert("CMYK")
    np.testing.assert_allclose(read_picture(save(tmp_path, ink, "ink.tif")).rgb, RGB / 255, atol=0.02)
    clear = Image.fromarray(GREY).convert("P")
    clear.info["transparency"] = 0
    assert read_picture(save(tmp_path, clear, "clear.gif", transparency=0)).rgb.shape == (12, 20, 3)


def test_sixteen_bits_of_colour(tmp_path):
    tifffile = pytest.importorskip("tifffile")
    wide = RGB.astype(np.uint16) * 257
    for name, options in [
        ("a.tif", {}),
        ("tiles.tif", {"tile": (16, 16)}),
        ("strips.tif", {"rowsperstrip": 5}),
    ]:
        tifffile.imwrite(tmp_path / name, wide, photometric="rgb", compression="zlib", **options)
        np.testing.assert_allclose(read_picture(tmp_path / name).rgb, RGB / 255, atol=1e-5)
        reduced = read_picture(tmp_path / name, max_side=8)
        np.testing.assert_allclose(reduced.rgb, block_means(RGB / 255, 3), atol=1e-5)
        assert (reduced.width, reduced.height) == (20, 12)


def test_sixteen_bits_that_pillow_halves_are_said(tmp_path):
    rows = b"".join(b"\0" + (RGB[k].astype(">u2") * 257).tobytes() for k in range(12))
    (tmp_path / "a.png").write_bytes(png(20, 12, rows, depth=16))
    picture = read_picture(tmp_path / "a.png")
    np.testing.assert_allclose(picture.rgb, RGB / 255, atol=1e-6)
    assert picture.notes == ("has 16 bits of each colour, of which the upper eight were taken",)


@pytest.mark.parametrize("turn", range(1, 9))
def test_turned_as_the_camera_was(tmp_path, turn):
    from PIL import ImageOps

    image = Image.fromarray(RGB)
    exif = Image.Exif()
    exif[0x0112] = turn
    path = save(tmp_path, image, "a.png", exif=exif)
    picture = read_picture(path)
    truth = np.asarray(ImageOps.exif_transpose(Image.open(path)).convert("RGB"))
    np.testing.assert_allclose(picture.rgb, truth / 255, atol=1e-6)
    assert (picture.height, picture.width) == truth.shape[:2]


def test_animations_and_large_pictures_are_said(tmp_path):
    frames = [Image.fromarray(RGB), Image.fromarray(255 - RGB)]
    save(tmp_path, frames[0], "a.gif", save_all=True, append_images=frames[1:])
    save(tmp_path, Image.fromarray(RNG.integers(0, 256, (300, 500, 3), dtype=np.uint8)), "b.jpg")
    with pytest.warns(DataWarning) as said:
        bags = ImagesToBags(max_side=64, grid=[2]).fit_transform(tmp_path)
    texts = sorted(str(w.message) for w in said)
    assert texts[0].startswith("a.gif: holds several frames")
    assert texts[1].startswith("b.jpg: is larger than max_side=64")
    info = bags.instance_info
    assert list(bags.bag_ids) == ["a.gif", "b.jpg"]
    inside = info["file"] == "b.jpg"
    assert (info["x"] + info["width"])[inside].max() == 500 and (info["y"] + info["height"])[
        inside
    ].max() == 300


def test_reduced_pixels_are_means(tmp_path):
    path = save(tmp_path, Image.fromarray(RGB), "a.png")
    np.testing.assert_allclose(read_picture(path, max_side=8).rgb, block_means(RGB / 255, 3), atol=0.003)
    np.testing.assert_allclose(picture_from_array(RGB, 8).rgb, block_means(RGB / 255, 3), atol=1e-6)


def test_arrays(tmp_path):
    same = [RGB, RGB / 255.0, (RGB / np.float32(255)), RGB.astype(np.uint16) * 257]
    X = [ImagesToBags(grid=[3]).fit_transform([a]).X for a in same]
    for other in X[1:]:
        np.testing.assert_allclose(other, X[0], atol=1e-4)
    for bad in [
        RGB * 1.0,
        RGB.astype(int),
        np.zeros((2, 2, 7)),
        np.zeros(3),
        np.zeros((0, 4)),
        np.full((3, 3), np.nan),
    ]:
        with pytest.raises(DataError, match="a picture should"):
            picture_from_array(bad)


def png(width, height, data=b"", depth=8, colour=2):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(data))
        + chunk(b"IEND", b"")
    )


BOMBS = r"""
import resource, sys
import numpy as np
from bagwise.errors import DataError
from bagwise.media import ImagesToBags
maker = ImagesToBags()
maker.fit_transform([np.zeros((64, 64), np.uint8)])
import PIL.Image, tifffile
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[1:]:
    try:
        maker._part(path)
        print(path, "was read")
    except DataError as error:
        assert "\n" not in str(error), error
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def test_bombs_of_pixels_are_refused_in_little_memory(tmp_path):
    pytest.importorskip("tifffile")
    (tmp_path / "a.png").write_bytes(png(100_000, 100_000, b"\0" * 10_000_000))
    (tmp_path / "b.png").write_bytes(png(2**31 - 1, 2**31 - 1))
    bmp = bytearray(io.BytesIO(_bytes(Image.fromarray(RGB), "bmp")).getvalue())
    bmp[18:26] = struct.pack("<ii", 60_000, 60_000)
    (tmp_path / "c.bmp").write_bytes(bmp)
    tiff = _bytes(Image.fromarray(RGB), "tiff")
    for k, size in enumerate([60_000, 2**31 - 1]):
        (tmp_path / f"d{k}.tif").write_bytes(_tiff_with(tiff, {256: size, 257: size, 278: size}))
        (tmp_path / f"e{k}.tif").write_bytes(_tiff_with(tiff, {256: size, 257: size}))
    gif = bytearray(_bytes(Image.fromarray(GREY), "gif"))
    gif[6:10] = struct.pack("<HH", 65_535, 65_535)
    (tmp_path / "f.gif").write_bytes(gif)
    paths = sorted(map(str, tmp_path.iterdir()))
    done = subprocess.run([sys.executable, "-c", BOMBS, *paths], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.split("\n")
    assert len(lines) == 2, done.stdout  # nothing was read
    assert float(lines[0]) < 200  # MiB


def _bytes(image, kind):
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def _tiff_with(content, values):
    """A little-endian TIFF with other values of some tags."""
    data = bytearray(content)
    (at,) = struct.unpack_from("<I", data, 4)
    (n,) = struct.unpack_from("<H", data, at)
    for k in range(n):
        tag = struct.unpack_from("<H", data, at + 2 + 12 * k)[0]
        if tag in values:
            struct.pack_into("<HHII", data, at + 2 + 12 * k, tag, 4, 1, values[tag])
    return bytes(data)


def test_mutated_files(tmp_path):
    image = Image.fromarray(RGB)
    seeds = {
        kind: _bytes(image, kind) for kind in ("png", "jpeg", "gif", "bmp", "tiff", "webp", "ppm", "tga")
    }
    tifffile = pytest.importorskip("tifffile")
    tifffile.imwrite(tmp_path / "wide.tif", RGB.astype(np.uint16), photometric="rgb", compression="zlib")
    seeds["tif"] = (tmp_path / "wide.tif").read_bytes()
    maker, refused, rng = ImagesToBags(grid=[2]), 0, random.Random(0)
    maker._part(RGB)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for k in range(450):
        kind, content = rng.choice(list(seeds.items()))
        data = bytearray(content)
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(min(len(data), rng.choice([16, 64, len(data)])))
            data[at] = rng.choice([0, 255, 127, 128, rng.randrange(256)])
        path = tmp_path / f"{k}.{kind}"
        path.write_bytes(data[: rng.randint(0, len(data))] if rng.random() < 0.3 else data)
        try:
            assert np.isfinite(maker._part(str(path)).X).all()
        except DataError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 50
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 900 * 1024


def test_what_is_no_picture(tmp_path):
    for name, content in [("a.png", b""), ("b.jpg", b"text"), ("c.tif", b"II*\0"), ("d.gif", b"GIF89a")]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match="cannot be decoded as a picture"):
            read_picture(tmp_path / name)
    with pytest.raises(DataError, match="no such file"):
        read_picture(tmp_path / "nowhere.png")
    with pytest.raises(DataError, match=r"4 of the sources cannot be read: a\.png: cannot be decoded"):
        ImagesToBags().fit_transform(tmp_path)


def test_backbones(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(OptionalDependencyError, match="torch and timm"):
        ImagesToBags(backbone="resnet0").fit_transform([RGB])

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 5)
            self.pretrained_cfg = {"input_size": (3, 8, 8), "mean": (0.5,) * 3, "std": (0.5,) * 3}

        def forward(self, x):
            assert x.shape[1:] == (3, 8, 8)
            return self.layer(x.mean(dim=(2, 3)))

    def create_model(name, pretrained, num_classes):
        assert not pretrained and num_classes == 0
        if name != "net":
            raise RuntimeError(f"Unknown model ({name})")
        return Net()

    monkeypatch.setitem(sys.modules, "timm", types.SimpleNamespace(create_model=create_model))
    with pytest.raises(DataError, match="knows no backbone 'other'"):
        ImagesToBags(backbone="other").fit_transform([RGB])
    with pytest.raises(DataError, match="nothing is downloaded by itself"):
        ImagesToBags(backbone="net").fit_transform([RGB])
    torch.save({**Net().state_dict(), "head.weight": torch.zeros(2)}, tmp_path / "net.pth")
    bags = ImagesToBags(backbone="net", weights=tmp_path / "net.pth", grid=[2, 7]).fit_transform(
        [RGB, RGB[:9]]
    )
    assert bags.n_features == 5 and bags.feature_names is None
    torch.save({"other": torch.zeros(2)}, tmp_path / "bad.pth")
    with pytest.raises(DataError, match="lacks 2 tensors"):
        ImagesToBags(backbone="net", weights=tmp_path / "bad.pth").fit_transform([RGB])
    (tmp_path / "evil.pth").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(DataError, match="no weights that can be read safely"):
        ImagesToBags(backbone="net", weights=tmp_path / "evil.pth").fit_transform([RGB])
