"""From exact sums to physics: bias and width with errors, and the response-corrected recoil.

Central moments are taken in exact fractions, so nothing cancels. The error of a width is
sqrt((m4 - m2^2) / (4 m2 n)), which honours tails; n is the effective number of events
(sum w)^2 / sum w^2.

Response correction: in bin i of the true boson's pT alpha_i = -<pT> / <U_par> makes the mean of
pT + alpha_i U_par zero; the figure of merit is alpha_i RMS(U_perp).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from puma_coffea.accumulation import ALL
from puma_coffea.exact import ExactSums
from puma_coffea.histograms import central_half_width
from puma_coffea.quantities import BOSON_PT_EDGES, QUANTITIES

NAN = float("nan")


@dataclass(frozen=True)
class Spread:
    """Mean and width of a quantity over the events, with statistical errors."""

    events: float
    mean: float
    mean_error: float
    width: float
    width_error: float
    half_68: float


@dataclass(frozen=True)
class Recoil:
    """Response and response-corrected resolution in one bin of the boson's pT (GeV)."""

    low: float
    high: float
    events: float
    boson_pt: float
    response: float
    alpha: float
    closure: float
    """<pT + alpha U_par> / <pT>, zero by construction."""
    resolution: float
    """alpha RMS(U_perp)."""
    resolution_error: float


def summary(sums: Mapping[str, ExactSums], methods: Sequence[str]) -> dict[str, Any]:
    """Plain numbers: dataset -> method -> quantities' spreads and the recoil, bin by bin.

    What is not defined (the width of a quantity that no event has) is None.
    """
    table: dict[str, Any] = {}
    for dataset in sorted(sums):
        table[dataset] = {}
        for method in methods:
            if sums[dataset].value(("moment", method, "met_x", ALL, 0)) == 0:
                continue
            spreads = {q.name: _plain(spread(sums[dataset], method, q.name)) for q in QUANTITIES}
            bins = [_plain(each) for each in recoil_bins(sums[dataset], method)]
            table[dataset][method] = spreads | {
                "recoil": _plain(recoil_in(sums[dataset], method, ALL)),
                "recoil_bins": bins,
            }
    return table


def _plain(figures: Spread | Recoil) -> dict[str, Any]:
    """The figures as a dictionary, None for what is not defined: NaN would differ from itself."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in asdict(figures).items()
    }


def spread(sums: ExactSums, method: str, name: str) -> Spread:
    """Mean and width of a quantity, from its moments."""
    quantity = next(q for q in QUANTITIES if q.name == name)
    n, mean, central, fourth = _central(sums, method, name, ALL)
    if n == 0:
        return Spread(0, NAN, NAN, NAN, NAN, NAN)
    width, error = _width(n, central, fourth)
    half = central_half_width(sums, method, quantity)
    return Spread(n, float(mean), width / math.sqrt(n), width, error, half)


def recoil_bins(sums: ExactSums, method: str) -> list[Recoil]:
    """The recoil in each filled bin of the boson's pT."""
    found = (recoil_in(sums, method, b) for b in range(len(BOSON_PT_EDGES)))
    return [each for each in found if each.events > 0]


def recoil_in(sums: ExactSums, method: str, b: int) -> Recoil:
    """The recoil in one bin of the boson's pT; ``ALL`` is the whole sample."""
    edges = (*BOSON_PT_EDGES, math.inf)
    low, high = (edges[0], edges[-1]) if b == ALL else (edges[b], edges[b + 1])
    n, parallel, _, _ = _central(sums, method, "u_parallel", b)
    if n == 0:
        return Recoil(low, high, 0, NAN, NAN, NAN, NAN, NAN, NAN)
    total = sums.fraction(("moment", method, "u_parallel", b, 0))
    pt = sums.fraction(("cross", method, b)) / total
    if parallel >= 0 or pt <= 0:  # a recoil that does not point against the boson has no scale
        response = float(-parallel / pt) if pt > 0 else NAN
        return Recoil(low, high, n, float(pt), response, NAN, NAN, NAN, NAN)
    alpha = -pt / parallel
    closure = float((pt + Fraction(float(alpha)) * parallel) / pt)
    second, fourth = (
        sums.fraction(("moment", method, "u_perpendicular", b, k)) / total for k in (2, 4)
    )
    rms, error = _width(n, second, fourth)
    return Recoil(
        low, high, n, float(pt), float(1 / alpha), float(alpha), closure,
        float(alpha) * rms, abs(float(alpha)) * error,
    )  # fmt: skip


def _central(sums: ExactSums, method: str, name: str, b: int) -> tuple[float, Any, Any, Any]:
    """Effective number of events, mean, second and fourth central moment."""
    s = [sums.fraction(("moment", method, name, b, k)) for k in range(5)]
    squares = sums.fraction(("moment", method, name, b, "w2"))
    if s[0] == 0 or squares == 0:
        return 0.0, Fraction(0), Fraction(0), Fraction(0)
    m1, m2, m3, m4 = (s[k] / s[0] for k in range(1, 5))
    central = m2 - m1**2
    fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
    return float(s[0] ** 2 / squares), m1, central, fourth


def _width(n: float, second: Any, fourth: Any) -> tuple[float, float]:
    """Square root of a second moment and its statistical error."""
    if second <= 0:  # one event, or negative weights that outweigh the others
        return 0.0, 0.0
    excess = max(fourth - second**2, Fraction(0))
    return math.sqrt(second), math.sqrt(excess / (4 * second * Fraction(n)))
