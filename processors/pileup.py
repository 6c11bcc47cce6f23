"""The processor: every method's missing momentum, jets and recoil over a fileset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import awkward as ak
import numpy as np
from coffea import processor

from puma_coffea.accumulation import add_numbers
from puma_coffea.candidates import candidates, physical
from puma_coffea.exact import ExactSums
from puma_coffea.exceptions import NoEvents, NotDelphesFile, PumaCoffeaError, UnknownVertexing
from puma_coffea.histograms import histograms
from puma_coffea.methods import method
from puma_coffea.opening import first_line, unreadable
from puma_coffea.parquet import candidates_of, is_sample_rows, truth_of
from puma_coffea.quantities import measure
from puma_coffea.response import summary
from puma_coffea.truth import truth

GOLD_STANDARD = "no pile-up"
DEFAULT_METHODS = ("none", "chs", "softkiller", "puppi", "puma", "truth")


class PileupProcessor(processor.ProcessorABC):  # type: ignore[misc]
    """Fills histograms and exact moments of pTmiss, dijet mass, jets and recoil for each method.

    Works in any coffea ``Runner`` with ``schema=puma_coffea.DelphesSchema`` and, for Parquet
    samples, ``format="parquet"``. A dataset whose metadata has ``gold_standard_of`` is the
    sample without pile-up of the dataset named there, and appears in it as ``no pile-up``.

    Parameters
    ----------
    methods
        Names of methods, as for :func:`puma_coffea.method`.
    vertexing
        As for :func:`puma_coffea.candidates`.
    skip_damaged
        Leave out a chunk whose columns cannot be read, and say so in the record; by default
        the run stops.

    Notes
    -----
    The output is a dictionary with ``histograms`` (``hist.Hist`` by quantity), ``summary``
    (bias, widths, response with errors), ``record`` (events, files and unphysical candidates
    per dataset, what was lost), and ``sums``, the exact sums all of it derives from.
    """

    def __init__(
        self,
        methods: Sequence[str] = DEFAULT_METHODS,
        vertexing: str = "truth",
        skip_damaged: bool = False,
    ) -> None:
        # Looked up here, so that a typo is found at once and a method registered in this
        # session travels to the workers.
        self.weighers = {name: method(name) for name in methods}
        self.vertexing = vertexing
        self.skip_damaged = skip_damaged

    @property
    def methods(self) -> tuple[str, ...]:
        """Names on the method axis: the methods, and the sample without pile-up."""
        return (*self.weighers, GOLD_STANDARD)

    def process(self, events: ak.Array) -> dict[str, Any]:
        """Sums and record of one chunk."""
        dataset, file = events.metadata["dataset"], events.metadata["filename"]
        partner = events.metadata.get("gold_standard_of")
        try:
            pf, true, weights = self._read(events)
        except PumaCoffeaError:
            raise
        except unreadable() as error:
            return self._lost(events, error)
        sums = ExactSums()
        weighers = {GOLD_STANDARD: method("none")} if partner else self.weighers
        for name, weigher in weighers.items():
            add_numbers(sums, name, measure(pf, weigher(pf), true), weights)
        record = {
            "events": len(pf),
            "candidates": int(ak.count(pf["pt"])),
            "unphysical": int(ak.sum(~physical(pf))),
            "files": {file: len(pf)},
            "lost": {},
        }
        return {"sums": {partner or dataset: sums}, "record": {dataset: record}}

    def _read(self, events: ak.Array) -> tuple[Any, Any, Any]:
        if is_sample_rows(events):
            if self.vertexing != "truth":
                msg = (
                    f"Parquet samples hold the vertex association they were made with; vertexing "
                    f"{self.vertexing!r} cannot be had from them. Use the ROOT files, or 'truth'."
                )
                raise UnknownVertexing(msg)
            return candidates_of(events), truth_of(events), _event_weights(events)
        pf, true = candidates(events, vertexing=self.vertexing), truth(events)
        return pf, true, _event_weights(events)

    def _lost(self, events: ak.Array, error: Exception) -> dict[str, Any]:
        meta = events.metadata
        reason = f"events {meta['entrystart']} to {meta['entrystop']} cannot be read ({first_line(error)})"
        if not self.skip_damaged:
            msg = f"{meta['filename']}: {reason}; copy it again, or skip bad files."
            raise NotDelphesFile(msg) from error
        lost = {meta["filename"]: {"events": len(events), "reasons": {reason}}}
        empty = {"events": 0, "candidates": 0, "unphysical": 0, "files": {}, "lost": lost}
        return {"sums": {}, "record": {meta["dataset"]: empty}}

    def postprocess(self, accumulator: dict[str, Any]) -> dict[str, Any]:
        """The output: histograms and summary beside the sums they come from."""
        if not accumulator.get("sums"):
            msg = "No events were processed."
            raise NoEvents(msg)
        return {
            "sums": accumulator["sums"],
            "record": accumulator["record"],
            "methods": self.methods,
            "histograms": histograms(accumulator["sums"], self.methods),
            "summary": summary(accumulator["sums"], self.methods),
        }


def _event_weights(events: ak.Array) -> Any:
    if "Event" in events.fields and "Weight" in events["Event"].fields:
        weights = events["Event"]["Weight"]
    elif "weight" in events.fields:
        weights = events["weight"]
    else:
        return np.ones(len(events))
    return ak.to_numpy(weights).astype(np.float64)
