"""Real events for the tests: the embedded samples and, where present, the full ones."""

from __future__ import annotations

from pathlib import Path

import awkward as ak
import pytest

import puma_coffea

SHARED = Path(__file__).parents[2] / "shared" / "data"
DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of the full samples; tests that need it run where it stands beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip("the full samples are not beside this checkout")
    return SHARED


@pytest.fixture(scope="session")
def data() -> Path:
    """Small ROOT files made for the tests from real events."""
    return DATA


@pytest.fixture(scope="session")
def ttbar() -> ak.Array:
    """Candidates of the 12 embedded ttbar events at 140 pile-up interactions."""
    return puma_coffea.candidates(puma_coffea.open_events(puma_coffea.sample_path("ttbar_pu140")))


@pytest.fixture(scope="session")
def ttbar_pu0() -> ak.Array:
    """Candidates of the same hard events without pile-up."""
    return puma_coffea.candidates(puma_coffea.open_events(puma_coffea.sample_path("ttbar_pu0")))
