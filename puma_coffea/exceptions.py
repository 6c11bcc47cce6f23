"""Every refusal of the package: what was found, where, and what to do about it."""


class PumaCoffeaError(Exception):
    """Base of all refusals; the command line prints its sentence and exits with 2."""


class NotDelphesFile(PumaCoffeaError, OSError):
    """A path that is no readable ROOT file, or one without a Delphes tree."""


class MissingCollection(PumaCoffeaError, LookupError):
    """Events without the collection or branch that was asked for."""


class UnknownVertexing(PumaCoffeaError, ValueError):
    """A vertex association that the events cannot give."""


class UnknownMethod(PumaCoffeaError, LookupError):
    """A method or preset name that is not registered."""


class BadWeights(PumaCoffeaError, ValueError):
    """A user's method returned something that is not one weight in [0, 1] per candidate."""


class NoTarget(PumaCoffeaError, ValueError):
    """True hard energy fractions were asked for and are absent or were never filled."""


class NoEvents(PumaCoffeaError, ValueError):
    """Nothing to work on: an empty file list or files without events."""


class BadConfig(PumaCoffeaError, ValueError):
    """A setting, fileset or option that cannot be understood."""


class BadOutput(PumaCoffeaError, OSError):
    """A folder that cannot be written, or that holds no output of a run."""


class NoScheduler(PumaCoffeaError, OSError):
    """A dask scheduler that does not answer."""


class BadModelCard(PumaCoffeaError, ValueError):
    """A model that does not exist, or whose card cannot be used."""


class ModelHashMismatch(PumaCoffeaError, ValueError):
    """A model file that is not the one its card, or the sender, means."""


class NotParquetSample(PumaCoffeaError, OSError):
    """A path that is no Parquet file of the documented layout."""


class LazyInput(PumaCoffeaError, TypeError):
    """A dask-awkward collection where an eager or virtual array is needed."""


class MissingExtra(PumaCoffeaError, ImportError):
    """An optional dependency that is not installed."""
