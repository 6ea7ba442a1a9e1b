import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import io as scipy_io
from scipy import sparse

from bagwise.errors import DataError
from bagwise.io._mat5 import Unsupported, read_variables


def saved(variables, **options):
    buffer = io.BytesIO()
    scipy_io.savemat(buffer, variables, **options)
    return buffer.getvalue()


def decoded(folder, content, **options):
    path = folder / "x.mat"
    path.write_bytes(content)
    return read_variables(path, **options)


def element(kind, body):
    return struct.pack("<II", kind, len(body)) + body + b"\0" * (-len(body) % 8)


def variable(kind, dims, *data, name=b"x", flags=0):
    head = element(6, struct.pack("<II", kind | flags, 0)) + element(5, struct.pack(f"<{len(dims)}i", *dims))
    return element(14, head + element(1, name) + b"".join(data))


HEADER = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from(["f8", "f4", "i8", "u1", "i2", "u4"]),
        hnp.array_shapes(min_dims=2, max_dims=3, max_side=5),
    ),
    st.booleans(),
)
def test_agrees_with_scipy_on_matrices(tmp_path_factory, matrix, compress):
    found = decoded(tmp_path_factory.mktemp("m"), saved({"a": matrix}, do_compression=compress))
    np.testing.assert_array_equal(found["a"], matrix)


@pytest.mark.parametrize("compress", [False, True])
def test_cells_text_sparse(tmp_path, compress):
    cell = np.empty((2, 2), dtype=object)
    cell[0, 0], cell[1, 0], cell[0, 1], cell[1, 1] = np.eye(2), "Vögel", sparse.csc_array(np.eye(3)), ""
    matrix = sparse.csc_array(np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0]]))
    content = saved(
        {"c": cell, "s": matrix, "t": "wren", "rows": ["ab ", "cde"], "st": {"f": 1}, "z": np.array([[1j]])},
        do_compression=compress,
    )
    found = decoded(tmp_path, content)
    assert found["c"].shape == (2, 2)
    assert found["c"][0, 0].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert found["c"][1, 0] == "Vögel"
    assert found["c"][0, 1].toarray().tolist() == np.eye(3).tolist()
    assert found["c"][1, 1] == ""
    assert found["s"].toarray().tolist() == matrix.toarray().tolist()
    assert found["t"] == "wren"
    assert found["rows"] == ["ab ", "cde"]
    assert found["st"] == Unsupported("struct")
    assert found["z"] == Unsupported("complex matrix")


def test_big_endian(tmp_path):
    body = b"".join(
        struct.pack(">II", kind, len(data)) + data + b"\0" * (-len(data) % 8)
        for kind, data in [
            (6, struct.pack(">II", 6, 0)),
            (5, struct.pack(">ii", 1, 2)),
            (1, b"x"),
            (9, struct.pack(">dd", 1.5, -2.0)),
        ]
    )
    content = b"MATLAB 5.0".ljust(124) + b"\x01\x00MI" + struct.pack(">II", 14, len(body)) + body
    assert decoded(tmp_path, content)["x"].tolist() == [[1.5, -2.0]]


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "no MATLAB 5 file"),
        (b"bag,f1\n1,2\n" * 20, "no MATLAB 5 file"),
        (b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\0" * 400, "save(file, '-v7')"),
        (HEADER + b"\0\0\0", "truncated"),
        (HEADER + struct.pack("<II", 14, 2**32 - 1), "states 4,294,967,295 bytes"),
        (HEADER + element(99, b""), "unknown type 99"),
        (HEADER + element(15, b"nonsense"), "damaged compressed"),
        (HEADER + element(15, zlib.compress(variable(6, [1, 1], element(9, b"\0" * 8)))[:-6]), "truncated"),
        (HEADER + variable(6, [2**31 - 1, 2**31 - 1], element(9, b"\0" * 8)), "states 2147483647 x"),
        (HEADER + variable(6, [0] + [2**31 - 1] * 4, element(9, b"")), ""),
        (HEADER + variable(6, [-1, 1], element(9, b"\0" * 8)), "without a size"),
        (HEADER + variable(6, [1, 1], element(9, b"\0" * 7)), "no whole number"),
        (HEADER + variable(6, [1, 1], element(77, b"\0" * 8)), "unknown type 77"),
        (HEADER + variable(42, [1, 1], element(9, b"\0" * 8)), "unknown class 42"),
        (HEADER + variable(1, [2**31 - 1, 1]), "more than its bytes can hold"),
        (HEADER + variable(4, [1, 9], element(16, b"abc")), "9 characters stated, 3 found"),
        (HEADER + variable(4, [1, 1], element(16, b"\xff")), "damaged text"),
        (HEADER + variable(4, [1, 1], element(4, b"\x00\xd8")), "half of a UTF-16"),
        (
            HEADER
            + variable(
                5,
                [2, 1],
                element(5, struct.pack("<i", 7)),
                element(5, struct.pack("<ii", 0, 1)),
                element(9, b"\0" * 8),
            ),
            "do not fit its size",
        ),
        (
            HEADER
            + variable(5, [2, 2**30], element(5, b""), element(5, struct.pack("<i", 0)), element(9, b"")),
            "do not fit its size",
        ),
    ],
)
def test_broken_files(tmp_path, content, word):
    try:
        decoded(tmp_path, content)
    except DataError as error:
        assert word in error.message
        assert error.path == str(tmp_path / "x.mat")
    else:
        assert not word  # an odd but lawful size


def test_nested_cells_end(tmp_path):
    inner = variable(6, [1, 1], element(9, b"\0" * 8), name=b"")
    for _ in range(50):
        inner = variable(1, [1, 1], inner, name=b"")
    with pytest.raises(DataError, match="nested"):
        decoded(tmp_path, HEADER + inner)


def test_bomb(tmp_path):
    content = saved({"a": np.zeros((1000, 1000))}, do_compression=True)
    assert len(content) < 20_000
    with pytest.raises(DataError, match="larger max_bytes"):
        decoded(tmp_path, content, max_bytes=1_000_000)
    several = saved({f"a{k}": np.zeros((100, 1000)) for k in range(5)}, do_compression=True)
    with pytest.raises(DataError, match="larger max_bytes"):  # the sum counts
        decoded(tmp_path, several, max_bytes=2_000_000)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_damage_is_a_data_error(tmp_path_factory, data):
    cell = np.empty((1, 2), dtype=object)
    cell[0, 0], cell[0, 1] = np.eye(2), "ab"
    content = bytearray(saved({"c": cell, "s": sparse.csc_array(np.eye(2)), "n": np.arange(6.0)}))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(124, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(124, len(content)))]
    try:
        decoded(tmp_path_factory.mktemp("fuzz"), bytes(content))
    except DataError as error:
        assert error.path
