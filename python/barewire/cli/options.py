# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Options of several commands: one name, metavar, help and completion for one thing.

Names in capitals are for parameters whose type depends on the command. A default that is computed is described by
`show_default`; every other default is the parameter's own.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from barewire.cli import complete
from barewire.errors import WrongUse
from barewire.models.wire import MTU_BYTES_MAX, MTU_BYTES_MIN
from barewire.mpi.fabrics import FABRICS, LINKS, PROGRESSES, THREAD, WAITS
from barewire.stats.confidence import CONFIDENCE_MAX, CONFIDENCE_MIN, share_of

LAB = "In a lab"
HOSTS = "On real hosts"
PATH = "The path"
EFFORT = "How much to measure"

# Intervals. The value is handed from the command to the run and from there to all that is computed and printed.
_CONFIDENCE = "confidence of intervals and verdicts in percent: 95, 99"
Confidence = Annotated[float, typer.Option(metavar="PERCENT", help=_CONFIDENCE)]
ConfidenceOrItsOwn = Annotated[
    float | None,
    typer.Option(metavar="PERCENT", help=_CONFIDENCE, show_default="what it was measured for, usually 95"),
]
ConfidenceOrThePlans = Annotated[
    float | None, typer.Option(metavar="PERCENT", help=_CONFIDENCE, show_default="the plan's")
]

# Results.
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="DIRECTORY", help="directory of the results", show_default="runs/…"),
]
OUTPUT_FILE = typer.Option("--output", "-o", metavar="FILE", help="file to write")
TUNING_FILE = typer.Option(
    "--output", "-o", metavar="FILE", help="file to write", show_default="this user's tuning file"
)
REPORT_FILE = typer.Option("--output", "-o", metavar="FILE", help="file to write", show_default="RUN/report.html")
EXPORT_FILE = typer.Option(
    "--output", "-o", metavar="FILE", help="file to write; for svg a directory", show_default="standard output"
)
MARKDOWN = typer.Option("--markdown", metavar="FILE", help="also write it as Markdown")
RUN = typer.Argument(metavar="RUN", help="directory of the run", autocompletion=complete.runs)
RUNS = typer.Argument(metavar="RUN…", help="directories of runs", autocompletion=complete.runs)

# Labs; their links are in links.py.
LAB_CHOICE = typer.Option(
    metavar="LAB",
    help="pair, star:N, routed:N or FILE.toml for a lab of this run, or the id of a running lab",
    rich_help_panel=LAB,
    autocompletion=complete.labs_and_topologies,
)
LabId = Annotated[
    str | None,
    typer.Option(
        "--lab",
        metavar="LAB",
        help="id of the lab",
        show_default="the only one that is running",
        autocompletion=complete.labs,
    ),
]
TOPOLOGY = typer.Option(
    metavar="TOPOLOGY",
    help="star:N, fat-tree:K, leaf-spine:LxSxH, dragonfly:AxHxP or FILE.toml",
    autocompletion=complete.topologies,
)

# Real hosts.
TwoHosts = Annotated[
    str | None,
    typer.Option(
        metavar="HOST,HOST",
        help="two hosts instead of a lab; localhost is this one",
        rich_help_panel=HOSTS,
    ),
]
JobHosts = Annotated[
    str | None,
    typer.Option(
        metavar="HOSTS",
        help="a,b or a:4,b:4, real or of the lab",
        show_default="this host, or all of the lab",
        rich_help_panel=HOSTS,
    ),
]
ManyHosts = Annotated[
    str | None,
    typer.Option(metavar="HOSTS", help="a,b,c or Slurm's node[01-16]; localhost is this one", rich_help_panel=HOSTS),
]
Hostfile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="a file with lines a, a:4 or a slots=4", rich_help_panel=HOSTS),
]
INTERFACE = typer.Option(
    metavar="NAME",
    help="Ethernet interface, on every host",
    show_default="the first that is up",
    autocompletion=complete.interfaces,
)
InterfaceOfHosts = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Ethernet interface, on every host",
        rich_help_panel=HOSTS,
        autocompletion=complete.interfaces,
    ),
]
RemoteShell = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND", help="command that starts programs on hosts", show_default="ssh", rich_help_panel=HOSTS
    ),
]
CONTROL_PORT = 5288
ControlPort = Annotated[
    int,
    typer.Option(min=1, max=65535, metavar="PORT", help="control port on the second host", rich_help_panel=HOSTS),
]

