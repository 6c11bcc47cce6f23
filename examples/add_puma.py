"""PUMA in an existing analysis of Z(-> nu nu) + jets: three lines.

    -from puma_coffea import DelphesSchema, sample_path
    +from puma_coffea import DelphesSchema, Puma, candidates, met, sample_path

    -        missing = events.MissingET
    +        pf = candidates(events)
    +        missing = met(pf, Puma.load(MODEL)(pf))

All the rest of this file was there before. Puma.load() without an argument takes the shipped
model; it is built once per process, however many chunks there are.

Run it: python examples/add_puma.py [MODEL-FOLDER]
"""

import sys

import awkward as ak
import hist
import numpy as np
from coffea.processor import IterativeExecutor, ProcessorABC, Runner

from puma_coffea import DelphesSchema, Puma, candidates, met, sample_path

MODEL = sys.argv[1] if len(sys.argv) > 1 else None


class ZToInvisible(ProcessorABC):
    """Missing momentum of events with a jet, and how far it is from the neutrinos'."""

    def process(self, events):
        events = events[ak.num(events.Jet[events.Jet.PT > 30]) > 0]
        pf = candidates(events)
        missing = met(pf, Puma.load(MODEL)(pf))

        true = events.GenMissingET
        residual = np.abs(missing.pt * np.exp(1j * missing.phi) - true.MET * np.exp(1j * true.Phi))
        spectrum = hist.Hist.new.Reg(20, 0, 400, name="met", label="pTmiss [GeV]").Int64()
        spectrum.fill(missing.pt)
        return {"met": spectrum, "events": len(events), "residual": float(ak.sum(residual))}

    def postprocess(self, accumulator):
        return accumulator


def main():
    run = Runner(IterativeExecutor(status=False), schema=DelphesSchema, chunksize=200)
    out = run({"zvv": [sample_path("zvv_pu140")]}, ZToInvisible(), treename="Delphes")
    print(out["met"])
    distance = out["residual"] / out["events"]
    print(f"{out['events']} events; pTmiss is {distance:.1f} GeV from the neutrinos' on average")


if __name__ == "__main__":
    main()
