# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire mpi`: measure MPI libraries over fabrics, in a lab or on real hosts."""

import os
import secrets
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from barewire.cli import complete, links, options
from barewire.cli.directories import results_directory
from barewire.cli.host_slots import host_slots_of
from barewire.cli.labs import LabChoice, choose_lab
from barewire.cli.measuring import (
    facts_of_all,
    lab_facts,
    parse_launches,
    parse_refinement,
    print_result,
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
from barewire.results.confidence import as_asked
from barewire.results.laws import document, laws_of
from barewire.results.speedups import speedups


def mpi(
    tests: Annotated[
        str,
        typer.Argument(
            metavar="TEST[,TEST]",
            help=f"{', '.join(suite.tests())}; kernels: {', '.join(suite.kernels())}; or scoreboard, applications",
            autocompletion=complete.mpi_tests,
        ),
    ],
    own_options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- OPTION…]", help="options of the test, such as --order 20")
    ] = None,
    library: Annotated[str | None, options.LIBRARIES] = None,
    fabric: Annotated[
        str | None,
        typer.Option(
            metavar="FABRIC,FABRIC", help=FABRICS, show_default="barewire,tcp", autocompletion=complete.fabrics
        ),
    ] = None,
    ranks: Annotated[str, options.RANK_COUNTS] = "2",
    variants: Annotated[str | None, options.VARIANTS] = None,
    sizes: Annotated[str | None, options.SIZES] = None,
    perturbation: Annotated[int, options.PERTURBATION] = 0,
    pairs: Annotated[
        str | None, typer.Option(metavar="N,N", help="concurrent pairs, for tests with pairs: 1,2,4; 0 is all")
    ] = None,
    walk_bytes: Annotated[int | None, options.WALK_BYTES] = None,
    eager: Annotated[
        str | None,
        typer.Option(metavar="BYTES,BYTES", help="eager limits, each measured: default,4KiB,64KiB"),
    ] = None,
    progress: Annotated[str | None, options.PROGRESS] = None,
    wait: Annotated[str | None, options.WAIT] = None,
    link: Annotated[str | None, options.LINK] = None,
    lab: Annotated[str | None, options.LAB_CHOICE] = None,
    rate: links.Rate = "unshaped",
    mtu: links.Mtus = "1500",
    loss: links.Loss = "0",
    offloads: links.Offloads = links.OnOff.off,
    receive_on: links.ReceiveOn = links.CoreOf.sender,
    hosts: options.JobHosts = None,
    hostfile: options.Hostfile = None,
    slurm: Annotated[
        bool,
        typer.Option("--slurm", help="the hosts of the Slurm allocation, by srun", rich_help_panel=options.HOSTS),
    ] = False,
    interface: options.InterfaceOfHosts = None,
    launches: Annotated[str, options.LAUNCHES] = "6..12",
    precision: options.Precision = 0.02,
    confidence: options.Confidence = 95,
    budget: options.Budget = 300,
    refine: options.Refine = None,
    refine_smallest: options.RefineSmallest = None,
    samples: Annotated[int | None, options.SAMPLES] = None,
    seconds: options.Seconds = 0.2,
    warmup: Annotated[int | None, options.WARM_UP_OR_NONE] = None,
    patience: options.Patience = 120,
    seed: options.Seed = None,
    output: options.Output = None,
    as_json: options.AsJson = False,
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
        walk_bytes=walk_bytes,
        samples=samples,
        seconds=seconds,
        warmup=warmup,
        options=_own_options(own_options or []),
        stopping_rule=StoppingRule(
            *parse_launches(launches),
            precision,
            budget,
            parse_refinement(refine, refine_smallest),
            options.read_confidence(confidence),
        ),
        patience_s=patience,
    )
    mtus = links.parse_mtus(mtu)
    choice = Choice(
        libraries=parse_libraries(library),
        fabrics=None if fabric is None else _list_of(fabric),
        eagers=(None,) if eager is None else _eager_limits(eager),
        progresses=_optional(progress),
        waits=_optional(wait),
        links=_optional(link),
        interface=interface,
        mtus=mtus if len(mtus) > 1 else (None,),
    )
    specs = [links.read(rate, each, offloads, loss, receive_on) for each in mtus]
    where = _allocation(lab, hosts, hostfile, specs) if slurm else _parse_hosts(lab, hosts, hostfile, specs)
    plan, programs, warnings = _build(requested, choice, where)
    with (
        where.entered() as (sites, facts),
        results_directory(output, "-".join(plan.tests)) as directory,
        progress_bar() as show_progress,
    ):
        for note in [*warnings, *where.notes(directory)]:
            typer.echo(f"barewire: {note}", err=True)
        campaign = MpiCampaign(sites[0], plan, programs, dict(zip(mtus, sites, strict=True)))
        run = measure_mpi(campaign, directory, command=sys.argv, lab=facts, warnings=warnings, progress=show_progress)
    run = as_asked(run, directory)
    scaling = [each.to_json() for each in speedups(run)]
    print_result("mpi", run, directory, as_json, laws=document(laws_of(run)), speedups=scaling)


