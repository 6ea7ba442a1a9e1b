"""Reading and writing: ``read(path)`` recognises the format, ``write(dataset, path)`` follows the suffix.

Every format is one module with ``read(path, ...) -> Dataset`` and, where sensible, ``write(dataset, path)``.
"""

from bagwise.io.files import formats, read, write

__all__ = ["formats", "read", "write"]
