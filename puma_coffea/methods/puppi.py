"""PUPPI: per-particle weights from the local shape of a candidate's neighbourhood.

D. Bertolini et al., JHEP 10 (2014) 059, as CMS runs it. For a candidate in a region of
|eta| with cone R0

    alpha = log sum_j (pT_j / dR_j)^2,   0.01 <= dR_j < R0,

over the charged candidates of the hard vertex where the region has a tracker, over all
candidates elsewhere. Pile-up tracks give the median and the width of alpha for pile-up; a
neutral's weight is the chi^2 probability of its distance above that median. ``docs/physics.md``
has the details.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from puma_coffea.exceptions import UnknownMethod
from puma_coffea.flat import Flat, weigh
from puma_coffea.methods._puppi_kernel import puppi_kernel


@dataclass(frozen=True)
class PuppiRegion:
    """Parameters in one range of |eta|."""

    eta_min: float
    eta_max: float
    cone: float
    """R0, radius of the neighbourhood."""
    uses_charged: bool
    """Neighbours are the charged candidates of the hard vertex (else all candidates)."""
    rms_pt_min: float
    """GeV, softest candidate of the reference sample."""
    min_neutral_pt: float
    """GeV, a neutral is dropped if weight x pT is below this + slope x N_PV."""
    min_neutral_pt_slope: float
    median_scale: float = 1.0
    rms_scale: float = 1.0


@dataclass(frozen=True)
class PuppiParameters:
    """All of PUPPI's settings."""

    regions: tuple[PuppiRegion, ...]
    reference_eta_max: float | None
    """Pile-up tracks up to this |eta| are the reference of every region (CMS). None: the
    reference of a region is taken in the region itself, from all candidates where it does not
    use charged ones (Delphes)."""
    min_weight: float
    npv_scale: float = 1.0
    """Factor on N_PV; Delphes's RunPUPPI uses 0.7, which is worse in every sample tried."""
    raise_from: float = np.inf
    """GeV, weights of harder neutrals are raised linearly in pT ..."""
    raise_to: float = np.inf
    """... up to 1 at this pT."""


def _delphes(raise_from: float = np.inf, raise_to: float = np.inf) -> PuppiParameters:
    return PuppiParameters(
        regions=(
            PuppiRegion(0.0, 1.5, 0.2, True, 0.1, 0.2, 0.006),
            PuppiRegion(1.5, 4.0, 0.2, True, 0.5, 0.2, 0.013),
            PuppiRegion(4.0, 10.0, 0.2, False, 0.5, 0.5, 0.067),
        ),
        reference_eta_max=None,
        min_weight=0.05,
        raise_from=raise_from,
        raise_to=raise_to,
    )


PRESETS: dict[str, PuppiParameters] = {
    # The Delphes card, with the raising of hard neutrals of today's CMS tune.
    "tuned": _delphes(raise_from=20.0, raise_to=200.0),
    # CMS Phase-II card of Delphes, module RunPUPPI; N_PV unscaled.
    "delphes-phase2": _delphes(),
    # CMSSW CommonTools/PileupAlgos, Puppi_cff.py: Phase 2 and Run 2.
    "cms-phase2": PuppiParameters(
        regions=(
            PuppiRegion(0.0, 2.5, 0.4, True, 0.1, 0.2, 0.015),
            PuppiRegion(2.5, 3.5, 0.4, True, 0.1, 0.2, 0.030),
            PuppiRegion(3.5, 10.0, 0.4, False, 0.5, 2.0, 0.08, 0.75, 1.0),
        ),
        reference_eta_max=2.0,
        min_weight=0.01,
    ),
    "cms-run2": PuppiParameters(
        regions=(
            PuppiRegion(0.0, 2.5, 0.4, True, 0.1, 0.2, 0.015),
            PuppiRegion(2.5, 3.0, 0.4, False, 0.5, 1.7, 0.08, 0.90, 1.20),
            PuppiRegion(3.0, 10.0, 0.4, False, 0.5, 2.0, 0.08, 0.75, 0.95),
        ),
        reference_eta_max=2.0,
        min_weight=0.01,
    ),
}


def puppi(candidates: ak.Array, parameters: PuppiParameters = PRESETS["tuned"]) -> ak.Array:
    """PUPPI weights: neutrals by the shape of their neighbourhood, charged by vertex.

    An event without any pile-up track is left alone: all its neutrals get weight 1.

    Examples
    --------
    >>> from puma_coffea import candidates, open_events, sample_path
    >>> weights = puppi(candidates(open_events(sample_path("zvv_pu140"))))
    >>> str(weights.type)
    '12 * var * float32'
    """
    return weigh(candidates, partial(flat_weights, parameters=parameters))


def preset(name: str | None) -> Any:
    """The method ``puppi`` with a preset's parameters; ``None`` is ``tuned``."""
    if name is None:
        name = "tuned"
    if name not in PRESETS:
        msg = f"PUPPI has no preset {name!r}; choose one of {', '.join(PRESETS)}."
        raise UnknownMethod(msg)
    return partial(puppi, parameters=PRESETS[name])


def flat_weights(flat: Flat, parameters: PuppiParameters) -> NDArray[np.float32]:
    """PUPPI weights of flat candidates."""
    table = np.array(
        [[float(getattr(r, f.name)) for f in fields(r)] for r in parameters.regions],
        dtype=np.float64,
    )
    reference = parameters.reference_eta_max
    neutral = puppi_kernel(
        flat.offsets,
        flat.pt,
        flat.eta,
        flat.phi,
        flat.vertex,
        flat.npv * parameters.npv_scale,
        table,
        -1.0 if reference is None else reference,
        parameters.min_weight,
        parameters.raise_from,
        parameters.raise_to,
    )
    return flat.by_vertex(neutral)
