"""Slow, literal versions of PUMA's parts, written from their definitions."""

from __future__ import annotations

import literal
import numpy as np
import torch

from puma_coffea.methods.puppi import PRESETS


def wrapped(dphi):
    dphi = np.abs(dphi)
    return np.where(dphi > np.pi, 2 * np.pi - dphi, dphi)


def canonical(event):
    """Indices by decreasing pT, then eta, phi, vertex, pid, mass."""
    names = ("eta", "phi", "vertex", "pid", "mass")
    return sorted(
        range(len(event.pt)), key=lambda i: (-event.pt[i], *(getattr(event, n)[i] for n in names))
    )


def _halving_plane(points):
    mean = points.sum(axis=0) / len(points)
    length = np.sqrt(mean[0] * mean[0] + mean[1] * mean[1])
    ux, uy = mean[:2] / length if length > 0 else (1.0, 0.0)
    axes = ((ux, uy, 0.0), (-uy, ux, 0.0), (0.0, 0.0, 1.0))  # radial, tangential, eta
    dx, dy, dz = (points - mean).T
    components = (dx * ux + dy * uy, dy * ux - dx * uy, dz)
    widths = [np.rint(c * c * 2.0**28).sum() for c in components]
    widest = max((2, 1, 0), key=lambda axis: widths[axis])  # of equals: eta, then tangential
    offsets = (length, mean[1] * ux - mean[0] * uy, mean[2])
    return sum(widths), axes[widest], offsets[widest]


def kmeans(points, k):
    """Labels of float32 points: Var-Part seeds, then Lloyd's algorithm, at most 100 rounds."""
    label = np.zeros(len(points), dtype=int)
    exact = points.astype(np.float64)
    groups = 1
    while groups < k:
        planes = [_halving_plane(exact[label == g]) for g in range(groups)]
        wide = max(range(groups), key=lambda g: planes[g][0])
        spread, (nx, ny, nz), offset = planes[wide]
        if spread == 0:
            break
        beyond = exact[:, 0] * nx + exact[:, 1] * ny + exact[:, 2] * nz > offset
        label[(label == wide) & beyond] = groups
        groups += 1
    centres = np.zeros((groups, 3), dtype=np.float32)
    for _ in range(100):
        for g in range(groups):
            if (label == g).any():
                centres[g] = exact[label == g].sum(axis=0) / (label == g).sum()
        d = points[:, None, :] - centres[None, :, :]
        d = d[..., 0] * d[..., 0] + d[..., 1] * d[..., 1] + d[..., 2] * d[..., 2]
        new = d.argmin(axis=1)
        if (new == label).all():
            break
        label = new
    return label


def split(points, members, size, k):
    """Clusters (lists of members) of the recursion."""
    if len(members) < size:
        return [members]
    label = kmeans(points[members], k)
    parts = [members[label == g] for g in range(k) if (label == g).any()]
    if len(parts) == 1:
        return [members[i : i + size - 1] for i in range(0, len(members), size - 1)]
    return [cluster for part in parts for cluster in split(points, part, size, k)]


def walk(total, eta, phi):
    """The greedy walk by plain search; the lower index wins a tie."""
    left = list(range(len(total)))
    path = [int(np.argmax(total))]
    left.remove(path[0])
    while left:
        here = path[-1]
        d = (eta[here] - eta[left]) ** 2 + wrapped(phi[here] - phi[left]) ** 2
        path.append(left.pop(int(np.argmin(d))))
    return path


def sequence(event, size=10, k=4):
    """Order of the candidates and cluster of each, for one event (columns as attributes)."""
    order = np.array(canonical(event))
    columns = [np.sin(event.phi), np.cos(event.phi), event.eta]
    points = np.stack([np.rint(c * 2.0**20) / 2.0**20 for c in columns], axis=1).astype(np.float32)
    clusters = [order[c] for c in split(points[order], np.arange(len(order)), size, k)]
    rank = {i: place for place, i in enumerate(order)}
    clusters.sort(key=lambda members: rank[members[0]])
    total = np.array([event.pt[c].sum() for c in clusters])
    eta = np.array([(event.pt[c] * event.eta[c]).sum() for c in clusters]) / total
    px = np.array([(event.pt[c] * np.cos(event.phi[c])).sum() for c in clusters])
    py = np.array([(event.pt[c] * np.sin(event.phi[c])).sum() for c in clusters])
    path = walk(total, eta, np.arctan2(py, px))
    cluster = np.empty(len(order), dtype=int)
    for place, c in enumerate(path):
        cluster[clusters[c]] = place
    return np.concatenate([clusters[c] for c in path]), cluster


