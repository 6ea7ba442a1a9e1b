"""Embeddings in the files of BirdNET, Perch and others, joined by name and time."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bagwise.errors import DataError
from bagwise.media import AudioToBags
from bagwise.media.audio import ExportedEmbeddings

START = np.array([0.0, 3.0, 6.0])
VECTORS = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)


def commas(vector):
    return ",".join(f"{value:.9g}" for value in vector)


def write(folder, kind):
    """Windows of 3 s of rec/a.wav, and of another recording of the same name elsewhere."""
    rows = [("rec/a.wav", s, s + 3, v) for s, v in zip(START, VECTORS)]
    rows += [("other/a.wav", s, s + 3, v + 100) for s, v in zip(START, VECTORS)]
    if kind == "birdnet table":
        lines = [f'{file},{start},{end},"{commas(v)}"' for file, start, end, v in rows]
        path = folder / "embeddings.csv"
        path.write_text("\n".join(["file_path,start,end,embedding", *lines]) + "\n")
    elif kind == "wide table":
        lines = [f"{file}\t{start}\t{end}\t" + commas(v).replace(",", "\t") for file, start, end, v in rows]
        path = folder / "embeddings.tsv"
        path.write_text("\n".join(["filename\tStart (s)\tEnd (s)\te0\te1\te2\te3\te4", *lines]) + "\r\n")
    elif kind == "birdnet text":
        path = folder
        lines = [f"{s}\t{s + 3}\t{commas(v)}" for s, v in zip(START, VECTORS)]
        (folder / "a.birdnet.embeddings.txt").write_text("\n".join(lines) + "\n")
        (folder / "ab.birdnet.embeddings.txt").write_text("0\t3\t1,2\n")
    elif kind == "one file per window":
        path = folder
        for s, v in zip(START, VECTORS):
            (folder / f"a_{s}_{s + 3}.birdnet.embeddings.txt").write_text(commas(v))
    elif kind == "npz per recording":
        path = folder
        np.savez(folder / "a.npz", embeddings=VECTORS[:, None, :], start=START, end=START + 3)
    elif kind == "npz of all":
        path = folder / "all.npz"
        file, start, end, X = zip(*rows)
        np.savez(
            path, filename=np.array(file), embeddings=np.array(X), start=np.array(start), end=np.array(end)
        )
    elif kind == "parquet":
        path = folder / "perch.parquet"
        file, start, _, X = zip(*rows)
        table = {"filename": file, "offset_s": start, "embedding": [v.tolist() for v in X]}
        pq.write_table(pa.table(table), path)
    return path


KINDS = [
    "birdnet table",
    "wide table",
    "birdnet text",
    "one file per window",
    "npz per recording",
    "npz of all",
    "parquet",
]


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_other_programs(tmp_path, kind):
    exported = ExportedEmbeddings(write(tmp_path, kind))
    source = "/somewhere/rec/a.wav"
    assert np.allclose(exported.rows(source, START, START + 3), VECTORS, atol=1e-6)
    # a call gets the window it lies in, or most of it; what spans several equally gets their mean
    found = exported.rows(source, [3.2, 2.5, 2.0], [3.9, 4.5, 4.0])
    assert np.allclose(found, [VECTORS[1], VECTORS[1], VECTORS[:2].mean(axis=0)], atol=1e-6)
    assert np.allclose(exported.rows(source, [0.0], [9.0]), VECTORS.mean(axis=0), atol=1e-6)
    with pytest.raises(DataError, match=r"no embedding overlaps .* 20.00 to 21.00"):
        exported.rows(source, [20.0], [21.0])
    with pytest.raises(DataError, match=r"no embeddings of 'b\.wav'"):
        exported.rows("rec/b.wav", [0.0], [1.0])


def test_names_that_tell_nothing(tmp_path):
    exported = ExportedEmbeddings(write(tmp_path, "birdnet table"))
    assert np.allclose(exported.rows("other/a.wav", [0.0], [3.0]), VECTORS[:1] + 100)
    with pytest.raises(DataError, match=r"may be those of 'a\.wav'"):
        exported.rows("third/a.wav", [0.0], [3.0])
    with pytest.raises(DataError, match="samples in memory have none"):
        exported.rows((np.zeros(10), 48000), [0.0], [3.0])


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("a.csv", "file,start,end,embedding\n", "at least one row"),
        ("a.csv", 'file,start,end,embedding\na.wav,0,3,"1,x"\n', "line 2.*not a list of numbers"),
        ("a.csv", 'file,start,end,embedding\na.wav,0,3,"1,2"\na.wav,3,6,1\n', "line 3.*expected 2 numbers"),
        ("a.csv", "file,begin,embedding\na.wav,0,1\n", "column of starts"),
        ("a.csv", "file,start,embedding\na.wav,0,1\n", "does not tell its length"),
        ("a.csv", "file,start,end\na.wav,0,1\n", "one vector per window"),
        ("a.csv", "file,start,end,embedding\na.wav,0,3,nan\n", "not finite"),
        ("a.csv", "file,start,end,embedding\na.wav,0\n", "line 2.*expected 4 fields"),
        ("a.txt", "0\t3\n", "start, end and numbers"),
        ("a.npz", "no archive", "damaged"),
        ("a.parquet", "no table", "damaged"),
        ("a.dat", "?", "read from"),
    ],
)
def test_broken_files(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(DataError, match=words) as caught:
        ExportedEmbeddings(path).rows("a.wav", [0.0], [3.0])
    assert "\n" not in str(caught.value)


def test_in_the_transformer(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    (tmp_path / "rec").mkdir()
    soundfile.write(tmp_path / "rec" / "a.wav", np.zeros(9 * 8000), 8000)
    table = write(tmp_path, "birdnet table")
    bags = AudioToBags(embedding=str(table)).fit_transform([tmp_path / "rec" / "a.wav"])
    assert np.allclose(bags.X, VECTORS, atol=1e-6) and bags.feature_names is None
    both = AudioToBags(embedding=table, keep_description=True).fit_transform([tmp_path / "rec" / "a.wav"])
    assert both.n_features == 108
