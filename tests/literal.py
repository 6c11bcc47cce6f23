"""Slow, literal versions of the algorithms, written from their definitions: the oracles."""

from __future__ import annotations

import numpy as np
from scipy import stats


def puppi(event, parameters):
    """Weights of one event (dict of float64 columns) by the text of docs/physics.md."""
    pt, eta, phi, vertex = (np.asarray(event[k], float) for k in ("pt", "eta", "phi", "vertex"))
    weights = np.where(vertex < 0, 1.0, (vertex == 0) * 1.0)
    if not (vertex > 0).any():
        return weights
    deta = eta[:, None] - eta[None, :]
    dphi = np.abs(phi[:, None] - phi[None, :]) % (2 * np.pi)
    dphi = np.minimum(dphi, 2 * np.pi - dphi)
    dr2 = deta**2 + dphi**2
    for region in parameters.regions:
        near = (dr2 >= 1e-4) & (dr2 < region.cone**2)
        if region.uses_charged:
            near &= (vertex == 0)[None, :]
        total = np.where(near, (pt[None, :] ** 2) / np.where(near, dr2, 1.0), 0.0).sum(axis=1)
        alpha = np.where(total > 0, np.log(np.where(total > 0, total, 1.0)), 0.0)
        inside = (abs(eta) >= region.eta_min) & (abs(eta) < region.eta_max)
        hard_enough = pt > region.rms_pt_min
        if parameters.reference_eta_max is not None:
            place = hard_enough & (abs(eta) < parameters.reference_eta_max)
            reference = place & (vertex > 0)
        elif region.uses_charged:
            place = hard_enough & inside
            reference = place & (vertex > 0)
        else:
            place = reference = hard_enough & inside
        if not reference.any():
            continue
        values = np.sort(alpha[reference & (alpha != 0)])
        median, rms = 0.0, np.sqrt(1e-5)
        if len(values):
            median = values[len(values) // 2]
            lower = values[values <= median]
            rms = max(np.sqrt(np.mean((lower - median) ** 2)), np.sqrt(1e-5))
            n_lv = np.sum(place & (vertex == 0) & (alpha != 0) & (alpha <= median))
            f = n_lv / (n_lv + len(values) / 2)
            shift = np.sqrt(stats.chi2.ppf(f, 1) * rms)
            median, rms = median - shift, rms - shift
        median, rms = median * region.median_scale, rms * region.rms_scale
        for i in np.flatnonzero(inside & (vertex < 0)):
            w = 0.0
            if alpha[i] != 0:
                x = (alpha[i] - median) * abs(alpha[i] - median) / rms**2
                w = stats.chi2.cdf(x, 1) if x > 0 else 0.0
            npv = event["npv"] * parameters.npv_scale
            if w * pt[i] < region.min_neutral_pt + region.min_neutral_pt_slope * npv:
                w = 0.0
            if np.isfinite(parameters.raise_to):
                slope = (pt[i] - parameters.raise_from) / (
                    parameters.raise_to - parameters.raise_from
                )
                w = min(max(w, slope), 1.0)
            weights[i] = w if w >= parameters.min_weight else 0.0
    return weights


def softkiller(event, side=0.4, rapidity_max=5.0):
    """Weights of one event: neutrals above the median of the cells' largest pT."""
    pt, eta, phi, mass, vertex = (
        np.asarray(event[k], float) for k in ("pt", "eta", "phi", "mass", "vertex")
    )
    energy = np.sqrt(pt**2 * np.cosh(eta) ** 2 + mass**2)
    pz = pt * np.sinh(eta)
    rapidity = 0.5 * np.log((energy + pz) / (energy - pz))
    ny, nphi = round(2 * rapidity_max / side), round(2 * np.pi / side)
    largest = []
    for a in range(ny):
        for b in range(nphi):
            low_y = -rapidity_max + a * 2 * rapidity_max / ny
            low_phi = -np.pi + b * 2 * np.pi / nphi
            here = (
                (vertex < 0)
                & (rapidity >= low_y)
                & (rapidity < low_y + 2 * rapidity_max / ny)
                & (phi >= low_phi)
                & (phi < low_phi + 2 * np.pi / nphi)
            )
            largest.append(pt[here].max(initial=0.0))
    cut = sorted(largest)[len(largest) // 2]
    return np.where(vertex < 0, pt > cut, vertex == 0).astype(float)


def column_dict(candidates_of_one_event):
    """One event's candidates as float64 columns, npv as a number."""
    event = {
        k: np.asarray(candidates_of_one_event[k], np.float64) for k in ("pt", "eta", "phi", "mass")
    }
    event["vertex"] = np.asarray(candidates_of_one_event["vertex"])
    event["npv"] = int(candidates_of_one_event["npv"][0])
    return event
