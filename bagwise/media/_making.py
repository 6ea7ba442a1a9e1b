"""Parts of one source: from the cache or made now, or the reason why there are none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from bagwise.errors import BagwiseError, DataError
from bagwise.media.cache import Cache
from bagwise.utils.files import check_file

if TYPE_CHECKING:
    from bagwise.media._base import ToBags


def made(maker: ToBags, k: int, source: Any, cache: Cache | None, settings: str | None) -> tuple[int, Any]:
    """Parts of one source, from the cache if they are there, or the reason why there are none."""
    try:
        if isinstance(source, str) and maker._is_path(source):
            _check_path(source)
        if cache is None or settings is None or not (isinstance(source, str) and maker._is_path(source)):
            parts = maker._parts(source)
        else:
            parts = cache.get_or_make(source, settings, lambda: maker._parts(source))
    except DataError as error:
        return k, error.message
    except BagwiseError:
        raise  # a package that is not installed stops all, not this file alone
    except (MemoryError, OverflowError) as error:
        return k, f"asks for more memory than there is ({error})".replace(" ()", "")
    except OSError as error:
        return k, f"cannot be read: {error.strerror or error}"
    except Exception as error:  # decoders fail in their own ways; one file must not end the rest
        return k, f"cannot be decoded ({' '.join(f'{type(error).__name__}: {error}'.split())[:200]})"
    if not parts:
        return k, "holds nothing to make a bag from"
    if not maker.may_be_empty:
        for name, part in parts:
            if part.X.shape[0] == 0:
                return k, f"{name}: holds no instances".removeprefix(": ")
    return k, parts


def _check_path(path: str) -> None:
    """Refuse what would wait for somebody to write, and names that no file of ours could hold."""
    if not os.path.isdir(path):
        check_file(path)
    try:
        path.encode()
    except UnicodeEncodeError:
        raise DataError("its name is not UTF-8; rename it") from None
