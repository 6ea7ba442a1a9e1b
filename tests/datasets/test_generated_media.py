"""Generated media: the same seed gives the same files, and the truth is where it says."""

import wave
import zlib

import numpy as np
import pytest

from bagwise.datasets import make_collages, make_documents, make_recordings, make_slides

MAKERS = {
    "recordings": lambda folder, **more: make_recordings(folder, 3, seconds=3.0, **more),
    "collages": lambda folder, **more: make_collages(folder, 3, **more),
    "digits": lambda folder, **more: make_collages(folder, 3, kind="digits", **more),
    "documents": lambda folder, **more: make_documents(folder, 3, **more),
    "slides": lambda folder, **more: make_slides(folder, 3, suffix=".npz", **more),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_same_seed_gives_the_same_files(make, tmp_path):
    one, two, other = (make(tmp_path / str(k), random_state=s) for k, s in enumerate((0, 0, 1)))
    assert one == two and one != other
    for name, labels in one.labels.items():
        a, b = ((tmp_path / k / name) for k in "01")
        if name.endswith(".npz"):  # a zip notes the time
            a, b = np.load(a), np.load(b)
            assert np.array_equal(a["features"], b["features"]) and np.array_equal(a["coords"], b["coords"])
        else:
            assert a.read_bytes() == b.read_bytes()
        assert labels == sorted({s["label"] for s in one.spans if s["file"] == name})


def test_the_table_of_labels(tmp_path):
    truth = make_documents(tmp_path / "files", 3, labels=tmp_path / "topics.csv")
    lines = (tmp_path / "topics.csv").read_text().split()
    assert (
        lines[0] == "file,labels"
        and lines[1] == f"document_000.txt,{';'.join(truth.labels['document_000.txt'])}"
    )


def test_calls_sound_where_the_truth_says(tmp_path):
    truth = make_recordings(tmp_path, 4, noise=0.001)
    for span in truth.spans:
        with wave.open(str(tmp_path / span["file"])) as file:
            rate = file.getframerate()
            sound = np.frombuffer(file.readframes(-1), "<i2") / 32767
        part = sound[int(span["start"] * rate) : int(span["end"] * rate)]
        power = np.abs(np.fft.rfft(part)) ** 2
        frequency = np.fft.rfftfreq(len(part), 1 / rate)
        band = (frequency > 0.9 * span["low"]) & (frequency < 1.1 * span["high"])
        # a tone of amplitude 0.2 has 0.2^2 n^2 / 4; edges and rests leave at least a third of it
        assert power[band].sum() > 0.2**2 * len(part) ** 2 / 4 / 3


def test_sentences_and_boxes_are_those_of_the_files(tmp_path):
    truth = make_documents(tmp_path / "text", 3)
    for span in truth.spans:
        text = (tmp_path / "text" / span["file"]).read_text()
        assert text[span["start_char"] : span["end_char"]] == span["text"]
    truth = make_collages(tmp_path / "pictures", 3)
    span = truth.spans[0]
    content = (tmp_path / "pictures" / span["file"]).read_bytes()
    start = content.index(b"IDAT") + 4
    size = int.from_bytes(content[start - 8 : start - 4], "big")
    rows = np.frombuffer(zlib.decompress(content[start : start + size]), np.uint8).reshape(192, 1 + 192 * 3)
    picture = rows[:, 1:].reshape(192, 192, 3).astype(float)
    x, y = int(span["x"]), int(span["y"])
    assert picture[y : y + 64, x : x + 64].std() > 30  # plain noise has 18
