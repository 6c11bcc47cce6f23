"""``kernel``: numba's ``njit`` with a cache that outlives neither its sources nor a read-only home."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, overload

from numba import njit

logger = logging.getLogger(__name__)
Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def kernel(function: Function) -> Function: ...
@overload
def kernel(**options: Any) -> Callable[[Function], Function]: ...
def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function with numba when it is first called, and keep the result on disk.

    numba keeps it beside the source where that can be written, else in the user's cache folder,
    or in ``NUMBA_CACHE_DIR``. Where none of them can be written, each process compiles anew.

    Parameters
    ----------
    function
        Plain loops over flat arrays.
    **options
        Of ``numba.njit``.
    """
    if function is None:
        return partial(kernel, **options)
    try:
        compiled = njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no folder that it can write
        _warn()
        return njit(**options)(function)
    # numba compares the function's own file only, although kernels of other files are compiled
    # into it: without this, their old versions would live on after an upgrade.
    stored: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if hasattr(stored, "_source_stamp"):
        stored._source_stamp = (stored._source_stamp, _all_kernels())
    return compiled


def kernel_files() -> dict[str, bytes]:
    """Name and content of all files of this package that hold kernels or parts of them."""
    root = Path(__file__).parent
    files = {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*.py"))}
    words = (b"numba", b"kernel", b"vectorised")
    return {name: text for name, text in files.items() if any(word in text for word in words)}


@cache
def _all_kernels() -> str:
    total = hashlib.sha256()
    for name, content in kernel_files().items():
        total.update(name.encode() + b"\0" + content)
    return total.hexdigest()


@cache
def _warn() -> None:
    logger.warning(
        "Compiled kernels cannot be kept: every process compiles them anew, which takes a minute. "
        "Set NUMBA_CACHE_DIR to a folder that you can write."
    )
