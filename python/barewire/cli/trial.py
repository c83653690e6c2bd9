# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire try`: compares a program over Barewire with another fabric."""

import os
import secrets
import select
import shlex
import stat
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Annotated, Any

import typer
from rich.console import Console

from barewire.cli import jobs, links, options
from barewire.cli.directories import make_empty, results_directory
from barewire.cli.measuring import lab_facts, parse_launches
from barewire.cli.output import SCHEMAS, print_document
from barewire.cli.profile import REPORT_FILE, write_result
from barewire.cli.progress import progress_bar
from barewire.errors import BarewireError, MeasurementFailed, WrongUse, finite_above_0
from barewire.lab import Lab
from barewire.lab.load import busy_before
from barewire.measure.environment import describe_machine
from barewire.measure.trial import TIMED, WARM_UP, Trial, TrialLaunch, TrialPlan
from barewire.mpi.fabrics import PROVIDER, FabricOptions
from barewire.mpi.prepare import is_crowded
from barewire.mpi.profiler import build_profiler
from barewire.report.trial import disagreement, headlines, print_trial, trial_page
from barewire.results.agreement import compare_outputs
from barewire.results.job_profile import combine_profiles
from barewire.results.store import write_atomically
from barewire.results.trial import MAIN, WHOLE, Outcome, contest

TRY_FILE = "try.json"
# The program's standard input, if it was a file.
INPUT_FILE = "input"
_INPUT = 0
_CHUNK_BYTES = 1 << 20
_LINES_SHOWN = 12


def trial(
    program: options.ProgramArguments,
    ranks: Annotated[int | None, options.RANKS_OR_HOSTS] = None,
    fabric: Annotated[str, options.FABRIC] = PROVIDER,
    baseline: Annotated[str, options.BASELINE] = "tcp",
    library: Annotated[str | None, options.LIBRARY] = None,
    interface: Annotated[str | None, options.PATH_INTERFACE] = None,
    lab: Annotated[str | None, options.LAB_CHOICE] = None,
    rate: links.Rate = "unshaped",
    mtu: links.Mtu = 1500,
    loss: links.Loss = "0",
    offloads: links.Offloads = links.OnOff.off,
    receive_on: links.ReceiveOn = links.CoreOf.sender,
    hosts: options.JobHosts = None,
    hostfile: options.Hostfile = None,
    launches: Annotated[str, options.LAUNCHES] = "3..20",
    confidence: options.Confidence = 95,
    budget: options.Budget = 120,
    precision: options.Precision = 0.02,
    limit: options.Limit = None,
    profiled: Annotated[
        bool, typer.Option("--profile/--no-profile", help="load the profiler; without it only wall times are measured")
    ] = True,
    any_output: Annotated[
        bool, typer.Option("--any-output", help="accept different output over the two fabrics")
    ] = False,
    seed: options.Seed = None,
    output: options.Output = None,
    as_json: options.AsJson = False,
) -> None:
    """Find out whether Barewire makes an MPI program faster than TCP.

    Runs the program over both alternately, on two emulated hosts unless --lab or --hosts selects others. Checks that
    exit codes and output agree. Reports which fabric is faster, by how much and with what certainty, and, from one
    profiled launch of each, where the time goes. Leaves a directory with a page (report.html), all numbers and output.
    """
    jobs.check_limit(limit)
    if fabric == baseline:
        raise WrongUse(f"{fabric} would be compared with itself: give another --fabric or --baseline")
    requested = {name: FabricOptions(name, interface) for name in (fabric, baseline)}
    sure = options.read_confidence(confidence)
    plan = _plan(launches, precision, budget, limit, secrets.randbits(32) if seed is None else seed, sure)
    use_default_lab = lab is None and hosts is None and hostfile is None
    link = links.read(rate, mtu, offloads, loss, receive_on)
    hosts_choice = jobs.parse_job_hosts("pair" if use_default_lab else lab, link, hosts, hostfile)
    request = jobs.parse_request(program, library, hosts_choice, ranks)
    has_input = _has_input()
    profiler = build_profiler(request.library) if profiled else None
    with hosts_choice.entered() as running, results_directory(output, "try") as directory:
        jobs_by_fabric = {name: request.job(option, running) for name, option in requested.items()}
        make_empty(directory)
        facts = _facts(request, running, (fabric, baseline), plan) | {"input": INPUT_FILE if has_input else None}
        given = directory / INPUT_FILE if has_input else Path(os.devnull)
        if has_input:
            _keep_input(given)
        with progress_bar() as progress:
            trials = Trial(jobs_by_fabric, running, profiler, directory, plan, progress, _print_note, given)
            try:
                trials.run()
            finally:
                write_result(directory, TRY_FILE, facts | {"launches": [asdict(launch) for launch in trials.launches]})
    facts |= {"launches": [asdict(launch) for launch in trials.launches]}
    if trials.failed:
        raise _failure(trials, (fabric, baseline), as_json, facts)
    _conclude(trials, facts, request.ranks, any_output, as_json)


