# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Barewire: carry MPI over plain Ethernet, measure what a transport gives a program, route by what a flow needs.

`barewire.load(directory)` opens a run, measured or imported, as a `Run`: samples, series, fits, comparisons, figures.
"""

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "load"]

# Every start of the command line imports this module, so polars and plotly are imported on demand.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    from barewire.data import Run


def load(directory: "str | os.PathLike[str]", *, confidence: float | None = None) -> "Run":
    """Open the run in `directory`, as `Run.load` does: an interrupted run is recovered first.

    `confidence` is that of intervals and verdicts, 0.5 to 0.999, by default that for which the run was measured. Raises
    WrongUse if there is no run, ValueError for another confidence.
    """
    from barewire.data import Run

    return Run.load(directory, confidence=confidence)


def __getattr__(name: str) -> object:
    if name == "Run":
        from barewire.data import Run

        return Run
    raise AttributeError(f"module 'barewire' has no attribute {name!r}")
