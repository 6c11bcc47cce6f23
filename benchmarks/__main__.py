"""One subject in this process: ``python -m puma_coffea.benchmarks SUBJECT FILE [quick]``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from puma_coffea.benchmarks.subjects import measured

if __name__ == "__main__":
    answer = measured(sys.argv[1], quick="quick" in sys.argv[3:])
    Path(sys.argv[2]).write_text(json.dumps(answer))
