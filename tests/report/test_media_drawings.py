"""Drawings of bags in their media: what is on them, and that nothing in a file can keep them from it."""

import io
import re
import wave

import numpy as np
import pytest

from bagwise import Bags, Dataset
from bagwise.errors import DataError
from bagwise.media.labels import Found
from bagwise.report import draw_bag, draw_found

NAMES = ["robin", "wren", "gull"]


def texts(figure):
    own = [t.get_text() for t in figure.texts]
    return own + [t.get_text() for axes in figure.axes for t in [*axes.texts, axes.title, axes._left_title]]


def saved(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=50)
    assert buffer.getvalue()[:4] == b"\x89PNG"
    return texts(figure)


def captions(figure):
    """Names of labels at their parts, with the probability where there is one; on slides, in the legend."""
    legends = [axes.get_legend() for axes in figure.axes]
    words = texts(figure) + [t.get_text() for legend in legends if legend for t in legend.get_texts()]
    return [word for word in words if re.fullmatch(rf"({'|'.join(NAMES)})( [.]\d\d| 1[.]0)?", word)]


def tone(path, seconds=6.0, rate=16000):
    x = 0.3 * np.sin(2 * np.pi * 3000 * np.arange(int(seconds * rate)) / rate)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((x * 32767).astype("<i2").tobytes())
    return str(path)


def windows(n=4, labels=(0, 0, -1, 1), path=None, calls=False):
    start = np.arange(n) * 1.5
    places = {"file": np.array(["a.wav"] * n, dtype=object), "start": start, "end": start + 1.5}
    places |= {"low": np.zeros(n), "high": np.full(n, 8000.0)}
    if calls:
        places |= {"low": 1000.0 + 500 * np.arange(n), "high": 2000.0 + 500 * np.arange(n)}
    values = np.full((n, 3), 0.1)
    values[np.arange(n), np.maximum(labels, 0)] = 0.91
    whole = [NAMES[k] for k in sorted(set(labels)) if k >= 0]
    return Found("a.wav", places, np.array(labels), values, whole, path)


def tiles(medium="image", n=3, labels=None, path=None):
    y, x = (10.0 * axis.ravel() for axis in np.mgrid[:n, :n])
    side = np.full(n * n, 10.0)
    places = {
        "file": np.array(["p.png"] * n * n, dtype=object),
        "x": x,
        "y": y,
        "width": side,
        "height": side,
    }
    if medium == "slide":
        places["level"] = np.zeros(n * n, dtype=int)
    if medium == "outline":
        places["polygon"] = np.array(
            [f"{a},{b} {a + 10},{b} {a + 10},{b + 10}" for a, b in zip(x, y)], dtype=object
        )
    labels = np.arange(n * n) % 4 - 1 if labels is None else np.array(labels)
    values = np.random.default_rng(0).random((n * n, 3))
    return Found("p.png", places, labels, values, ["robin"], path)


def sentences(labels=(0, -1, 1), path=None):
    text = "The first. A $second$ one. The third 😀 is long."
    starts, ends = [0, 11, 27], [10, 26, len(text)]
    pieces = np.array([text[a:b] for a, b in zip(starts, ends)], dtype=object)
    places = {"file": np.array(["t.txt"] * 3, dtype=object), "text": pieces}
    places |= {"start_char": np.array(starts), "end_char": np.array(ends)}
    return Found("t.txt", places, np.array(labels), np.full((3, 3), 0.5), ["robin"], path), text


# ---------------------------------------------------------------------- what is on them


def test_sound(tmp_path):
    pytest.importorskip("soundfile")
    path = tone(tmp_path / "a.wav")
    figure, note = draw_found(windows(path=path), NAMES)
    words = saved(figure)
    assert note is None and "a.wav" in words and "found: robin, wren" in words
    assert "robin .91" in words and "wren .91" in words  # two windows of robin are one bar
    figure, note = draw_found(windows(path=path, calls=True), NAMES)
    assert note is None and "robin ×2 .91" in saved(figure)
    assert any(axes.images for axes in figure.axes)


def test_long_recordings_show_what_has_marks(tmp_path):
    n = 400  # ten minutes
    labels = np.full(n, -1)
    labels[390:393] = 2
    figure, note = draw_found(windows(n, labels), NAMES)
    assert "6 of 20 half minutes are shown" in note and "gull .91" in saved(figure)
    assert figure.get_size_inches()[1] < 20


