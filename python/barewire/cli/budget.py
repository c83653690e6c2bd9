# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire bench budget`: what each layer of one path adds to a message's latency, in one run."""

import secrets
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import Console

from barewire.cli import links, options
from barewire.cli.bench import in_lab
from barewire.cli.directories import results_directory
from barewire.cli.labs import choose_lab
from barewire.cli.measuring import parse_launches
from barewire.cli.output import print_document
from barewire.cli.progress import progress_bar
from barewire.errors import MachineCannot, WrongUse
from barewire.measure.budget import SUBJECTS, TEST, BudgetCampaign, available_subjects, measure_budget
from barewire.measure.launch import Effort
from barewire.measure.mpi import MpiCampaign, MpiPlan, MpiSite
from barewire.measure.mpi_subjects import Choice, exclude_failing, parse_libraries, subjects_of
from barewire.measure.programs import expand_sizes
from barewire.measure.runner import Plan, ProbeCampaign
from barewire.measure.session import StoppingRule
from barewire.measure.sites import LabSite, RemoteSite, Site
from barewire.mpi import HostSlots, Library, suite
from barewire.report.budget_tables import print_budgets
from barewire.results.budget import budgets_of, document
from barewire.results.confidence import as_asked

NO_LIBRARY = "none"
# The usual mode of a program's messages.
_VARIANT = "blocking-standard"
# Of the probe, unless others are given.
_SAMPLES, _WARM_UP = 3000, 200


def budget(
    sizes: Annotated[str, options.SIZES] = "8,1KiB,16KiB,64KiB",
    library: Annotated[str | None, options.LIBRARIES] = None,
    lab: Annotated[str | None, options.LAB_CHOICE] = None,
    rate: links.Rate = "unshaped",
    mtu: links.Mtu = 1500,
    loss: links.Loss = "0",
    offloads: links.Offloads = links.OnOff.off,
    receive_on: links.ReceiveOn = links.CoreOf.sender,
    hosts: options.TwoHosts = None,
    interface: options.InterfaceOfHosts = None,
    remote_shell: options.RemoteShell = None,
    port: options.ControlPort = options.CONTROL_PORT,
    launches: Annotated[str, options.LAUNCHES] = "6..12",
    precision: options.Precision = 0.02,
    confidence: options.Confidence = 95,
    budget: options.Budget = 300,
    samples: Annotated[int | None, options.SAMPLES] = None,
    seconds: options.Seconds = 0.2,
    warmup: Annotated[int | None, options.WARM_UP] = None,
    seed: options.Seed = None,
    output: options.Output = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure one ping-pong through every layer of the path, from plain frames to each MPI library, beside TCP.

    All layers are launched alternately in one run, so that the difference between two is what the upper one adds.
    Prints a table for each message size; `barewire report` draws it. --library none measures no MPI library.
    """
    plan = Plan(
        tests=(TEST,),
        subjects=SUBJECTS,
        sizes=expand_sizes(sizes, 0),
        seed=secrets.randbits(32) if seed is None else seed,
        effort=Effort(samples or _SAMPLES, seconds, warmup or _WARM_UP, blocks=1),
        stopping_rule=StoppingRule(
            *parse_launches(launches), precision, budget, confidence=options.read_confidence(confidence)
        ),
    )
    site_context: AbstractContextManager[tuple[Site, dict[str, Any] | None]]
    link = links.read(rate, mtu, offloads, loss, receive_on)
    if hosts is None:
        options.check_in_a_lab(interface, remote_shell, port)
        site_context = in_lab(choose_lab(lab or "pair", link), broker=False)
    else:
        if lab is not None:
            raise WrongUse("--lab and --hosts exclude each other")
        limits = links.real(link)
        remote = RemoteSite.parse(
            hosts, interface, remote_shell, port=port, rate_bit_s=limits.rate_bit_s, mtu=limits.mtu
        )
        site_context = nullcontext((remote, None))
    libraries, reasons = _libraries(plan, library, interface, samples, warmup, in_a_lab=hosts is None)
    with (
        site_context as (site, facts),
        results_directory(output, "budget") as directory,
        progress_bar() as progress,
    ):
        subjects, unavailable = available_subjects(site, plan.subjects)
        warnings = (*reasons, *unavailable)
        for warning in warnings:
            typer.echo(f"barewire: {warning}", err=True)
        mpi = None if libraries is None else MpiCampaign(_mpi_site(site), *libraries)
        campaign = BudgetCampaign(ProbeCampaign(site, replace(plan, subjects=subjects)), mpi)
        run = measure_budget(campaign, directory, command=sys.argv, lab=facts, warnings=warnings, progress=progress)
    run = as_asked(run, directory)
    budgets = budgets_of(run)
    if as_json:
        result = {"directory": str(directory), **run.to_json(), "budgets": document(budgets, run.confidence)}
        print_document("bench budget", result)
        return
    print_budgets(Console(highlight=False), run, budgets)
    typer.echo(f"every sample is in {directory}; `barewire report {directory}` draws it")


def _libraries(
    plan: Plan, named: str | None, interface: str | None, samples: int | None, warmup: int | None, *, in_a_lab: bool
) -> tuple[tuple[MpiPlan, dict[tuple[str, str], str]] | None, tuple[str, ...]]:
    """Return the plan and programs of the available MPI libraries, and why others are left out."""
    if named == NO_LIBRARY:
        return None, ()
    programs: dict[tuple[str, str], str] = {}

    def build(library: Library) -> None:
        programs.update({(library.name, test): path for test, path in suite.build(library, (TEST,)).items()})

    try:
        subjects, unavailable = subjects_of(
            Choice(parse_libraries(named), interface=interface), one_host=False, lab=in_a_lab
        )
        subjects, unbuilt = exclude_failing(subjects, build, named=named is not None)
    except MachineCannot as error:
        if named is not None:
            raise
        return None, (f"no MPI library is measured: {error}",)
    mpi = MpiPlan(
        tests=(TEST,),
        subjects=subjects,
        ranks=(2,),
        seed=plan.seed,
        sizes=plan.sizes,
        variants={TEST: _VARIANT},
        samples=samples,
        seconds=plan.effort.seconds,
        warmup=warmup,
        stopping_rule=plan.stopping_rule,
    )
    return (mpi, programs), (*unavailable, *unbuilt)


def _mpi_site(site: Site) -> MpiSite:
    """Return the MPI site of the same two hosts, one rank on each."""
    if isinstance(site, LabSite):
        return MpiSite(tuple(HostSlots(host.name) for host in site.lab.hosts[:2]), site.link, site.lab)
    if site.active.host == site.passive.host:
        raise WrongUse("a budget needs two hosts: name two, or use --library none on one host")
    return MpiSite((HostSlots(site.active.host), HostSlots(site.passive.host)), site.link)
