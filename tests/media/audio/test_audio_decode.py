"""Whatever way sound is stored, the samples arrive; whatever is wrong with a file, one line says so."""

import io
import struct
import sys

import numpy as np
import pytest

from bagwise.errors import DataError, OptionalDependencyError
from bagwise.media.audio.decode import open_recording

soundfile = pytest.importorskip("soundfile")
RATE = 22050
X = (0.3 * np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)).astype(np.float32)
STEREO = np.column_stack([X, 0.5 * X])


def stored(path, x=STEREO, rate=RATE, **how):
    soundfile.write(path, x, rate, **how)
    return path


def taken(source, **how):
    rate, blocks, notes = open_recording(source, **how)
    return rate, np.concatenate(list(blocks)), notes


@pytest.mark.parametrize(
    "suffix, subtype, tolerance",
    [
        ("wav", "PCM_16", 1e-4),
        ("wav", "PCM_24", 1e-6),
        ("wav", "PCM_U8", 1e-2),
        ("wav", "FLOAT", 1e-7),
        ("flac", "PCM_16", 1e-4),
        ("aiff", "PCM_16", 1e-4),
        ("ogg", "VORBIS", 0.05),
        ("mp3", "MPEG_LAYER_III", 0.05),
    ],
)
def test_formats(tmp_path, suffix, subtype, tolerance):
    if suffix.upper() not in soundfile.available_formats():
        pytest.skip("this build of libsndfile lacks the format")
    path = stored(tmp_path / f"a.{suffix}", subtype=subtype)
    rate, x, notes = taken(path)
    assert rate == RATE and len(x) == len(X) and x.dtype == np.float32 and not notes
    assert np.abs(x - 0.75 * X)[2000:-2000].max() < tolerance


@pytest.mark.parametrize("block", [1, 1000, 1 << 18])
def test_blocks_do_not_matter(tmp_path, block):
    path = stored(tmp_path / "a.flac", STEREO[:3000])
    assert np.array_equal(taken(path, block=block)[1], taken(path)[1])


def test_channels(tmp_path):
    path = stored(tmp_path / "a.wav", subtype="FLOAT")
    assert np.allclose(taken(path, channel=1)[1], 0.5 * X)
    with pytest.raises(DataError, match="2 channels, no channel 2"):
        taken(path, channel=2)
    many = np.tile(X[:500, None], (1, 200))
    assert np.allclose(taken(stored(tmp_path / "many.wav", many, subtype="FLOAT"), block=1000)[1], X[:500])


def test_memory():
    assert np.array_equal(taken((X, RATE))[1], X)
    assert np.allclose(taken((STEREO, RATE))[1], 0.75 * X)
    assert np.allclose(taken(((X * 2**15).astype(np.int16), RATE))[1], X, atol=1e-4)
    assert np.allclose(taken(((X * 127 + 128).astype(np.uint8), RATE))[1], X, atol=0.02)
    assert np.array_equal(taken((X.astype(np.float64), float(RATE)))[1], X)


@pytest.mark.parametrize(
    "source, words",
    [
        ((X, 0), "rate of 1,000"),
        ((X, "fast"), "number of samples per second"),
        ((X[:0], RATE), "no samples"),
        ((np.array(["a"]), RATE), "must be numbers"),
        ((np.full(100, np.nan), RATE), "sample 0 .* is nan"),
        ((np.append(X, np.inf), RATE), r"at 1.00 s\) is inf"),
        ((X, RATE, 1), "pair"),
        ((STEREO.T[:, :300], RATE), "transpose"),
        (X, "at which rate"),
        (7, "path or a pair"),
    ],
)
def test_memory_refused(source, words):
    if isinstance(source, tuple) and len(source) == 2 and np.shape(source[0]) == (2, 300):
        source = (np.zeros((2, 300)), RATE)
    with pytest.raises(DataError, match=words):
        taken(source)


def spoiled(content, at, form, value):
    content = bytearray(content)
    struct.pack_into(form, content, at, value)
    return bytes(content)


def test_spoiled_headers(tmp_path):
    target = io.BytesIO()
    soundfile.write(target, STEREO, RATE, format="WAV", subtype="PCM_16")
    good = target.getvalue()
    path = tmp_path / "a.wav"
    cases = {
        "rate 0": spoiled(good, 24, "<I", 0),
        "rate of 1 Hz": spoiled(good, 24, "<I", 1),
        "rate of 2 GHz": spoiled(good, 24, "<I", 2**31),
        "no channel": spoiled(good, 22, "<H", 0),
        "65,535 channels": spoiled(good, 22, "<H", 65535),
        "no data": spoiled(good, 40, "<I", 0),
        "nothing": b"",
        "text": b"call me wren",
        "four bytes": good[:4],
        "another old format": b"IWAV" + good,
    }
    for name, content in cases.items():
        path.write_bytes(content)
        with pytest.raises(DataError) as caught:
            taken(path)
        assert "\n" not in str(caught.value) and str(path) in str(caught.value), name
    path.write_bytes(spoiled(good, 40, "<I", 2**32 - 1))  # as written by a pipe
    assert len(taken(path)[1]) == len(X) and not taken(path)[2]
    path.write_bytes(good[: len(good) // 2])  # a recorder lost its power
    _, x, notes = taken(path)
    assert abs(len(x) - len(X) // 2) < 20 and "ends before" in notes[0]
    with pytest.raises(DataError, match="no such file"):
        taken(tmp_path / "none.wav")
    with pytest.raises(DataError, match="directory"):
        taken(tmp_path)


def test_flac_of_unknown_or_forged_length(tmp_path):
    target = io.BytesIO()
    soundfile.write(target, STEREO, RATE, format="FLAC")
    content = bytearray(target.getvalue())
    path = tmp_path / "a.flac"
    for first, rest in ((0x00, b"\0" * 4), (0x0F, b"\xff" * 4)):  # 36 bits of STREAMINFO
        content[21] = (content[21] & 0xF0) | first
        content[22:26] = rest
        path.write_bytes(content)
        assert len(taken(path)[1]) == len(X)


def test_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr("bagwise.media.audio.decode.MAX_HOURS", 0.5 / 3600)
    with pytest.raises(DataError, match="longer than"):
        taken(stored(tmp_path / "a.wav"))
    with pytest.raises(DataError, match="longer than"):
        taken((X, RATE))


def test_without_the_package(tmp_path, monkeypatch):
    path = stored(tmp_path / "a.wav")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(OptionalDependencyError, match=r"pip install 'bagwise\[audio\]'"):
        taken(path)
    assert np.array_equal(taken((X, RATE))[1], X)  # samples in memory need none
