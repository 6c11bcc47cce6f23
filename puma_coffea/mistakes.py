"""A key that does not exist, in one sentence: for filesets and for trainings."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown_key(key: str, known: Iterable[str]) -> str:
    """That there is no such key, and which one may have been meant.

    Examples
    --------
    >>> unknown_key("fils", ["files", "metadata"])
    "unknown key 'fils'; did you mean 'files'?"
    """
    names = list(known)
    close = difflib.get_close_matches(key, names, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(names)}."
    return f"unknown key '{key}'; {hint}"
