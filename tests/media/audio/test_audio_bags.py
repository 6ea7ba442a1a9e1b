"""AudioToBags as users meet it: files and arrays in, bags out; embeddings; calls named by weak labels."""

import warnings
from pathlib import Path

import numpy as np
import pytest

import bagwise
from bagwise.datasets import make_recordings
from bagwise.errors import DataError, DataWarning
from bagwise.media import AudioToBags, find_files
from bagwise.media.audio import feature_table
from bagwise.media.audio.spectrum import make_grid
from bagwise.models import BagClassifier, ORedLogisticRegression

pytest.importorskip("soundfile")


def tone(seconds, rate=48000, hertz=3000.0):
    t = np.arange(int(seconds * rate)) / rate
    return (0.2 * np.sin(2 * np.pi * hertz * t)).astype(np.float32)


def test_names_and_table():
    bags = AudioToBags().fit_transform([(tone(4), 48000)])
    names = list(feature_table(make_grid(48000, 50.0, 16000.0), 28))
    assert list(bags.feature_names) == names and bags.n_features == len(names) == 103
    assert bags.X.dtype == np.float32
    row = dict(zip(names, bags.X[0]))
    assert row["peak_frequency"] == 3000 and row["duration"] == 3
    assert np.isclose(row["level"], 10 * np.log10(0.02), atol=0.05)
    assert AudioToBags(bands=10).fit_transform([(tone(4), 48000)]).n_features == 103 - 36


@pytest.mark.parametrize("cut", ["windows", "calls"])
def test_blocks_do_not_matter(tmp_path, cut):
    make_recordings(tmp_path, 2, seconds=10, rate=44100)
    for source in find_files(tmp_path):
        whole = AudioToBags(cut)._part(source.path, block=1 << 22)
        for block in (1000, 44100, 100_001):
            part = AudioToBags(cut)._part(source.path, block=block)
            assert np.array_equal(part.X, whole.X)
            for name, column in whole.places.items():
                assert np.array_equal(part.places[name], column)