def test_pictures(tmp_path):
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "p.png"
    image.fromarray(np.full((30, 30, 4), 128, dtype=np.uint8)).save(path)
    figure, note = draw_found(tiles(path=str(path)), NAMES)
    words = saved(figure)
    assert note is None and any(word.startswith("✓ robin") for word in words)
    assert sum("highest" in word for word in words) == 3
    image.fromarray(np.arange(900, dtype=np.uint16).reshape(30, 30) * 60).save(path)
    assert draw_found(tiles("outline", path=str(path)), NAMES)[1] is None


def test_slides_are_maps():
    figure, note = draw_found(tiles("slide", n=20), NAMES)
    saved(figure)
    assert note is None
    assert [t.get_text() for t in figure.axes[0].get_legend().get_texts()] == NAMES


def test_texts(tmp_path):
    found, text = sentences()
    (tmp_path / "t.txt").write_text(text, encoding="utf-8")
    figure, note = draw_found(found._replace(path=str(tmp_path / "t.txt")), NAMES)
    words = saved(figure)
    assert note is None and "$second$" in words and "robin .50" in words and "wren .50" in words
    (tmp_path / "t.txt").write_text("Something else was written here meanwhile, and nobody knows why.")
    assert "does not fit" in draw_found(found._replace(path=str(tmp_path / "t.txt")), NAMES)[1]


def test_long_texts_are_cut_to_marks():
    n = 500
    pieces = np.array([f"Sentence number {k:04d} of a long story." for k in range(n)], dtype=object)
    starts = np.arange(n) * 40
    labels = np.full(n, -1)
    labels[[3, 400]] = 1
    places = {"file": np.array(["t"] * n, dtype=object), "text": pieces}
    places |= {"start_char": starts, "end_char": starts + len(pieces[0])}
    figure, _ = draw_found(Found("t", places, labels, np.full((n, 3), 0.7), ["wren"], None), NAMES)
    words = saved(figure)
    assert "…" in words and words.count("wren .70") == 2 and figure.get_size_inches()[1] < 15


# ---------------------------------------------------------------------- nothing keeps them from being made


@pytest.mark.parametrize("make", [windows, tiles])
@pytest.mark.parametrize(
    "content", [None, b"", b"\x00" * 100, b"RIFF\xff\xff\xff\xffWAVEfmt ", b"\x89PNG\r\n\x1a\n"]
)
def test_originals_that_cannot_be_read(tmp_path, make, content):
    path = tmp_path / "broken"
    if content is not None:
        path.write_bytes(content)
    figure, note = draw_found(make(path=str(path)), NAMES)
    assert "original not at hand" in note
    assert any("original not at hand" in word for word in saved(figure))


@pytest.mark.parametrize("found", [windows(), tiles(), tiles("slide"), tiles("outline"), sentences()[0]])
def test_bags_without_parts_and_without_probabilities(found):
    assert captions(draw_found(found, NAMES)[0])
    none = {name: column[:0] for name, column in found.places.items()}
    empty = found._replace(places=none, labels=found.labels[:0], values=found.values[:0], whole=[])
    unmarked = found._replace(labels=np.full(len(found.labels), -1), whole=[])
    for other in (empty, unmarked):
        figure, _ = draw_found(other, NAMES)
        assert "found: no label" in saved(figure) and not captions(figure)
    figure, _ = draw_found(found._replace(values=np.full_like(found.values, np.nan)), NAMES)
    assert f"labels: {', '.join(found.whole)}" in saved(figure)
    assert captions(figure) and set(captions(figure)) <= set(NAMES)  # without a probability


def test_draw_bag():
    found, _ = sentences()
    bags = Bags(np.zeros((3, 1)), [0, 3], bag_ids=["t.txt"], instance_info=found.places)
    data = Dataset(bags, [["robin", "wren"]], instance_Y=[0, -1, 1])
    assert {"t.txt", "labels: robin, wren", "robin", "wren"} <= set(saved(draw_bag(data, "t.txt")))
    assert "gull .30" in saved(draw_bag(bags, 0, [-1, -1, 2], np.full((3, 3), 0.3), names=NAMES))
    with pytest.raises(DataError, match=r"no bag 'x'; the first is 't.txt'"):
        draw_bag(data, "x")
    with pytest.raises(DataError, match="no bag number 3"):
        draw_bag(data, 3)
    with pytest.raises(DataError, match="2 labels for 3 instances"):
        draw_bag(bags, 0, [0, 1], names=NAMES)
    with pytest.raises(DataError, match="has no name"):
        draw_bag(bags, 0, [0, 1, 5], names=NAMES)
    with pytest.raises(DataError, match="only bags with places"):
        draw_bag(Bags(np.zeros((1, 1)), [0, 1]), 0)
