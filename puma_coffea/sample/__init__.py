"""Real Delphes events that travel with the package: 12 of each process, reduced to what is read.

``zvv`` (Z -> nu nu + jets), ``vbfhinv`` (VBF H -> Z Z* -> 4 nu) and ``ttbar`` (dileptonic) at
14 TeV from Pythia 8.317 and Delphes with the CMS Phase-II card v04: ``_pu140`` with 140 pile-up
interactions on average, ``_pu0`` the same hard events without.
"""

from __future__ import annotations

from pathlib import Path

from puma_coffea.exceptions import NoEvents


def sample_path(name: str) -> str:
    """Path of an embedded sample file, for example ``"zvv_pu140"``.

    >>> sample_path("zvv_pu140").endswith("zvv_pu140.root")
    True
    """
    folder = Path(__file__).parent
    path = folder / f"{name}.root"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.root")))
        msg = f"There is no embedded sample {name!r}; choose one of {known}."
        raise NoEvents(msg)
    return str(path)
