# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire profile`: where an MPI program spends its time, over any fabric."""

import json
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from barewire.cli import jobs, links, options
from barewire.cli.directories import make_empty, results_directory
from barewire.cli.output import SCHEMAS, print_document
from barewire.errors import MeasurementFailed
from barewire.mpi.fabrics import PROVIDER, FabricOptions
from barewire.mpi.profiler import build_profiler, with_profiler
from barewire.mpi.start import run_limited
from barewire.report.profile import print_profile
from barewire.results.job_profile import JobProfile, RankParts, combine_profiles
from barewire.results.profile import SUFFIX, RankProfile, read_profiles
from barewire.results.store import write_atomically

REPORT_FILE, PROFILE_FILE, RANKS_FOLDER = "report.html", "profile.json", "ranks"
_FAILED, _INTERRUPTED = 1, 130
_RANKS_NAMED = 8


def profile(
    program: options.ProgramArguments,
    ranks: Annotated[int, options.RANKS],
    fabric: Annotated[str, options.FABRIC] = PROVIDER,
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
    limit: options.Limit = None,
    output: options.Output = None,
    as_json: options.AsJson = False,
) -> None:
    """Run an MPI program once and report its time: computing, waiting for other ranks, moving messages.

    Preloads a profiler; the program is not relinked. Prints a summary on standard error and leaves a directory with
    a page (report.html) and everything as JSON. The exit code is the program's. With --json the profile is printed on
    standard output, and what the program prints on standard error.
    """
    jobs.check_limit(limit)
    requested = FabricOptions(fabric, interface)
    hosts_choice = jobs.parse_job_hosts(lab, links.read(rate, mtu, offloads, loss, receive_on), hosts, hostfile)
    request = jobs.parse_request(program, library, hosts_choice, ranks)
    profiler = build_profiler(request.library)
    with hosts_choice.entered() as running, results_directory(output, "profile") as directory:
        job = request.job(requested, running)
        make_empty(directory)
        (directory / RANKS_FOLDER).mkdir()
        started = datetime.now(UTC).isoformat(timespec="seconds")
        profiled = with_profiler(job, profiler, directory / RANKS_FOLDER)
        interrupted = False
        try:
            code = run_limited(profiled, running, limit, **({"stdout": sys.stderr} if as_json else {}))
        except KeyboardInterrupt:
            # What hung and was interrupted has a record of where it was.
            if not any((directory / RANKS_FOLDER).iterdir()):
                raise
            code, interrupted = None, True
    # Imported late, because these take half a second that the program need not wait for.
    from barewire.measure.environment import describe_machine
    from barewire.report.profile_page import profile_page

    summary = combine_profiles(convert_profiles(directory / RANKS_FOLDER), request.ranks)
    notes = notes_of(summary, code, None if interrupted else limit)
    facts = {
        "schema": SCHEMAS["profile"],
        "created": started,
        "command": [*request.command],
        "fabric": fabric,
        "shares": [list(share) for share in request.shares],
        "exit_code": code,
        "notes": notes,
        "environment": describe_machine(),
    }
    write_result(directory, PROFILE_FILE, facts | summary.to_json())
    page = profile_page(summary, facts, shlex.join(sys.argv), notes)
    write_atomically(directory / REPORT_FILE, page.encode())
    if as_json:
        print_document("profile", {"directory": str(directory), **facts, **summary.to_json()})
    else:
        print_profile(Console(stderr=True, highlight=False), summary, fabric, notes)
        typer.echo(f"the page is {directory / REPORT_FILE}; all of it as JSON is beside it", err=True)
    if interrupted:
        raise typer.Exit(_INTERRUPTED)
    if code is None:
        raise MeasurementFailed(
            f"the program had not ended after {limit:g} s and was terminated with all its processes"
        )
    raise typer.Exit(code if code or summary.ranks else _FAILED)


def convert_profiles(folder: Path) -> list[RankProfile]:
    """Convert the ranks' files in a folder into a JSON file each."""
    profiles = read_profiles(folder)
    for number, profile in enumerate(profiles):
        write_result(
            folder,
            f"spawned-{profile.rank}-{number}.json" if profile.spawned else f"rank-{profile.rank}-{number}.json",
            profile.to_json(),
        )
    for file in folder.glob(f"*{SUFFIX}"):
        file.unlink()
    return profiles


def notes_of(summary: JobProfile, code: int | None, limit: float | None) -> list[str]:
    """Return notes that a reader needs before the numbers. Without a code: ended at the limit, or by an interrupt."""
    notes = []
    launched = [profile for profile in summary.ranks if not profile.spawned]
    if not summary.ranks:
        notes.append(
            "No process called MPI_Init under the profiler: the program is not an MPI program, is linked statically, "
            "has rights of its own (setcap, setuid), so that nothing is preloaded, ended before MPI_Init, or ran where "
            "this directory cannot be written"
        )
    elif len(launched) < summary.expected_ranks:
        notes.append(f"Only {len(launched)} of {summary.expected_ranks} ranks left a profile")
    if len(summary.ranks) > len(launched):
        notes.append(f"Spawned by the program: {len(summary.ranks) - len(launched)}")
    if code is None:
        ended = "interrupted" if limit is None else f"terminated after {limit:g} s"
        notes.append(f"The program was {ended}: numbers extend to each rank's last call")
    elif code:
        notes.append(f"The program ended with exit code {code}")
    notes += [_unfinished(rank) for rank in summary.unfinished[:_RANKS_NAMED]]
    if len(summary.unfinished) > _RANKS_NAMED:
        notes.append(f"The same applies to {len(summary.unfinished) - _RANKS_NAMED} more ranks")
    if summary.threads_unrecorded:
        notes.append(f"{summary.threads_unrecorded} threads beyond the profiler's limit of 128 were not recorded")
    return notes


def _unfinished(rank: RankParts) -> str:
    outcome = "called MPI_Abort" if rank.state == "aborted" else "did not finish MPI_Finalize"
    calls = " and ".join(f"in {call.call} since {call.at_s:.3g} s after MPI_Init began" for call in rank.inside)
    if not calls and rank.last_call_s is not None:
        calls = f"outside MPI since {rank.last_call_s:.3g} s after MPI_Init began"
    return f"Rank {rank.rank} on {rank.host} {outcome}{', and was ' + calls if calls else ''}"


def write_result(directory: Path, name: str, document: dict[str, Any]) -> None:
    """Write one JSON document; MeasurementFailed if that fails."""
    try:
        write_atomically(directory / name, json.dumps(document, allow_nan=False, indent=1).encode())
    except OSError as error:
        raise MeasurementFailed(f"cannot write {directory / name}: {error.strerror}") from error
