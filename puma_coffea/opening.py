"""Opening a Delphes file as NanoEvents, with one clear sentence when that cannot be done."""

from __future__ import annotations

import lzma
import struct
import zlib
from os import PathLike, fspath
from typing import Any

import awkward as ak

from puma_coffea.exceptions import NoEvents, NotDelphesFile

TREE = "Delphes"


def unreadable() -> tuple[type[Exception], ...]:
    """What uproot and pyarrow raise on files that are cut off or damaged."""
    import uproot

    formats = (struct.error, zlib.error, lzma.LZMAError, uproot.DeserializationError)
    return (OSError, ValueError, EOFError, IndexError, KeyError, AssertionError, *formats)


def open_events(
    path: str | PathLike[str],
    *,
    entry_start: int | None = None,
    entry_stop: int | None = None,
) -> ak.Array:
    """NanoEvents of a Delphes ROOT file, read with :class:`puma_coffea.DelphesSchema`.

    Columns are virtual: each is read when it is first used.

    Parameters
    ----------
    path
        A local path or anything uproot opens (``root://``, ``https://``).
    entry_start, entry_stop
        Range of events, as in Python slices; default all.

    Raises
    ------
    NotDelphesFile
        No such file, no ROOT file, a damaged one, or one without the tree ``Delphes``.
    NoEvents
        The tree has no entries.

    Examples
    --------
    >>> from puma_coffea import open_events, sample_path
    >>> events = open_events(sample_path("zvv_pu140"))
    >>> len(events)
    12
    """
    from coffea.nanoevents import NanoEventsFactory

    from puma_coffea.schema import DelphesSchema

    name = fspath(path)
    if count_events(name) == 0:
        msg = f"{name} has a tree '{TREE}' without events; leave it out of the list."
        raise NoEvents(msg)
    events: ak.Array = NanoEventsFactory.from_root(
        {name: TREE},
        schemaclass=DelphesSchema,
        mode="virtual",
        entry_start=entry_start,
        entry_stop=entry_stop,
    ).events()
    return events


def count_events(path: str | PathLike[str]) -> int:
    """Number of events in a Delphes ROOT file, after checking that it is one."""
    import uproot

    name = fspath(path)
    try:
        file: Any = uproot.open(name)
    except FileNotFoundError:
        msg = f"There is no file {name}."
        raise NotDelphesFile(msg) from None
    except IsADirectoryError:
        msg = f"{name} is a folder; name the files in it, for instance '{name.rstrip('/')}/*.root'."
        raise NotDelphesFile(msg) from None
    except unreadable() as error:
        msg = (
            f"{name} cannot be read as a ROOT file ({first_line(error)}); "
            "check that it is one and was copied completely."
        )
        raise NotDelphesFile(msg) from error
    with file:
        try:
            classes = {key.split(";")[0]: kind for key, kind in file.classnames().items()}
            if classes.get(TREE) != "TTree":
                found = ", ".join(sorted(classes)) or "nothing"
                msg = f"{name} has no tree '{TREE}' (it holds {found}); is it a Delphes output?"
                raise NotDelphesFile(msg)
            return int(file[TREE].num_entries)
        except NotDelphesFile:
            raise
        except unreadable() as error:
            msg = f"{name} is damaged ({first_line(error)}); it was probably not copied completely."
            raise NotDelphesFile(msg) from error


def first_line(error: BaseException) -> str:
    """What an exception says, in one line."""
    lines = str(error).strip().splitlines()
    return lines[0].strip(" ,") if lines else type(error).__name__
