"""Real events that travel with the package, reduced to what is read.

``zvv`` (Z -> nu nu + jets), ``vbfhinv`` (VBF H -> Z Z* -> 4 nu) and ``ttbar`` (dileptonic) at
14 TeV from Pythia 8.317 and Delphes with the CMS Phase-II card v04: ``_pu140`` with 140 pile-up
interactions on average, ``_pu0`` the same hard events without. Twelve of each as Delphes trees
(``.root``), sixty of the first two as Parquet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from puma_coffea.exceptions import NoEvents

FOLDER = Path(__file__).parent


def sample_path(name: str) -> str:
    """Path of an embedded sample: ``"zvv_pu140"``, or ``"zvv_pu140.parquet"`` for the Parquet one.

    >>> sample_path("zvv_pu140").endswith("zvv_pu140.root")
    True
    """
    path = FOLDER / (name if name.endswith(".parquet") else f"{name}.root")
    if not path.is_file():
        known = ", ".join(
            sorted(p.stem if p.suffix == ".root" else p.name for p in FOLDER.glob("*_pu*"))
        )
        msg = f"There is no embedded sample {name!r}; choose one of {known}."
        raise NoEvents(msg)
    return str(path)


@contextmanager
def demo_fileset() -> Iterator[str]:
    """Path of a coffea fileset of the Parquet samples, each with its gold standard."""
    fileset: dict[str, Any] = {}
    for process in ("zvv", "vbfhinv"):
        dataset, gold = f"{process}_pu140", f"{process}_pu0"
        fileset[dataset] = {"files": [sample_path(f"{dataset}.parquet")]}
        fileset[gold] = {
            "files": [sample_path(f"{gold}.parquet")],
            "metadata": {"gold_standard_of": dataset},
        }
    with TemporaryDirectory() as folder:
        path = Path(folder) / "demo.json"
        path.write_text(json.dumps(fileset))
        yield str(path)
