"""Sums over a candidate's neighbours of one kind, in cones of several radii at once.

Candidates stand in cells of eta-phi. All candidates of a cell share one list of the sources that
can be within reach, with coordinates relative to the cell's centre (in which float32 is exact to
1e-7); each then runs over that short list in loops that become SIMD code. Lists follow the cells
and, inside a cell, the sequence: sums do not depend on the order of the input, to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from puma_coffea.cells import ETA_LIMIT, eta_cell, phi_cell
from puma_coffea.kernels import kernel

QUANTITIES = ("pt", "count", "ptdr", "ptdr2", "max", "harder", "nearest_dr", "nearest_pt")
PT, COUNT, PTDR, PTDR2, MAX, HARDER, NEAREST_DR, NEAREST_PT = range(len(QUANTITIES))

N_ETA, N_PHI = 100, 31  # cells of 0.2: a few candidates each at high pile-up
HEIGHT, WIDTH = 2 * ETA_LIMIT / N_ETA, 2 * np.pi / N_PHI
SMALLEST_DR2 = np.float32(1e-4)  # in pT / dR
FAR = np.float32(1e6)  # where the sources that fill a list up stand, and a squared distance
CHUNK = 16  # lists are filled up to multiples of it: SIMD loops without a remainder


@kernel
def local_sums(
    offsets: Any,
    order: Any,
    pt: Any,
    eta: Any,
    phi: Any,
    is_source: Any,
    is_target: Any,
    radii: Any,
    rows: Any,
    columns: Any,
) -> None:
    """Add QUANTITIES of the neighbouring sources of each target to rows of ``columns``.

    Parameters
    ----------
    offsets, order, pt, eta, phi
        The candidates and their sequence.
    is_source
        Mask of the candidates that are summed; a candidate is never its own neighbour.
    is_target
        Mask of the candidates whose sums are wanted.
    radii
        Increasing, below pi.
    rows
        ``rows[quantity, radius]`` is a row of ``columns``, or -1 where unasked.
    columns
        float32, shape (any, candidates). Rows of ``nearest_dr`` are left alone where no source
        is within the radius.
    """
    asked = np.argwhere(rows >= 0)
    ratios = np.any(rows[PTDR : PTDR2 + 1] >= 0)
    for event in range(len(offsets) - 1):
        sequence = order[offsets[event] : offsets[event + 1]]
        members = sequence[is_source[sequence]]
        if len(members) == 0:
            continue
        # Sources stand among the targets, so that a target finds its own place in their list.
        seen = sequence[is_target[sequence] | is_source[sequence]]
        target_first, targets = _into_cells(seen, eta, phi)
        source_first, sources = _into_cells(members, eta, phi)
        pts, etas, phis = pt[sources], eta[sources], phi[sources]
        listed = np.empty((6, len(members) + CHUNK), dtype=np.float32)
        near_pt, near_eta, near_phi = listed[0], listed[1], listed[2]
        dr2, ratio, ratio2 = listed[3], listed[4], listed[5]
        for cell in range(N_ETA * N_PHI):
            if target_first[cell] == target_first[cell + 1]:
                continue
            n, own = _list_sources(
                cell, radii[-1], source_first, pts, etas, phis, near_pt, near_eta, near_phi
            )
            if n == 0:
                continue
            _sums_in_cell(
                targets[target_first[cell] : target_first[cell + 1]],
                *_centre(cell),
                *(pt, eta, phi, is_source, is_target, own),
                *(near_pt[:n], near_eta[:n], near_phi[:n], dr2[:n], ratio[:n], ratio2[:n]),
                *(radii, asked, ratios, rows, columns),
            )


# One function with many branches: to hand the arrays on costs as much as to sum them.
@kernel
def _sums_in_cell(  # noqa: PLR0912
    targets: Any,
    centre_eta: float,
    centre_phi: float,
    pt: Any,
    eta: Any,
    phi: Any,
    is_source: Any,
    is_target: Any,
    own: int,
    near_pt: Any,
    near_eta: Any,
    near_phi: Any,
    dr2: Any,
    ratio: Any,
    ratio2: Any,
    radii: Any,
    asked: Any,
    ratios: bool,
    rows: Any,
    columns: Any,
) -> None:
    """Add what is asked to the columns of one cell's candidates, which share a list of sources."""
    for i in targets:
        place = own
        own += is_source[i]  # own cell and list are both in the order of the sequence
        if not is_target[i]:
            continue
        x, y = np.float32(eta[i] - centre_eta), np.float32(phi[i] - centre_phi)
        _distances(x, y, near_eta, near_phi, dr2)
        if is_source[i]:
            dr2[place] = FAR
        if ratios:
            _ratios(near_pt, dr2, ratio, ratio2)
        for k in range(len(asked)):
            q, r = asked[k, 0], asked[k, 1]
            r2, row = np.float32(radii[r] * radii[r]), rows[q, r]
            if q == PT:
                columns[row, i] += _sum_within(near_pt, dr2, r2)
            elif q == COUNT:
                columns[row, i] += _count_within(near_pt, dr2, r2, np.float32(-1))
            elif q == PTDR:
                columns[row, i] += _sum_within(ratio, dr2, r2)
            elif q == PTDR2:
                columns[row, i] += _sum_within(ratio2, dr2, r2)
            elif q == MAX:
                columns[row, i] += _max_within(near_pt, dr2, r2)
            elif q == HARDER:
                columns[row, i] += _count_within(near_pt, dr2, r2, np.float32(pt[i]))
            else:
                nearest = _smallest(dr2)
                if nearest < r2 and q == NEAREST_DR:
                    columns[row, i] = np.sqrt(nearest)
                elif nearest < r2:
                    columns[row, i] = _max_within(near_pt, dr2, np.nextafter(nearest, FAR))


