"""Throw mutated files at the readers of their formats: ``fuzz_worker.py FORMAT,... SEED COUNT FOLDER``.

A process of its own, so that a crash, a hang or a huge allocation is seen from outside and ends here. Prints
one JSON object per format: how many files were read and refused, the slowest, the growth of memory, and what
went wrong.
"""

import contextlib
import gzip
import io
import json
import random
import re
import resource
import sys
import time
import traceback
import zipfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scipy import io as scipy_io
from scipy import sparse

from bagwise import Bags, Dataset
from bagwise.bags import MultiViewBags
from bagwise.errors import BagwiseError
from bagwise.io import read, write

MAX_BYTES = 1 << 20
NUMBERS = [
    b"1e999",
    b"-1",
    b"99999999999999999999",
    b"2147483648",
    b"nan",
    b"-inf",
    b"",
    b"0x1",
    b"1e-400",
    b"0.5.5",
]
WORDS = [0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**40, 2**62, 2**63, 2**64 - 1]


def small(n_views=1, is_sparse=False):
    X = np.arange(12.0).reshape(6, 2)
    one = Bags(
        sparse.csr_array(X) if is_sparse else X.astype(np.float32),
        [0, 2, 5, 6],
        bag_ids=["a", "b", "c"],
        instance_info={"box": np.arange(24).reshape(6, 4), "word": np.array(list("uvwxyz"))},
        feature_names=["width", "height"],
    )
    bags = one if n_views == 1 else MultiViewBags({"rgb": one, "txt": one})
    known = np.array([0, 1, -1, 0, 1, 1])
    return Dataset(
        bags,
        [["robin", "wren"], ["wren"], []],
        instance_Y=known if n_views == 1 else {"txt": known},
        groups=[1, 1, 2],
        splits={"train": [2, 0], "test": [1]},
    )


def long_set():
    bags = small().bags
    facts = {"word": bags.instance_info["word"]}
    return Dataset(Bags(bags.X, bags.offsets, bag_ids=bags.bag_ids, instance_info=facts), small().Y)


ARFF = b"""@relation toy
@attribute id {a,b,c}
@attribute bag relational
@attribute f1 numeric
@attribute f2 numeric
@end bag
@attribute wren {0,1}
@attribute robin {0,1}
@data
a,"1,2\\n3,4.5\\n5,-6e2",1,0
b,"0.25, 1",0,1
c,"7,8\\n9,10",1,1
"""
ARFF_1 = b"@relation t\n@attribute f1 numeric\n@attribute f2 numeric\n@attribute c {0,1}\n@data\n" + (
    b"1,2,0\n3,4,1\n5,6,0\n7,8,0\n"
)
ARFF_2 = b"@relation t\n@attribute n numeric\n@attribute c {0,1}\n@data\n2,1\n1,0\n1,0\n"
XML = b'<?xml version="1.0"?><labels xmlns="http://mulan.sourceforge.net/labels"><label name="wren"/>' + (
    b'<label name="robin"/></labels>'
)
C45_NAMES = b"0,1.\nbag: a,b.\ninstance: a.\nf1: continuous.\nf2: continuous.\n"
CSV_TEXT = b'bag,instance,letter,row,f1,f2\n1,1,A,4,0.5,2\n1,2,N,5,1,3\n2,1,"A",6,-2e3,4\n3,1,,7,1,1\n'


def written(data, name):
    folder = Path(sys.argv[4])
    write(data, folder / name)
    return (folder / name).read_bytes()


def mat(**variables):
    target = io.BytesIO()
    scipy_io.savemat(target, variables, do_compression=variables.pop("packed", False))
    return target.getvalue()


def cells(items):
    found = np.empty((1, len(items)), dtype=object)
    found[0, :] = [None] * len(items)
    for k, item in enumerate(items):
        found[0, k] = item
    return found


def mat_seeds():
    X = cells([np.arange(6, dtype=np.uint8).reshape(3, 2), np.arange(3, dtype=np.uint8).reshape(3, 1)])
    y = cells([np.array([[1, 0], [0, 1]]), np.array([[0, 1]])])
    letters = {"X": X, "y": y, "Y": np.array([[1, 1], [0, 1]])}
    target = sparse.csc_matrix(np.array([[1, 0, 1.0], [0, 1, 0]]))
    partial = {"data": np.ones((3, 2)), "target": target, "partial_target": target}
    table = {"data": np.array([[1, 0.5, 2, 1], [1, 1, 3, 1], [2, 1, 1, 2.0]])}
    for variables in (letters, partial, table):
        for packed in (False, True):
            yield {"toy.mat": mat(**variables, packed=packed)}


