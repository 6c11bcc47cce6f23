"""The loops of PUPPI over flat arrays; ``puppi.py`` explains the algorithm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from puma_coffea.cells import build_cells, cone_sum, grid_shape
from puma_coffea.kernels import kernel

# Columns of the table of regions, in the order of PuppiRegion's fields.
ETA_MIN, ETA_MAX, CONE, USES_CHARGED, RMS_PT_MIN, MIN_PT, SLOPE, MEDIAN_SF, RMS_SF = range(9)

SMALLEST_RMS = math.sqrt(1e-5)  # as CMSSW, where all reference values are alike


@kernel
def puppi_kernel(
    offsets: Any,
    pt: Any,
    eta: Any,
    phi: Any,
    vertex: Any,
    npv: Any,
    regions: Any,
    reference_eta_max: float,
    min_weight: float,
    raise_from: float,
    raise_to: float,
) -> Any:
    """PUPPI weights of the neutrals (charged candidates get 1), event by event."""
    weights = np.ones(len(pt), dtype=np.float32)
    for event in range(len(offsets) - 1):
        start, stop = offsets[event], offsets[event + 1]
        if not np.any(vertex[start:stop] > 0):
            continue
        for r in range(len(regions)):
            _region_weights(
                pt[start:stop],
                eta[start:stop],
                phi[start:stop],
                vertex[start:stop],
                npv[start],
                regions[r],
                reference_eta_max,
                min_weight,
                raise_from,
                raise_to,
                weights[start:stop],
            )
    return weights


@kernel
def _region_weights(
    pt: Any,
    eta: Any,
    phi: Any,
    vertex: Any,
    npv: float,
    region: Any,
    reference_eta_max: float,
    min_weight: float,
    raise_from: float,
    raise_to: float,
    weights: Any,
) -> None:
    """Fill the weights of one event's neutrals in one region."""
    cone, uses_charged = region[CONE], region[USES_CHARGED] > 0
    reach_low, reach_high = _reach(region, reference_eta_max)
    members = np.flatnonzero(
        (np.abs(eta) >= reach_low)
        & (np.abs(eta) < reach_high)
        & ((vertex == 0) | (not uses_charged))
    )
    n_eta, n_phi = grid_shape(cone)
    first, pt2, etas, phis = build_cells(pt, eta, phi, members, n_eta, n_phi)

    inside = np.abs(eta)
    inside = (inside >= region[ETA_MIN]) & (inside < region[ETA_MAX])
    is_reference = np.empty(len(pt), dtype=np.int8)  # 1 reference, 2 hard tracks, 0 neither
    for i in range(len(pt)):
        is_reference[i] = _role(
            pt[i], eta[i], vertex[i], inside[i], region, uses_charged, reference_eta_max
        )
    alpha = np.zeros(len(pt))
    for i in range(len(pt)):
        if is_reference[i] > 0 or (inside[i] and vertex[i] < 0):
            total = cone_sum(eta[i], phi[i], cone, first, pt2, etas, phis, n_eta, n_phi)
            if total > 0:
                alpha[i] = math.log(total)

    reference = alpha[is_reference == 1]
    if uses_charged or reference_eta_max > 0:
        hard = alpha[is_reference == 2]
    else:  # the reference is everything there, so the hard tracks are part of it
        hard = alpha[(is_reference == 1) & (vertex == 0)]
    if len(reference) == 0:
        return
    median, rms = _median_rms(reference, hard)
    median *= region[MEDIAN_SF]
    rms *= region[RMS_SF]
    threshold = region[MIN_PT] + region[SLOPE] * npv
    for i in range(len(pt)):
        if inside[i] and vertex[i] < 0:
            weight = _chi2_weight(alpha[i], median, rms)
            if weight * pt[i] < threshold:
                weight = 0.0
            if pt[i] > raise_from:
                weight = max(weight, min((pt[i] - raise_from) / (raise_to - raise_from), 1.0))
            weights[i] = weight if weight >= min_weight else 0.0


@kernel
def _reach(region: Any, reference_eta_max: float) -> tuple[float, float]:
    """Range of |eta| in which neighbours of any candidate that is looked at can stand."""
    low = region[ETA_MIN] - region[CONE]
    high = region[ETA_MAX] + region[CONE]
    if reference_eta_max > 0:
        low = 0.0
        high = max(high, reference_eta_max + region[CONE])
    return low, high


@kernel
def _role(
    pt: float,
    eta: float,
    vertex: int,
    inside: bool,
    region: Any,
    uses_charged: bool,
    reference_eta_max: float,
) -> int:
    """1 for the reference sample, 2 for hard tracks under the same conditions, else 0."""
    if pt <= region[RMS_PT_MIN]:
        return 0
    if reference_eta_max > 0:
        if abs(eta) >= reference_eta_max:
            return 0
    elif not inside:
        return 0
    elif not uses_charged:
        return 1
    if vertex > 0:
        return 1
    return 2 if vertex == 0 else 0


@kernel
def _median_rms(reference: Any, hard: Any) -> tuple[float, float]:
    """Median and RMS of the pile-up's alpha, with CMS's correction for low pile-up.

    Zeros (no neighbour) are left out everywhere; if all are zero, only a neutral with a clear
    neighbour stands out. The RMS is taken about the median from the values below it, where the
    hard interaction does not leak in.
    """
    values = np.sort(reference[reference != 0])
    if len(values) == 0:
        return 0.0, SMALLEST_RMS
    median = values[len(values) // 2]
    total, count = 0.0, 0
    for value in values:
        if value > median:
            break
        total += (value - median) ** 2
        count += 1
    rms = max(math.sqrt(total / count), SMALLEST_RMS)
    below = np.sum((hard <= median) & (hard != 0))
    if below > 0:
        fraction = below / (below + 0.5 * len(values))
        shift = math.sqrt(_chi2_quantile(fraction) * rms)
        median -= shift
        rms -= shift
    return median, rms


@kernel
def _chi2_weight(alpha: float, median: float, rms: float) -> float:
    """Chi^2 probability (1 degree of freedom) of alpha above the median; 0 at or below it."""
    if alpha == 0.0 or alpha <= median:
        return 0.0
    if rms == 0.0:
        return 1.0
    # chi2_cdf(x, 1) = erf(sqrt(x / 2)) with x = ((alpha - median) / rms)^2
    return math.erf((alpha - median) / (abs(rms) * math.sqrt(2.0)))


@kernel
def _chi2_quantile(probability: float) -> float:
    """Quantile of chi^2 with 1 degree of freedom, for 0 < probability < 1."""
    # 2 erfinv(p)^2; erfinv from a closed form (Winitzki) polished by Newton's method.
    a = 0.147
    log_term = math.log((1 - probability) * (1 + probability))
    half = 2 / (math.pi * a) + log_term / 2
    x = math.sqrt(math.sqrt(half * half - log_term / a) - half)
    for _ in range(4):
        slope = 2 / math.sqrt(math.pi) * math.exp(-x * x)
        x -= (math.erf(x) - probability) / slope
    return 2 * x * x
