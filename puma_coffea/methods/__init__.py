"""Methods: functions from candidates to weights, found by name.

The built-in names are ``none``, ``chs``, ``puppi`` (and ``puppi:PRESET``), ``softkiller``,
``puma`` (and ``puma:MODEL``) and ``truth``. :func:`register_method` adds a user's own, which then works wherever a
method's name is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import awkward as ak
import numpy as np

from puma_coffea.candidates import physical, refuse_lazy
from puma_coffea.exceptions import BadWeights, UnknownMethod

Weigher = Callable[[ak.Array], ak.Array]

# Modules are imported when their method is asked for: kernels need numba.
_BUILT_IN = ("none", "chs", "puppi", "softkiller", "puma", "truth")
_WITH_PRESETS = ("puppi", "puma")
_REGISTERED: dict[str, Weigher] = {}


def method(name: str) -> Weigher:
    """The method of that name: a function ``candidates -> weights``.

    Parameters
    ----------
    name
        ``"none"``, ``"chs"``, ``"puppi"`` (preset ``tuned``), ``"puppi:delphes-phase2"``,
        ``"puppi:cms-phase2"``, ``"puppi:cms-run2"``, ``"softkiller"``, ``"puma"``,
        ``"puma:FOLDER"``, ``"truth"``, a registered name, or ``"module:function"`` for a function of an importable module.

    Raises
    ------
    UnknownMethod
        No such method or preset.

    Examples
    --------
    >>> from puma_coffea import candidates, method, met, open_events, sample_path
    >>> pf = candidates(open_events(sample_path("zvv_pu140")))
    >>> float(round(met(pf, method("puppi")(pf)).pt[0], 1))
    41.2
    """
    if name in _REGISTERED:
        return _Checked(name, _REGISTERED[name])
    base, _, preset = name.partition(":")
    if base in _BUILT_IN:
        module = import_module(f"puma_coffea.methods.{base}")
        if base in _WITH_PRESETS:
            chosen: Weigher = module.preset(preset or None)
            return chosen
        if not preset:
            function: Weigher = getattr(module, base)
            return function
    elif preset:
        return _Checked(name, _imported(base, preset))
    msg = f"There is no method {name!r}; known are {', '.join(method_names())}."
    raise UnknownMethod(msg)


def _imported(module: str, name: str) -> Weigher:
    try:
        found = import_module(module)
        function: Weigher = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as error:
        msg = (
            f"There is no method '{module}:{name}' ({error}); known are {', '.join(method_names())}, "
            "and 'module:function' for a function that can be imported."
        )
        raise UnknownMethod(msg) from error
    import cloudpickle

    # The user's module need not be on the workers: its functions travel with the processor.
    cloudpickle.register_pickle_by_value(found)
    return function


def method_names() -> list[str]:
    """Names of the built-in and registered methods."""
    return [*_BUILT_IN, *_REGISTERED]


def register_method(name: str, function: Weigher) -> None:
    """Make a user's function available as ``method(name)`` and in the processor.

    Parameters
    ----------
    name
        Any name that is not a built-in one; registering again replaces.
    function
        From candidates to one weight in [0, 1] per candidate, in the candidates' layout.
        Unphysical candidates are set to weight 0 afterwards.

    Examples
    --------
    >>> import awkward as ak
    >>> def hard_neutrals(pf):
    ...     return ak.where(pf.vertex < 0, pf.pt > 2, pf.vertex == 0)
    >>> register_method("hard-neutrals", hard_neutrals)
    >>> "hard-neutrals" in method_names()
    True
    """
    if name.partition(":")[0] in _BUILT_IN:
        msg = f"{name!r} is a built-in method; register yours under another name."
        raise UnknownMethod(msg)
    _REGISTERED[name] = function


@dataclass(frozen=True)
class _Checked:
    """A user's function whose result is checked on every call."""

    name: str
    function: Weigher

    def __call__(self, candidates: ak.Array) -> ak.Array:
        refuse_lazy(candidates)
        raw = self.function(candidates)
        try:
            same = len(raw) == len(candidates) and bool(
                ak.all(ak.num(raw, axis=1) == ak.num(candidates, axis=1))
            )
        except (TypeError, ValueError):
            same = False
        if not same:
            msg = f"Method {self.name!r} must return one weight per candidate in the same layout."
            raise BadWeights(msg)
        weights = ak.where(physical(candidates), ak.values_astype(raw, np.float32), np.float32(0))
        values: Any = ak.to_numpy(ak.flatten(weights))
        bad = ~((values >= 0) & (values <= 1))
        if bad.any():
            msg = (
                f"Method {self.name!r} gave {int(bad.sum())} weights outside [0, 1], "
                f"the first of them {values[bad][0]}."
            )
            raise BadWeights(msg)
        return weights
