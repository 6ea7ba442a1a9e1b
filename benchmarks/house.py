"""How the house is built, of one or several checkouts side by side.

python benchmarks/house.py [CHECKOUT ...] [--methods ORedLogisticRegression MIMLFast]

Lines and files of the package; for each method the files that stand in its own folder, and the walk from a
CSV file through ``fit`` to scores: how many files of the package take part, of how many rooms, and how often
the room changes when files are listed in the order in which they are first entered. A room is a folder of the
package, or of ``models``. Every walk is a process of its own, and the second one there.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

WALK = """
import json, os, sys, tempfile, warnings
warnings.simplefilter("ignore")
import numpy as np
import bagwise
from bagwise import io, registry
assert os.path.dirname(os.path.dirname(bagwise.__file__)) == os.getcwd(), bagwise.__file__
path = tempfile.mkdtemp() + "/bags.csv"
rng = np.random.default_rng(0)
with open(path, "w") as file:
    print("bag,f1,f2,f3,labels", file=file)
    for bag in range(60):
        for x in rng.normal(size=(3, 3)) + bag % 3:
            print(f"b{bag}", *x, f"{'abc'[bag % 3]};d", sep=",", file=file)
cls = registry.get_estimator(sys.argv[1])
seed = {"random_state": 0} if "random_state" in cls().get_params() else {}
def walk():
    data = io.read(path)
    cls(**seed).fit(data.bags, data.Y).decision_function(data.bags)
walk()
root, entered = os.path.dirname(bagwise.__file__) + "/", {}
def note(frame, event, _):
    name = frame.f_code.co_filename
    if event == "call" and name.startswith(root):
        entered.setdefault(name[len(root):])
sys.setprofile(note)
walk()
sys.setprofile(None)
print(json.dumps([cls.__module__, list(entered)]))
"""


def room(path):
    """Folder of the package, or of ``models``."""
    folders = path.split("/")[:-1]
    return "/".join(folders[: 2 if folders[:1] == ["models"] else 1])


def walked(checkout, method):
    command = [sys.executable, "-c", WALK, method]
    found = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    module, files = json.loads(found.stdout.splitlines()[-1])
    rooms = [room(file) for file in files]
    own = checkout.joinpath(*module.split(".")[:-1])
    return {
        "own files": len([*own.glob("*.py")]),
        "files of the walk": len(files),
        "rooms": len(set(rooms)),
        "changes of room": sum(a != b for a, b in zip(rooms, rooms[1:])),
    }


def figures(checkout, methods):
    lengths = [len(path.read_text().splitlines()) for path in sorted((checkout / "bagwise").rglob("*.py"))]
    found = {
        "files": len(lengths),
        "lines": sum(lengths),
        "median file": statistics.median(lengths),
        "longest file": max(lengths),
        "files over 300 lines": sum(n > 300 for n in lengths),
    }
    for method in methods:
        found |= {f"{method}: {name}": n for name, n in walked(checkout, method).items()}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkouts", nargs="*", type=Path, default=[Path()])
    parser.add_argument("--methods", nargs="*", default=["ORedLogisticRegression", "MIMLFast"])
    options = parser.parse_args()
    all_found = [figures(path.resolve(), options.methods) for path in options.checkouts]
    width = max(map(len, all_found[-1]))
    for name in all_found[-1]:
        print(f"{name:<{width}}", *(f"{found[name]:>8}" for found in all_found))


if __name__ == "__main__":
    main()
