"""Compiled loops: parts stay plain for Python, and caches notice changes of parts in other files."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import bagwise
from bagwise.compute.compiled import kernel, part


@part(error_model="numpy")
def _ratio(a, b):
    return a / b


@kernel(error_model="numpy")
def _ratios(a, b):
    total = 0.0
    for i in range(a.size):
        total += _ratio(a[i], b[i])
    return total


def test_a_part_is_plain_for_python_and_compiled_inside_a_loop():
    assert _ratio(1, 4) == 0.25
    assert _ratios(np.array([1.0, 3.0]), np.array([4.0, 4.0])) == 1.0
    assert np.isinf(_ratios(np.ones(1), np.zeros(1)))  # options reach the part: no ZeroDivisionError


FILE_OF_PART = """
from bagwise.compute.compiled import part
SHIFT = {shift}

@part
def scaled(x):
    return {factor} * x
"""
FILE_OF_MIDDLE = """
from bagwise.compute.compiled import part
from one_part import scaled

@part
def twice(x):
    return 2 * scaled(x)
"""
FILE_OF_LOOP = """
from bagwise.compute.compiled import kernel
from one_middle import twice
from one_part import SHIFT

@kernel
def loop(x):
    return twice(x) + SHIFT
"""
ASK = "from one_loop import loop; print(loop(1), sum(loop.stats.cache_hits.values()))"


def test_a_changed_part_in_another_file_is_not_taken_from_the_cache(tmp_path):
    (tmp_path / "one_middle.py").write_text(FILE_OF_MIDDLE)
    (tmp_path / "one_loop.py").write_text(FILE_OF_LOOP)
    places = os.pathsep.join([str(tmp_path), str(Path(bagwise.__file__).parents[1])])
    settings = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": places}
    settings["PYTHONDONTWRITEBYTECODE"] = "1"  # a file changed twice in a second has the same time

    def run(factor, shift):
        (tmp_path / "one_part.py").write_text(FILE_OF_PART.format(factor=factor, shift=shift))
        done = subprocess.run(
            [sys.executable, "-c", ASK], env=os.environ | settings, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return [int(word) for word in done.stdout.split()]

    assert run(10, 1) == [21, 0]
    assert run(10, 1) == [21, 1]  # nothing changed: from the cache
    assert run(15, 1) == [31, 0]  # two files away
    assert run(15, 4) == [34, 0]  # a constant of another file
    assert run(15, 4) == [34, 1]
