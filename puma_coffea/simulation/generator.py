"""Collisions from Pythia: stable particles of some processes by name, or of a settings file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puma_coffea.exceptions import BadConfig, MissingExtra

COLUMNS = ("pid", "charge", "px", "py", "pz", "energy", "x", "y", "z")
SEEDS = 900_000_000  # of Pythia

# As the samples of the models: 14 TeV, tune 4C, particles that fly further than 10 mm are stable.
_COMMON = (
    "Beams:eCM = 14000.", "Tune:pp = 5", "ParticleDecays:limitTau0 = on",
    "ParticleDecays:tau0Max = 10.", "Print:quiet = on",
)  # fmt: skip
_HARD = ("PartonLevel:MPI = off",)  # as in the paper
_TO_LEPTONS = ("24:onMode = off", "24:onIfAny = 11 13 15")
_TTBAR = ("Top:gg2ttbar = on", "Top:qqbar2ttbar = on")
_VBF = ("HiggsSM:ff2Hff(t:ZZ) = on", "HiggsSM:ff2Hff(t:WW) = on", "25:onMode = off")
_Z_JET = (
    "WeakBosonAndParton:qqbar2gmZg = on", "WeakBosonAndParton:qg2gmZq = on", "WeakZ0:gmZmode = 2",
    "23:onMode = off",
)  # fmt: skip
_INVISIBLE_Z = ("23:onMode = off", "23:onIfAny = 12 14 16")


@dataclass(frozen=True)
class Process:
    """Settings of Pythia, and the id of the boson whose recoil is of interest (0: none)."""

    settings: tuple[str, ...]
    boson: int = 0


MINIMUM_BIAS = Process(("SoftQCD:inelastic = on",))

#: What ``puma-coffea simulate`` knows by name.
PROCESSES: dict[str, Process] = {
    "ttbar": Process((*_HARD, *_TTBAR, *_TO_LEPTONS)),
    "zvv": Process((*_HARD, *_Z_JET, *_INVISIBLE_Z, "PhaseSpace:pTHatMin = 30."), 23),
    "vbfhinv": Process((*_HARD, *_VBF, "25:onIfMatch = 23 23", *_INVISIBLE_Z), 25),
    "dijet": Process((*_HARD, "HardQCD:all = on", "PhaseSpace:pTHatMin = 60.")),
    "ttbar-any": Process((*_HARD, *_TTBAR)),
    "single-top": Process((*_HARD, "Top:qq2tq(t:W) = on")),
    "tth": Process((*_HARD, "HiggsSM:gg2Httbar = on", "HiggsSM:qqbar2Httbar = on")),
    "wlv": Process((
        *_HARD, "WeakBosonAndParton:qqbar2Wg = on", "WeakBosonAndParton:qg2Wq = on",
        "PhaseSpace:pTHatMin = 30.", *_TO_LEPTONS,
    )),
    "zll": Process((*_HARD, *_Z_JET, "23:onIfAny = 11 13 15", "PhaseSpace:pTHatMin = 30.")),
    "zvv-hard": Process((*_HARD, *_Z_JET, *_INVISIBLE_Z, "PhaseSpace:pTHatMin = 120."), 23),
    "photon": Process((*_HARD, "PromptPhoton:all = on", "PhaseSpace:pTHatMin = 40.")),
    "diboson": Process((*_HARD, "WeakDoubleBoson:all = on")),
    "vbfhbb": Process((*_HARD, *_VBF, "25:onIfAny = 5")),
    "vbfhtautau": Process((*_HARD, *_VBF, "25:onIfAny = 15")),
    "higgs": Process((
        *_HARD, "HiggsSM:gg2H = on", "25:onMode = off", "25:onIfAny = 5 15 22 23 24",
    )),
    "vhbb": Process((
        *_HARD, "HiggsSM:ffbar2HZ = on", "HiggsSM:ffbar2HW = on", "23:onMode = off",
        "23:onIfAny = 11 12 13 14 15 16", *_TO_LEPTONS, "25:onMode = off", "25:onIfAny = 5",
    )),
    "bottom": Process((*_HARD, "HardQCD:hardbbbar = on", "PhaseSpace:pTHatMin = 40.")),
    "dijet-hard": Process((*_HARD, "HardQCD:all = on", "PhaseSpace:pTHatMin = 200.")),
    "zprime": Process((
        *_HARD, "NewGaugeBoson:ffbar2gmZZprime = on", "Zprime:gmZmode = 3", "32:m0 = 800.",
        "32:onMode = off", "32:onIfAny = 1 2 3 4 5 11 12 13 15",
    )),
    "leptoquark": Process((
        *_HARD, "LeptoQuark:gg2LQLQbar = on", "LeptoQuark:qqbar2LQLQbar = on", "42:m0 = 500.",
        "42:0:products = 2 12",
    )),
}  # fmt: skip


@dataclass(frozen=True)
class Particles:
    """Stable particles of many collisions: flat columns (GeV, mm), and offsets between collisions.

    ``boson`` holds pT (GeV) and phi of each collision's boson, NaN without one.
    """

    columns: dict[str, NDArray[Any]]
    offsets: NDArray[np.int64]
    boson: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.offsets) - 1


def ready_minimum_bias(file: Path, seed: int) -> None:
    """Write what Pythia works out before the first minimum-bias collision, which takes seconds."""
    generate(_minimum_bias(file, 1), 0, seed)


def minimum_bias(file: Path) -> Process:
    """Minimum-bias collisions, ready at once with the file of :func:`ready_minimum_bias`."""
    return _minimum_bias(file, 2)


def _minimum_bias(file: Path, reuse: int) -> Process:
    """Pythia writes the file with ``reuse`` 1 and reads it with 2."""
    init = "MultipartonInteractions:"
    settings = (f"{init}reuseInit = {reuse}", f"{init}initFile = {file}")
    return Process((*MINIMUM_BIAS.settings, *settings))


def process_named(name: str) -> Process:
    """A process by its name, or of a file of Pythia settings (``.cmnd``)."""
    if name in PROCESSES:
        return PROCESSES[name]
    path = Path(name)
    if path.suffix == ".cmnd":
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            msg = f"{path} cannot be read ({error.strerror})."
            raise BadConfig(msg) from error
        return Process(tuple(line for line in lines if "=" in line and line[:1] not in "!#"))
    close = get_close_matches(name, PROCESSES, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(PROCESSES)}."
    msg = f"There is no process {name!r}; {hint} A file of Pythia settings (.cmnd) works, too."
    raise BadConfig(msg)


def generate(process: Process, count: int, seed: int) -> Particles:
    """Collisions of a process.

    Raises
    ------
    BadConfig
        A setting that Pythia does not know, or a process that it cannot generate.
    """
    try:
        import pythia8mc
    except ImportError:
        msg = "Simulation needs Pythia: pip install 'puma-coffea[simulate]'."
        raise MissingExtra(msg) from None

    pythia = pythia8mc.Pythia("", False)
    for setting in (*_COMMON, *process.settings, "Random:setSeed = on", f"Random:seed = {seed}"):
        if not pythia.readString(setting):
            msg = f"Pythia does not understand the setting {setting.strip()!r}."
            raise BadConfig(msg)
    if not pythia.init():
        msg = f"Pythia cannot generate with the settings {'; '.join(process.settings)}."
        raise BadConfig(msg)
    rows: list[tuple[Any, ...]] = []
    counts: list[int] = []
    bosons: list[tuple[float, float]] = []
    while len(counts) < count:
        if not pythia.next():
            continue
        before = len(rows)
        rows.extend(_stable(pythia.event))
        counts.append(len(rows) - before)
        bosons.append(_boson(pythia.event, process.boson))
    columns = dict(
        zip(COLUMNS, np.array(rows, np.float32).reshape(-1, len(COLUMNS)).T, strict=True)
    )
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return Particles(columns, offsets, np.array(bosons, np.float64).reshape(-1, 2))


def _stable(event: Any) -> Iterable[tuple[Any, ...]]:
    for p in event:
        if p.isFinal():
            yield (
                p.id(), round(p.charge()), p.px(), p.py(), p.pz(), p.e(),
                p.xProd(), p.yProd(), p.zProd(),
            )  # fmt: skip


def _boson(event: Any, pid: int) -> tuple[float, float]:
    """pT and phi of the last copy of the particle with this id."""
    found = [p for p in event if pid and p.idAbs() == pid]
    if not found:
        return np.nan, np.nan
    last = found[0]
    while (later := event[last.iBotCopyId()]).index() != last.index():
        last = later
    return last.pT(), last.phi()
