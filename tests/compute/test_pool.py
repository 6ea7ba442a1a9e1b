"""Threads that stay: order of results, one thread per matrix product, how many there are."""

import sys
import threading
from types import ModuleType

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from bagwise.compute.threads import Workers, blas_threads, libraries, openmp_threads, small_products, threads


def test_all_cores_by_minus_one():
    assert Workers(-1).n_threads == threads(-1)
    assert Workers(5).n_threads == 5
    assert Workers(5, most=3).n_threads == 3


def test_none_is_what_the_matrix_library_would_use():
    with threadpool_limits(1, user_api="blas"):
        assert Workers().n_threads == 1


def test_order_and_products_of_one_thread():
    def seen(item):
        blas = [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]
        return item, max(blas, default=1), threading.get_ident()

    for n in (1, 3):
        with Workers(n) as workers:
            results = workers.map(seen, range(20))
        assert [item for item, _, _ in results] == list(range(20))
        assert {products for _, products, _ in results} == {1}
        assert (threading.get_ident() in {ident for _, _, ident in results}) == (n == 1)


def test_used_again_after_the_block():
    workers = Workers(2)
    for _ in range(2):
        with workers:
            assert workers.map(abs, [-1, -2]) == [1, 2]
    assert workers.map(abs, [-1, -2]) == [1, 2]  # without a pool, in this thread


def test_errors_come_out():
    with pytest.raises(ZeroDivisionError), Workers(2) as workers:
        workers.map(lambda x: 1 / x, [1, 0])


def counts(kind):
    return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == kind]


def test_libraries_keep_to_their_threads_inside_the_block():
    with threadpool_limits(2):
        before = counts("blas"), counts("openmp")
        with blas_threads(1):
            assert set(counts("blas")) == {1} and counts("openmp") == before[1]
            with openmp_threads(1):
                assert set(counts("openmp")) <= {1}
        with small_products(10):
            assert set(counts("blas")) == {1}
        with small_products(1e12):
            assert counts("blas") == before[0]
        assert (counts("blas"), counts("openmp")) == before


def test_libraries_are_looked_for_again_after_an_import(monkeypatch):
    found = libraries()
    assert libraries() is found
    monkeypatch.setitem(sys.modules, "a_module_with_a_library", ModuleType("a_module_with_a_library"))
    assert libraries() is not found
    assert [lib.filepath for lib in libraries().lib_controllers] == [
        lib["filepath"] for lib in threadpool_info()
    ]
