"""The processor behind ``puma-coffea prepare``: each chunk becomes a Parquet file."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import awkward as ak
from coffea import processor

from puma_coffea.candidates import candidates
from puma_coffea.parquet import rows_of
from puma_coffea.truth import truth


class ParquetWriter(processor.ProcessorABC):  # type: ignore[misc]
    """Writes candidates and truth of each chunk as ``DATASET_HASH_START-STOP.parquet``.

    A file that is there already is left alone, so a stopped preparation goes on where it ended.

    Parameters
    ----------
    folder
        Where the files go; on a cluster a file system that all workers see.
    vertexing
        As for :func:`puma_coffea.candidates`.
    """

    def __init__(self, folder: str | os.PathLike[str], vertexing: str = "truth") -> None:
        self.folder = Path(folder).absolute()
        self.vertexing = vertexing

    def process(self, events: ak.Array) -> dict[str, Any]:
        """Events and files of one chunk."""
        meta = events.metadata
        source = hashlib.sha256(f"{meta['filename']}|{meta['fileuuid']}|{self.vertexing}".encode())
        stem = f"{meta['dataset']}_{source.hexdigest()[:10]}"
        path = self.folder / f"{stem}_{meta['entrystart']}-{meta['entrystop']}.parquet"
        if not path.exists():
            rows = rows_of(events, candidates(events, vertexing=self.vertexing), truth(events))
            scratch = path.with_name(f".{path.name}.{os.getpid()}")
            try:
                ak.to_parquet(rows, scratch, compression="zstd", extensionarray=False)
                scratch.replace(path)
            finally:
                scratch.unlink(missing_ok=True)
        return {"events": len(events), "files": {str(path)}}

    def postprocess(self, accumulator: dict[str, Any]) -> dict[str, Any]:
        """The totals, as they are."""
        return accumulator
