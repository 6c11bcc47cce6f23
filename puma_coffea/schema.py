"""The NanoEvents schema for Delphes trees: coffea's, repaired.

Against ``coffea.nanoevents.DelphesSchema`` (2026.9) this one

* keeps the stored energy of tracks and towers as ``Energy`` instead of dropping it (``E`` itself
  is the vector's, from pT, eta and mass: two of one name are refused by coffea);
* keeps ``Rho`` as a list, one entry per eta range of the card;
* flattens every missing-momentum collection, not only ``MissingET``, and makes their ``pt`` the
  missing transverse momentum (coffea's is larger by the cosh of a meaningless eta);
* gives ``Vertex`` and ``ParticleFlowCandidate`` their vector behaviour and
  ``EFlowPhoton`` the one of a tower, which it is;
* accepts tracks without a ``Mass`` branch (files of older Delphes releases), and leaves a
  collection without vector behaviour where a branch it needs was dropped, instead of failing.
"""

from __future__ import annotations

from typing import Any, ClassVar

from coffea.nanoevents import DelphesSchema as _CoffeaDelphesSchema
from coffea.nanoevents import transforms

# Branches without which a collection cannot behave as its type.
_NEEDED = {
    "MissingET": ("MET", "Eta", "Phi"),
    "Vertex": ("T", "X", "Y", "Z"),
    "Tower": ("ET", "Eta", "Phi"),
    **dict.fromkeys(
        ("Particle", "Jet", "Track", "Photon", "Electron", "Muon"), ("PT", "Eta", "Phi")
    ),
}

CHARGED_PION_MASS = 0.13957039  # GeV, PDG 2024; stands in where older files store no mass


class DelphesSchema(_CoffeaDelphesSchema):  # type: ignore[misc]
    """NanoEvents of a Delphes tree with nothing dropped, flattened or mistyped.

    Use it wherever coffea takes a schema::

        NanoEventsFactory.from_root({path: "Delphes"}, schemaclass=DelphesSchema)
    """

    mixins: ClassVar[dict[str, str]] = {
        **_CoffeaDelphesSchema.mixins,
        "EFlowPhoton": "Tower",
        "ParticleFlowCandidate": "Track",
        "Vertex": "Vertex",
    }
    singletons: ClassVar[list[str]] = [
        *(name for name in _CoffeaDelphesSchema.singletons if name != "Rho"),
        "GenMissingET",
        "GenPileUpMissingET",
        "PuppiMissingET",
    ]

    def _build_collections(self, branch_forms: dict[str, Any]) -> dict[str, Any]:
        collections = {key.split("/")[0] for key in branch_forms if "/" in key}
        massless = []
        self.mixins = dict(self.mixins)  # type: ignore[misc]  # this file's, read by coffea's method
        for name in collections:
            mixin = self.mixins.get(name, "")
            if any(
                f"{name}/{name}.{branch}" not in branch_forms for branch in _NEEDED.get(mixin, ())
            ):
                del self.mixins[name]
            elif (
                mixin in ("Track", "Jet", "Particle") and f"{name}/{name}.Mass" not in branch_forms
            ):
                offsets = transforms.counts2offsets_form(branch_forms[f"{name}_size"])
                branch_forms[f"{name}/{name}.Mass"] = transforms.full_like_from_offsets_form(
                    offsets, CHARGED_PION_MASS
                )
                massless.append(name)
        output: dict[str, Any] = super()._build_collections(branch_forms)
        for name in collections:
            record = (
                output[name] if output[name]["class"] == "RecordArray" else output[name]["content"]
            )
            if (
                name in massless
            ):  # `mass` for the vector stays; a branch `Mass` the file does not have
                place = record["fields"].index("Mass")
                del record["fields"][place], record["contents"][place]
            if self.mixins.get(name) == "MissingET":
                met, rho = record["fields"].index("MET"), record["fields"].index("rho")
                record["contents"][rho] = record["contents"][met]
            if f"{name}/{name}.E" in branch_forms and "E" not in record["fields"]:
                record["fields"].append("Energy")
                record["contents"].append(branch_forms[f"{name}/{name}.E"]["content"])
        return output