@kernel
def _into_cells(members: Any, eta: Any, phi: Any) -> tuple[Any, Any]:
    """First member of each cell, and the members cell by cell in their order."""
    first = np.zeros(N_ETA * N_PHI + 1, dtype=np.int64)
    cell = np.empty(len(members), dtype=np.int64)
    for k, i in enumerate(members):
        cell[k] = eta_cell(eta[i], N_ETA) * N_PHI + phi_cell(phi[i], N_PHI)
        first[cell[k] + 1] += 1
    first = np.cumsum(first)
    filled = first[:-1].copy()
    inside = np.empty(len(members), dtype=np.int64)
    for k, i in enumerate(members):
        inside[filled[cell[k]]] = i
        filled[cell[k]] += 1
    return first, inside


@kernel
def _centre(cell: int) -> tuple[float, float]:
    return (cell // N_PHI + 0.5) * HEIGHT - ETA_LIMIT, (cell % N_PHI + 0.5) * WIDTH - np.pi


@kernel
def _list_sources(
    cell: int,
    reach: float,
    first: Any,
    pts: Any,
    etas: Any,
    phis: Any,
    near_pt: Any,
    near_eta: Any,
    near_phi: Any,
) -> tuple[int, int]:
    """List the sources within reach of any point of a cell.

    Returns the length, filled up to a multiple of CHUNK with sources far away, and the place of
    the cell's own first source.
    """
    n, own = 0, 0
    home, column = cell // N_PHI, cell % N_PHI
    centre_eta, centre_phi = _centre(cell)
    steps = int(reach / HEIGHT) + 1
    for row in range(max(home - steps, 0), min(home + steps + 1, N_ETA)):
        gap = max(abs(row - home) - 1, 0) * HEIGHT
        half = int(np.sqrt(max(reach * reach - gap * gap, 0.0)) / WIDTH) + 1
        half = min(half, (N_PHI - 1) // 2)
        for turn in (-N_PHI, 0, N_PHI):  # the part of the row on this side of +-pi, and beyond
            low, high = max(column - half, turn), min(column + half + 1, turn + N_PHI)
            if low >= high:
                continue
            base = row * N_PHI - turn
            if row == home and turn == 0:
                own = n + first[cell] - first[base + low]
            begin, end = first[base + low], first[base + high]
            for k in range(begin, end):
                near_pt[n] = pts[k]
                near_eta[n] = etas[k] - centre_eta
                near_phi[n] = phis[k] - (centre_phi - turn * WIDTH)
                n += 1
    while n % CHUNK:
        near_pt[n], near_eta[n], near_phi[n] = 0.0, FAR, 0.0
        n += 1
    return n, own


@kernel
def _distances(x: Any, y: Any, etas: Any, phis: Any, dr2: Any) -> None:
    for k in range(len(dr2)):
        deta, dphi = etas[k] - x, phis[k] - y
        dr2[k] = deta * deta + dphi * dphi


@kernel
def _ratios(pts: Any, dr2: Any, ratio: Any, ratio2: Any) -> None:
    for k in range(len(dr2)):
        ratio2[k] = pts[k] * pts[k] / max(dr2[k], SMALLEST_DR2)
        ratio[k] = np.sqrt(ratio2[k])


# Regrouped for SIMD; the result is the same in every run on one kind of CPU.
@kernel(fastmath={"reassoc"})
def _sum_within(values: Any, dr2: Any, radius2: Any) -> Any:
    total = np.float32(0)
    for k in range(len(dr2)):
        total += values[k] if dr2[k] < radius2 else np.float32(0)
    return total


@kernel
def _count_within(pts: Any, dr2: Any, radius2: Any, above: Any) -> Any:
    """Number of sources within the radius with a pT above the given one."""
    count = np.int32(0)
    for k in range(len(dr2)):
        count += np.int32((dr2[k] < radius2) & (pts[k] > above))
    return np.float32(count)


# Positive floats have the order of their bits read as integers, and only integer comparisons
# become SIMD code here.
@kernel
def _max_within(values: Any, dr2: Any, radius2: Any) -> Any:
    bits = values.view(np.int32)
    largest = np.int32(0)
    for k in range(len(dr2)):
        largest = max(largest, bits[k] if dr2[k] < radius2 else np.int32(0))
    return np.int32(largest).view(np.float32)


@kernel
def _smallest(dr2: Any) -> Any:
    bits = dr2.view(np.int32)
    smallest = bits[0]
    for k in range(len(dr2)):
        smallest = min(smallest, bits[k])
    return np.int32(smallest).view(np.float32)
