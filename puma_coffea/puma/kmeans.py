"""Recursive k-means on the cylinder (sin phi, cos phi, eta), without random numbers.

Coordinates are rounded to multiples of 2^-20, finer than a float32 eta resolves. They are then
exact in float32, and sums of them exact in float64 whatever their order: centroids can be kept
up to date by adding and subtracting the points that move.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from puma_coffea.kernels import kernel

GRID = 2.0**20
SQUARE_GRID = 2.0**28  # squared distances are rounded to multiples of 1 / SQUARE_GRID
BLOCK = 128  # points looked at together
MAX_ITERATIONS = 100  # of Lloyd's algorithm; a split of a real event needs 5 to 60


@kernel
def on_grid(values: Any) -> Any:
    """Coordinates rounded to the grid, float32."""
    rounded = np.empty(len(values), dtype=np.float32)
    for i in range(len(values)):
        rounded[i] = np.rint(values[i] * GRID) / GRID
    return rounded


@kernel
def split_recursively(sin: Any, cos: Any, eta: Any, size: int, branches: int) -> tuple[Any, Any]:
    """Members of the clusters, one cluster after the other, and the clusters' bounds.

    Inside a cluster the members keep the order of the points. Points that k-means cannot tell
    apart (one direction) are chopped into clusters of ``size - 1`` in the order of the points,
    so that a cluster always has fewer than ``size`` members. Clusters are numbered by their
    first members.
    """
    n = len(eta)
    x, y, z = on_grid(sin), on_grid(cos), on_grid(eta)
    members, label = np.arange(n), np.zeros(n, dtype=np.int32)
    scratch = (
        np.empty(max(n, branches), dtype=np.int32),
        np.empty(n, dtype=np.float32),
        np.empty(n, dtype=np.float32),
        np.empty(n, dtype=np.float32),
        np.empty(n, dtype=np.float32),
        np.empty(n, dtype=np.int64),
    )
    counts, sums = np.empty(branches, dtype=np.int64), np.empty((branches, 3))
    cut, centre = np.empty((branches, 5)), np.empty((branches, 3), dtype=np.float32)
    leaves = np.empty((n, 2), dtype=np.int64)
    pending = np.empty((n + 1, 2), dtype=np.int64)
    pending[0] = 0, n
    n_leaves, n_pending = 0, 1
    while n_pending > 0:
        n_pending -= 1
        start, stop = pending[n_pending, 0], pending[n_pending, 1]
        piece = stop - start
        if piece >= size:
            here = slice(start, stop)
            kmeans(x[here], y[here], z[here], label[here], counts, sums, cut, centre, scratch)
            if counts.max() < piece:
                _partition(x[here], y[here], z[here], members[here], label[here], counts, scratch)
                for part in counts:
                    if part > 0:
                        pending[n_pending, 0], pending[n_pending, 1] = start, start + part
                        n_pending += 1
                        start += part
                continue
            piece = size - 1
        for first in range(start, stop, piece):
            leaves[n_leaves, 0], leaves[n_leaves, 1] = first, min(first + piece, stop)
            n_leaves += 1
    return _by_first_member(members, leaves[:n_leaves])


@kernel
def _by_first_member(members: Any, leaves: Any) -> tuple[Any, Any]:
    leaf_of = np.full(len(members), -1, dtype=np.int64)
    for leaf in range(len(leaves)):
        leaf_of[members[leaves[leaf, 0]]] = leaf
    ordered = np.empty(len(members), dtype=np.int64)
    bounds = np.zeros(len(leaves) + 1, dtype=np.int64)
    n, place = 0, 0
    for found in leaf_of:
        if found >= 0:
            for m in range(leaves[found, 0], leaves[found, 1]):
                ordered[place] = members[m]
                place += 1
            n += 1
            bounds[n] = place
    return ordered, bounds


@kernel
def _partition(x: Any, y: Any, z: Any, members: Any, label: Any, counts: Any, scratch: Any) -> None:
    """Sort the points by label, keeping their order within a label."""
    place, _, xs, ys, zs, moved = scratch  # place: where the next point of a label goes
    begin = 0
    for c in range(len(counts)):
        place[c] = begin
        begin += counts[c]
    for i in range(len(label)):
        p = place[label[i]]
        place[label[i]] = p + 1
        xs[p], ys[p], zs[p], moved[p] = x[i], y[i], z[i], members[i]
    for i in range(len(label)):
        x[i], y[i], z[i], members[i] = xs[i], ys[i], zs[i], moved[i]


@kernel
def kmeans(
    x: Any,
    y: Any,
    z: Any,
    label: Any,
    counts: Any,
    sums: Any,
    cut: Any,
    centre: Any,
    scratch: Any,
) -> None:
    """Label the points by Lloyd's algorithm; all labels 0 if they cannot be told apart.

    Stops when no point changes its cluster, or after MAX_ITERATIONS. The lower label wins a tie
    in distance. A cluster that loses all its points stays where it was. ``counts`` (k) and
    ``sums`` (k, 3) are filled for the final labels; the rest is working space.
    """
    groups = _seed(x, y, z, label, counts, sums, cut)
    nearest, distance = scratch[0][: len(x)], scratch[1][: len(x)]
    centre[:] = np.inf
    for _ in range(MAX_ITERATIONS):
        for c in range(groups):
            if counts[c] > 0:
                for axis in range(3):
                    centre[c, axis] = sums[c, axis] / counts[c]
        _assign(x, y, z, centre[:groups], nearest, distance)
        if not _move(x, y, z, label, nearest, counts, sums):
            break


@kernel
def _assign(x: Any, y: Any, z: Any, centre: Any, nearest: Any, distance: Any) -> None:
    """Index of the nearest centre of each point."""
    # Centres outside, points inside: the inner loops have no dependence and become SIMD code.
    # The first four centres, usually all, are compared in registers.
    begin = min(len(centre), 4)
    ax, ay, az = centre[0, 0], centre[0, 1], centre[0, 2]
    second, third, fourth = min(1, begin - 1), min(2, begin - 1), begin - 1
    bx, by, bz = centre[second, 0], centre[second, 1], centre[second, 2]
    cx, cy, cz = centre[third, 0], centre[third, 1], centre[third, 2]
    dx, dy, dz = centre[fourth, 0], centre[fourth, 1], centre[fourth, 2]
    for i in range(len(x)):
        best, label = _squared(x[i] - ax, y[i] - ay, z[i] - az), np.int32(0)
        other = _squared(x[i] - bx, y[i] - by, z[i] - bz)
        label = np.int32(1) if other < best else label
        best = min(best, other)
        other = _squared(x[i] - cx, y[i] - cy, z[i] - cz)
        label = np.int32(2) if other < best else label
        best = min(best, other)
        other = _squared(x[i] - dx, y[i] - dy, z[i] - dz)
        label = np.int32(3) if other < best else label
        nearest[i] = label
        distance[i] = min(best, other)
    for c in range(begin, len(centre)):
        cx, cy, cz = centre[c, 0], centre[c, 1], centre[c, 2]
        for i in range(len(x)):
            d = _squared(x[i] - cx, y[i] - cy, z[i] - cz)
            nearest[i] = c if d < distance[i] else nearest[i]
            distance[i] = min(distance[i], d)


@kernel
def _squared(x: Any, y: Any, z: Any) -> Any:
    return x * x + y * y + z * z


@kernel
def _move(x: Any, y: Any, z: Any, label: Any, nearest: Any, counts: Any, sums: Any) -> bool:
    """Give the points their new labels, correct sums and counts; whether any label changed."""
    moved = False
    for low in range(0, len(x), BLOCK):
        high = min(low + BLOCK, len(x))
        if not _differ(label[low:high], nearest[low:high]):
            continue
        moved = True
        for i in range(low, high):
            old, new = label[i], nearest[i]
            if old != new:
                label[i] = new
                counts[old] -= 1
                counts[new] += 1
                sums[old, 0] -= x[i]
                sums[old, 1] -= y[i]
                sums[old, 2] -= z[i]
                sums[new, 0] += x[i]
                sums[new, 1] += y[i]
                sums[new, 2] += z[i]
    return moved


@kernel
def _differ(a: Any, b: Any) -> bool:
    bits = np.int32(0)
    for i in range(len(a)):  # without a way out, so that it becomes SIMD code
        bits |= a[i] ^ b[i]
    return bool(bits)


@kernel
def _seed(x: Any, y: Any, z: Any, label: Any, counts: Any, sums: Any, cut: Any) -> int:
    """First labels with their sums and counts: k groups, or fewer if need be; their number.

    The group of largest spread is cut in two at its mean, along the widest of its own three
    axes (radial, tangential, eta), until there are enough (Su and Dy's Var-Part, in axes that
    turn with the event). ``cut`` (k, 5) is working space: the normal of the plane that halves
    a group, the plane's offset, and the group's spread.
    """
    k = len(counts)
    label[:] = 0
    counts[:] = 0
    cut[:] = 0.0
    counts[0] = _sum(x, y, z, label, 0, sums[0])
    _halve(x, y, z, label, 0, sums[0], counts[0], cut[0])
    groups = 1
    while groups < k:
        wide = 0
        for g in range(1, groups):
            wide = g if cut[g, 4] > cut[wide, 4] else wide
        if cut[wide, 4] == 0.0:
            break
        nx, ny, nz, offset = cut[wide, 0], cut[wide, 1], cut[wide, 2], cut[wide, 3]
        for i in range(len(x)):
            beyond = x[i] * nx + y[i] * ny + z[i] * nz > offset
            label[i] = groups if (label[i] == wide) & beyond else label[i]
        counts[groups] = _sum(x, y, z, label, groups, sums[groups])
        counts[wide] -= counts[groups]
        for axis in range(3):
            sums[wide, axis] -= sums[groups, axis]
        groups += 1
        if groups < k:
            for g in (wide, groups - 1):
                if counts[g] > 0:
                    _halve(x, y, z, label, g, sums[g], counts[g], cut[g])
    return groups


# Exact sums may be taken in any order: "reassoc" lets the compiler use SIMD and changes no bit.
@kernel(fastmath={"reassoc"})
def _sum(x: Any, y: Any, z: Any, label: Any, group: int, total: Any) -> int:
    """Number of points in a group; their sums go to ``total``."""
    count, sx, sy, sz = 0, 0.0, 0.0, 0.0
    for i in range(len(x)):
        inside = label[i] == group
        count += inside
        sx += x[i] if inside else 0.0
        sy += y[i] if inside else 0.0
        sz += z[i] if inside else 0.0
    total[0], total[1], total[2] = sx, sy, sz
    return count


@kernel(fastmath={"reassoc"})
def _halve(
    x: Any, y: Any, z: Any, label: Any, group: int, total: Any, count: int, cut: Any
) -> None:
    """Set the plane that halves a group, and its spread: squared distances from the mean."""
    mx, my, mz = total[0] / count, total[1] / count, total[2] / count
    length = np.sqrt(mx * mx + my * my)
    ux, uy = (mx / length, my / length) if length > 0 else (1.0, 0.0)
    radial, tangential, along = 0.0, 0.0, 0.0
    for i in range(len(x)):
        inside = SQUARE_GRID if label[i] == group else 0.0
        dx, dy, dz = x[i] - mx, y[i] - my, z[i] - mz
        r, t = dx * ux + dy * uy, dy * ux - dx * uy
        radial += np.rint(r * r * inside)
        tangential += np.rint(t * t * inside)
        along += np.rint(dz * dz * inside)
    if along >= max(radial, tangential):
        cut[0], cut[1], cut[2], cut[3] = 0.0, 0.0, 1.0, mz
    elif tangential >= radial:
        cut[0], cut[1], cut[2], cut[3] = -uy, ux, 0.0, my * ux - mx * uy
    else:
        cut[0], cut[1], cut[2], cut[3] = ux, uy, 0.0, length
    cut[4] = radial + tangential + along
