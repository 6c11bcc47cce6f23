"""A method of your own, compared with PUPPI: neutrals count if a hard track is near.

Run it: python examples/own_method.py
"""

import tempfile

import awkward as ak
import numpy as np

from puma_coffea import register_method, sample_path
from puma_coffea.running import run
from puma_coffea.tables import component_width


def near_hard_track(pf):
    """Weight 1 for neutrals above 2 GeV with a track of the hard vertex within dR < 0.2."""
    hard = pf[pf.vertex == 0]
    neutral = (pf.vertex < 0) & (pf.pt > 2)
    eta = ak.cartesian([pf.eta[neutral], hard.eta], nested=True)
    phi = ak.cartesian([pf.phi[neutral], hard.phi], nested=True)
    dphi = (phi["0"] - phi["1"] + np.pi) % (2 * np.pi) - np.pi
    near = ak.any(np.hypot(eta["0"] - eta["1"], dphi) < 0.2, axis=2)
    # Put the answers of the neutrals back in their places.
    flat = ak.to_numpy(ak.flatten(pf.vertex == 0)).astype(np.float32)
    flat[ak.to_numpy(ak.flatten(neutral))] = ak.to_numpy(ak.flatten(near))
    return ak.unflatten(flat, ak.num(pf))


def main():
    register_method("near-hard-track", near_hard_track)
    with tempfile.TemporaryDirectory() as folder:
        result = run(
            [f"zvv={sample_path('zvv_pu140')}"],
            folder,
            methods=["chs", "puppi", "near-hard-track"],
            status=False,
        )
    for name, row in result["summary"]["zvv"].items():
        width, error = component_width(row)
        response = row["recoil"]["response"]
        print(f"{name:16s} pTmiss width {width:5.1f} ± {error:.1f} GeV, response {response:.2f}")


if __name__ == "__main__":
    main()
