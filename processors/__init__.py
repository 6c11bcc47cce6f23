"""coffea processors: thin bundles of the package's functions."""

from __future__ import annotations

from puma_coffea.processors.pileup import PileupProcessor

__all__ = ["PileupProcessor"]
