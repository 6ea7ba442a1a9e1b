"""Row groups of a Parquet file in order, a few of them decoded ahead at the same time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_MOST = 8  # row groups decoded at once: what they take in memory comes on top of the result


def row_groups(source: Path | bytes) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """Schema of a file, and a table for each of its row groups (one empty table if it has none)."""
    with _open(source) as file:
        return file.schema_arrow, _tables(source, file.metadata, file.schema_arrow)


def _tables(source: Path | bytes, metadata: pq.FileMetaData, schema: pa.Schema) -> Iterator[pa.Table]:
    n_groups = metadata.num_row_groups
    if n_groups == 0:
        yield schema.empty_table()
    elif n_groups == 1:
        yield _decode(source, metadata, 0)
    else:
        at_once = min(_MOST, os.cpu_count() or 1)
        with ThreadPoolExecutor(at_once) as pool:
            ahead: deque[Future[pa.Table]] = deque()
            for k in range(n_groups):
                ahead.append(pool.submit(_decode, source, metadata, k))
                if len(ahead) > at_once:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()


def _decode(source: Path | bytes, metadata: pq.FileMetaData, group: int) -> pa.Table:
    with _open(source, metadata) as file:  # a reader of its own: they are not to be shared by threads
        return file.read_row_group(group, use_threads=False)


def _open(source: Path | bytes, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(source) if isinstance(source, bytes) else source, metadata=metadata)
