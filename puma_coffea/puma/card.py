"""The model card: everything besides the numbers that a model needs, and the truth about it.

``card.json`` has a strict schema: an unknown or missing key is refused by name, so that a model
never runs with settings it was not trained with.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from puma_coffea.exceptions import BadModelCard, ModelHashMismatch

CARD, WEIGHTS, SCRIPT = "card.json", "weights.safetensors", "model.pt"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Ordering(_Strict):
    """How candidates become a sequence."""

    by: Literal["clusters", "pt"] = "clusters"
    """IterativeCluster, or decreasing pT (for comparison)."""
    size: int = Field(10, ge=2)
    """w_clust: a cluster has fewer members."""
    branches: int = Field(4, ge=2)
    """k of k-means."""


class Tokens(_Strict):
    """Which candidates the network sees (GeV); softer ones count in the features only.

    A neutral that is no token gets weight 0.
    """

    neutral_pt_min: float = Field(0.0, ge=0)
    """Of neutrals."""
    hard_pt_min: float = Field(0.0, ge=0)
    """Of tracks of the hard vertex."""
    pileup_pt_min: float = Field(0.0, ge=0)
    """Of tracks of other vertices."""


class Network(_Strict):
    """Shapes of the network, as :class:`puma_coffea.puma.network.NetworkConfig`."""

    width: int = 64
    heads: int = 4
    layers: int = 6
    groups: int = 6
    band: int = 15
    feed_forward: int = 128
    norm: Literal["pre", "post"] = "pre"
    norm_eps: float = 1e-5
    dropout: float = 0.0


class Calibration(_Strict):
    """A correction of the network's weights, fitted to the vector sums of held-out events.

    w + c w + a w (1 - w) + b w (1 - w) (1 - 2 w), kept within [0, 1]; c by region of abs(eta).
    """

    edges: tuple[float, ...] = (1.5, 3.0, 4.0)
    """Between the regions of abs(eta)."""
    c: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    a: float = 0.0
    b: float = 0.0

    @model_validator(mode="after")
    def _one_c_per_region(self) -> Self:
        if len(self.c) != len(self.edges) + 1:
            msg = f"{len(self.edges)} edges need {len(self.edges) + 1} values of c"
            raise ValueError(msg)
        return self

    def __call__(self, weights: NDArray[np.float32], abs_eta: Any) -> Any:
        """Corrected weights."""
        w = weights.astype(np.float64)
        c = np.asarray(self.c)[np.searchsorted(self.edges, abs_eta, side="right")]
        spread = w * (1 - w)
        return np.clip(w + c * w + spread * (self.a + self.b * (1 - 2 * w)), 0, 1).astype(
            np.float32
        )


class HardNeutrals(_Strict):
    """Neutrals so hard that pile-up hardly makes them: their weights are raised towards 1.

    w + (1 - w) r, where r grows linearly in pT from 0 to 1.
    """

    raise_from: float = Field(ge=0)
    """GeV."""
    raise_to: float = Field(gt=0)
    """GeV; from here on a neutral is kept whatever the network says."""

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if self.raise_to <= self.raise_from:
            msg = f"raise_to ({self.raise_to}) must be above raise_from ({self.raise_from})"
            raise ValueError(msg)
        return self

    def __call__(self, weights: Any, pt: Any) -> Any:
        """Raised weights; arrays or tensors, pT in GeV."""
        share = (pt - self.raise_from) / (self.raise_to - self.raise_from)
        return weights + (1 - weights) * share.clip(0, 1)


class Metric(_Strict):
    """A figure, and the command that makes it again."""

    sample: str
    quantity: str
    value: float
    error: float | None = None
    command: str


class Card(_Strict):
    """The whole card."""

    card_version: Literal[1] = 1
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    description: str
    licence: str = "BSD-3-Clause"
    inputs: tuple[str, ...] = Field(min_length=1)
    ordering: Ordering = Ordering()
    tokens: Tokens = Tokens()
    network: Network
    calibration: Calibration | None = None
    hard_neutrals: HardNeutrals | None = None
    training: dict[str, Any] = {}
    """Samples, events, settings and command of the training; empty if untrained."""
    metrics: tuple[Metric, ...] = ()
    hashes: dict[str, str] = {}
    """SHA-256 of the files of the model's folder; of ``card.json`` without these hashes."""

    @field_validator("inputs")
    @classmethod
    def _known_inputs(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        from puma_coffea.puma.features import FEATURES

        unknown = [name for name in names if name not in FEATURES]
        if unknown:
            msg = (
                f"unknown inputs {', '.join(unknown)}; a newer version of the package may know them"
            )
            raise ValueError(msg)
        return names

    def to_json(self) -> str:
        """The text of ``card.json``."""
        return json.dumps(self.model_dump(mode="json"), indent=2) + "\n"

    def settings(self) -> str:
        """What decides a weight besides the numbers, as text that can be hashed."""
        # None is left out: a card without a setting means what it did before there was one.
        chosen = self.model_dump(
            mode="json",
            exclude_none=True,
            include={"inputs", "ordering", "tokens", "network", "calibration", "hard_neutrals"},
        )
        return json.dumps(chosen, sort_keys=True)

    def sealed(self, files: dict[str, bytes]) -> Card:
        """This card with the hashes of other files and of itself."""
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        return self.model_copy(update={"hashes": {CARD: own_hash(self.to_json()), **hashes}})


def own_hash(text: str | bytes) -> str:
    """SHA-256 of what a card says, its hashes left out.

    Taken from the text and not from :class:`Card`: a later version that adds a field with a
    default must still find the same hash.
    """
    said = {key: value for key, value in json.loads(text).items() if key != "hashes"}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def parse_card(text: str | bytes, where: str) -> Card:
    """A card from its text; ``where`` names its origin in a refusal."""
    try:
        card = Card.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the whole card"
        found = "" if first["type"] == "missing" else f", found {str(first['input'])[:80]!r}"
        msg = f"{where}: {key}: {first['msg']}{found}."
        raise BadModelCard(msg) from error
    if card.hashes.get(CARD, own_hash(text)) != own_hash(text):
        msg = (
            f"{where}: the card of model '{card.name}' was altered after it was written (another "
            "SHA-256); get the model again, or write yours with Puma.save."
        )
        raise ModelHashMismatch(msg)
    return card


def read_card(folder: Path) -> Card:
    """The card of a model folder."""
    path = folder / CARD
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{folder} is no model folder: {CARD} cannot be read ({error})."
        raise BadModelCard(msg) from error
    return parse_card(text, str(path))
