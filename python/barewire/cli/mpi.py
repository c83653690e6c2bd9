# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire mpi`: measure MPI libraries over fabrics, in a lab or on real hosts."""

import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from barewire.cli import links
from barewire.cli.host_slots import host_slots_of
from barewire.cli.labs import LAB_HELP, LabChoice, choose_lab
from barewire.cli.measuring import (
    EFFORT,
    AsJson,
    Budget,
    Launches,
    Output,
    Precision,
    Refine,
    RefineSmallest,
    Seed,
    lab_facts,
    parse_launches,
    parse_refinement,
    print_result,
    report_kept_samples,
)
from barewire.cli.progress import progress_bar
from barewire.errors import WrongUse
from barewire.lab import LinkSpec
from barewire.measure.mpi import MpiCampaign, MpiPlan, MpiSite, measure_mpi
from barewire.measure.mpi_subjects import Choice, exclude_failing, parse_libraries, subjects_of
from barewire.measure.programs import expand_sizes
from barewire.measure.session import StoppingRule
from barewire.models.wire import Link
from barewire.mpi import Library, suite
from barewire.mpi.fabrics import FABRICS
from barewire.mpi.placement import LOCAL_HOST, HostSlots
from barewire.results.laws import document, laws_of
from barewire.results.speedups import speedups

SLURM = "slurm"
_WHAT = "What to measure"
_HOSTS = "On real hosts"


