"""Simulated samples: hard collisions among pile-up, seen by the detector, in the Parquet layout."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from puma_coffea.exceptions import BadConfig, BadOutput, PumaCoffeaError
from puma_coffea.observables import jets
from puma_coffea.simulation.card import BEAM_LENGTH, BEAM_LIMIT
from puma_coffea.simulation.detector import detect, set_seed
from puma_coffea.simulation.generator import (
    COLUMNS,
    SEEDS,
    Particles,
    generate,
    minimum_bias,
    process_named,
    ready_minimum_bias,
)

PART = 100  # events of one process that are simulated together
READY = "minimum-bias.init"  # what Pythia works out once, for all parts of the pool
POOL_PART = 2000  # minimum-bias collisions that are generated together
GENERATOR_JET_PT = 15.0
INVISIBLE = (12, 14, 16, 1000022)

Report = Callable[[str, int, int], None]
"""Called with what is done, how much of it, and how much there is."""


def mean_range(text: str) -> tuple[float, float]:
    """Range of the mean number of interactions from a number or two with a dash between.

    >>> mean_range("140"), mean_range("0-200")
    ((140.0, 140.0), (0.0, 200.0))
    """
    low, dash, high = text.partition("-")
    try:
        found = float(low), float(high if dash else low)
    except ValueError:
        found = np.nan, np.nan
    if not 0 <= found[0] <= found[1] < np.inf:
        msg = (
            f"A mean number of interactions is a number or a range, as 140 or 0-200, not {text!r}."
        )
        raise BadConfig(msg)
    return found


def write_simulated(
    processes: Sequence[str],
    output: Path,
    count: int,
    pileup: tuple[float, float] = (140.0, 140.0),
    interactions: int = 20_000,
    seed: int = 1,
    workers: int = 1,
    report: Report | None = None,
) -> int:
    """Write simulated events as a Parquet sample; their number.

    The sample depends on all arguments but ``workers``.

    Parameters
    ----------
    processes
        Names or files of Pythia settings; parts of ``PART`` events take turns.
    output
        The new sample; it appears once it is complete.
    count
        Number of events.
    pileup
        Range of the mean number of pile-up interactions, drawn anew for every event.
    interactions
        Size of the pool of minimum-bias collisions that pile-up is drawn from.
    seed
        Of everything.
    workers
        Processes at work.
    """
    import pyarrow.parquet as pq

    for name in processes:
        process_named(name)  # refuses before anything is generated
    firsts = range(0, count, PART)
    parts = [
        (processes[k % len(processes)], min(PART, count - first), pileup, seed, k)
        for k, first in enumerate(firsts)
    ]
    pools = range(0, interactions, POOL_PART) if pileup[1] > 0 else range(0)
    scratch, written = output.with_name(f".{output.name}.{os.getpid()}"), 0
    ahead = 2 * workers
    report = report or (lambda _what, _done, _total: None)
    try:
        with (
            TemporaryDirectory(prefix="puma-coffea-") as folder,
            ProcessPoolExecutor(workers, get_context("spawn")) as executor,
        ):
            if pools:
                ready_minimum_bias(Path(folder) / READY, _seed(seed, 5))
            sizes = [(folder, min(POOL_PART, interactions - k), seed, k) for k in pools]
            for done, _ in enumerate(_in_order(executor, ahead, _generate_pool, sizes), 1):
                report("pile-up", done, len(sizes))
            writer: Any = None
            for table in _in_order(executor, ahead, _part, [(folder, *part) for part in parts]):
                writer = writer or pq.ParquetWriter(scratch, table.schema, compression="zstd")
                writer.write_table(table)
                written += table.num_rows
                report("events", written, count)
            if writer is not None:
                writer.close()
        scratch.replace(output)
    except PumaCoffeaError:
        raise  # of the generator
    except OSError as error:
        msg = f"{output} cannot be written ({error.strerror})."
        raise BadOutput(msg) from error
    finally:
        scratch.unlink(missing_ok=True)
    return written


def _in_order(
    executor: ProcessPoolExecutor,
    ahead: int,
    function: Callable[..., Any],
    calls: list[tuple[Any, ...]],
) -> Iterator[Any]:
    """Results one after the other; only some are computed ahead, since they must fit in memory."""
    waiting = deque(executor.submit(function, *call) for call in calls[:ahead])
    for call in [*calls[ahead:], *[None] * len(waiting)]:
        yield waiting.popleft().result()
        if call is not None:
            waiting.append(executor.submit(function, *call))


def _seed(*numbers: int) -> int:
    """A seed for Pythia or numba from several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0]) % SEEDS + 1


def _generate_pool(folder: str, count: int, seed: int, number: int) -> None:
    made = generate(minimum_bias(Path(folder) / READY), count, _seed(seed, 1, number))
    columns: dict[str, Any] = made.columns
    np.savez(Path(folder) / f"{number:09}.npz", offsets=made.offsets, **columns)


_pools: dict[str, Particles] = {}


def _pool(folder: str) -> Particles:
    """All minimum-bias collisions of a folder, read once in a process."""
    if folder not in _pools:
        parts = [np.load(path) for path in sorted(Path(folder).glob("*.npz"))]
        counts = [np.diff(part["offsets"]) for part in parts]
        offsets = np.concatenate(([0], np.cumsum(np.concatenate([[], *counts])))).astype(np.int64)
        columns = {n: np.concatenate([[], *(part[n] for part in parts)]) for n in COLUMNS}
        _pools[folder] = Particles(columns, offsets, np.empty((0, 2)))
    return _pools[folder]


