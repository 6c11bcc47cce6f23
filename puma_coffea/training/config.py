"""What a training is told: a strict YAML file, and presets for all that it leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from puma_coffea.exceptions import BadConfig
from puma_coffea.mistakes import unknown_key
from puma_coffea.puma.card import Card, HardNeutrals, Network, Ordering, Tokens
from puma_coffea.puma.catalogue import find_card
from puma_coffea.puma.features import PAPER


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Data(_Strict):
    """Samples and how they are used."""

    files: tuple[str, ...] = Field(min_length=1)
    """Parquet samples, paths or globs, with the column ``y``."""
    hard_files: tuple[str, ...] = ()
    """Hard events without pile-up, to be laid over the pile-up of the others."""
    simulated: tuple[str, ...] = ()
    """Samples that only train, as from ``puma-coffea simulate``; nothing of them is held out."""
    validation: tuple[str, ...] = ()
    """Samples on which choices are made, beside what is held out of every file."""
    overlays: int = Field(0, ge=0)
    """Number of overlaid events."""
    validation_overlays: int = Field(0, ge=0)
    """Number of hard events laid over the validation samples' pile-up, to judge on too: few samples
    hold enough events for a sure choice, and held-out events may share pile-up with the others."""
    held_out: float = Field(0.2, ge=0, lt=1)
    """Share of every file that trains nothing and judges."""


class Recipe(_Strict):
    """Optimisation."""

    steps: int = Field(60_000, ge=1)
    """Steps of the whole training."""
    alone_steps: int = Field(0, ge=0)
    """The first of the steps see single candidates, without attention."""
    singles: int = Field(8192, ge=1)
    """Candidates in a batch of those."""
    teacher: float = Field(0.0, ge=0, le=1)
    """Share of boosted trees' weights in the targets of those steps; needs lightgbm."""
    event_steps: int = Field(0, ge=0)
    """After all but the next, steps that see whole events and the residual of their pTmiss."""
    events: int = Field(64, ge=1)
    """Events in a batch of those."""
    event_rate: float = Field(2e-4, gt=0)
    """Learning rate of those steps."""
    attend_steps: int = Field(0, ge=0)
    """The last of the steps, again on whole events; attention, if it was silent, begins to speak.
    With ``start`` all steps, unless said otherwise."""
    attend_events: int = Field(16, ge=1)
    """Events in a batch of those."""
    attend_rate: float | None = Field(None, gt=0)
    """Learning rate of those steps; default: as ``event_rate``. The more pile-up there is to learn
    from, the higher it may be."""
    real_share: float | None = Field(None, ge=0, le=1)
    """Share of the samples' own events in batches, beside overlaid ones; default: by their numbers."""
    crops: int = Field(16, ge=1)
    """Crops in a batch, over all processes."""
    crop: int = Field(512, ge=32)
    """Tokens in a crop."""
    accumulate: int = Field(1, ge=1)
    """Batches whose gradients make one step."""
    schedule: Literal["flat", "cosine", "cyclical"] = "flat"
    """Warm-up, then flat with a decay over the last tenth, or half a cosine; or the paper's cycles."""
    learning_rate: float = Field(1e-3, gt=0)
    """Of the first phase."""
    together_rate: float = Field(2e-4, gt=0)
    """Learning rate once candidates attend to each other, if single ones came first: few neutrals of
    a crop matter, and at the rate of the first phase their noise undoes what it learnt."""
    warm_up: int = Field(500, ge=0)
    """Steps in which the rate of each phase rises, a tenth of the phase at most."""
    cycle: int = Field(1000, ge=2)
    """Steps of one cycle of the cyclical schedule (four epochs in the paper)."""
    cycle_decay: float = Field(0.97, gt=0, le=1)
    """Factor on the rate from one cycle to the next."""
    weight_decay: float = Field(1e-2, ge=0)
    """Of AdamW; 0 makes it Adam."""
    clip: float = Field(1.0, gt=0)
    """Largest norm of a step's gradient."""
    loss: Literal["cross-entropy", "squared"] = "cross-entropy"
    """Of single candidates and crops."""
    alpha: float = Field(2.0, ge=0)
    """Exponent of pT in the loss's weight."""
    pt_unit: Literal["fixed", "leading"] = "fixed"
    """pT in the loss's weight as it is, or over the hardest of its event's leading cluster."""
    pt_cap: float = Field(50.0, gt=0)
    """GeV; harder candidates weigh as much as this."""
    augment: bool = True
    """Turn crops in phi and reflect them in phi and eta, where these are inputs."""
    averaging: float = Field(0.999, ge=0, lt=1)
    """Decay of the running average of the parameters, which is what is validated and shipped."""
    validate_every: int = Field(500, ge=1)
    """Steps between two validations, each of which writes a checkpoint."""
    validate_events: int = Field(300, ge=1)
    """Events of each judging sample, at most."""
    patience: int = Field(40, ge=1)
    """Validations without improvement before the training stops."""
    half: bool = False
    """Matrix products in bfloat16 on CPUs that have it: a step in two thirds of the time."""
    seed: int = 1
    """Two trainings with the same seed and configuration are the same."""
    threads: int = Field(0, ge=0)
    """Threads of each process; 0 leaves it to torch."""

    @model_validator(mode="after")
    def _phases_fit(self) -> Self:
        needed = self.alone_steps + self.event_steps + self.attend_steps
        if needed > self.steps:
            msg = (
                f"steps ({self.steps}) must hold alone_steps ({self.alone_steps}), event_steps "
                f"({self.event_steps}) and attend_steps ({self.attend_steps}), {needed} together; "
                "some of them may come from the preset"
            )
            raise ValueError(msg)
        return self


