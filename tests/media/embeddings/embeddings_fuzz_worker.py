"""Throw mutated files of some formats at the reader: ``embeddings_fuzz_worker.py FORMAT,... COUNT FOLDER``.

A process of its own, so that a crash or a huge allocation is seen from outside. Prints a list in JSON.
"""

import json
import random
import resource
import sys
import warnings
from pathlib import Path

import numpy as np

from bagwise.errors import BagwiseError
from bagwise.media import EmbeddingsToBags

X = np.arange(40, dtype=np.float32).reshape(8, 5)
COORDS = np.arange(16).reshape(8, 2) * 256
WORDS = [0, 1, 0x7F, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**40, 2**62, 2**63, 2**64 - 1]


def seeds(kind, folder):
    """Sound files of a format."""
    a, b = folder / f"seed0.{kind}", folder / f"seed1.{kind}"
    if kind == "npy":
        np.save(a, X)
        np.save(b, X.T.astype(np.float16))
    elif kind == "npz":
        np.savez(a, features=X, coords=COORDS)
        np.savez_compressed(b, features=X, offsets=[0, 3, 8])
    elif kind == "h5":
        import h5py

        for path, how in ((a, {}), (b, {"chunks": (4, 5), "compression": "gzip"})):
            with h5py.File(path, "w") as file:
                file.create_dataset("features", data=X, **how)
                file["coords"] = COORDS
                file["coords"].attrs["patch_size_level0"] = 256
    elif kind == "safetensors":
        from safetensors.numpy import save_file

        save_file({"features": X, "coords": COORDS}, a)
        save_file({"features": X, "offsets": np.array([0, 3, 8])}, b)
    elif kind == "pt":
        import torch

        torch.save(torch.from_numpy(X), a)
        torch.save({"features": torch.from_numpy(X)}, b, _use_new_zipfile_serialization=False)
    elif kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"bag_id": list("aabbcccc"), "features": X.tolist()}), a)
        pq.write_table(pa.table({"bag_id": ["u"], "features": [X.tolist()]}), b)
    else:
        a.write_text('id,embedding\nu,"1,2,3"\nv,"[4, 5, 6]"\n')
        b.write_text("id;x;y;embedding\nu;1;2;1.5,2\n")
    return [a.read_bytes(), b.read_bytes()]


def mutated(content, rng):
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(min(len(data), rng.choice([16, 128, 2048, len(data)])))
        choice = rng.random()
        if choice < 0.5:
            data[at] = rng.randrange(256)
        elif choice < 0.8:
            data[at : at + 8] = rng.choice(WORDS).to_bytes(8, rng.choice(["little", "big"]))
        else:
            del data[at : at + rng.randint(1, 9)]
        if not data:
            break
    return data[: rng.randint(0, len(data))] if rng.random() < 0.2 else data


def fuzz(kind, count, folder):
    maker, rng = EmbeddingsToBags(), random.Random(0)
    contents = seeds(kind, folder)
    maker._parts(str(folder / f"seed0.{kind}"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = {"kind": kind, "read": 0, "refused": 0, "wrong": []}
    for k in range(count):
        path = folder / f"{k}.{kind}"
        path.write_bytes(mutated(rng.choice(contents), rng))
        try:
            for _, part in maker._parts(str(path)):
                assert part.X.ndim == 2 and all(len(v) == len(part.X) for v in part.places.values())
            report["read"] += 1
        except BagwiseError as error:
            report["refused"] += 1
            if "\n" in str(error):
                report["wrong"].append(f"{path.name}: {error}")
        except Exception as error:
            report["wrong"].append(f"{path.name}: {type(error).__name__}: {error}")
        path.unlink()
    report["growth_mib"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return report


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    kinds, count, folder = sys.argv[1].split(","), int(sys.argv[2]), Path(sys.argv[3])
    sys.stdout.write(json.dumps([fuzz(kind, count, folder) for kind in kinds]))
