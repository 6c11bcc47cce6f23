"""Which vertex a track comes from: truth, reconstruction, or the reference to its particle.

Each function takes ``(events, collection)`` and returns, per charged candidate,
0 for the hard interaction and 1 for pile-up (Delphes does not say which interaction).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import awkward as ak
import numpy as np

from puma_coffea.exceptions import MissingCollection, UnknownVertexing

logger = logging.getLogger(__name__)

Vertexing = Callable[[ak.Array, Any], Any]

# Pile-up tracks with pT > 0.5 GeV and |eta| < 2.4 per interaction: 9.6 to 10.0 in four
# processes at 140 interactions (Pythia 8.317, CMS Phase-II card v04).
TRACKS_PER_INTERACTION = 9.8

# TObject::fUniqueID keeps the number of the TProcessID in its upper byte.
_OBJECT_NUMBER = np.uint32(0xFFFFFF)


def true_vertex(events: ak.Array, tracks: Any) -> Any:
    """Perfect association: ``IsPU``, or the reference to the generated particle in older files."""
    if "IsPU" in tracks.fields:
        return tracks["IsPU"]
    logger.info("no IsPU branch: the vertex is taken from the reference to the generated particle")
    return referenced_vertex(events, tracks)


def reconstructed_vertex(_events: ak.Array, tracks: Any) -> Any:
    """Realistic association: ``IsRecoPU``, where a track near the hard vertex counts as hard."""
    if "IsRecoPU" not in tracks.fields:
        msg = (
            "Vertexing 'reco' needs the branch IsRecoPU, which this file does not have "
            "(Delphes before 3.4); use vertexing='truth'."
        )
        raise UnknownVertexing(msg)
    return tracks["IsRecoPU"]


def referenced_vertex(events: ak.Array, tracks: Any) -> Any:
    """Association by the track's reference to its generated particle.

    A reference that leads to no entry of ``Particle`` points to pile-up: Delphes cards
    store the hard event's particles and leave the pile-up's out.
    """
    if "Particle" not in tracks.fields or "Particle" not in events.fields:
        msg = (
            "The tracks have no IsPU branch and cannot be followed to generated particles, "
            "because the branch 'Particle' is missing; keep it in the Delphes card."
        )
        raise MissingCollection(msg)
    particles = events["Particle"]
    reference = tracks["Particle"]["ref"]
    if ak.count(reference) > 0 and not has_final_state(particles):
        msg = (
            "The branch 'Particle' is empty or filtered (it has no stable charged hadron), so the "
            "tracks' references cannot be followed; write the complete list in the Delphes card."
        )
        raise MissingCollection(msg)
    is_pileup = (
        ak.to_numpy(ak.flatten(particles["IsPU"])) != 0
        if "IsPU" in particles.fields
        else np.zeros(int(ak.count(particles["fUniqueID"])), dtype=np.bool_)
    )
    keys, wanted = _event_keys(particles["fUniqueID"]), _event_keys(reference)
    hard = np.isin(wanted, keys[~is_pileup])
    return ak.unflatten(np.where(hard, 0, 1), ak.num(reference, axis=1))


def has_final_state(particles: Any) -> bool:
    """Whether a list of generated particles holds the final state, not only a choice of it.

    Delphes cards may store leptons, heavy quarks and the hard process alone; then references lead
    nowhere and mothers are counted in a list that is not there.
    """
    pid = np.abs(ak.to_numpy(ak.flatten(particles["PID"])))
    stable = ak.to_numpy(ak.flatten(particles["Status"])) == 1
    return bool(np.any(stable & np.isin(pid, (211, 321, 2212))))


VERTEXING: Mapping[str, Vertexing] = {
    "truth": true_vertex,
    "reco": reconstructed_vertex,
    "reference": referenced_vertex,
}


def estimate_npv(pt: Any, eta: Any, vertex: Any, offsets: Any) -> Any:
    """Number of vertices per event from the pile-up tracks, for files that list no vertices.

    One hard interaction, plus one for every 9.8 pile-up tracks with pT > 0.5 GeV and
    |eta| < 2.4. Arrays are flat; ``offsets`` delimit the events.
    """
    counted = (vertex > 0) & (pt > 0.5) & (np.abs(eta) < 2.4)
    running = np.concatenate(([0], np.cumsum(counted)))
    tracks = running[offsets[1:]] - running[offsets[:-1]]
    return (1 + np.rint(tracks / TRACKS_PER_INTERACTION)).astype(np.int32)


def _event_keys(ids: ak.Array) -> Any:
    counts = ak.to_numpy(ak.num(ids, axis=1))
    event = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    number = ak.to_numpy(ak.flatten(ids)).astype(np.uint32) & _OBJECT_NUMBER
    return (event << 32) | number.astype(np.int64)
