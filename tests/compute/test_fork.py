"""A process forked after a fit can fit, too: no compiled loop keeps threads of its own."""

import os
import subprocess
import sys

import pytest

from bagwise import all_estimators

# in a process of its own, since the test runner may have used OpenMP already
CODE = """
import os, sys
from bagwise import models
from bagwise.checks import sample_bags
from bagwise.compute.threads import forced_threads

bags, Y = sample_bags(n_bags=20)
for name in sys.argv[1:]:
    cls = getattr(models, name)
    model = cls(**cls._test_params())
    with forced_threads(2):
        model.fit(bags, Y).predict(bags)
        child = os.fork()
        if child == 0:
            model.fit(bags, Y).predict(bags)
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status:
        sys.exit(f"{name}: the child ended with status {status}")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_fits_after_its_parent():
    # threads of torch do not survive a fork, as its own pages say
    names = [name for name, cls in all_estimators() if "torch" not in cls.traits.requires]
    threads = {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "2"}
    command = [sys.executable, "-W", "ignore", "-c", CODE, *names]
    subprocess.run(command, check=True, timeout=240, env={**os.environ, **threads})