def _has_input() -> bool:
    """Return whether standard input is a file with content. WrongUse for a pipe with data, which can be read once only.

    A pipe without data is ignored, with a note: under a scheduler it may stay open and never have any. A file that has
    been read is ignored, too: it is the script of a shell.
    """
    status = os.fstat(_INPUT)
    if stat.S_ISREG(status.st_mode):
        return status.st_size > 0 and os.lseek(_INPUT, 0, os.SEEK_CUR) == 0
    if stat.S_ISFIFO(status.st_mode):
        ready = select.poll()
        ready.register(_INPUT, select.POLLIN)
        if any(event & select.POLLIN for _, event in ready.poll(0)):
            raise WrongUse(
                "each launch needs the input again, which a pipe has once: give it as a file, `barewire try … < FILE`, "
                "or omit it with < /dev/null"
            )
        typer.echo("note: standard input is a pipe without data; the launches get an empty input", err=True)
    return False


def _keep_input(file: Path) -> None:
    """Copy standard input to a file; its position, which others may share, stays where it is."""
    with file.open("wb") as kept:
        while chunk := os.pread(_INPUT, _CHUNK_BYTES, kept.tell()):
            kept.write(chunk)


def _print_note(sentence: str) -> None:
    typer.echo(f"barewire: {sentence}", err=True)


