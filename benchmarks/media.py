"""How fast files become bags, and how well models read them: one function per medium.

python benchmarks/media.py [audio pictures text embeddings quality ...]

Files are generated in a temporary folder. Seconds are those of the processor on one core, best of three, each
in a process of its own; memory is the peak of that process beyond what it took before the first file.
"""

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

RUNS = 3
CHILD = """
import json, resource, sys, time
sys.path.insert(0, {here!r})
import media
work = media.{name}_work(**json.loads(sys.argv[1]))
next(work)
before, least = resource.getrusage(resource.RUSAGE_SELF), media.peak()
answer = next(work)
after, most = resource.getrusage(resource.RUSAGE_SELF), media.peak()
seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
print(json.dumps([seconds, most, most - least, answer]))
"""


def peak():
    """Peak memory of this process in MB; getrusage, where there is no /proc, counts the parent's peak too."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(name, runs=RUNS, **arguments):
    """Best CPU seconds, peak memory in MB (whole, and of the work alone) and the answer of ``<name>_work``.

    ``<name>_work(**arguments)`` is a generator: what comes before its first ``yield`` (imports, a first small
    file) is not counted, what comes before its second is; the second value is the answer.
    """
    code = CHILD.format(here=os.path.dirname(os.path.abspath(__file__)), name=name)
    found = []
    for _ in range(runs):
        one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        done = subprocess.run(
            [sys.executable, "-c", code, json.dumps(arguments)],
            env=os.environ | one,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            sys.exit(done.stderr)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    seconds, peak, more, answer = min(found)
    return seconds, peak, more, answer


# ---------------------------------------------------------------------- audio


def audio(folder):
    """Recorded seconds per second of one core, with the default description; memory of a 2-hour file."""
    for minutes, runs in ((10, RUNS), (120, 1)):
        path = folder / f"{minutes}.wav"
        _write_noise(path, minutes * 60, 48_000)
        _audio_line(f"48 kHz WAV, {minutes} minutes", path, minutes * 60, runs)
        if minutes > 10:
            _audio_line(f"48 kHz WAV, {minutes} minutes, calls", path, minutes * 60, 1, cut="calls")
        path.unlink()


def audio_formats(folder):
    """The same for other formats and rates, with their decoding and resampling, and for calls."""
    import soundfile

    from bagwise.datasets import make_recordings

    noise = folder / "noise.wav"
    _write_noise(noise, 600, 48_000)
    x, rate = soundfile.read(noise, dtype="int16")
    for suffix in ("flac", "ogg", "mp3"):
        path = folder / f"noise.{suffix}"
        with soundfile.SoundFile(path, "w", rate, 1) as file:
            for k in range(0, len(x), 480_000):  # one long write overflows the stack of the encoder
                file.write(x[k : k + 480_000])
        _audio_line(f"48 kHz {suffix.upper()}, 10 minutes", path, 600)
    for other in (22_050, 44_100, 96_000):
        path = folder / f"{other}.wav"
        _write_noise(path, 600, other)
        _audio_line(f"{other} Hz WAV, 10 minutes", path, 600)
    make_recordings(folder / "song", 1, seconds=600, calls=(400, 400), rate=48_000)
    _audio_line("48 kHz WAV, 10 minutes, calls", folder / "song" / "recording_000.wav", 600, cut="calls")


def audio_quality(folder):
    """Share of generated calls that `annotate` names right, learned from the labels of recordings alone."""
    import numpy as np

    from bagwise.datasets import make_recordings
    from bagwise.media import AudioToBags, find_files
    from bagwise.models import BagClassifier, ORedLogisticRegression

    for noise in (0.005, 0.05, 0.2):
        for seed in (0, 1, 2):
            place = folder / f"{noise} {seed}"
            seen = make_recordings(place / "seen", 80, noise=noise, random_state=2 * seed)
            unseen = make_recordings(place / "unseen", 40, noise=noise, random_state=2 * seed + 1)
            cut = AudioToBags("calls")
            bags, new = (cut.fit_transform(find_files(place / part)) for part in ("seen", "unseen"))
            names = np.array(sorted({name for labels in seen.labels.values() for name in labels}))
            Y = np.array([[name in seen.labels[file] for name in names] for file in bags.bag_ids], dtype=int)
            found = []
            for model in (BagClassifier(), ORedLogisticRegression()):
                guess = names[model.fit(bags, Y).annotate(new)]
                found.append(f"{type(model).__name__} {named_right(new, guess, unseen.spans):.3f}")
            print(f"calls named right, noise {noise}, seed {seed}: {', '.join(found)}", flush=True)


def _audio_line(title, path, length, runs=RUNS, cut="windows"):
    seconds, peak, more, n = measured("audio", runs, path=str(path), cut=cut)
    print(
        f"audio, {title}: {n} instances, {length / seconds:.0f} times real time, "
        f"peak {peak:.0f} MB ({more:.0f} MB for the file)",
        flush=True,
    )


def audio_work(path, cut):
    import warnings

    import numpy as np

    from bagwise.media import AudioToBags

    warnings.simplefilter("ignore")  # noise has no calls
    rng = np.random.default_rng(0)
    some = (0.1 * rng.standard_normal(48_000 * 6).astype(np.float32), 48_000)
    AudioToBags(cut).transform([some])
    yield
    yield AudioToBags(cut).transform([path]).n_instances


def _write_noise(path, seconds, rate):
    import wave

    import numpy as np

    rng = np.random.default_rng(0)
    block = (3000 * rng.standard_normal(rate * 10)).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        for k in range(seconds // 10):
            file.writeframes(np.roll(block, 977 * k).tobytes())


# ---------------------------------------------------------------------- pictures


def pictures(folder):
    """Pictures of 512 x 512 per second of one core, cut by a grid and into superpixels."""
    from bagwise.datasets import make_collages

    make_collages(folder, 40, patch=128, patches=4)
    for cut in ("grid", "superpixels"):
        seconds, peak, more, n = measured("pictures", folder=str(folder), cut=cut)
        rate = f"{40 / seconds:.1f} pictures/s"
        print(f"pictures, 512 x 512, {cut}, {n} parts: {rate}, peak {peak:.0f} MB ({more:.0f} MB)")


def pictures_work(folder, cut):
    from bagwise.media import ImagesToBags, find_files

    files = find_files(folder)
    ImagesToBags(cut).transform(files[:1])
    yield
    yield ImagesToBags(cut).transform(files).n_instances


# ---------------------------------------------------------------------- text


def text(folder):
    """MB of text per second of one core, and those of scikit-learn's hashing of the same sentences."""
    from bagwise.datasets import make_documents

    make_documents(folder, 200, sentences=(400, 600))
    size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    for params in ({}, {"cut": "windows"}, {"features": "tf-idf"}):
        seconds, peak, more, n = measured("text", folder=str(folder), params=params)
        words = ", ".join(params.values()) or "sentences, hashing"
        print(f"text, {words}, {n} parts: {size / seconds:.1f} MB/s, peak {peak:.0f} MB ({more:.0f} MB)")
    seconds, _, _, n = measured("sklearn_text", folder=str(folder))
    print(f"text, scikit-learn's hashing alone of the same sentences, cut before: {size / seconds:.1f} MB/s")


