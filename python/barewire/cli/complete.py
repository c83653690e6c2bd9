# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Completion of options' values and of arguments, from the same tables as the checks.

A completion must be quick and quiet: it loads only what it lists, and what cannot be read completes to nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from barewire.errors import BarewireError
from barewire.models import catalogue, naming
from barewire.models.catalogue import Program, described

Completion = list[tuple[str, str]]
_RUNS = Path("runs")


def names(values: Callable[[], Iterable[str] | Mapping[str, str]]) -> Callable[[str], Completion]:
    """Return the completion of one name of several, with what each is if `values` returns a mapping."""

    def complete(incomplete: str) -> Completion:
        return [(name, what) for name, what in _described(values) if name.startswith(incomplete)]

    return complete


def lists(values: Callable[[], Iterable[str] | Mapping[str, str]]) -> Callable[[str], Completion]:
    """Return the completion of the last name in a list with commas; names are not offered twice."""

    def complete(incomplete: str) -> Completion:
        *before, last = incomplete.split(",")
        left = "".join(f"{name}," for name in before)
        return [
            (left + name, what) for name, what in _described(values) if name.startswith(last) and name not in before
        ]

    return complete


def _described(values: Callable[[], Iterable[str] | Mapping[str, str]]) -> Completion:
    try:
        found = values()
    except (BarewireError, OSError):
        return []
    return list(found.items()) if isinstance(found, Mapping) else [(name, "") for name in found]


def _tests(*programs: Program) -> dict[str, str]:
    return described(test for test in catalogue.TESTS if test.program in programs)


def _bench_arguments() -> dict[str, str]:
    return {**_tests(Program.probe), "host": "this machine", "budget": "what each layer adds"}


def _mpi_arguments() -> dict[str, str]:
    return {
        **_tests(Program.mpi, Program.kernel),
        "scoreboard": "every pattern, worst first",
        "applications": "Debian's programs",
    }


def _libraries() -> dict[str, str]:
    from barewire.mpi.libraries import installed_libraries

    return {library.name: str(library) for library in installed_libraries()}


def _labs() -> list[str]:
    from barewire.lab.state import known_ids

    return known_ids()


def _topologies() -> dict[str, str]:
    shapes = {"pair": "two hosts", "star:4": "hosts on a switch", "routed:2": "hosts in subnets of their own"}
    return {
        **shapes,
        "fat-tree:4": "16 hosts under 20 switches",
        "leaf-spine:4x2x4": "4 leaves, 2 spines, 4 hosts at a leaf",
        "dragonfly:2x1x2": "3 groups of 2 switches, 2 hosts at a switch",
    }


def _strategies() -> list[str]:
    from barewire.sdn.strategies import names as strategy_names

    return strategy_names()


def _tools() -> list[str]:
    from barewire.importers.tools import AUTO, TOOLS

    return [AUTO, *TOOLS]


def _kernels() -> tuple[str, ...]:
    from barewire.results.prediction import KERNELS

    return KERNELS


def _models() -> tuple[str, ...]:
    from barewire.cli.model import MODELS

    return MODELS


def _testbeds() -> list[str]:
    from barewire.measure.patterns import TESTBEDS

    return [testbed.name for testbed in TESTBEDS]


def _patterns() -> list[str]:
    from barewire.measure.patterns import PATTERNS

    return list(dict.fromkeys(pattern.test for pattern in PATTERNS))


def _exercises() -> dict[str, str]:
    from barewire.classroom.exercises import EXERCISES

    return {exercise.name: exercise.title for exercise in EXERCISES}


def _studies() -> list[str]:
    from barewire.study.plan import shipped

    return shipped()


def _waits() -> tuple[str, ...]:
    from barewire.measure.subjects import WAITS

    return WAITS


def interface_names() -> list[str]:
    """This machine's interfaces."""
    return sorted(entry.name for entry in Path("/sys/class/net").iterdir() if entry.is_dir())


def runs(incomplete: str) -> Completion:
    """Directories below runs/ with a run, the newest first; if none fits, the shell completes paths by itself."""
    found = sorted(_RUNS.glob("*/run.json"), reverse=True) + sorted(_RUNS.glob("*/scoreboard.json"), reverse=True)
    of_ours = [str(file.parent) for file in found]
    return [(name, "") for name in of_ours if name.startswith(incomplete)]


def tuned(incomplete: str) -> Completion:
    """NAME= of a tuning value."""
    return [
        (f"{name}=", what) for name, what in described(catalogue.TUNING_VALUES).items() if name.startswith(incomplete)
    ]


bench_tests = lists(_bench_arguments)
mpi_tests = lists(_mpi_arguments)
host_tests = lists(lambda: _tests(Program.host))
transports = lists(lambda: described(catalogue.TRANSPORTS))
probe_links = lists(lambda: naming.LINKS)
probe_waits = lists(_waits)
fabric = names(lambda: naming.MPI_FABRICS)
fabrics = lists(lambda: naming.MPI_FABRICS)
baselines = names(lambda: (*naming.MPI_FABRICS, *described(catalogue.TRANSPORTS)))
library = names(_libraries)
libraries = lists(_libraries)
labs = names(_labs)
topologies = names(_topologies)
labs_and_topologies = names(lambda: {**_topologies(), **dict.fromkeys(_labs(), "a running lab")})
strategies = lists(_strategies)
tools = names(_tools)
kernels = lists(_kernels)
models = lists(_models)
testbeds = lists(_testbeds)
patterns = lists(_patterns)
studies = names(_studies)
exercises = names(_exercises)
interfaces = names(interface_names)
