"""What a user names (files, globs, lists, coffea filesets) as one plain form."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from puma_coffea.exceptions import BadConfig, NoEvents
from puma_coffea.mistakes import unknown_key
from puma_coffea.opening import TREE

DEFAULT_DATASET = "events"
METADATA = ("gold_standard_of",)


@dataclass
class Dataset:
    """Files of one dataset, each with the tree it holds, and the user's metadata."""

    files: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)


def read_fileset(inputs: Iterable[str]) -> dict[str, Dataset]:
    """Datasets by name from what stands on the command line.

    Parameters
    ----------
    inputs
        Each one a ROOT or Parquet file, a glob, a text file (``.txt``) with one of these per
        line, or a coffea fileset (``.json``). ``name=input`` puts it into the dataset ``name``;
        without, it goes to ``events``. Remote paths (``root://``, ``https://``) are not touched.

    Raises
    ------
    NoEvents
        Nothing was named, or a glob matches nothing.
    BadConfig
        A fileset that is not of coffea's form.
    """
    datasets: dict[str, Dataset] = {}
    for each in inputs:
        _add(datasets, each)
    if not any(dataset.files for dataset in datasets.values()):
        msg = "The list of files is empty; name ROOT or Parquet files, a list (.txt) or a fileset (.json)."
        raise NoEvents(msg)
    for name, dataset in datasets.items():
        partner = dataset.metadata.get("gold_standard_of")
        if partner is not None and partner not in datasets:
            msg = f"Dataset '{name}' is the gold standard of '{partner}', which is not in the fileset."
            raise BadConfig(msg)
    return datasets


def _add(datasets: dict[str, Dataset], text: str) -> None:
    name, separator, path = text.partition("=")
    if not separator or "/" in name or "://" in text.split("=", maxsplit=1)[0]:
        name, path = DEFAULT_DATASET, text
    if path.endswith(".json"):
        for key, dataset in _read_json(path).items():
            mine = datasets.setdefault(key, Dataset())
            mine.files |= dataset.files
            mine.metadata |= dataset.metadata
    elif path.endswith((".txt", ".list")):
        lines = (line.split("#")[0].strip() for line in _text(path).splitlines())
        for line in filter(None, lines):
            _add(datasets, line if "=" in line or not separator else f"{name}={line}")
    else:
        files = datasets.setdefault(name, Dataset()).files
        files |= {file: _tree_of(file) for file in _expand(path)}


def _read_json(path: str) -> dict[str, Dataset]:
    try:
        content = json.loads(_text(path))
    except json.JSONDecodeError as error:
        msg = f"{path} is not valid JSON: {error}."
        raise BadConfig(msg) from error
    if not isinstance(content, dict):
        msg = f"{path} must map dataset names to files, not hold a {type(content).__name__}."
        raise BadConfig(msg)
    return {name: _dataset(entry, f"{path}, dataset '{name}'") for name, entry in content.items()}


def _dataset(entry: Any, where: str) -> Dataset:
    if isinstance(entry, list):
        entry = {"files": entry}
    if not isinstance(entry, dict):
        msg = f"{where}: expected a list of files or an object with 'files', not {entry!r}."
        raise BadConfig(msg)
    _check_keys(entry, ("files", "treename", "metadata", "form", "save_form"), where)
    if "files" not in entry:
        msg = f"{where}: the key 'files' is missing."
        raise BadConfig(msg)
    metadata = entry.get("metadata") or {}
    listed = entry["files"]
    if not isinstance(listed, (list, dict)) or not isinstance(metadata, dict):
        msg = f"{where}: 'files' must be a list or an object, 'metadata' an object."
        raise BadConfig(msg)
    close = difflib.get_close_matches("gold_standard_of", metadata, n=1, cutoff=0.7)
    if close and close[0] != "gold_standard_of":
        msg = f"{where}: metadata '{close[0]}' is unknown; did you mean 'gold_standard_of'?"
        raise BadConfig(msg)
    files: dict[str, str] = {}
    for name in listed:
        given = listed[name] if isinstance(listed, dict) else entry.get("treename")
        # coffea's preprocessed filesets have an object with 'object_path' per file
        tree = given.get("object_path") if isinstance(given, dict) else given
        files |= {file: tree or _tree_of(file) for file in _expand(name)}
    return Dataset(files, metadata)


def _check_keys(entry: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in entry:
        if key not in known:
            msg = f"{where}: {unknown_key(key, known)}"
            raise BadConfig(msg)


def _expand(path: str) -> list[str]:
    if "://" in path or not has_magic(path):
        return [path]
    found = sorted(glob(path))
    if not found:
        msg = f"No file matches {path!r}."
        raise NoEvents(msg)
    return found


def is_parquet(path: str) -> bool:
    """Whether a path names a Parquet file."""
    return path.endswith((".parquet", ".pq"))


def _tree_of(path: str) -> str:
    return "" if is_parquet(path) else TREE


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read ({error})."
        raise BadConfig(msg) from error
