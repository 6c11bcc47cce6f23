"""A plain coffea analysis with pile-up weights: pTmiss of Z(-> nu nu) + jets.

Run it: python examples/plain_analysis.py [FILE...]
"""

import sys

import hist
from coffea.processor import IterativeExecutor, ProcessorABC, Runner

from puma_coffea import DelphesSchema, candidates, met, method, sample_path


class MissingMomentum(ProcessorABC):
    """Fills the missing momentum of every event."""

    def process(self, events):
        pf = candidates(events)
        weights = method("puppi")(pf)
        missing = met(pf, weights)

        h = hist.Hist.new.Reg(20, 0, 200, name="met", label="pTmiss [GeV]").Weight()
        h.fill(missing.pt)
        return {"met": h, "events": len(events)}

    def postprocess(self, accumulator):
        return accumulator


def main(files):
    run = Runner(IterativeExecutor(status=False), schema=DelphesSchema, chunksize=200)
    out = run({"zvv": files}, MissingMomentum(), treename="Delphes")
    print(out["met"])
    print(f"{out['events']} events")


if __name__ == "__main__":
    main(sys.argv[1:] or [sample_path("zvv_pu140")])
