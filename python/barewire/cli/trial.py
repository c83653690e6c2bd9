# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire try`: would Barewire help my program?"""

import json
import os
import secrets
import shlex
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Annotated, Any

import typer
from rich.console import Console

from barewire.cli import jobs, links
from barewire.cli.measuring import EFFORT, Seed, lab_facts, parse_launches
from barewire.cli.profile import REPORT_FILE, write_result
from barewire.cli.progress import progress_bar
from barewire.errors import BarewireError, MeasurementFailed, WrongUse
from barewire.lab import Lab
from barewire.measure.environment import describe_machine
from barewire.measure.trial import TIMED, WARM_UP, Trial, TrialLaunch, TrialPlan
from barewire.mpi.fabrics import FABRICS, PROVIDER, Wishes
from barewire.mpi.prepare import is_crowded
from barewire.mpi.profiler import build_profiler
from barewire.report.trial import disagreement, headlines, print_trial, trial_page
from barewire.results.agreement import compare_outputs
from barewire.results.job_profile import summed_up
from barewire.results.store import write_atomically
from barewire.results.trial import MAIN, WHOLE, Outcome, contest

TRY_FILE = "try.json"
_LINES_SHOWN = 12
# Load of each core, over the last minute, beyond which a machine is not idle.
_BUSY = 0.5


def trial(
    program: jobs.Program,
    ranks: Annotated[
        int | None, typer.Option("-n", "--ranks", min=1, help="how many ranks; one on each host unless given")
    ] = None,
    fabric: Annotated[str, typer.Option(help=f"what is tried: {FABRICS}", rich_help_panel=jobs.PATH)] = PROVIDER,
    against: Annotated[str, typer.Option(help="what it is compared with", rich_help_panel=jobs.PATH)] = "tcp",
    library: jobs.LibraryName = None,
    interface: jobs.Interface = None,
    lab: jobs.LabName = None,
    rate: links.Rate = "unshaped",
    mtu: links.Mtu = 1500,
    loss: links.Loss = "0",
    offloads: links.Offloads = links.OnOff.off,
    receive_on: links.ReceiveOn = links.CoreOf.sender,
    hosts: jobs.Hosts = None,
    hostfile: jobs.Hostfile = None,
    launches: Annotated[
        str, typer.Option(help="timed launches of each: N, or N..M to go on until precise", rich_help_panel=EFFORT)
    ] = "3..20",
    budget: Annotated[
        float, typer.Option(help="seconds after which no new round of launches begins", rich_help_panel=EFFORT)
    ] = 120,
    precision: Annotated[
        float, typer.Option(help="half width of the median's interval: 0.02 is ± 2 %", rich_help_panel=EFFORT)
    ] = 0.02,
    limit: jobs.Limit = None,
    profiled: Annotated[
        bool, typer.Option("--profile/--no-profile", help="whether the profiler is loaded; without it, wall time alone")
    ] = True,
    any_output: Annotated[
        bool, typer.Option("--any-output", help="output that differs between the fabrics is no failure")
    ] = False,
    seed: Seed = None,
    output: jobs.Directory = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
) -> None:
    """Find out whether Barewire would make an MPI program faster than TCP does.

    Runs the program over both in turns, in two emulated hosts unless --lab or --hosts says where; checks that exit
    codes and output agree; says who is faster, by how much, how sure; and, by one profiled launch of each, where the
    time goes. Leaves a directory with a page (report.html), all numbers and all output.
    """
    jobs.check_limit(limit)
    if fabric == against:
        raise WrongUse(f"{fabric} is compared with itself: give another --fabric or --against")
    wishes = {name: Wishes(name, interface) for name in (fabric, against)}
    plan = _plan(launches, precision, budget, limit, secrets.randbits(32) if seed is None else seed)
    nowhere = lab is None and hosts is None and hostfile is None
    link = links.read(rate, mtu, offloads, loss, receive_on)
    where = jobs.where_of("pair" if nowhere else lab, link, hosts, hostfile)
    asked = jobs.asked_for(program, library, where, ranks)
    profiler = build_profiler(asked.library) if profiled else None
    with where.entered() as running:
        made = {name: asked.job(wish, running) for name, wish in wishes.items()}
        directory = jobs.new_directory(output, "try")
        facts = _facts(asked, running, (fabric, against), plan)
        with progress_bar(quiet=as_json) as shown:
            done = Trial(made, running, profiler, directory, plan, shown, _tell_user)
            try:
                done.run()
            finally:
                write_result(directory, TRY_FILE, facts | {"launches": [asdict(one) for one in done.launches]})
    facts |= {"launches": [asdict(one) for one in done.launches]}
    if done.failed:
        raise _failure(done, (fabric, against), as_json, facts)
    _tell(done, facts, asked.ranks, any_output, as_json)


def _tell_user(sentence: str) -> None:
    typer.echo(f"barewire: {sentence}", err=True)


