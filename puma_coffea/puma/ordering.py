"""Orders: of candidates by their kinematics, and of clusters by a walk to the nearest."""

from __future__ import annotations

from typing import Any

import numpy as np

from puma_coffea.kernels import kernel

PER_CELL = 2.0  # clusters in a cell of the walk's grid, on average
SMALLEST_SIDE = 0.01  # of a cell, so that the grid stays small when all clusters share one eta


@kernel
def canonical_order(pt: Any, eta: Any, phi: Any, vertex: Any, pid: Any, mass: Any) -> Any:
    """Indices by decreasing pT; ties by eta, phi, vertex, pid, mass."""
    order = _by_single_precision(pt)
    spare = np.empty_like(order)
    first = 0
    for last in range(1, len(pt) + 1):  # order[first:last] is a run of equal pT
        if last == len(pt) or np.float32(pt[order[last]]) != np.float32(pt[order[first]]):
            if last - first > 1:
                here = slice(first, last)
                _merge_sort(order[here], spare[here], pt, eta, phi, vertex, pid, mass)
            first = last
    return order


@kernel
def _by_single_precision(pt: Any) -> Any:
    """Indices by decreasing pT in float32: a radix sort, 11 bits at a time."""
    # The bits of positive floats, read as integers, have the order of the floats.
    key = ~pt.astype(np.float32).view(np.uint32)
    order, sorted_ = np.arange(len(pt)), np.empty(len(pt), dtype=np.int64)
    for shift in (0, 11, 22):
        place = np.zeros(2049, dtype=np.int64)
        for i in range(len(pt)):
            place[((key[i] >> np.uint32(shift)) & np.uint32(2047)) + np.uint32(1)] += 1
        place = np.cumsum(place)
        for j in order:
            digit = (key[j] >> np.uint32(shift)) & np.uint32(2047)
            sorted_[place[digit]] = j
            place[digit] += 1
        order, sorted_ = sorted_, order
    return order


@kernel
def _merge_sort(
    order: Any, spare: Any, pt: Any, eta: Any, phi: Any, vertex: Any, pid: Any, mass: Any
) -> None:
    """Sort the indices in place by all kinematics."""
    n = len(order)
    width = 1
    while width < n:
        for low in range(0, n, 2 * width):
            middle, high = min(low + width, n), min(low + 2 * width, n)
            a, b = low, middle
            for place in range(low, high):
                if b >= high or (
                    a < middle and not _before(pt, eta, phi, vertex, pid, mass, order[b], order[a])
                ):
                    spare[place] = order[a]
                    a += 1
                else:
                    spare[place] = order[b]
                    b += 1
        order[:] = spare
        width *= 2


@kernel
def _before(pt: Any, eta: Any, phi: Any, vertex: Any, pid: Any, mass: Any, a: int, b: int) -> bool:
    if pt[a] != pt[b]:
        return pt[a] > pt[b]  # type: ignore[no-any-return]
    if eta[a] != eta[b]:
        return eta[a] < eta[b]  # type: ignore[no-any-return]
    if phi[a] != phi[b]:
        return phi[a] < phi[b]  # type: ignore[no-any-return]
    if vertex[a] != vertex[b]:
        return vertex[a] < vertex[b]  # type: ignore[no-any-return]
    if pid[a] != pid[b]:
        return pid[a] < pid[b]  # type: ignore[no-any-return]
    return mass[a] < mass[b]  # type: ignore[no-any-return]


@kernel
def centroids(pt: Any, eta: Any, sin: Any, cos: Any, bounds: Any) -> tuple[Any, Any, Any]:
    """Summed pT, pT-weighted eta and direction in phi of the clusters.

    The paper averages phi, which fails across +-pi; this is the phi of the vector sum.
    """
    n = len(bounds) - 1
    total, mean_eta, mean_phi = np.zeros(n), np.zeros(n), np.zeros(n)
    for c in range(n):
        px, py = 0.0, 0.0
        for i in range(bounds[c], bounds[c + 1]):
            total[c] += pt[i]
            mean_eta[c] += pt[i] * eta[i]
            px += pt[i] * cos[i]
            py += pt[i] * sin[i]
        mean_eta[c] /= total[c]
        mean_phi[c] = np.arctan2(py, px)
    return total, mean_eta, mean_phi


