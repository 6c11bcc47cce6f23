"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)
PACKAGES = (
    "puma-coffea", "coffea", "awkward", "numpy", "numba", "fastjet", "dask", "scikit-learn",
    "torch", "transformers", "onnxruntime",
)  # fmt: skip


def machine() -> dict[str, Any]:
    """CPU, cores, threads and versions."""
    versions = {name: _version(name) for name in ("python", *PACKAGES)}
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": 1,
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {name: found for name, found in versions.items() if found},
    }


def _version(name: str) -> str:
    if name == "python":
        return platform.python_version()
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