@dataclass(frozen=True)
class _Hosts:
    """A lab for each MTU, or real hosts."""

    host_slots: tuple[HostSlots, ...]
    link: LinkSpec
    labs: tuple[LabChoice, ...] = ()
    allocated: int | None = None

    @property
    def one_host(self) -> bool:
        """Whether all ranks are on one host and share memory."""
        return (self.allocated or len(self.host_slots)) == 1

    def notes(self, directory: Path) -> list[str]:
        """Return requirements on real hosts that cannot be checked here."""
        is_local = self.allocated is None and all(entry.host == LOCAL_HOST for entry in self.host_slots)
        if is_local or self.labs:
            return []
        return [f"{suite.BUILT} and {directory.absolute()} must be the same on all hosts (a shared file system)"]

    @contextmanager
    def entered(self) -> Iterator[tuple[list[MpiSite], dict[str, Any] | None]]:
        """Yield the site of each MTU; labs created for the block end with it."""
        if not self.labs:
            limits = Link(self.link.rate_bit_s, self.link.mtu)
            yield [MpiSite(self.host_slots, limits, allocated=self.allocated)], None
            return
        with ExitStack() as stack:
            labs = [stack.enter_context(choice.entered()) for choice in self.labs]
            sites = [MpiSite(self.host_slots, Link(lab.link.rate_bit_s, lab.link.mtu), lab) for lab in labs]
            yield sites, facts_of_all([lab_facts(lab) for lab in labs])


def _parse_hosts(lab: str | None, hosts: str | None, hostfile: Path | None, specs: Sequence[LinkSpec]) -> _Hosts:
    """Read where ranks run; `specs` are the links of each MTU."""
    if hosts is not None and hostfile is not None:
        raise WrongUse("--hosts and --hostfile exclude each other")
    if lab is not None or (hosts, hostfile) == (None, None):
        choices = tuple(choose_lab(lab or "pair", each) for each in specs)
        return _Hosts(tuple(host_slots_of(hosts, hostfile, choices[0].topology)), choices[0].link, choices)
    return _Hosts(tuple(host_slots_of(hosts, hostfile, None)), _real(specs))


def _allocation(lab: str | None, hosts: str | None, hostfile: Path | None, specs: Sequence[LinkSpec]) -> _Hosts:
    """Return the whole Slurm allocation that this process is in."""
    if (lab, hosts, hostfile) != (None, None, None):
        raise WrongUse("--slurm takes the allocation's hosts: omit --lab, --hosts and --hostfile")
    link = _real(specs)
    if "SLURM_JOB_ID" not in os.environ or shutil.which("srun") is None:
        raise WrongUse("--slurm needs an allocation (sbatch, salloc) and srun")
    entry = HostSlots(LOCAL_HOST, _number_of_slurm("SLURM_NTASKS"))
    return _Hosts((entry,), link, allocated=_number_of_slurm("SLURM_JOB_NUM_NODES") or 1)


def _number_of_slurm(name: str) -> int | None:
    """Return a number of Slurm's environment; None if it is not set."""
    text = os.environ.get(name)
    if not text:
        return None
    if not options.is_whole(text) or int(text) < 1:
        raise WrongUse(f"{name} is '{text}', not a number from 1 on: --slurm needs an allocation (sbatch, salloc)")
    return int(text)


def _real(specs: Sequence[LinkSpec]) -> LinkSpec:
    if len(specs) > 1:
        raise WrongUse(f"{links.ONE_MTU}: give one --mtu for real hosts")
    return links.real(specs[0])


def _build(plan: MpiPlan, choice: Choice, hosts: _Hosts) -> tuple[MpiPlan, dict[tuple[str, str], str], tuple[str, ...]]:
    """Return the plan with the possible subjects, their programs, and why others are left out."""
    programs: dict[tuple[str, str], str] = {}

    def build(library: Library) -> None:
        built = suite.build(library, plan.tests)
        programs.update({(library.name, test): path for test, path in built.items()})

    subjects, unavailable = subjects_of(choice, one_host=hosts.one_host, lab=bool(hosts.labs))
    subjects_built, unbuilt = exclude_failing(subjects, build, named=choice.libraries is not None)
    return replace(plan, subjects=subjects_built), programs, (*unavailable, *unbuilt)


def _list_of(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",")))


def _optional(text: str | None) -> tuple[str | None, ...]:
    return (None,) if text is None else _list_of(text)


def _eager_limits(text: str) -> tuple[int | None, ...]:
    """Read `default,4096,64KiB`; None is the library's own limit."""
    limits: list[int | None] = []
    for part in _list_of(text):
        try:
            limits += [None] if part == "default" else [int(part)] if options.is_whole(part) else expand_sizes(part, 0)
        except WrongUse as error:
            raise WrongUse(
                f"--eager takes numbers from 0 and sizes, such as default,4096,64KiB, not '{text}'"
            ) from error
    return tuple(dict.fromkeys(limits))


def _numbers(text: str, option: str, minimum: int) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(options.is_whole(part) and int(part) >= minimum for part in parts):
        raise WrongUse(f"{option} takes comma-separated numbers from {minimum}, not '{text}'")
    return tuple(dict.fromkeys(int(part) for part in parts))


def _own_options(options: list[str]) -> tuple[str, ...]:
    if options and not options[0].startswith("--"):
        raise WrongUse(
            f"'{options[0]}' is not an option of a test; separate tests with commas, and put their options after --"
        )
    return tuple(options)
