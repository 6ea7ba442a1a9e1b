"""Asking for a card costs nothing where there is none."""

import subprocess
import sys

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="drivers are looked for on Linux")
def test_without_a_driver_torch_is_not_imported():
    code = (
        "import sys; from bagwise.compute import devices; devices._DRIVERS = ('/no/such/driver',);"
        "assert not devices.gpu_there() and devices.gpu_for('auto', 1e12) is None;"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
