"""``Puma``: a trained model as a method, from candidates to weights."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from functools import partial
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from puma_coffea.exceptions import (
    BadConfig,
    BadModelCard,
    BadOutput,
    MissingExtra,
    ModelHashMismatch,
)
from puma_coffea.flat import Flat, weigh
from puma_coffea.opening import first_line
from puma_coffea.puma.card import CARD, SCRIPT, WEIGHTS, Card, parse_card, read_card
from puma_coffea.puma.inputs import prepare

DEFAULT = "puma"
SHIPPED = Path(str(resources.files("puma_coffea.models")))

# Of this process, by identity and device: coffea unpickles its processor for every chunk, and a
# model must not be read and built again each time.
_ENGINES: dict[tuple[str, str], Any] = {}
_SHIPPED: dict[tuple[str, str], Puma] = {}


class Puma:
    """Pile-up weights from a PUMA model: call it with candidates.

    Neutrals get the network's estimate of the share of their energy that comes from the hard
    collision; charged candidates get 1 or 0 by vertex, or with ``charged="model"`` the network's
    value. An event without a pile-up track is left alone: all its weights are 1.

    The object travels in a small pickle: a shipped model as name and hash, any other as its
    card and numbers. A process that holds another version of a shipped model refuses it.

    Examples
    --------
    >>> from puma_coffea import Puma, candidates, open_events, sample_path
    >>> pf = candidates(open_events(sample_path("zvv_pu140")))
    >>> weights = Puma.load()(pf)
    >>> str(weights.type)
    '12 * var * float32'
    """

    def __init__(
        self,
        card: Card,
        weights: bytes,
        *,
        device: str = "auto",
        charged: Literal["vertex", "model"] = "vertex",
        shipped: str | None = None,
    ) -> None:
        if charged not in ("vertex", "model"):
            msg = f"charged must be 'vertex' or 'model', not {charged!r}."
            raise BadConfig(msg)
        self.card = card
        self.device = device
        self.charged = charged
        self._weights = weights
        self._shipped = shipped

    @classmethod
    def load(
        cls,
        name_or_path: str | os.PathLike[str] | None = None,
        device: str = "auto",
        charged: Literal["vertex", "model"] = "vertex",
    ) -> Puma:
        """A model by name, or from a folder or a TorchScript file.

        Parameters
        ----------
        name_or_path
            Name of a shipped model (``puma-coffea models`` lists them), a model folder (with or
            without ``model.pt``: only its card and its numbers are read, no code runs), or a
            ``.pt`` file that carries its card. Default: the shipped ``puma``.
        device
            ``"auto"`` (a GPU where torch finds one, else the CPU), ``"cpu"`` (needs no torch),
            ``"cuda"``, ``"cuda:1"``... ``"torch-cpu"`` is torch on the CPU, for comparison.
        charged
            ``"vertex"``: charged candidates get 1 or 0 by vertex. ``"model"``: the network's value.

        Raises
        ------
        BadModelCard
            No such model, or a card that cannot be used.
        ModelHashMismatch
            A file that is not the one its card was made for.
        """
        _require("safetensors")
        name = os.fspath(name_or_path) if name_or_path is not None else DEFAULT
        shipped = False
        if Path(name).suffix == ".pt":
            card, weights = _from_script(Path(name))
        else:
            folder, shipped = find_folder(name)
            card, weights = read_folder(folder)
        known_as = name if shipped else None
        model = cls(card, weights, device=device, charged=charged, shipped=known_as)
        model.tensors()  # refused here rather than by a worker, if card and numbers do not fit
        return model

    @property
    def identity(self) -> str:
        """Hash of all that decides a weight: settings, numbers, treatment of charged candidates."""
        return hashlib.sha256(
            b"\0".join([self.card.settings().encode(), self._weights, self.charged.encode()])
        ).hexdigest()

    def __call__(self, candidates: ak.Array) -> ak.Array:
        """Weights of candidates, ``var * float32`` in [0, 1]."""
        return weigh(candidates, partial(_weights, self))

    def tensors(self) -> dict[str, NDArray[Any]]:
        """The model's numbers by name, after checking that they fit the card."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        from puma_coffea.puma.fast_weights import check

        try:
            tensors = load(self._weights)
            check(self.card.network, tensors, inputs=len(self.card.inputs))
        except (ValueError, SafetensorError) as error:
            msg = f"Model '{self.card.name}': card and numbers do not fit ({first_line(error)})."
            raise BadModelCard(msg) from error
        return tensors

    def network(self) -> Any:
        """The model as a ``torch.nn.Module``, in evaluation mode."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        from puma_coffea.puma.network import NetworkConfig, PumaNetwork

        try:
            config = NetworkConfig(inputs=len(self.card.inputs), **self.card.network.model_dump())
            network = PumaNetwork(config)
            network.load_state_dict(load(self._weights))
        except (ValueError, RuntimeError, KeyError, SafetensorError) as error:
            msg = f"Model '{self.card.name}': card and numbers do not fit ({first_line(error)})."
            raise BadModelCard(msg) from error
        wrong = [
            name for name, tensor in network.state_dict().items() if not tensor.isfinite().all()
        ]
        if wrong:
            msg = f"Model '{self.card.name}': {wrong[0]} holds numbers that are not finite."
            raise BadModelCard(msg)
        return network.eval()

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write ``card.json``, ``weights.safetensors`` and ``model.pt``; the folder, once complete."""
        from puma_coffea.puma.export import script_bytes

        target = Path(folder)
        files = {WEIGHTS: self._weights, SCRIPT: script_bytes(self.network(), self.card)}
        files[CARD] = self.card.sealed(files).to_json().encode()
        scratch = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            scratch.mkdir(parents=True)
            for name, content in files.items():
                (scratch / name).write_bytes(content)
            if target.exists():
                for name in files:
                    (scratch / name).replace(target / name)
            else:
                scratch.rename(target)
        except OSError as error:
            msg = f"The model folder {target} cannot be written ({error.strerror})."
            raise BadOutput(msg) from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return target

    def __reduce__(self) -> Any:
        how = (self.device, self.charged)
        if self._shipped:
            return _shipped_model, (self._shipped, self.identity, *how)
        return _carried_model, (self.card.to_json(), self._weights, *how)

    def __repr__(self) -> str:
        return f"<Puma '{self.card.name}' {self.identity[:12]} on {self.device}>"


