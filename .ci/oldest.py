"""Print pip constraints: the lowest version that pyproject.toml allows of each package that bagwise uses.

Tools of the tests are left free: nothing is said about them to users.
"""

import re
import sys
import tomllib
from pathlib import Path

EXTRAS = ("audio", "image", "slides", "web", "dask")
USED_IN_DEV = {"pandas", "polars"}  # optional for users, so their lowest versions are a promise too

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
used = [*project["dependencies"], *(one for name in EXTRAS for one in extras[name])]
for requirement in used + extras["dev"]:
    name, lowest = re.fullmatch(r"([\w.-]+)(?:\[.*\])?>=([\w.]+)", requirement).groups()
    if requirement in used or name in USED_IN_DEV:
        sys.stdout.write(f"{name}=={lowest}\n")
