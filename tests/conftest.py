import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Compiling a kernel inside an example is no reason to call the example slow.
settings.register_profile("bagwise", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bagwise")


@pytest.fixture
def public_data():
    """Folder with the public sets, where there is one."""
    folder = os.environ.get("BAGWISE_DATA")
    if not folder:
        pytest.skip("BAGWISE_DATA does not point to a folder with the public sets")
    return folder


@pytest.fixture(scope="session")
def suite_file():
    """A suite of experiments that takes a few seconds."""
    return Path(__file__).parent / "bench" / "small" / "small.toml"
