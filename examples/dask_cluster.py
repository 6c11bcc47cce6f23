"""The processor on a dask cluster: here a local one; pass a scheduler's address to use yours.

Run it: python examples/dask_cluster.py [tcp://ADDRESS:PORT]
"""

import sys

from coffea.processor import DaskExecutor, Runner
from distributed import Client, LocalCluster

from puma_coffea import DelphesSchema, sample_path
from puma_coffea.processors import PileupProcessor


def main(address=None):
    cluster = address or LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    fileset = {"zvv": {"files": {sample_path("zvv_pu140"): "Delphes"}}}
    with Client(cluster) as client:
        run = Runner(DaskExecutor(client=client, status=False), schema=DelphesSchema, chunksize=6)
        out = run(fileset, PileupProcessor(methods=["chs", "puppi"]))
    recoil = out["summary"]["zvv"]["puppi"]["recoil"]
    print(f"{out['record']['zvv']['events']} events on {'your' if address else 'a local'} cluster")
    print(f"puppi: response {recoil['response']:.2f}, resolution {recoil['resolution']:.1f} GeV")


if __name__ == "__main__":
    main(*sys.argv[1:2])
