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
from barewire.cli.labs import LAB_HELP, LabChoice, choose_lab
from barewire.cli.measuring import (
    EFFORT,
    AsJson,
    Budget,
    Launches,
    Output,
    Precision,
    Seed,
    kept_if_broken_off,
    lab_facts,
    parse_launches,
    print_result,
)
from barewire.cli.places import places_of
from barewire.cli.progress import progress_bar
from barewire.errors import WrongUse
from barewire.lab import LinkSpec
from barewire.measure.mpi import MpiCampaign, MpiPlan, MpiSite, measure_mpi
from barewire.measure.mpi_subjects import Choice, parse_libraries, subjects_of, without
from barewire.measure.programs import expand_sizes
from barewire.measure.session import Enough
from barewire.models.wire import Link
from barewire.mpi import Library, suite
from barewire.mpi.fabrics import FABRICS
from barewire.mpi.placement import LOCAL_HOST, Place
from barewire.results.laws import document, laws_of

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
        list[str] | None, typer.Argument(metavar="[-- OPTION…]", help="options of the test's own, such as --order 20")
    ] = None,
    library: Annotated[
        str | None, typer.Option(help="names or folders; all that are installed unless given", rich_help_panel=_WHAT)
    ] = None,
    fabric: Annotated[
        str | None,
        typer.Option(help=f"{FABRICS}; several with commas; barewire,tcp unless given", rich_help_panel=_WHAT),
    ] = None,
    ranks: Annotated[str, typer.Option("-n", "--ranks", help="numbers of ranks: 2,4,8", rich_help_panel=_WHAT)] = "2",
    variants: Annotated[
        str | None, typer.Option(help="of the test, or all; what is usual unless given", rich_help_panel=_WHAT)
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(help="message sizes: 64,1400,4KiB or 1..64KiB, which doubles", rich_help_panel=_WHAT)
    ] = None,
    perturbation: Annotated[
        int, typer.Option(min=0, help="around each size of a range also so many bytes", rich_help_panel=_WHAT)
    ] = 0,
    pairs: Annotated[
        str | None, typer.Option(help="pairs at once, of tests that have them: 1,2,4; 0 is all", rich_help_panel=_WHAT)
    ] = None,
    walk: Annotated[
        int | None,
        typer.Option(min=1, help="bytes that messages walk through, against the cache", rich_help_panel=_WHAT),
    ] = None,
    eager: Annotated[
        str | None, typer.Option(help="eager limits in bytes, each by itself: 4096,65536", rich_help_panel=_WHAT)
    ] = None,
    progress: Annotated[
        str | None,
        typer.Option(help="of barewire auto, manual; of the library thread; several", rich_help_panel=_WHAT),
    ] = None,
    wait: Annotated[str | None, typer.Option(help="of barewire: spin, adaptive, block", rich_help_panel=_WHAT)] = None,
    link: Annotated[str | None, typer.Option(help="of barewire: packet, xdp", rich_help_panel=_WHAT)] = None,
    interface: Annotated[
        str | None, typer.Option(help="Ethernet interface of all hosts", rich_help_panel=_HOSTS)
    ] = None,
    lab: Annotated[
        str | None, typer.Option(help=f"{LAB_HELP}; pair unless --on is given", rich_help_panel=links.IN_A_LAB)
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
            help="a file of hosts, or a:4,b:4; localhost is this machine; slurm is the allocation",
            rich_help_panel=_HOSTS,
        ),
    ] = None,
    launches: Launches = "6..12",
    precision: Precision = 0.02,
    budget: Budget = 300,
    samples: Annotated[
        int | None, typer.Option(min=1, help="values per launch and point, at most", rich_help_panel=EFFORT)
    ] = None,
    seconds: Annotated[float, typer.Option(help="time per launch and point, about", rich_help_panel=EFFORT)] = 0.2,
    warmup: Annotated[int | None, typer.Option(min=0, help="values before those", rich_help_panel=EFFORT)] = None,
    patience: Annotated[
        float, typer.Option(help="seconds without a new record after which a launch hangs", rich_help_panel=EFFORT)
    ] = 120,
    seed: Seed = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Measure what MPI libraries give a program over each fabric, interleaved in one run.

    Builds the measurements for each library with its own compiler, launches them with its own mpirun (in a Slurm
    allocation with srun), prints tables, and leaves a directory with every sample; `barewire report` makes a page.
    """
    plan_of_options = MpiPlan(
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
        enough=Enough(*parse_launches(launches), precision, budget),
        patience_s=patience,
    )
    choice = Choice(
        libraries=parse_libraries(library),
        fabrics=None if fabric is None else _words(fabric),
        eagers=(None,) if eager is None else _numbers(eager, "--eager", 0),
        progresses=_optional(progress),
        waits=_optional(wait),
        links=_optional(link),
        interface=interface,
    )
    where = _where(lab, on, links.read(rate, mtu, offloads, loss, receive_on))
    plan, programs, warnings = _built(plan_of_options, choice, where)
    directory = output or Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{'-'.join(plan.tests)}"
    for told in [*warnings, *where.notes(directory)]:
        typer.echo(f"barewire: {told}", err=True)
    with where.made() as (site, facts), progress_bar(quiet=as_json) as shown, kept_if_broken_off(directory):
        campaign = MpiCampaign(site, plan, programs)
        run = measure_mpi(campaign, directory, command=sys.argv, lab=facts, warnings=warnings, progress=shown)
    print_result(run, directory, as_json, laws=document(laws_of(run)))


@dataclass(frozen=True)
class _Where:
    """A lab, or hosts that there are."""

    places: tuple[Place, ...]
    link: LinkSpec
    lab: LabChoice | None = None
    allocated: int | None = None

    @property
    def one_host(self) -> bool:
        """Whether all ranks share memory."""
        return (self.allocated or len(self.places)) == 1

    def notes(self, directory: Path) -> list[str]:
        """What must be so on real hosts, and cannot be seen from here."""
        here = self.allocated is None and all(place.host == LOCAL_HOST for place in self.places)
        if here or self.lab is not None:
            return []
        return [f"{suite.BUILT} and {directory.absolute()} must be the same on all hosts (a shared file system)"]

    @contextmanager
    def made(self) -> Iterator[tuple[MpiSite, dict[str, Any] | None]]:
        """The site; a lab ends with the block."""
        bounds = Link(self.link.rate_bit_s, self.link.mtu)
        if self.lab is None:
            yield MpiSite(self.places, bounds, allocated=self.allocated), None
            return
        with self.lab.entered() as lab:
            yield MpiSite(self.places, bounds, lab), lab_facts(lab)


def _where(lab: str | None, on: str | None, link: LinkSpec) -> _Where:
    if on is None:
        chosen = choose_lab(lab or "pair", link)
        return _Where(tuple(places_of(None, None, chosen.topology)), chosen.link, chosen)
    if lab is not None:
        raise WrongUse("--lab makes hosts and --on names real ones: give one of them")
    # What a real link's rate and MTU are is told for the limit beside the measurements.
    if link != LinkSpec(link.rate_bit_s, link.mtu):
        raise WrongUse("--loss, --offloads and --receive-on are of a lab's links: leave them out with --on")
    if on == SLURM:
        if "SLURM_JOB_ID" not in os.environ or shutil.which("srun") is None:
            raise WrongUse("--on slurm is for jobs: run this inside an allocation (sbatch, salloc), where srun is")
        nodes = os.environ.get("SLURM_JOB_NUM_NODES", "1")
        slots = os.environ.get("SLURM_NTASKS")
        place = Place(LOCAL_HOST, int(slots) if slots else None)
        return _Where((place,), link, allocated=int(nodes))
    is_file = Path(on).exists() or "/" in on
    return _Where(tuple(places_of(None if is_file else on, Path(on) if is_file else None, None)), link)


def _built(plan: MpiPlan, choice: Choice, where: _Where) -> tuple[MpiPlan, dict[tuple[str, str], str], tuple[str, ...]]:
    """The plan with the subjects that are possible, programs for them, and why others are left out."""
    programs: dict[tuple[str, str], str] = {}

    def build(library: Library) -> None:
        built = suite.build(library, plan.tests)
        programs.update({(library.name, test): path for test, path in built.items()})

    subjects, lacking = subjects_of(choice, one_host=where.one_host, lab=where.lab is not None)
    left, unbuilt = without(subjects, build, named=choice.libraries is not None)
    return replace(plan, subjects=left), programs, (*lacking, *unbuilt)


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",")))


def _optional(text: str | None) -> tuple[str | None, ...]:
    return (None,) if text is None else _words(text)


def _numbers(text: str, option: str, least: int) -> tuple[int, ...]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < least:
        raise WrongUse(f"{option} takes numbers from {least} with commas, not '{text}'")
    return tuple(dict.fromkeys(numbers))


def _own_options(options: list[str]) -> tuple[str, ...]:
    if options and not options[0].startswith("--"):
        raise WrongUse(f"'{options[0]}' is no option of a test; tests go together with commas, their options after --")
    return tuple(options)
