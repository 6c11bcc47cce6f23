"""Cell lists in eta-phi: neighbours within a cone in time linear in the candidates.

The cells are at least one cone wide, so all neighbours stand in the 3 x 3 cells around a
direction. Inside a cell the members are sorted by (eta, phi, pT): sums over neighbours are
then taken in an order that does not depend on the order of the input, to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from puma_coffea.kernels import kernel

ETA_LIMIT = 10.0  # candidates beyond are unphysical and never reach a kernel


@kernel
def grid_shape(cone: float) -> tuple[int, int]:
    """Numbers of cells in eta and phi for cells at least one cone wide."""
    return max(1, int(2 * ETA_LIMIT / cone)), max(1, int(2 * np.pi / cone))


@kernel
def eta_cell(eta: float, n_eta: int) -> int:
    """Row of the grid that holds this eta."""
    return min(max(int((eta + ETA_LIMIT) * (n_eta / (2 * ETA_LIMIT))), 0), n_eta - 1)


@kernel
def phi_cell(phi: float, n_phi: int) -> int:
    """Column of the grid that holds this phi in [-pi, pi]."""
    return min(max(int((phi + np.pi) * (n_phi / (2 * np.pi))), 0), n_phi - 1)


@kernel
def build_cells(
    pt: Any, eta: Any, phi: Any, members: Any, n_eta: int, n_phi: int
) -> tuple[Any, Any, Any, Any]:
    """First member of each cell, and pT^2, eta, phi of the members cell by cell."""
    first = np.zeros(n_eta * n_phi + 1, dtype=np.int64)
    cell = np.empty(len(members), dtype=np.int64)
    for k, i in enumerate(members):
        cell[k] = eta_cell(eta[i], n_eta) * n_phi + phi_cell(phi[i], n_phi)
        first[cell[k] + 1] += 1
    for c in range(n_eta * n_phi):
        first[c + 1] += first[c]
    order = np.empty(len(members), dtype=np.int64)
    filled = first[:-1].copy()
    for k, i in enumerate(members):
        # Insertion keeps each cell sorted by kinematics; cells hold a few dozen at most.
        place = filled[cell[k]]
        while place > first[cell[k]] and _before(pt, eta, phi, i, order[place - 1]):
            order[place] = order[place - 1]
            place -= 1
        order[place] = i
        filled[cell[k]] += 1
    return first, pt[order] ** 2, eta[order], phi[order]


@kernel
def _before(pt: Any, eta: Any, phi: Any, a: int, b: int) -> Any:
    if eta[a] != eta[b]:
        return eta[a] < eta[b]
    if phi[a] != phi[b]:
        return phi[a] < phi[b]
    return pt[a] < pt[b]


@kernel
def cone_sum(
    eta: float,
    phi: float,
    cone: float,
    first: Any,
    pt2: Any,
    etas: Any,
    phis: Any,
    n_eta: int,
    n_phi: int,
) -> float:
    """Sum of (pT / dR)^2 over the members with 0.01 <= dR < cone around a direction."""
    total = 0.0
    row, column = eta_cell(eta, n_eta), phi_cell(phi, n_phi)
    columns = min(3, n_phi)
    for r in range(max(row - 1, 0), min(row + 2, n_eta)):
        for step in range(columns):
            c = r * n_phi + (column - 1 + step) % n_phi
            for k in range(first[c], first[c + 1]):
                deta = eta - etas[k]
                dphi = abs(phi - phis[k])
                if dphi > np.pi:
                    dphi = 2 * np.pi - dphi
                dr2 = deta * deta + dphi * dphi
                if 1e-4 <= dr2 < cone * cone:
                    total += pt2[k] / dr2
    return total