def seeds(name):
    """Small good files of a format: each a mapping of file names to bytes; the first is the one to read."""
    if name in ("parquet", "npz"):
        for k, data in enumerate([small(), small(is_sparse=True), small(n_views=2)]):
            yield {f"toy.{name}": written(data, f"{k}.{name}")}
        if name == "parquet":
            groups = io.BytesIO()
            pq.write_table(pq.read_table(Path(sys.argv[4]) / "0.parquet"), groups, row_group_size=1)
            yield {"toy.parquet": groups.getvalue()}
    elif name == "csv":
        for text in (CSV_TEXT, b"1,7,0.5,2\n0,9,1,1\n1,7,3,4\n", written(long_set(), "toy.csv")):
            yield {"toy.csv": text}
            yield {"toy.csv.gz": gzip.compress(text)}
    elif name == "matlab":
        yield from mat_seeds()
    elif name == "arff":
        yield {"toy.arff": ARFF}
        yield {"toy.arff": ARFF, "toy.xml": XML}
    elif name == "arff-pair":
        yield {"toy_1.arff": ARFF_1, "toy_2.arff": ARFF_2}
    elif name == "c45":
        yield {"toy.data": b"m1,c1,1,2,1.\nm2,c1,3,4,0.\nm1,c2,5,6.5,1.\n"}
        yield {"toy.data": b"1,9,1,2,1\n2,8,3,4,0\n1,7,5,6,1\n", "toy.names": C45_NAMES}
    elif name == "sentences":
        yield {
            "train-data.dat": b"<2> <3> 2 0 2 <1> 1\n<1> <2> 1 1\n",
            "train-label.dat": b"1 0\n0 1\n",
            "train-sentlabel.dat": b"<1 0> <1 0>\n<0 1>\n",
            "vocabs.txt": b"cat, 0\ndog, 1\nowl, 2\n",
            "label_list.dat": b"animal, bird\n",
        }


def mutate(content, rng):
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        if not data:
            break
        k = rng.randrange(len(data))
        kind = rng.randrange(11)
        if kind == 0:
            data[k] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[k] = rng.randrange(256)
        elif kind == 2:
            del data[k:]
        elif kind == 3:
            data[k:k] = rng.randbytes(rng.randrange(1, 9))
        elif kind == 4:
            del data[k : k + rng.randrange(1, 20)]
        elif kind == 5:
            data[k:k] = data[k : k + rng.randrange(1, 60)] * rng.choice([1, 1, 2, 30])
        elif kind == 6:
            size = rng.choice([1, 2, 4, 8])
            data[k : k + size] = (rng.choice(WORDS) % 256**size).to_bytes(size, rng.choice(["little", "big"]))
        elif kind == 7:
            lines = bytes(data).split(b"\n")
            a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[a], lines[b] = rng.choice([(lines[b], lines[a]), (lines[a], lines[a]), (b"", lines[b])])
            data = bytearray(b"\n".join(lines))
        elif kind == 8:
            fields = re.split(rb"([,; \n])", bytes(data))
            a, b = rng.randrange(len(fields)), rng.randrange(len(fields))
            fields[a], fields[b] = fields[b], fields[a]
            data = bytearray(b"".join(fields))
        elif kind == 9:
            numbers = list(re.finditer(rb"\d+", bytes(data)))
            if numbers:
                place = rng.choice(numbers)
                data[place.start() : place.end()] = rng.choice(NUMBERS)
        else:
            data[k:k] = rng.choice(
                [b'"', b",", b"\n", b"\r", b"\0", b"<", b">", b"@", b"{", b"\xff\xfe", b"\\n", b"%"]
            )
    return bytes(data)


def mutant(files, rng):
    """The same files with one of them changed, inside its wrapping where it has one."""
    name = rng.choice(list(files))
    content = files[name]
    inside = rng.random() < 0.7  # else damage the wrapping itself, which its checksum finds
    if name.endswith(".gz") and inside:
        content = gzip.compress(mutate(gzip.decompress(content), rng))
    elif name.endswith(".npz") and inside:
        target = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(target, "w") as new:
            chosen = rng.choice(old.namelist())
            for member in old.namelist():
                part = old.read(member)
                new.writestr(member, mutate(part, rng) if member == chosen else part)
        content = target.getvalue()
    else:
        content = mutate(content, rng)
    return files | {name: content}


def peak():
    """Peak memory in MiB; where there is no /proc, getrusage, which also counts the parent's peak."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return int(re.search(r"VmHWM:\s*(\d+)", status.read_text())[1]) // 1024


def fresh_peak():
    """Peak memory from here on; where it cannot be set back, that of the formats before counts as well."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak()


def main():
    names, seed, count, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    for name in names.split(","):
        print(json.dumps(spoil(name, seed, count, folder)), flush=True)


def spoil(name, seed, count, folder):
    rng = random.Random(f"{name} {seed}")
    good = list(seeds(name))
    place = folder / f"case-{name}"
    place.mkdir()

    def attempt(files):
        for old in place.iterdir():
            old.unlink()
        for file, content in files.items():
            (place / file).write_bytes(content)
        path = place if name == "sentences" else place / next(iter(files))
        return read(path, name, max_bytes=MAX_BYTES)

    for files in good:
        assert isinstance(attempt(files), Dataset)
    for files in good[:1] * 20:
        with contextlib.suppress(BagwiseError):  # the paths of failure are imported before memory is measured
            attempt(mutant(files, rng))
    before = fresh_peak()
    # Far above what honest reading takes, far below what a forged length may ask for.
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    report = {"read": 0, "refused": 0, "slowest": 0.0, "wrong": []}
    for k in range(count):
        files = mutant(rng.choice(good), rng)
        start = time.perf_counter()
        try:
            data = attempt(files)
            assert isinstance(data, Dataset)
            assert np.isfinite(data.Y).all()
            report["read"] += 1
        except BagwiseError as error:
            report["refused"] += 1
            if str(place) not in str(error):
                report["wrong"].append(f"{k}: the error names no file: {error}")
        except Exception:
            report["wrong"].append(f"{k}: {traceback.format_exc()[-1500:]}")
        took = time.perf_counter() - start
        if took > report["slowest"]:
            report["slowest"] = took
    report["growth_mib"] = peak() - before
    return report


if __name__ == "__main__":
    main()