def shipped_names() -> list[str]:
    """Names of the models that come with the package."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{CARD}"))


def find_folder(name: str) -> tuple[Path, bool]:
    """Folder of a model, and whether it is a shipped one.

    A shipped name comes before a folder of that name: ``./puma`` is yours.
    """
    shipped = name in shipped_names()
    if not shipped and not Path(name).is_dir():
        msg = (
            f"There is no model {name!r}: it is neither a folder nor one of the shipped "
            f"{', '.join(shipped_names()) or 'models (there are none)'}."
        )
        raise BadModelCard(msg)
    return (SHIPPED / name if shipped else Path(name)), shipped


def read_folder(folder: Path) -> tuple[Card, bytes]:
    """Card and numbers of a model folder, after checking every hash that its card gives."""
    card = read_card(folder)
    missing = [name for name in (CARD, WEIGHTS) if name not in card.hashes]
    if missing:
        msg = f"{folder / CARD}: hashes.{missing[0]} is missing; write models with Puma.save."
        raise BadModelCard(msg)
    contents = {}
    for name in card.hashes.keys() - {CARD}:
        path = folder / Path(name).name
        if name == SCRIPT and not path.exists():
            continue  # derived from the numbers; not needed to run
        try:
            contents[name] = path.read_bytes()
        except OSError as error:
            msg = f"Model '{card.name}': {path} cannot be read ({error.strerror})."
            raise BadModelCard(msg) from error
        _check(card, name, contents[name], str(path))
    return card, contents[WEIGHTS]


def _from_script(path: Path) -> tuple[Card, bytes]:
    _require("torch", f"Reading {path}")
    from puma_coffea.puma.export import read_script

    text, weights = read_script(path)
    card = parse_card(text, f"{path}, {CARD}")
    if WEIGHTS in card.hashes:
        _check(card, WEIGHTS, weights, str(path))
    return card, weights


def _check(card: Card, name: str, content: bytes, where: str) -> None:
    if hashlib.sha256(content).hexdigest() != card.hashes[name]:
        msg = (
            f"Model '{card.name}': {where} is not the file its card was made for (another SHA-256). "
            "It was altered or copied incompletely; get the model again."
        )
        raise ModelHashMismatch(msg)


def _shipped_model(name: str, identity: str, device: str, charged: Any) -> Puma:
    key = (identity, device)
    if key not in _SHIPPED:
        model = Puma.load(name, device=device, charged=charged)
        if model.identity != identity:
            msg = (
                f"Model '{name}' of this worker is not the one that was sent (another hash); "
                "install the same version of puma-coffea everywhere."
            )
            raise ModelHashMismatch(msg)
        _SHIPPED[key] = model
    return _SHIPPED[key]


def _carried_model(card: str, weights: bytes, device: str, charged: Any) -> Puma:
    _require("safetensors")
    return Puma(parse_card(card, "the model sent here"), weights, device=device, charged=charged)


def _require(package: str, purpose: str = "PUMA") -> None:
    if find_spec(package) is None:
        msg = f"{purpose} needs the package {package}: pip install 'puma-coffea[torch]'."
        raise MissingExtra(msg)


def _engine(model: Puma) -> Any:
    key = (model.identity, _device(model.device))
    if key not in _ENGINES:
        if key[1] == "cpu":
            from puma_coffea.puma.fast import NumbaEngine

            _ENGINES[key] = NumbaEngine(model.card.network, model.tensors())
        else:
            from puma_coffea.puma.engine import TorchEngine

            _ENGINES[key] = TorchEngine(model.network(), key[1])
    return _ENGINES[key]


def _device(wanted: str) -> str:
    """``"cpu"``, computed without torch, or a device of torch."""
    if wanted == "cpu" or (wanted == "auto" and not _may_have_gpu()):
        return "cpu"
    _require("torch", f"Device {wanted!r}")
    from puma_coffea.puma.engine import choose_device

    return choose_device(wanted)


def _may_have_gpu() -> bool:
    """Whether torch could find a GPU: importing it only to ask takes seconds."""
    if find_spec("torch") is None or sys.platform == "darwin":
        return False
    # Drivers of NVIDIA, NVIDIA Tegra, AMD, and Windows around this Linux.
    drivers = ("/dev/nvidiactl", "/dev/nvmap", "/dev/kfd", "/dev/dxg")
    return sys.platform != "linux" or any(Path(name).exists() for name in drivers)


def _weights(model: Puma, flat: Flat) -> NDArray[np.float32]:
    inputs = prepare(flat, model.card)
    events = [inputs.event(i) for i in range(len(inputs.offsets) - 1)]
    found = _engine(model)([x for _, x in events])
    values = np.zeros(len(flat.pt), dtype=np.float32)
    for (index, _), weights in zip(events, found, strict=True):
        values[index] = weights
    np.clip(values, 0, 1, out=values)
    corrected = values
    if model.card.calibration is not None:
        corrected = model.card.calibration(corrected, np.abs(flat.eta))
    if model.card.hard_neutrals is not None:
        corrected = model.card.hard_neutrals(corrected, flat.pt).astype(np.float32)
    values = np.where(flat.neutral, corrected, values)
    values = values if model.charged == "model" else flat.by_vertex(values)
    return np.where(_without_pileup(flat), np.float32(1), values)


def _without_pileup(flat: Flat) -> NDArray[np.bool_]:
    """Mask of the candidates whose event has no pile-up track: there is nothing to remove."""
    running = np.concatenate(([0], np.cumsum(flat.vertex > 0)))
    tracks = running[flat.offsets[1:]] - running[flat.offsets[:-1]]
    return np.repeat(tracks == 0, np.diff(flat.offsets))