def features(event, cluster):
    """Every named input of one event by N x N arrays, as a dictionary."""
    pt, eta, phi, vertex = event.pt, event.eta, event.phi, event.vertex
    dr = np.hypot(eta[:, None] - eta, wrapped(phi[:, None] - phi))
    other = ~np.eye(len(pt), dtype=bool)
    kinds = {
        "hard": vertex == 0,
        "pileup": vertex > 0,
        "photon": (vertex < 0) & (event.pid == 22),
        "hadron": (vertex < 0) & (event.pid != 22),
    }
    together = cluster[:, None] == cluster
    ring = np.floor((eta + 10) / 0.5)
    same_ring = ring[:, None] == ring
    code = np.select([abs(event.pid) == 11, abs(event.pid) == 13], [1, 2], 0)
    code[kinds["photon"]], code[kinds["hadron"]] = 3, 4
    hard, neutral, pileup = vertex == 0, vertex < 0, vertex > 0
    puppi = literal.puppi(vars(event) | {"npv": event.npv[0]}, PRESETS["tuned"])
    sort = np.select(list(kinds.values()), [0, 1, 2, 3])
    found = {
        "puppi": puppi,
        "ring_hard_pt": np.log1p((same_ring * hard) @ pt / (2 * np.pi * 0.5)),
        "ring_rank": np.log1p(
            (same_ring & (sort[:, None] == sort) & (pt > pt[:, None])).sum(axis=1)
        ),
        "pt": np.log(pt),
        "eta": eta,
        "phi": phi,
        "energy": np.log(np.sqrt((pt * np.cosh(eta)) ** 2 + event.mass**2)),
        "particle": code,
        "vertex": np.clip(vertex, -1, 1),
        "npv": event.npv / 100,
        "abs_eta": abs(eta),
        "cluster": cluster / (cluster.max() + 1),
        "cluster_dr": np.where(together, np.where(together, dr, 0).max(axis=1), 0).max(axis=1),
        "cluster_hard_pt": np.log1p((together * hard) @ pt),
        "cluster_neutral_pt": np.log1p((together * neutral) @ pt),
        "cluster_pileup_pt": np.log1p((together * pileup) @ pt),
        "event_hard_count": np.log1p(hard.sum()),
        "event_hard_pt": np.log1p(pt[hard].sum()),
        "event_hard_vector_pt": np.log1p(abs((pt * np.exp(1j * phi))[hard].sum())),
        "event_neutral_pt": np.log1p(pt[neutral].sum()),
        "ring_neutral_pt": np.log1p((same_ring * neutral) @ pt / (2 * np.pi * 0.5)),
        "ring_pileup_pt": np.log1p((same_ring * pileup) @ pt / (2 * np.pi * 0.5)),
    }
    for k in (1, 4, 16):
        found |= {f"cos_phi_{k}": np.cos(k * phi), f"sin_phi_{k}": np.sin(k * phi)}
        found |= {f"cos_eta_{k}": np.cos(k * eta), f"sin_eta_{k}": np.sin(k * eta)}
    sources = {kind: (chosen, pt) for kind, chosen in kinds.items()}
    sources["kept"] = (neutral & (puppi > 0), pt * puppi)
    found |= {f"is_{kind}": chosen for kind, chosen in kinds.items()}
    for kind, (chosen, amount) in sources.items():
        for radius in (0.05, 0.1, 0.2, 0.4, 0.8):
            near = other & chosen & (dr < radius)
            floor = np.maximum(dr, 0.01)
            found[f"{kind}_pt_{radius}"] = np.log1p(near @ amount)
            found[f"{kind}_count_{radius}"] = np.log1p(near.sum(axis=1))
            found[f"{kind}_ptdr_{radius}"] = np.log1p((near / floor) @ amount)
            found[f"{kind}_ptdr2_{radius}"] = np.log1p((near / floor**2) @ amount**2)
            found[f"{kind}_max_{radius}"] = np.log1p(np.where(near, amount, 0).max(axis=1))
    for radius in (0.2, 0.4):
        harder = other & neutral & (dr < radius) & (pt > pt[:, None])
        found[f"neutral_rank_{radius}"] = np.log1p(harder.sum(axis=1))
    for kind in ("hard", "pileup"):
        away = np.where(other & kinds[kind] & (dr < 0.8), dr, np.inf)
        some, nearest = np.isfinite(away).any(axis=1), away.argmin(axis=1)
        found[f"nearest_{kind}_dr"] = np.where(some, away.min(axis=1), 0.8)
        found[f"nearest_{kind}_pt"] = np.where(some, np.log1p(pt[nearest]), 0)
    return {name: np.broadcast_to(values, pt.shape) for name, values in found.items()}


def dense_attention(qkv, heads, band, length):
    """Softmax attention of one event (N, 3 D) by an N x N matrix with a band mask."""
    n, width = qkv.shape[0], qkv.shape[1] // 3
    q, k, v = (part.reshape(n, heads, -1).transpose(0, 1) for part in qkv.split(width, dim=1))
    place = torch.arange(n)
    seen = (place[:, None] - place[None, :]).abs() <= band
    seen &= (place < length)[None, :]
    scores = (q @ k.transpose(1, 2) / (width // heads) ** 0.5).masked_fill(~seen, -1e30)
    return (torch.softmax(scores, dim=-1) @ v).transpose(0, 1).reshape(n, width)