@kernel
def distance2(eta_a: float, phi_a: float, eta_b: float, phi_b: float) -> float:
    """Squared distance in eta-phi, phi wrapped; both phi in [-pi, pi]."""
    deta, dphi = eta_a - eta_b, abs(phi_a - phi_b)
    if dphi > np.pi:
        dphi = 2 * np.pi - dphi
    return deta * deta + dphi * dphi


@kernel
def greedy_walk(total: Any, etas: Any, phis: Any) -> Any:
    """Clusters from the one of largest pT on, each time to the nearest that is left.

    Takes summed pT, eta and phi of the clusters (at least one). Of equally near ones, or
    equally hard ones at the start, the lower index is taken.

    The clusters stand in a grid of cells and are taken out when visited. The search goes
    through rings of cells around the present one and ends when the next ring begins farther
    away than the best found, so it is the plain search in time that hardly depends on the
    number of clusters.
    """
    n = len(total)
    low, reach = etas.min(), etas.max() - etas.min()
    side = max(np.sqrt(PER_CELL * 2 * np.pi * reach / n), SMALLEST_SIDE)
    n_eta, n_phi = int(reach / side) + 1, max(int(2 * np.pi / side), 1)
    row, column = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    first = np.zeros(n_eta * n_phi + 1, dtype=np.int64)
    for c in range(n):
        row[c] = min(int((etas[c] - low) / side), n_eta - 1)
        column[c] = min(int((phis[c] + np.pi) * (n_phi / (2 * np.pi))), n_phi - 1)
        first[row[c] * n_phi + column[c] + 1] += 1
    first = np.cumsum(first)
    last = first[:-1].copy()  # end of what is left in each cell
    content = np.empty(n, dtype=np.int64)
    for c in range(n):
        cell = row[c] * n_phi + column[c]
        content[last[cell]] = c
        last[cell] += 1

    walk = np.empty(n, dtype=np.int64)
    walk[0] = np.argmax(total)
    for step in range(n):
        here = walk[step]
        _take_out(here, row[here] * n_phi + column[here], first, last, content)
        if step + 1 < n:
            walk[step + 1] = _nearest(
                etas, phis, here, row[here], column[here], side, n_eta, n_phi, first, last, content
            )
    return walk


@kernel
def _take_out(cluster: int, cell: int, first: Any, last: Any, content: Any) -> None:
    last[cell] -= 1
    for k in range(first[cell], last[cell]):
        if content[k] == cluster:
            content[k] = content[last[cell]]


@kernel
def _nearest(
    etas: Any,
    phis: Any,
    here: int,
    row: int,
    column: int,
    side: float,
    n_eta: int,
    n_phi: int,
    first: Any,
    last: Any,
    content: Any,
) -> int:
    """The cluster nearest to ``here`` among those left in the cells (at least one)."""
    best, found = np.inf, -1
    ring = 0
    # Whatever stands outside of the rings seen so far is farther than (ring - 1) sides; the
    # margin covers the rounding in the choice of a cell.
    while ring == 0 or best >= ((ring - 1) * side) ** 2 * (1 - 1e-9):
        # Columns of the ring, each once although they go round in phi.
        left, right = -min(ring, (n_phi - 1) // 2), min(ring, n_phi // 2)
        for r in range(max(row - ring, 0), min(row + ring + 1, n_eta)):
            begin, step = left, 1
            if abs(r - row) < ring:  # between its first and last row only the two ends
                if right < ring:
                    continue
                begin, step = (left if left == -ring else right), 2 * ring
            for shift in range(begin, right + 1, step):
                cell = r * n_phi + (column + shift) % n_phi
                for k in range(first[cell], last[cell]):
                    c = content[k]
                    d = distance2(etas[here], phis[here], etas[c], phis[c])
                    if d < best or (d == best and c < found):
                        best, found = d, c
        ring += 1
    return found