# A job and its path.
ProgramArguments = Annotated[list[str], typer.Argument(metavar="-- PROGRAM…", help="the program and its arguments")]
RANKS = typer.Option("-n", "--ranks", metavar="N", min=1, help="number of ranks")
RANKS_OR_HOSTS = typer.Option(
    "-n", "--ranks", metavar="N", min=1, help="number of ranks", show_default="one on each host"
)
RANK_COUNTS = typer.Option("-n", "--ranks", metavar="N,N", help="numbers of ranks: 2,4,8")
FABRIC = typer.Option(metavar="FABRIC", help=FABRICS, rich_help_panel=PATH, autocompletion=complete.fabric)
LIBRARY = typer.Option(
    metavar="LIBRARY",
    help="MPI library by name or folder",
    show_default="the program's",
    rich_help_panel=PATH,
    autocompletion=complete.library,
)
LIBRARIES = typer.Option(
    metavar="LIBRARY,LIBRARY",
    help="MPI libraries by name or folder",
    show_default="all that are installed",
    autocompletion=complete.libraries,
)
PATH_INTERFACE = typer.Option(
    metavar="NAME",
    help="Ethernet interface, on every host",
    show_default="the first that is up",
    rich_help_panel=PATH,
    autocompletion=complete.interfaces,
)
LINK = typer.Option(
    metavar="LINK",
    help=f"barewire: {', '.join(LINKS)}",
    rich_help_panel=PATH,
    autocompletion=complete.lists(lambda: LINKS),
)
WAIT = typer.Option(
    metavar="POLICY",
    help=f"how barewire waits: {', '.join(WAITS)}",
    rich_help_panel=PATH,
    autocompletion=complete.lists(lambda: WAITS),
)
PROGRESS = typer.Option(
    metavar="HOW",
    help="progress while the program computes: barewire's auto (a thread) or manual; thread, the library's own",
    rich_help_panel=PATH,
    autocompletion=complete.lists(lambda: (*PROGRESSES, THREAD)),
)
Limit = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="time after which a launch is terminated with all its processes"),
]

# What to measure.
SIZES = typer.Option(metavar="SIZES", help="message sizes: 64,1400,4KiB or 1..64KiB, which doubles")
PERTURBATION = typer.Option(min=0, metavar="BYTES", help="also measure this many bytes around each size of a range")
WALK_BYTES = typer.Option(
    min=1, metavar="BYTES", help="cycle messages through a buffer of this size, to defeat the cache"
)
VARIANTS = typer.Option(metavar="NAME,NAME", help="variants of the test, or all", show_default="the usual ones")
SUBJECT = typer.Option(metavar="SUBJECT", help="only this subject", autocompletion=complete.baselines)
BASELINE = typer.Option(metavar="SUBJECT", help="subject or fabric to compare with", autocompletion=complete.baselines)
BASELINE_OR_TCP = typer.Option(
    metavar="SUBJECT",
    help="subject or fabric to compare with",
    show_default="tcp",
    autocompletion=complete.baselines,
)
REAL_RATE = typer.Option(metavar="RATE", help="the link's rate, such as 1gbit")
REAL_MTU = typer.Option(metavar="BYTES", min=MTU_BYTES_MIN, max=MTU_BYTES_MAX, help="the link's MTU in bytes")

# How much.
LAUNCHES = typer.Option(
    metavar="N..M", help="launches of each subject: N, or N..M until precise", rich_help_panel=EFFORT
)
Precision = Annotated[
    float,
    typer.Option(metavar="SHARE", help="half width of the median's interval: 0.02 is ± 2 %", rich_help_panel=EFFORT),
]
Budget = Annotated[
    float, typer.Option(metavar="SECONDS", help="time after which no new round begins", rich_help_panel=EFFORT)
]
Refine = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="add message sizes where linear interpolation between two sizes misses the middle by more than this: "
        "0.05 is 5 %; launches and precision then apply to each size",
        rich_help_panel=EFFORT,
    ),
]
RefineSmallest = Annotated[
    int | None,
    typer.Option(metavar="BYTES", help="smallest interval that is refined", show_default="32", rich_help_panel=EFFORT),
]
# The programs take no more (SAMPLES_MAX of mpi/common).
COUNT_MAX = 1_000_000
SAMPLES = typer.Option(
    min=1, max=COUNT_MAX, metavar="N", help="samples for each launch and size, at most", rich_help_panel=EFFORT
)
Seconds = Annotated[
    float, typer.Option("--seconds", metavar="SECONDS", help="time for each launch and size", rich_help_panel=EFFORT)
]
# Of what fits into 64 bits.
_DIGITS_MAX = 20
_WARM_UP = "warm-up before the samples, as a number of them"
# The probe derives the samples' number from the warm-up's times.
WARM_UP = typer.Option(min=1, max=COUNT_MAX, metavar="N", help=_WARM_UP, rich_help_panel=EFFORT)
WARM_UP_OR_NONE = typer.Option(min=0, max=COUNT_MAX, metavar="N", help=_WARM_UP, rich_help_panel=EFFORT)
Patience = Annotated[
    float,
    typer.Option(metavar="SECONDS", help="time without output until a launch counts as hung", rich_help_panel=EFFORT),
]
Seed = Annotated[int | None, typer.Option(min=0, metavar="N", help="seed of order and contents", show_default="random")]
Quick = Annotated[bool, typer.Option("--quick", help="a selection that takes minutes")]


