"""A small training on the embedded sample, for tests."""

from __future__ import annotations

from typing import Any

from puma_coffea import sample_path

RECIPE: dict[str, Any] = {
    "steps": 60, "crops": 8, "crop": 128, "validate_every": 10, "learning_rate": 3e-3, "warm_up": 5,
    "threads": 1,
}  # fmt: skip

SMALL: dict[str, Any] = {
    "name": "small",
    "data": {"files": [sample_path("zvv_pu140.parquet")], "held_out": 0.2},
    "inputs": ["pt", "abs_eta", "is_photon", "hard_pt_0.2", "hard_max_0.2", "nearest_hard_dr"],
    "tokens": {"neutral_pt_min": 2.0, "pileup_pt_min": 5.0},
    "network": {"layers": 2, "groups": 2, "width": 16, "heads": 2, "feed_forward": 16, "band": 5},
    "recipe": RECIPE,
}
