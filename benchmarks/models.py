"""Each shipped model on the embedded events: what its inputs cost, and what its network."""

from __future__ import annotations

from functools import partial

from puma_coffea.benchmarks.events import flat_events
from puma_coffea.benchmarks.rows import Row, milliseconds
from puma_coffea.benchmarks.timing import best_times
from puma_coffea.puma.fast import NumbaEngine
from puma_coffea.puma.features import PAPER
from puma_coffea.puma.inputs import prepare
from puma_coffea.puma.model import Puma, shipped_names

TITLE = "Shipped models"


def measure(quick: bool) -> list[Row]:
    """Inputs and network of each model, and what its inputs cost beyond the paper's eleven."""
    flat, rows = flat_events(quick), []
    events = len(flat.offsets) - 1
    for name in shipped_names():
        model = Puma.load(name)
        inputs = prepare(flat, model.card)
        tokens = [inputs.event(i)[1] for i in range(events)]
        engine = NumbaEngine(model.card.network, model.tensors())
        times = best_times(
            {
                "inputs": partial(prepare, flat, model.card),
                "eleven": partial(prepare, flat, model.card.model_copy(update={"inputs": PAPER})),
                "network": partial(engine, tokens),
            },
            1 if quick else 7,
        )
        each = {part: seconds / events for part, seconds in times.items()}
        ratio = each["inputs"] / each["network"]
        about = f"clustering and {len(model.card.inputs)} inputs"
        rows.append(milliseconds(f"{name}: {about}", each["inputs"], ratio, "its network"))
        if model.card.inputs != PAPER:
            extra = each["inputs"] - each["eleven"]
            against = extra / each["network"]
            rows.append(milliseconds(f"{name}: beyond the eleven", extra, against, "its network"))
        tokens_each = f"{len(inputs.index) / events:.0f} candidates"
        rows.append(milliseconds(f"{name}: network, {tokens_each}", each["network"]))
    return rows or [Row("models", missing="this package was built without models")]
