"""PUMA and PUPPI on CMS PFNano, beside CMS's own PUPPI weights.

The layout PFNANO says which branch of PFCands holds what; change it for your own NanoAOD flavour.
Charged candidates are assigned to the hard vertex by |dz| < 0.2 cm, since data have no truth. The
shipped model was trained on simulated Phase-II events: train your own before using it in an analysis.

Run it: python examples/pfnano.py PFNANO.root [MODEL-FOLDER]
"""

import sys
from dataclasses import replace

from coffea.nanoevents import NanoAODSchema, NanoEventsFactory

from puma_coffea import Puma, candidates, met, method
from puma_coffea.layouts import PFNANO

# As an example of the mapping: the number of good vertices in place of all vertices.
LAYOUT = replace(PFNANO, name="PFNano, good vertices", npv=lambda events: events.PV.npvsGood)

NanoAODSchema.warn_missing_crossrefs = False


def main(path, model=None):
    events = NanoEventsFactory.from_root({path: "Events"}, schemaclass=NanoAODSchema).events()
    pf = candidates(events, vertexing="dz", layout=LAYOUT)
    columns = {
        "none": method("none")(pf),
        "CMS PUPPI": events.PFCands.puppiWeight,
        "puppi:cms-run2": method("puppi:cms-run2")(pf),
        "PUMA": Puma.load(model)(pf),
    }
    print(f"{len(pf)} events, pTmiss in GeV:")
    for name, weights in columns.items():
        print(f"{name:15s}", *(f"{value:7.1f}" for value in met(pf, weights).pt[:8]))


if __name__ == "__main__":
    main(*sys.argv[1:3])
