"""Finished chunks on disk, keyed by everything their result depends on.

coffea's own ``SimpleCheckpointer`` knows the file and the range of events only: changed
settings would silently reuse old results. Here the key also holds the settings, the methods
and the package's code, and a chunk appears under its name only when it is complete.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from pathlib import Path
from typing import Any

import cloudpickle
from coffea.processor import CheckpointerABC

import puma_coffea
import puma_coffea.processors
from puma_coffea.methods import Weigher

# Named one by one: the schema adds entries of its own to the metadata while a chunk is read.
_KEY = (
    "dataset", "filename", "treename", "fileuuid", "entrystart", "entrystop", "gold_standard_of",
)  # fmt: skip


class Checkpoints(CheckpointerABC):  # type: ignore[misc]
    """A folder of finished chunks.

    Parameters
    ----------
    folder
        Where they are kept; on a cluster a file system that all workers see.
    settings
        Hash of what the results depend on besides the events, from :func:`settings_hash`.
    """

    def __init__(self, folder: str | os.PathLike[str], settings: str) -> None:
        self.folder = Path(folder).absolute()
        self.settings = settings

    def path(self, metadata: dict[str, Any]) -> Path:
        """File of one chunk."""
        key = json.dumps([self.settings, *(metadata.get(name) for name in _KEY)], default=str)
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.chunk"

    def load(self, metadata: dict[str, Any], processor_instance: Any) -> Any:
        """The finished chunk, or None; a damaged one counts as not done."""
        del processor_instance
        try:
            content = self.path(metadata).read_bytes()
            digest, body = content[:32], content[32:]
        except OSError:
            return None
        return cloudpickle.loads(body) if hashlib.sha256(body).digest() == digest else None

    def save(self, output: Any, metadata: dict[str, Any], processor_instance: Any) -> None:
        """Keep a finished chunk; an error to write is raised, not swallowed."""
        del processor_instance
        path = self.path(metadata)
        path.parent.mkdir(parents=True, exist_ok=True)
        body = cloudpickle.dumps(output)
        scratch = path.with_suffix(f".{os.getpid()}.tmp")
        scratch.write_bytes(hashlib.sha256(body).digest() + body)
        scratch.replace(path)


def settings_hash(weighers: dict[str, Weigher], **settings: Any) -> str:
    """Hash of the package's code, the methods and other settings."""
    digest = hashlib.sha256()
    for package in (puma_coffea, puma_coffea.processors):  # apart in an editable install
        for file in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            digest.update(file.read_bytes())
    for name, weigher in weighers.items():
        digest.update(f"{name}={_identity(weigher)}".encode())
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def _identity(weigher: Any) -> str:
    """What tells one method from another of the same name: a model's hash, or its source."""
    if hasattr(weigher, "identity"):
        return str(weigher.identity)
    function = getattr(weigher, "function", getattr(weigher, "func", weigher))
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return repr(cloudpickle.dumps(function))