def _part(
    folder: str, process: str, count: int, pileup: tuple[float, float], seed: int, number: int
) -> Any:
    """Arrow table of some events."""
    rng = np.random.default_rng((seed, 2, number))
    set_seed(_seed(seed, 3, number))
    hard = generate(process_named(process), count, _seed(seed, 4, number))
    numbers = rng.poisson(rng.uniform(*pileup, count))
    rows = [event(hard, k, _pool(folder), int(numbers[k]), rng) for k in range(count)]
    return ak.to_arrow_table(_sample(rows), extensionarray=False)


def event(
    hard: Particles, number: int, pool: Particles, n_pileup: int, rng: np.random.Generator
) -> dict[str, Any]:
    """Columns of one event: a hard collision among others, each turned and moved along the beam."""
    first, last = hard.offsets[number : number + 2]
    drawn = rng.integers(len(pool), size=n_pileup) if n_pileup else np.zeros(0, np.int64)
    sizes = np.concatenate(([last - first], np.diff(pool.offsets)[drawn]))
    starts = pool.offsets[drawn] - np.cumsum(sizes)[:-1]
    where = np.repeat(starts, sizes[1:]) + np.arange(last - first, sizes.sum())
    made = {
        n: np.concatenate([hard.columns[n][first:last], pool.columns[n][where]]).astype(np.float64)
        for n in COLUMNS
    }
    interaction = np.repeat(np.arange(n_pileup + 1), sizes)
    angle = rng.uniform(-np.pi, np.pi, n_pileup + 1)
    cos, sin = np.cos(angle)[interaction], np.sin(angle)[interaction]
    for x, y in (("px", "py"), ("x", "y")):
        made[x], made[y] = made[x] * cos - made[y] * sin, made[x] * sin + made[y] * cos
    made |= {n: made[n] * 1e-3 for n in "xyz"}
    made["z"] += _vertices(n_pileup + 1, rng)[interaction]
    whole = {n: made[n].astype(np.int64) for n in ("pid", "charge")}
    particles: list[Any] = [*(whole.get(n, made[n]) for n in COLUMNS), interaction > 0]
    tracks, photons, hadrons = detect(*particles)
    generated = {n: made[n][: last - first] for n in ("pid", "px", "py", "pz", "energy")}
    boson_pt, boson_phi = hard.boson[number]
    return {
        **_candidates(tracks, photons, hadrons),
        **_truth(generated),
        "boson_pt": boson_pt,
        "boson_phi": (boson_phi + angle[0] + np.pi) % (2 * np.pi) - np.pi,
        "n_pu": n_pileup,
        "npv": n_pileup + 1,
    }


def _vertices(count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    z = rng.normal(0, BEAM_LENGTH, count)
    while (far := np.abs(z) > BEAM_LIMIT).any():
        z[far] = rng.normal(0, BEAM_LENGTH, far.sum())
    return z


def _candidates(tracks: Any, photons: Any, hadrons: Any) -> dict[str, Any]:
    """Columns per candidate, on the grid of the other samples, on which they pack well."""
    pt, eta, phi = (np.concatenate([t[:, k] for t in (tracks, photons, hadrons)]) for k in range(3))
    neutrals = len(photons) + len(hadrons)
    pid = np.concatenate([tracks[:, 3], np.full(len(photons), 22), np.zeros(len(hadrons))])
    pid = pid.astype(np.int32)
    share = np.concatenate([1 - tracks[:, 4], photons[:, 3], hadrons[:, 3]])
    step = np.log(1.004)
    return {
        "pt": np.exp(np.round(np.log(pt) / step) * step).astype(np.float32),
        "eta": (np.round(eta * 512) / 512).astype(np.float32),
        "phi": (np.round(phi / 0.002) * 0.002).astype(np.float32),
        "pid": pid,
        "charge": np.where(np.arange(len(pid)) < len(tracks), _sign(pid), 0).astype(np.int8),
        "vertex": np.concatenate([tracks[:, 4], np.full(neutrals, -1)]).astype(np.int8),
        "y": np.round(share, 2).astype(np.float32),
    }


def _sign(pid: Any) -> Any:
    """Sign of a charged particle's charge: leptons and some hyperons count negative."""
    return np.where(np.isin(np.abs(pid), (11, 13, 3112, 3312, 3334)), -np.sign(pid), np.sign(pid))


def _truth(particles: dict[str, Any]) -> dict[str, Any]:
    """True pTmiss and generator jets of a hard collision."""
    invisible = np.isin(np.abs(particles["pid"]), INVISIBLE)
    px, py, pz, energy = (particles[n][~invisible] for n in ("px", "py", "pz", "energy"))
    pt = np.hypot(px, py)
    mass = np.sqrt(np.maximum(energy**2 - pt**2 - pz**2, 0))
    seen = ak.zip(
        {"pt": [pt], "eta": [np.arcsinh(pz / pt)], "phi": [np.arctan2(py, px)], "mass": [mass]}
    )
    found = jets(seen, ak.ones_like(seen["pt"]), min_pt=GENERATOR_JET_PT)[0]
    truth = {f"gen_met_{c}": particles[f"p{c}"][invisible].sum() for c in "xy"}
    return truth | {
        f"genjet_{n}": ak.to_numpy(found[n]).astype(np.float32)
        for n in ("pt", "eta", "phi", "mass")
    }


def _sample(events: list[dict[str, Any]]) -> ak.Array:
    """Events in the Parquet layout."""
    columns = {}
    for name, value in events[0].items():
        values = [each[name] for each in events]
        if np.ndim(value):
            columns[name] = ak.unflatten(np.concatenate(values), [len(each) for each in values])
        else:
            columns[name] = np.array(values, np.int32 if name in ("n_pu", "npv") else np.float32)
    return ak.Array(columns)
