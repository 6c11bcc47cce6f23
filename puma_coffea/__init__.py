"""Pile-up mitigation for coffea analyses: candidates in, weights in [0, 1] out.

>>> from puma_coffea import candidates, met, method, open_events, sample_path
>>> events = open_events(sample_path("zvv_pu140"))
>>> pf = candidates(events)
>>> weights = method("puppi")(pf)
>>> missing = met(pf, weights).pt
>>> [round(value, 1) for value in missing[:3].to_list()]
[41.2, 41.5, 64.1]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puma_coffea.candidates import candidates, physical
from puma_coffea.methods import method, method_names, register_method
from puma_coffea.observables import (
    dijet_mass,
    jets,
    leading_jet_response,
    met,
    pileup_jets,
    recoil,
)
from puma_coffea.opening import open_events
from puma_coffea.parquet import read_candidates, read_truth
from puma_coffea.sample import sample_path
from puma_coffea.truth import truth

if TYPE_CHECKING:
    from puma_coffea.puma.model import Puma
    from puma_coffea.schema import DelphesSchema

__version__ = "0.1.0"

__all__ = [
    "DelphesSchema",
    "Puma",
    "candidates",
    "dijet_mass",
    "jets",
    "leading_jet_response",
    "met",
    "method",
    "method_names",
    "open_events",
    "physical",
    "pileup_jets",
    "read_candidates",
    "read_truth",
    "recoil",
    "register_method",
    "sample_path",
    "truth",
]


def __getattr__(name: str) -> Any:
    if name == "DelphesSchema":  # imports coffea, which a user of plain arrays does not need
        from puma_coffea.schema import DelphesSchema

        return DelphesSchema
    if name == "Puma":
        from puma_coffea.puma.model import Puma

        return Puma
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return __all__