def text_work(folder, params):
    from bagwise.media import TextToBags, find_files

    files = find_files(folder)
    TextToBags(**params).fit_transform(files[:1])
    yield
    yield TextToBags(**params).fit_transform(files).n_instances


def sklearn_text_work(folder):
    from sklearn.feature_extraction.text import HashingVectorizer

    from bagwise.media import TextToBags

    sentences = TextToBags().fit_transform(folder).instance_info["text"].tolist()
    hashing = HashingVectorizer(n_features=2**14)
    hashing.transform(sentences[:100])
    yield
    yield hashing.transform(sentences).shape[0]


# ---------------------------------------------------------------------- embeddings


def embeddings(folder):
    """Time to make bags of embeddings beside the time to read their bytes, in one process, by turns."""
    import numpy as np

    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 1024)).astype(np.float32)
    for kind in ("npy", "npz", "h5", "safetensors", "pt", "half.npy"):
        inner = folder / kind
        inner.mkdir()
        for k in range(16):
            _write_features(inner / f"slide_{k:02d}.{kind}", np.roll(X, k, axis=0))
        size = sum(path.stat().st_size for path in inner.iterdir()) / 16e6
        _, peak, _, ratio = measured("embeddings", folder=str(inner))
        print(
            f"embeddings, 16 {kind} files of {size:.0f} MB: {ratio:.2f} times reading the bytes, "
            f"peak {peak:.0f} MB"
        )
        for path in inner.iterdir():
            path.unlink()


def _write_features(path, X):
    import numpy as np

    if path.name.endswith(".npy"):
        np.save(path, X.astype(np.float16) if ".half" in path.name else X)
    elif path.suffix == ".npz":
        np.savez(path, features=X)
    elif path.suffix == ".h5":
        import h5py

        with h5py.File(path, "w") as file:
            file["features"] = X
    elif path.suffix == ".safetensors":
        from safetensors.numpy import save_file

        save_file({"features": X}, path)
    else:
        import torch

        torch.save(torch.from_numpy(X), path)