def test_other_rates_and_channels():
    """The same sound at other rates and in two channels: the same instances, the same numbers."""
    rng = np.random.default_rng(0)
    t = np.arange(12 * 32000) / 32000
    x = 0.001 * rng.standard_normal(len(t))
    for start in np.arange(1, 11, 1.3):
        here = (t > start) & (t < start + 0.4)
        u = t[here] - start
        x[here] += (
            0.2 * np.sin(2 * np.pi * (rng.uniform(500, 9000) * u + 500 * u**2)) * np.hanning(here.sum())
        )
    spectrum = np.fft.rfft(x)

    def recorded(rate):  # the same Fourier series
        more = np.zeros(12 * rate // 2 + 1, dtype=complex)
        more[: len(spectrum)] = spectrum
        return (np.fft.irfft(more) * rate / 32000).astype(np.float32)

    for cut in ("windows", "calls"):
        bags = AudioToBags(cut).transform(
            [
                (recorded(48000), 48000),
                (recorded(44100), 44100),
                (np.column_stack([recorded(96000)] * 2), 96000),
            ]
        )
        assert len(set(bags.sizes.tolist())) == 1 and bags.sizes[0] >= 4
        info = bags.instance_info
        first = slice(0, bags.sizes[0])
        scale = bags[0].std(axis=0) + 0.05 * np.abs(bags[0]).mean(axis=0) + 0.05
        for k in (1, 2):
            other = slice(bags.offsets[k], bags.offsets[k + 1])
            assert np.allclose(info["start"][first], info["start"][other], atol=0.011)
            assert np.allclose(info["end"][first], info["end"][other], atol=0.011)
            assert np.median(np.abs(bags[k] - bags[0]) / scale) < 0.02


def test_low_rates_end_below_high():
    bags = AudioToBags().transform([(tone(3, 16000), 16000)])
    assert bags.instance_info["high"].tolist() == [8000.0]
    assert np.isfinite(bags.X).all()


@pytest.mark.parametrize(
    "how, words",
    [
        ({"overlap": 3.0}, "at most 0.95 of the window"),
        ({"high": 30000.0}, "half the rate"),
        ({"low": 15900.0}, "0.9 of high"),
        ({"embedding": 7}, "callable, a path or None"),
        ({"cut": "bits"}, "'windows' or 'calls'"),
    ],
)
def test_settings_that_cannot_be(how, words):
    with pytest.raises(ValueError, match=words):
        AudioToBags(**how).fit([(tone(3), 48000)])


def test_no_call_is_an_empty_bag_and_said():
    rng = np.random.default_rng(0)
    noise = (0.01 * rng.standard_normal(96000).astype(np.float32), 48000)
    with pytest.warns(DataWarning, match="no call 8 dB over its noise"):
        bags = AudioToBags("calls").fit_transform([noise, (_song(), 48000)])
    assert bags.sizes[0] == 0 and bags.sizes[1] > 0 and bags.n_features == 103


def _song():
    x = 0.001 * np.random.default_rng(0).standard_normal(4 * 48000).astype(np.float32)
    for start in (1.0, 2.5):
        x[int(start * 48000) :][:12000] += tone(0.25)
    return x


# ---------------------------------------------------------------------- embeddings


def spectrum_of_eight(samples, rate):
    return np.abs(np.fft.rfft(samples, 14))


@pytest.mark.parametrize("cut, n", [("windows", 3), ("calls", 2)])
def test_embedding_by_a_callable(cut, n):
    seen = []

    def embedding(samples, rate):
        seen.append((len(samples), rate, samples.dtype))
        return spectrum_of_eight(samples, rate)

    sources = [(_song()[: 48000 * 4], 48000)]
    how = {"window": 1.5} if cut == "windows" else {}
    bags = AudioToBags(cut, embedding=embedding, **how).fit_transform(sources)
    assert bags.n_features == 8 and bags.n_instances == n == len(seen)
    info = bags.instance_info
    for (length, rate, kind), start, end in zip(seen, info["start"], info["end"]):
        assert rate == 48000 and kind == np.float32 and abs(length - (end - start) * 48000) < 2
    both = AudioToBags(cut, embedding=embedding, keep_description=True, **how).fit_transform(sources)
    assert both.n_features == 111 and np.array_equal(both.X[:, 103:], bags.X)
    assert np.array_equal(both.X[:, :103], AudioToBags(cut, **how).fit_transform(sources).X)


@pytest.mark.parametrize("wrong", [lambda x, r: 3.0, lambda x, r: [np.nan], lambda x, r: np.zeros((2, 2))])
def test_embedding_that_is_no_vector(wrong):
    with pytest.raises(DataError, match="vector of finite numbers"):
        AudioToBags(embedding=wrong).transform([(tone(3), 48000)])


# ---------------------------------------------------------------------- learning


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    found = {}
    for name, n_files, seed in (("seen", 60, 11), ("unseen", 40, 12)):
        folder = tmp_path_factory.mktemp(name)
        truth = make_recordings(folder, n_files, random_state=seed, noise=0.08)
        found[name] = find_files(folder), truth
    return found


@pytest.mark.parametrize("model", [BagClassifier(), ORedLogisticRegression()], ids=lambda m: type(m).__name__)
def test_calls_are_named_right_by_labels_of_recordings(recordings, model):
    files, truth = recordings["seen"]
    names = sorted({label for labels in truth.labels.values() for label in labels})
    transformer = AudioToBags("calls")
    bags = transformer.fit_transform(files)
    Y = np.array([[name in truth.labels[bag] for name in names] for bag in bags.bag_ids])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(bags, Y.astype(int))
    files, truth = recordings["unseen"]
    bags = transformer.transform(files)
    named = np.array(names)[model.annotate(bags)]
    info = bags.instance_info
    right = 0
    for span in truth.spans:
        seconds = np.minimum(info["end"], span["end"]) - np.maximum(info["start"], span["start"])
        hertz = np.minimum(info["high"], span["high"]) - np.maximum(info["low"], span["low"])
        shared = np.maximum(seconds, 0) * np.maximum(hertz, 0) * (info["file"] == span["file"])
        right += shared.max() > 0 and named[shared.argmax()] == span["label"]
    assert right / len(truth.spans) > 0.95


def test_a_pipeline_from_files(recordings, tmp_path):
    from sklearn.pipeline import make_pipeline

    files, truth = recordings["seen"]
    files = [file.path for file in files[:20]]
    names = sorted({label for labels in truth.labels.values() for label in labels})
    Y = np.array(
        [[name in truth.labels[path.rsplit("/", 1)[-1]] for name in names] for path in files]
    ).astype(int)
    model = make_pipeline(AudioToBags("calls"), ORedLogisticRegression())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(files, Y)
    bagwise.save(model, tmp_path / "birds.skops")
    again = bagwise.load(tmp_path / "birds.skops")
    assert np.array_equal(again.predict(files), model.predict(files))


def test_the_page_says_what_every_number_is():
    page = Path(bagwise.__file__).parents[1] / "docs" / "audio.md"
    if not page.exists():
        pytest.skip("the pages are not part of an installed package")
    text = page.read_text(encoding="utf-8")
    for name, meaning in feature_table(make_grid(48000, 50.0, 16000.0), 28).items():
        if not name.startswith("mel_"):
            assert f"| `{name}` | {meaning} |" in text
