"""What a training writes down: ``log.csv``, and on request the same for TensorBoard."""

from __future__ import annotations

import csv
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from puma_coffea.exceptions import MissingExtra


class Log:
    """Rows of numbers, one per validation, appended to what the folder holds already.

    Parameters
    ----------
    folder
        Of the training: ``log.csv`` is written there, and ``tensorboard/`` on request.
    tensorboard
        Whether to write for TensorBoard too; needs the package tensorboard.
    """

    def __init__(self, folder: Path, tensorboard: bool = False) -> None:
        if tensorboard and find_spec("tensorboard") is None:
            msg = "A log for TensorBoard needs the package tensorboard: pip install tensorboard."
            raise MissingExtra(msg)
        self.folder, self.tensorboard = folder, tensorboard
        self._writer: Any = None

    def __call__(self, row: dict[str, Any]) -> None:
        """Write a row down; ``row["step"]`` is where it stands."""
        path = self.folder / "log.csv"
        new = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, row)
            if new:
                writer.writeheader()
            writer.writerow(row)
        if self.tensorboard:
            self._show(row)

    def _show(self, row: dict[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        if self._writer is None:
            # What a killed training wrote beyond its checkpoint is written again, not twice.
            self._writer = SummaryWriter(self.folder / "tensorboard", purge_step=row["step"])
        for name, value in row.items():
            if name != "step":
                self._writer.add_scalar(name, value, row["step"])
        self._writer.flush()
