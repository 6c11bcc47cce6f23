"""Where a particle leaves a cylinder around the beam, straight or on a helix."""

from __future__ import annotations

from math import acos, atan2, cos, hypot, pi, sin, sqrt

from puma_coffea.kernels import kernel
from puma_coffea.simulation.card import FIELD

BEND = 0.299792458 * FIELD  # GeV per metre: pT over the radius of a unit charge


@kernel
def leave(
    charge: int,
    px: float,
    py: float,
    pz: float,
    x: float,
    y: float,
    z: float,
    radius: float,
    half_length: float,
) -> tuple[float, float, float]:
    """Point (m) where a particle of this momentum (GeV) leaves the cylinder.

    One that curls up inside leaves through an end.
    """
    pt = hypot(px, py)
    end = 1e30 if pz == 0 else ((half_length if pz > 0 else -half_length) - z) * pt / pz
    if charge == 0:
        along, across = (px * x + py * y) / pt, (px * y - py * x) / pt
        path = min(end, sqrt(max(radius**2 - across**2, 0.0)) - along)
        return x + path * px / pt, y + path * py / pt, z + path * pz / pt
    bend = pt / (charge * BEND)  # signed radius of the helix: positive charges turn clockwise
    start = atan2(py, px)
    centre_x, centre_y = x + bend * sin(start), y - bend * cos(start)
    distance, size = hypot(centre_x, centre_y), abs(bend)
    path = end
    if distance + size >= radius > abs(distance - size):
        # The circle meets the wall at +- opening from the direction of the beam, seen from its centre.
        cosine = (distance**2 + size**2 - radius**2) / (2 * distance * size)
        opening = acos(min(1.0, max(-1.0, cosine)))
        here, beam = atan2(y - centre_y, x - centre_x), atan2(-centre_y, -centre_x)
        sense = -1.0 if bend > 0 else 1.0
        for meeting in (beam - opening, beam + opening):
            turned = (sense * (meeting - here)) % (2 * pi)
            if turned > 1e-9:
                path = min(path, turned * size)
    direction = start - path / bend
    return centre_x - bend * sin(direction), centre_y + bend * cos(direction), z + path * pz / pt
