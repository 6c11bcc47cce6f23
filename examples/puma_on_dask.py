"""A processor that holds a PUMA model, on a dask cluster: here a local one, or pass an address.

The model travels with the processor: a shipped one as name and hash, which each worker compares
with its own copy, any other with its numbers. Nothing has to be copied to the workers.

Run it: python examples/puma_on_dask.py [MODEL-FOLDER] [tcp://ADDRESS:PORT]
"""

import sys
from contextlib import nullcontext

import hist
from coffea.processor import DaskExecutor, IterativeExecutor, ProcessorABC, Runner
from distributed import Client, LocalCluster

from puma_coffea import DelphesSchema, Puma, candidates, met, sample_path

FILESET = {"zvv": {"files": {sample_path("zvv_pu140"): "Delphes"}}}


class MissingMomentum(ProcessorABC):
    """Fills the missing momentum of every event."""

    def __init__(self, puma):
        self.puma = puma

    def process(self, events):
        pf = candidates(events)
        spectrum = hist.Hist.new.Reg(40, 0, 400, name="met", label="pTmiss [GeV]").Int64()
        spectrum.fill(met(pf, self.puma(pf)).pt)
        return {"met": spectrum}

    def postprocess(self, accumulator):
        return accumulator


def main(model=None, address=None):
    processor = MissingMomentum(Puma.load(model))
    # One thread per worker: PUMA uses one core, and processes share nothing.
    cluster = address or LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with nullcontext() if address else cluster, Client(cluster) as client:
        run = Runner(DaskExecutor(client=client, status=False), schema=DelphesSchema, chunksize=4)
        far = run(FILESET, processor)["met"]
    near = Runner(IterativeExecutor(status=False), schema=DelphesSchema)(FILESET, processor)["met"]
    print(far)
    print(
        f"{far.sum(flow=True):.0f} events on the cluster; the same in this process: {far == near}"
    )


if __name__ == "__main__":
    main(*sys.argv[1:3])