class Config(_Strict):
    """The whole configuration."""

    name: str
    """The model's, in its card."""
    description: str = "PUMA model"
    """One sentence for its card."""
    start: str | None = None
    """Name or folder of the model whose numbers the training begins with; inputs, ordering, tokens
    and network are then that model's. Without it they are drawn at random."""
    data: Data
    """Samples and how they are used."""
    inputs: tuple[str, ...] = PAPER
    """Features by name, in this order; ``puma_coffea.puma.features.FEATURES`` lists them all."""
    ordering: Ordering = Ordering()
    """How candidates become a sequence."""
    tokens: Tokens = Tokens()
    """Which candidates the network sees."""
    hard_neutrals: HardNeutrals | None = None
    """Neutrals so hard that they are kept whatever the network says."""
    network: Network = Network()
    """Shape of the network."""
    recipe: Recipe = Recipe()
    """Optimisation."""

    @model_validator(mode="after")
    def _attention_speaks(self) -> Self:
        if self.start is not None and self.recipe.alone_steps:
            msg = "recipe.alone_steps must be 0 with 'start': that model attends already; --preset fine-tune has it so"
            raise ValueError(msg)
        return self

    def card(self) -> Card:
        """The card of the model to be trained, without metrics."""
        return Card(
            name=self.name,
            description=self.description,
            inputs=self.inputs,
            ordering=self.ordering,
            tokens=self.tokens,
            hard_neutrals=self.hard_neutrals,
            network=self.network,
        )

    def raised(self, weights: Any, pt: Any) -> Any:
        """The network's weights of neutrals as they will be used; arrays or tensors, pT in GeV."""
        return weights if self.hard_neutrals is None else self.hard_neutrals(weights, pt)


#: PUPPI's weight, sums within cones, nearest tracks, ranks and densities: what carries the physics.
STRONG = (
    "pt", "abs_eta", "is_photon", "is_hard", "is_pileup", "npv", "puppi",
    "cluster_dr", "cluster_hard_pt", "cluster_neutral_pt",
    *(f"hard_pt_{r}" for r in (0.05, 0.1, 0.2, 0.4, 0.8)),
    *(f"hard_ptdr_{r}" for r in (0.1, 0.2, 0.4, 0.8)), "hard_ptdr2_0.2", "hard_ptdr2_0.4",
    *(f"hard_max_{r}" for r in (0.1, 0.2, 0.4)), *(f"hard_count_{r}" for r in (0.2, 0.4, 0.8)),
    *(f"kept_pt_{r}" for r in (0.1, 0.2, 0.4)), "kept_ptdr2_0.2", "kept_ptdr2_0.4",
    "kept_max_0.2", "kept_max_0.4", "kept_count_0.4",
    *(f"pileup_pt_{r}" for r in (0.05, 0.1, 0.2, 0.4)), "pileup_max_0.2", "pileup_max_0.4",
    *(f"photon_pt_{r}" for r in (0.05, 0.1, 0.2, 0.4)), "photon_max_0.2", "photon_max_0.4",
    "photon_count_0.2",
    *(f"hadron_pt_{r}" for r in (0.1, 0.2, 0.4)), "hadron_max_0.2", "hadron_max_0.4",
    "nearest_hard_dr", "nearest_hard_pt", "neutral_rank_0.2", "neutral_rank_0.4",
    "ring_neutral_pt", "ring_pileup_pt", "ring_hard_pt", "ring_rank",
    "event_hard_count", "event_hard_pt", "event_hard_vector_pt",
)  # fmt: skip

