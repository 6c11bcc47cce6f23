"""The output folder of a run: written only when complete, read again by the report.

``output.coffea`` holds everything (``coffea.util.load``), ``histograms.json`` the histograms in
the UHI form, ``summary.json`` the numbers, and on request ``histograms.root``.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from puma_coffea.exceptions import BadOutput

OUTPUT = "output.coffea"


def prepare_folder(folder: Path) -> Path:
    """The folder, made if need be, after checking that it can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".write-test-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        msg = f"The output folder {folder} cannot be written ({error.strerror})."
        raise BadOutput(msg) from error
    return folder


def write_output(result: dict[str, Any], folder: Path, *, root: bool = False) -> None:
    """Write the result; each file appears under its name only when complete."""
    from coffea.util import save

    _complete(folder / "histograms.json", lambda path: path.write_text(_uhi(result["histograms"])))
    numbers = {"summary": result["summary"], "record": result["record"]}
    text = json.dumps(jsonable(numbers), indent=1, sort_keys=True)
    _complete(folder / "summary.json", lambda path: path.write_text(text))
    if root:
        _complete(folder / "histograms.root", lambda path: _write_root(result, path))
    _complete(folder / OUTPUT, lambda path: save(result, str(path)))


def read_output(folder: Path) -> dict[str, Any]:
    """The result of a run, from its output folder or the ``.coffea`` file itself."""
    from coffea.util import load

    path = folder / OUTPUT if folder.is_dir() else folder
    if not path.is_file():
        msg = f"{folder} holds no {OUTPUT}; make one with 'puma-coffea run'."
        raise BadOutput(msg)
    try:
        result: dict[str, Any] = load(str(path))
        missing = {"summary", "histograms", "record", "methods"} - set(result)
    except Exception as error:
        msg = f"{path} cannot be read as a coffea output ({type(error).__name__}: {error})."
        raise BadOutput(msg) from error
    if missing:
        msg = f"{path} is no output of this package: it lacks {', '.join(sorted(missing))}."
        raise BadOutput(msg)
    return result


def _complete(path: Path, write: Callable[[Path], Any]) -> None:
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(scratch)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def _uhi(histograms: dict[str, Any]) -> str:
    import uhi.io.json
    from hist.serialization import to_uhi

    plain = {name: to_uhi(histogram) for name, histogram in histograms.items()}
    return json.dumps(plain, default=uhi.io.json.default)


def _write_root(result: dict[str, Any], path: Path) -> None:
    import uproot

    with uproot.recreate(path) as file:
        for name, histogram in result["histograms"].items():
            for dataset in histogram.axes["dataset"]:
                for method in result["summary"].get(dataset, {}):
                    place = f"{dataset}/{method.replace(':', '_').replace(' ', '_')}/{name}"
                    file[place] = histogram[{"dataset": dataset, "method": method}]


def jsonable(value: Any) -> Any:
    """The value with sets as lists and numbers that JSON does not know as null."""
    if isinstance(value, dict):
        return {str(key): jsonable(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [jsonable(each) for each in (sorted(value) if isinstance(value, set) else value)]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