class _ProgramFailed(BarewireError):
    """The program fails over both fabrics: its own exit code is the answer."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


def _plan(launches: str, precision: float, budget: float, limit: float | None, seed: int) -> TrialPlan:
    first, last = parse_launches(launches)
    if not 1 <= first <= last:
        raise WrongUse(f"--launches takes N or N..M, from 1, not '{launches}'")
    if not precision > 0 or not budget > 0:
        raise WrongUse("--precision and --budget must be above 0")
    return TrialPlan(first, last, precision, budget, limit, seed)


def _facts(asked: jobs.Asked, lab: Lab | None, fabrics: tuple[str, str], plan: TrialPlan) -> dict[str, Any]:
    notes = []
    if is_crowded(asked.shares, lab):
        notes.append("There are more ranks than cores: every time includes the scheduler's")
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > _BUSY * cores:
        notes.append(
            f"The machine was busy before the first launch (load {load:.1f} on {cores} cores): what else runs takes "
            "part in every time"
        )
    return {
        "schema": "barewire-try/1",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": list(asked.command),
        "fabrics": list(fabrics),
        "library": str(asked.library),
        "shares": [list(share) for share in asked.shares],
        "lab": None if lab is None else lab_facts(lab),
        "limit_s": plan.limit_s,
        "seed": plan.seed,
        "notes": notes,
        "environment": describe_machine(),
    }


def _tell(done: Trial, facts: dict[str, Any], ranks: int, any_output: bool, as_json: bool) -> None:
    tried, other = tuple(done.jobs)
    contests = [contest(WHOLE, done.walls(tried), done.walls(other), seed=done.plan.seed)]
    if all(len(done.mains(name)) == len(done.walls(name)) for name in done.jobs):
        contests.append(contest(MAIN, done.mains(tried), done.mains(other), seed=done.plan.seed))
    agreement = compare_outputs(done.outputs(tried), done.outputs(other))
    profiles = {name: summed_up(done.profiles.get(name, []), ranks) for name in done.jobs if done.profiler}
    outcome = Outcome(PurePath(facts["command"][0]).name, (tried, other), tuple(contests), agreement, profiles)
    notes = list(facts["notes"])
    if done.profiler and not all(one.ranks for one in profiles.values()):
        notes.append("The profiler saw no MPI_Init: is the program linked statically, or not an MPI program?")
    facts |= {
        "timed_launches": sum(one.phase == TIMED for one in done.launches),
        "says": headlines(outcome),
        "contests": [one.to_json() for one in contests],
        "output": {"agree": agreement.agree, **asdict(agreement)},
        "profiles": {name: one.to_json() for name, one in profiles.items()},
        "notes": notes,
    }
    write_result(done.directory, TRY_FILE, facts)
    page = trial_page(outcome, facts, shlex.join(sys.argv), notes)
    write_atomically(done.directory / REPORT_FILE, page.encode())
    if as_json:
        typer.echo(json.dumps({"directory": str(done.directory), **facts}, allow_nan=False))
    else:
        print_trial(Console(highlight=False), outcome, notes)
        typer.echo(f"the page is {done.directory / REPORT_FILE}; what every launch printed is in its folder output")
    if not agreement.agree and not any_output:
        kept = " and ".join(str(done.directory / _last(done, name).stdout) for name in done.jobs)
        raise MeasurementFailed(
            f"{disagreement(agreement, (tried, other))}. Both are kept: {kept}. If that is no fault, say --any-output"
        )


def _last(done: Trial, fabric: str) -> TrialLaunch:
    return [one for one in done.launches if one.fabric == fabric][-1]


def _failure(done: Trial, fabrics: tuple[str, str], as_json: bool, facts: dict[str, Any]) -> BarewireError:
    """What to raise of launches of which at least one failed."""
    failed = {name: [one for one in done.launches if one.fabric == name and one.code != 0] for name in fabrics}
    if as_json:
        typer.echo(json.dumps({"directory": str(done.directory), **facts}, allow_nan=False))
    told = [_told(done.directory, failed[name][-1], done.plan.limit_s) for name in fabrics if failed[name]]
    kept = f"All output is in {done.directory}"
    if all(failed.values()):
        codes = {one.code for some in failed.values() for one in some}
        if len(codes) == 1 and (code := codes.pop()) is not None:
            return _ProgramFailed(f"the program fails over both fabrics. {told[-1]}\n{kept}", code)
        return MeasurementFailed("\n".join(["the program fails over both fabrics.", *told, kept]))
    bad, good = sorted(fabrics, key=lambda name: not failed[name])
    launch = failed[bad][-1]
    which = "" if launch.phase == WARM_UP else f" in launch {launch.number}, not in those before"
    return MeasurementFailed(f"the program fails over {bad}{which}, and not over {good}. {told[0]}\n{kept}")


def _told(directory: Path, launch: TrialLaunch, limit_s: float | None) -> str:
    if launch.code is None:
        how = f"had not ended after {limit_s:g} s (--limit), and was ended with all its processes"
    else:
        how = f"ended with exit code {launch.code}"
    said = [
        f"  {line}"
        for name in (launch.stdout, launch.stderr)
        for line in (directory / name).read_text(errors="replace").strip().splitlines()[-_LINES_SHOWN:]
    ]
    return f"Over {launch.fabric} it {how}. What was said last:\n" + ("\n".join(said) or "  nothing")