class _ProgramFailed(BarewireError):
    """The program fails over both fabrics; its exit code is returned."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


def _plan(
    launches: str, precision: float, budget: float, limit: float | None, seed: int, confidence: float
) -> TrialPlan:
    first, last = parse_launches(launches)
    if not 1 <= first <= last:
        raise WrongUse(f"--launches takes N or N..M, from 1, not '{launches}'")
    finite_above_0("--precision", precision, "a share")
    finite_above_0("--budget", budget)
    return TrialPlan(first, last, precision, budget, limit, seed, confidence)


def _facts(request: jobs.JobRequest, lab: Lab | None, fabrics: tuple[str, str], plan: TrialPlan) -> dict[str, Any]:
    notes = []
    if is_crowded(request.shares, lab):
        notes.append("There are more ranks than cores: all times include scheduling delays")
    busy = busy_before()
    if busy is not None:
        notes.append(f"The machine was busy: {busy}, which affected all times")
    return {
        "schema": SCHEMAS["try"],
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": list(request.command),
        "fabrics": list(fabrics),
        "library": str(request.library),
        "shares": [list(share) for share in request.shares],
        "lab": None if lab is None else lab_facts(lab),
        "limit_s": plan.limit_s,
        "seed": plan.seed,
        "notes": notes,
        "environment": describe_machine(),
    }


def _conclude(trials: Trial, facts: dict[str, Any], ranks: int, any_output: bool, as_json: bool) -> None:
    fabric, other = tuple(trials.jobs)
    how: dict[str, Any] = {"seed": trials.plan.seed, "confidence": trials.plan.confidence}
    contests = [contest(WHOLE, trials.walls(fabric), trials.walls(other), **how)]
    if all(len(trials.mains(name)) == len(trials.walls(name)) for name in trials.jobs):
        contests.append(contest(MAIN, trials.mains(fabric), trials.mains(other), **how))
    agreement = compare_outputs(trials.outputs(fabric), trials.outputs(other))
    profiles = {name: combine_profiles(trials.profiles.get(name, []), ranks) for name in trials.jobs if trials.profiler}
    outcome = Outcome(PurePath(facts["command"][0]).name, (fabric, other), tuple(contests), agreement, profiles)
    notes = list(facts["notes"])
    if trials.profiler and not all(profile.ranks for profile in profiles.values()):
        notes.append(
            "The profiler saw no MPI_Init: is the program linked statically, or not an MPI program? Or has it rights "
            "of its own (setcap, setuid), so that nothing is preloaded?"
        )
    facts |= {
        "timed_launches": sum(launch.phase == TIMED for launch in trials.launches),
        "says": headlines(outcome),
        "contests": [contest.to_json() for contest in contests],
        "output": {"agree": agreement.agree, **asdict(agreement)},
        "profiles": {name: profile.to_json() for name, profile in profiles.items()},
        "notes": notes,
    }
    write_result(trials.directory, TRY_FILE, facts)
    page = trial_page(outcome, facts, shlex.join(sys.argv), notes)
    write_atomically(trials.directory / REPORT_FILE, page.encode())
    if as_json:
        print_document("try", {"directory": str(trials.directory), **facts})
    else:
        print_trial(Console(highlight=False), outcome, notes)
        typer.echo(f"the page is {trials.directory / REPORT_FILE}; the output of every launch is in its folder output")
    if not agreement.agree and not any_output:
        kept = " and ".join(str(trials.directory / _last(trials, name).stdout) for name in trials.jobs)
        raise MeasurementFailed(
            f"{disagreement(agreement, (fabric, other))}. Both are kept: {kept}. If that is expected, use --any-output"
        )


def _last(trials: Trial, fabric: str) -> TrialLaunch:
    return [launch for launch in trials.launches if launch.fabric == fabric][-1]


def _failure(trials: Trial, fabrics: tuple[str, str], as_json: bool, facts: dict[str, Any]) -> BarewireError:
    """Return the error for launches of which at least one failed."""
    failed = {
        name: [launch for launch in trials.launches if launch.fabric == name and launch.code != 0] for name in fabrics
    }
    if as_json:
        print_document("try", {"directory": str(trials.directory), **facts})
    descriptions = [
        _failure_text(trials.directory, failed[name][-1], trials.plan.limit_s) for name in fabrics if failed[name]
    ]
    kept = f"All output is in {trials.directory}"
    if all(failed.values()):
        codes = {launch.code for launches in failed.values() for launch in launches}
        if len(codes) == 1 and (code := codes.pop()) is not None:
            return _ProgramFailed(f"the program fails over both fabrics. {descriptions[-1]}\n{kept}", code)
        return MeasurementFailed("\n".join(["the program fails over both fabrics.", *descriptions, kept]))
    bad, good = sorted(fabrics, key=lambda name: not failed[name])
    launch = failed[bad][-1]
    which = "" if launch.phase == WARM_UP else f" in launch {launch.number}, not in earlier ones"
    return MeasurementFailed(f"the program fails over {bad}{which}, and not over {good}. {descriptions[0]}\n{kept}")


def _failure_text(directory: Path, launch: TrialLaunch, limit_s: float | None) -> str:
    if launch.code is None:
        outcome = f"had not ended after {limit_s:g} s (--limit) and was terminated with all its processes"
    else:
        outcome = f"ended with exit code {launch.code}"
    last_lines = [
        f"  {line}"
        for name in (launch.stdout, launch.stderr)
        for line in (directory / name).read_text(errors="replace").strip().splitlines()[-_LINES_SHOWN:]
    ]
    return f"Over {launch.fabric} it {outcome}. Last output:\n" + ("\n".join(last_lines) or "  nothing")