#: Keys of a configuration that fix the numbers of a model: how many there are, what they mean.
SHAPE = ("inputs", "ordering", "tokens", "network")

PRESETS: dict[str, dict[str, Any]] = {
    "default": {
        "inputs": STRONG,
        "tokens": {"neutral_pt_min": 0.8, "pileup_pt_min": 2.0},
        "hard_neutrals": {"raise_from": 100.0, "raise_to": 200.0},
        "network": {"layers": 6, "groups": 6, "width": 64, "feed_forward": 128, "dropout": 0.1},
        "recipe": {
            "steps": 7700, "alone_steps": 6000, "event_steps": 500, "attend_steps": 1200,
            "teacher": 0.9, "schedule": "cosine", "learning_rate": 1.5e-3, "event_rate": 1e-4,
            "warm_up": 200,
            "crops": 32, "crop": 128, "averaging": 0.9995, "validate_every": 250,
            "validate_events": 500,
        },
    },
    "fine-tune": {
        "start": "puma",
        "recipe": {
            "steps": 2000, "attend_rate": 1e-4, "schedule": "cosine", "warm_up": 200,
            "validate_every": 250, "validate_events": 500,
        },
    },
    "paper": {
        "inputs": PAPER,
        "network": {
            "layers": 12, "groups": 5, "feed_forward": 64, "norm": "post", "norm_eps": 1e-12,
        },
        "recipe": {
            "schedule": "cyclical", "loss": "squared", "weight_decay": 0.0, "clip": 5.0,
            "pt_unit": "leading", "pt_cap": 1e9, "crops": 32, "crop": 128,
        },
    },
}  # fmt: skip


def read_config(path: str | Path, preset: str = "default") -> Config:
    """A configuration from a YAML file on top of a preset.

    Raises
    ------
    BadConfig
        A key that is unknown, missing or of the wrong kind, by name.
    """
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"{path} cannot be read ({error.strerror})."
        raise BadConfig(msg) from error
    except yaml.YAMLError as error:
        msg = f"{path} is not valid YAML ({' '.join(str(error).split())})."
        raise BadConfig(msg) from error
    if not isinstance(content, dict):
        msg = f"{path} must be a mapping with the keys name and data, at least."
        raise BadConfig(msg)
    return make_config(content, preset, str(path))


def make_config(content: dict[str, Any], preset: str = "default", where: str = "config") -> Config:
    """A configuration from nested mappings on top of a preset; ``where`` names it in errors."""
    if preset not in PRESETS:
        msg = f"There is no preset {preset!r}; choose one of {', '.join(PRESETS)}."
        raise BadConfig(msg)
    base = PRESETS[preset]
    start = content.get("start", base.get("start"))
    if isinstance(start, str):
        base = base | _shape_of(start, content, where)
    merged = merge(base, content)
    if start is not None and isinstance(recipe := merged.get("recipe"), dict) and "steps" in recipe:
        merged["recipe"] = {"attend_steps": recipe["steps"], **recipe}
    try:
        config = Config.model_validate(merged)
        config.card()  # knows which inputs exist
    except ValidationError as error:
        msg = f"{where}: {first_mistake(error)}"
        raise BadConfig(msg) from error
    return config


def _shape_of(start: str, content: dict[str, Any], where: str) -> dict[str, Any]:
    """What the model that a training begins with decides; a file that says otherwise is refused."""
    card = find_card(start).model_dump(mode="json", include={*SHAPE, "hard_neutrals"})
    for key in SHAPE:
        if key in content and merge(card, {key: content[key]})[key] != card[key]:
            msg = f"{where}: {key}: the model {start!r}, which 'start' names, has another; leave it out."
            raise BadConfig(msg)
    return card


def first_mistake(error: ValidationError) -> str:
    """The mistake to mend first: a misspelt key, since what was meant may be found missing too."""
    found = error.errors()
    first = next((each for each in found if each["type"] == "extra_forbidden"), found[0])
    place, sentence = [str(part) for part in first["loc"]], f"{first['msg']}."
    if first["type"] == "extra_forbidden":
        *place, key = place
        sentence = unknown_key(key, _keys(place))
    return ": ".join([".".join(place), sentence] if place else [sentence])


def _keys(place: list[str]) -> list[str]:
    """Keys of the configuration at a place."""
    model: type[BaseModel] = Config
    for name in place:
        kind = model.model_fields[name].annotation
        kinds = (each for each in (kind, *get_args(kind)) if isinstance(each, type))
        model = next(each for each in kinds if issubclass(each, BaseModel))
    return list(model.model_fields)


def merge(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    """``top`` over ``base``, mapping by mapping."""
    merged = dict(base)
    for key, value in top.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both else value
    return merged