def embeddings_work(folder):
    import time

    from bagwise.media import EmbeddingsToBags, find_files

    files = find_files(folder)
    EmbeddingsToBags().transform(files[:1])
    yield
    ratios = []
    for _ in range(5):
        start = time.perf_counter()
        kept = [Path(file.path).read_bytes() for file in files]
        middle = time.perf_counter()
        bags = EmbeddingsToBags().transform(files)
        ratios.append((time.perf_counter() - middle) / (middle - start))
        del kept, bags
    yield sorted(ratios)[len(ratios) // 2]


# ---------------------------------------------------------------------- quality

# Generated media: who makes them, how many to learn from, how they are cut.
KINDS = {
    "chirps of ten species": ("make_recordings", 100, {}, {"cut": "calls"}),
    "collages of textures": ("make_collages", 120, {}, {}),
    "collages of digits": ("make_collages", 300, {"kind": "digits"}, {}),
    "documents of six topics": ("make_documents", 120, {}, {}),
    "tiles of slides": ("make_slides", 80, {}, {}),
}


def quality(folder):
    """Share of the parts named right in new files by a model that was shown labels of files alone."""
    print(
        "parts named right in new files, learned from labels of files alone (given those of the new files);"
    )
    print("told apart: area under the curve of the scores of parts; files: label sets that are exactly right")
    for name in KINDS:
        (folder / name).mkdir()
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                f"import media, sys; media.quality_work({name!r}, sys.argv[1])",
                folder / name,
            ],
            env=os.environ | {"PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])},
        )
        if done.returncode:
            sys.exit(done.returncode)


def quality_work(name, folder):
    import numpy as np

    from bagwise import datasets
    from bagwise.inspection import label_names
    from bagwise.media import gather
    from bagwise.models import BagClassifier

    maker, n, settings, params = KINDS[name]
    make = getattr(datasets, maker)
    folder = Path(folder)
    make(folder / "old", n, labels=folder / "old.csv", **settings)
    truth = make(folder / "new", 60, labels=folder / "new.csv", random_state=1, **settings)
    old = gather(folder / "old", folder / "old.csv", params=params, cache=False)
    new = gather(folder / "new", folder / "new.csv", params=params, cache=False)
    model = BagClassifier(random_state=0).fit(old.bags, old.Y)
    model.label_names_ = old.label_names
    Y = np.column_stack([new.Y[:, new.label_names.index(label)] for label in old.label_names])
    names = np.array([*label_names(model), ""])
    shares = [
        named_right(new.bags, names[model.annotate(new.bags, known)], truth.spans) for known in (None, Y)
    ]
    right = np.mean((model.predict(new.bags) == Y).all(axis=1))
    told = told_apart(new.bags, model.instance_scores(new.bags), truth.spans, old.label_names)
    print(
        f"{name}, {n} files to learn from, {len(truth.spans)} parts in 60 new ones: {shares[0]:.3f} "
        f"({shares[1]:.3f}), told apart {told:.3f}, files {right:.3f}",
        flush=True,
    )


def told_apart(bags, scores, spans, names):
    """Mean over labels of the area under the curve: do scores tell a label's parts from what lies outside?"""
    import numpy as np
    from sklearn.metrics import roc_auc_score

    kind = np.zeros(
        scores.shape, dtype=np.int8
    )  # 1: the instance of a true part, -1: another that touches it
    for span, row, touched in matched(bags, spans):
        k = names.index(span["label"])
        kind[touched[kind[touched, k] == 0], k] = -1
        if row is not None:
            kind[row, k] = 1
    counted = [(kind[:, k][kind[:, k] >= 0], scores[:, k][kind[:, k] >= 0]) for k in range(len(names))]
    return np.mean([roc_auc_score(true, values) for true, values in counted if true.any()])


def named_right(bags, labels, spans):
    """Share of the true parts whose label is that of the instance with the most in common with them."""
    named = [row is not None and labels[row] == span["label"] for span, row, _ in matched(bags, spans)]
    return sum(named) / len(named)


def matched(bags, spans):
    """Each true part with the row of the instance that has most in common with it (or None), and all rows."""
    import numpy as np

    rows = {str(i): np.arange(a, b) for i, a, b in zip(bags.bag_ids, bags.offsets[:-1], bags.offsets[1:])}
    for span in spans:
        here = rows.get(span["file"], np.empty(0, int))
        shared = in_common({k: v[here] for k, v in bags.instance_info.items()}, span)
        touched = here[shared > 0]
        yield span, here[np.argmax(shared)] if len(touched) else None, touched


def in_common(info, span):
    """How much instances and a span have in common, beside what they cover together."""
    sides = [("start", "end"), ("low", "high"), ("start_char", "end_char")]
    found = {
        low: (info[low].astype(float), info[high].astype(float), span[low], span[high])
        for low, high in sides
        if low in span
    }
    if "x" in span:
        found |= {
            k: (info[k], info[k] + info[size], span[k], span[k] + span[size])
            for k, size in (("x", "width"), ("y", "height"))
        }
    both = either = whole = 1.0
    for a, b, first, last in found.values():
        both = both * (b.clip(max=last) - a.clip(min=first)).clip(min=0)
        either, whole = either * (b - a), whole * (last - first)
    return both / (either + whole - both)


def main():
    functions = {
        name: function
        for name, function in globals().items()
        if inspect.isfunction(function) and list(inspect.signature(function).parameters) == ["folder"]
        if not name.endswith("_work")
    }
    words = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    words.add_argument("media", nargs="*", help=f"among {', '.join(functions)}; all by default")
    for name in words.parse_args().media or functions:
        with tempfile.TemporaryDirectory() as folder:
            functions[name](Path(folder))


if __name__ == "__main__":
    main()
