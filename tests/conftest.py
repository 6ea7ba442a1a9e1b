import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

import bagwise
from bagwise import actions
from bagwise.datasets import make_digits

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
    return Path(__file__).parent / "papers" / "small" / "small.toml"


@pytest.fixture(scope="session")
def digits_for_commands(tmp_path_factory):
    """A folder with data, a dummy, and a model that has learned."""
    place = tmp_path_factory.mktemp("cli")
    data = make_digits(n_bags=60, pictures=False)
    bagwise.write(data["train"], place / "train.parquet")
    bagwise.write(data["test"], place / "test.parquet")
    for name, file in [("MIMLDummy", "dummy"), ("SingleInstanceLogisticRegression", "logistic")]:
        actions.fit(place / "train.parquet", name, out=place / f"{file}.skops")
    return place


@pytest.fixture
def one_thread():
    """For products of a size that only waits for a second thread."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(scope="module")
def forked_workers():
    """Workers of Dask that are forked from a process which has imported everything: they begin at once."""
    import dask
    from distributed.utils import get_mp_context

    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        wanted = ["distributed", "bagwise.models", "bagwise.compute.dask", "bagwise.shards"]
        get_mp_context().set_forkserver_preload(wanted)
        yield
