"""coffea processors: thin bundles of the package's functions."""

from __future__ import annotations

from puma_coffea.processors.parquet import ParquetWriter
from puma_coffea.processors.pileup import PileupProcessor

__all__ = ["ParquetWriter", "PileupProcessor"]