def mpi(
    tests: Annotated[
        str,
        typer.Argument(
            metavar="TEST[,TEST]", help=f"{', '.join(suite.tests())}; kernels: {', '.join(suite.kernels())}"
        ),
    ],
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- OPTION…]", help="options of the test, such as --order 20")
    ] = None,
    library: Annotated[
        str | None, typer.Option(help="names or folders; default: all installed", rich_help_panel=_WHAT)
    ] = None,
    fabric: Annotated[
        str | None,
        typer.Option(help=f"{FABRICS}; several with commas; default: barewire,tcp", rich_help_panel=_WHAT),
    ] = None,
    ranks: Annotated[str, typer.Option("-n", "--ranks", help="numbers of ranks: 2,4,8", rich_help_panel=_WHAT)] = "2",
    variants: Annotated[
        str | None, typer.Option(help="variants of the test, or all; default: the usual ones", rich_help_panel=_WHAT)
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(help="message sizes: 64,1400,4KiB or 1..64KiB, which doubles", rich_help_panel=_WHAT)
    ] = None,
    perturbation: Annotated[
        int, typer.Option(min=0, help="also measure this many bytes around each size of a range", rich_help_panel=_WHAT)
    ] = 0,
    pairs: Annotated[
        str | None, typer.Option(help="concurrent pairs, for tests with pairs: 1,2,4; 0 is all", rich_help_panel=_WHAT)
    ] = None,
    walk: Annotated[
        int | None,
        typer.Option(
            min=1, help="bytes of the buffer that messages cycle through, to defeat the cache", rich_help_panel=_WHAT
        ),
    ] = None,
    eager: Annotated[
        str | None,
        typer.Option(help="eager limits in bytes, each measured separately: 4096,65536", rich_help_panel=_WHAT),
    ] = None,
    progress: Annotated[
        str | None,
        typer.Option(help="barewire: auto, manual; any library: thread; several with commas", rich_help_panel=_WHAT),
    ] = None,
    wait: Annotated[str | None, typer.Option(help="barewire: spin, adaptive, block", rich_help_panel=_WHAT)] = None,
    link: Annotated[str | None, typer.Option(help="barewire: auto, packet, xdp, udp", rich_help_panel=_WHAT)] = None,
    interface: Annotated[
        str | None, typer.Option(help="Ethernet interface of all hosts", rich_help_panel=_HOSTS)
    ] = None,
    lab: Annotated[
        str | None, typer.Option(help=f"{LAB_HELP}; default: pair, without --on", rich_help_panel=links.IN_A_LAB)
    ] = None,
    rate: links.Rate = "unshaped",
    mtu: links.Mtu = 1500,
    loss: links.Loss = "0",
    offloads: links.Offloads = links.OnOff.off,
    receive_on: links.ReceiveOn = links.CoreOf.sender,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="HOSTFILE|HOSTS|slurm",
            help="a file of hosts, or a:4,b:4; localhost is this machine; slurm is the Slurm allocation",
            rich_help_panel=_HOSTS,
        ),
    ] = None,
    launches: Launches = "6..12",
    precision: Precision = 0.02,
    budget: Budget = 300,
    refine: Refine = None,
    refine_smallest: RefineSmallest = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="maximum of values per launch and point", rich_help_panel=EFFORT)
    ] = None,
    seconds: Annotated[float, typer.Option(help="approximate time per launch and point", rich_help_panel=EFFORT)] = 0.2,
    warmup: Annotated[
        int | None, typer.Option(min=0, help="warm-up values before these", rich_help_panel=EFFORT)
    ] = None,
    patience: Annotated[
        float, typer.Option(help="seconds without a new record until a launch counts as hung", rich_help_panel=EFFORT)
    ] = 120,
    seed: Seed = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Measure MPI libraries over each fabric, interleaved in one run.

    Builds the measurements for each library with its own compiler, launches them with its own mpirun (in a Slurm
    allocation with srun), prints tables, and leaves a directory with every sample; `barewire report` makes a page.
    """
    requested = MpiPlan(
        tests=suite.parse_tests(tests),
        subjects=(),
        ranks=_numbers(ranks, "-n", 1),
        seed=secrets.randbits(32) if seed is None else seed,
        sizes=None if sizes is None else expand_sizes(sizes, perturbation),
        variants=suite.variants_of(suite.parse_tests(tests), variants),
        pairs=(None,) if pairs is None else _numbers(pairs, "--pairs", 0),
        walk_bytes=walk,
        samples=samples,
        seconds=seconds,
        warmup=warmup,
        options=_own_options(options or []),
        stopping_rule=StoppingRule(
            *parse_launches(launches), precision, budget, parse_refinement(refine, refine_smallest)
        ),
        patience_s=patience,
    )
    choice = Choice(
        libraries=parse_libraries(library),
        fabrics=None if fabric is None else _list_of(fabric),
        eagers=(None,) if eager is None else _numbers(eager, "--eager", 0),
        progresses=_optional(progress),
        waits=_optional(wait),
        links=_optional(link),
        interface=interface,
    )
    hosts = _parse_hosts(lab, on, links.read(rate, mtu, offloads, loss, receive_on))
    plan, programs, warnings = _build(requested, choice, hosts)
    directory = output or Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{'-'.join(plan.tests)}"
    for note in [*warnings, *hosts.notes(directory)]:
        typer.echo(f"barewire: {note}", err=True)
    with hosts.entered() as (site, facts), progress_bar(quiet=as_json) as show_progress, report_kept_samples(directory):
        campaign = MpiCampaign(site, plan, programs)
        run = measure_mpi(campaign, directory, command=sys.argv, lab=facts, warnings=warnings, progress=show_progress)
    scaling = [each.to_json() for each in speedups(run)]
    print_result(run, directory, as_json, laws=document(laws_of(run)), speedups=scaling)


@dataclass(frozen=True)
class _Hosts:
    """A lab, or real hosts."""

    host_slots: tuple[HostSlots, ...]
    link: LinkSpec
    lab: LabChoice | None = None
    allocated: int | None = None

    @property
    def one_host(self) -> bool:
        """Whether all ranks are on one host and share memory."""
        return (self.allocated or len(self.host_slots)) == 1

    def notes(self, directory: Path) -> list[str]:
        """Return requirements on real hosts that cannot be checked here."""
        is_local = self.allocated is None and all(entry.host == LOCAL_HOST for entry in self.host_slots)
        if is_local or self.lab is not None:
            return []
        return [f"{suite.BUILT} and {directory.absolute()} must be the same on all hosts (a shared file system)"]

    @contextmanager
    def entered(self) -> Iterator[tuple[MpiSite, dict[str, Any] | None]]:
        """Yield the site; a lab created for the block ends with it."""
        limits = Link(self.link.rate_bit_s, self.link.mtu)
        if self.lab is None:
            yield MpiSite(self.host_slots, limits, allocated=self.allocated), None
            return
        with self.lab.entered() as lab:
            yield MpiSite(self.host_slots, limits, lab), lab_facts(lab)


def _parse_hosts(lab: str | None, on: str | None, link: LinkSpec) -> _Hosts:
    if on is None:
        chosen = choose_lab(lab or "pair", link)
        return _Hosts(tuple(host_slots_of(None, None, chosen.topology)), chosen.link, chosen)
    if lab is not None:
        raise WrongUse("--lab and --on exclude each other")
    # Rate and MTU of a real link are given for the physical limit.
    if link != LinkSpec(link.rate_bit_s, link.mtu):
        raise WrongUse("--loss, --offloads and --receive-on apply to a lab: omit them with --on")
    if on == SLURM:
        if "SLURM_JOB_ID" not in os.environ or shutil.which("srun") is None:
            raise WrongUse("--on slurm needs an allocation (sbatch, salloc) and srun")
        nodes = os.environ.get("SLURM_JOB_NUM_NODES", "1")
        slots = os.environ.get("SLURM_NTASKS")
        entry = HostSlots(LOCAL_HOST, int(slots) if slots else None)
        return _Hosts((entry,), link, allocated=int(nodes))
    is_file = Path(on).exists() or "/" in on
    return _Hosts(tuple(host_slots_of(None if is_file else on, Path(on) if is_file else None, None)), link)


def _build(plan: MpiPlan, choice: Choice, hosts: _Hosts) -> tuple[MpiPlan, dict[tuple[str, str], str], tuple[str, ...]]:
    """Return the plan with the possible subjects, their programs, and why others are left out."""
    programs: dict[tuple[str, str], str] = {}

    def build(library: Library) -> None:
        built = suite.build(library, plan.tests)
        programs.update({(library.name, test): path for test, path in built.items()})

    subjects, unavailable = subjects_of(choice, one_host=hosts.one_host, lab=hosts.lab is not None)
    subjects_built, unbuilt = exclude_failing(subjects, build, named=choice.libraries is not None)
    return replace(plan, subjects=subjects_built), programs, (*unavailable, *unbuilt)


def _list_of(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",")))


def _optional(text: str | None) -> tuple[str | None, ...]:
    return (None,) if text is None else _list_of(text)


def _numbers(text: str, option: str, minimum: int) -> tuple[int, ...]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < minimum:
        raise WrongUse(f"{option} takes comma-separated numbers from {minimum}, not '{text}'")
    return tuple(dict.fromkeys(numbers))


def _own_options(options: list[str]) -> tuple[str, ...]:
    if options and not options[0].startswith("--"):
        raise WrongUse(
            f"'{options[0]}' is not an option of a test; separate tests with commas, and put their options after --"
        )
    return tuple(options)