# Experiments on switches.
STRATEGIES = typer.Option(
    "--strategy",
    metavar="STRATEGY",
    help="with parameters as in isolated:seconds=30; mpi=planned+bigdata=ecmp gives each profile its own; may be "
    "repeated, several with commas",
    autocompletion=complete.strategies,
)
BENCH_STRATEGIES = typer.Option(
    "--strategy",
    metavar="STRATEGY",
    help="with parameters as in isolated:seconds=30; mpi=planned+bigdata=ecmp gives each profile its own; may be "
    "repeated, several with commas",
    show_default="the published ones, least-loaded, planned; latency: stp, least-loaded, planned; training jobs and "
    "several jobs: ecmp, least-loaded, planned",
    autocompletion=complete.strategies,
)
HostCounts = Annotated[
    str | None,
    typer.Option(
        metavar="N,N",
        help="numbers of hosts, in the published placement",
        show_default="4,8,16 on fat-tree:4, elsewhere all",
    ),
]
SWITCH_RATE = typer.Option(metavar="RATE", help="each link's rate, where the topology has none")
SHAPE = typer.Option(metavar="MxR", help="mappers x reducers of a shuffle")
MESSAGE_BYTES = typer.Option(min=1, metavar="BYTES", help="size of a ring's or training job's message")
VOLUME_BYTES = typer.Option(min=1, metavar="BYTES", help="size of a shuffle")
COPIES = typer.Option(min=1, max=COUNT_MAX, metavar="N", help="parts that a reducer fetches at a time")
ANNOUNCE = typer.Option("--announce/--no-announce", help="announce the jobs to the controller")
ITERATIONS = typer.Option(min=1, max=COUNT_MAX, metavar="N", help="iterations of a training job")
COMPUTE_SHARE = typer.Option(
    metavar="SHARE", help="share of computing in a training job's iteration if nothing blocks, from 0 to 0.999"
)


class TableFormat(StrEnum):
    """The form of a printed table."""

    table = "table"
    markdown = "markdown"


def flatten(values: list[str]) -> tuple[str, ...]:
    """Return the names of a repeated option, each of which may hold several with commas; none twice."""
    names = (name.strip() for value in values for name in value.split(","))
    return tuple(dict.fromkeys(name for name in names if name))


def check_in_a_lab(interface: str | None, remote_shell: str | None, port: int = CONTROL_PORT) -> None:
    """Reject options of real hosts where none are named: the lab that is measured instead has its own."""
    if (interface, remote_shell, port) != (None, None, CONTROL_PORT):
        raise WrongUse(
            "--interface, --remote-shell and --port apply to real hosts: add --hosts a,b, or omit them for a lab"
        )


def is_given(context: typer.Context, parameter: str) -> bool:
    """Whether an option was given, though perhaps with its default's value."""
    source = context.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


def is_whole(text: str) -> bool:
    """Whether this is a whole number from 0 on of no more digits than anything has: Python reads no more than 4300."""
    return text.isdecimal() and len(text) <= _DIGITS_MAX


def read_confidence(percent: float) -> float:
    """Return `--confidence` as a share; WrongUse outside 50 to 99.9."""
    share = share_of(percent)
    if not CONFIDENCE_MIN <= share <= CONFIDENCE_MAX:
        allowed = f"{CONFIDENCE_MIN * 100:g} to {CONFIDENCE_MAX * 100:g}"
        raise WrongUse(f"--confidence is in percent, from {allowed}, such as 99, not {percent:g}")
    return share
