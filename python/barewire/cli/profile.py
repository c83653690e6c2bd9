# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire profile`: where the time of an MPI program goes, over any fabric."""

import json
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from barewire.cli import jobs, links
from barewire.errors import MeasurementFailed
from barewire.mpi.fabrics import FABRICS, PROVIDER, Wishes
from barewire.mpi.profiler import build_profiler, with_profiler
from barewire.mpi.start import run_limited
from barewire.report.profile import print_profile
from barewire.results.job_profile import JobProfile, RankParts, summed_up
from barewire.results.profile import SUFFIX, RankProfile, read_profiles
from barewire.results.store import write_atomically

REPORT_FILE, PROFILE_FILE, RANKS_FOLDER = "report.html", "profile.json", "ranks"
_FAILED = 1
_RANKS_NAMED = 8


def profile(
    program: jobs.Program,
    ranks: Annotated[int, typer.Option("-n", "--ranks", min=1, help="how many ranks")],
    fabric: Annotated[str, typer.Option(help=FABRICS, rich_help_panel=jobs.PATH)] = PROVIDER,
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
    limit: jobs.Limit = None,
    output: jobs.Directory = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="print the profile as JSON; what the program prints goes to standard error")
    ] = False,
) -> None:
    """Run an MPI program once and say where its time goes: computing, waiting for others, moving messages.

    Preloads a profiler; the program is not relinked. Prints a summary on standard error and leaves a directory with
    a page (report.html) and everything as JSON. The exit code is the program's.
    """
    jobs.check_limit(limit)
    wishes = Wishes(fabric, interface)
    where = jobs.where_of(lab, links.read(rate, mtu, offloads, loss, receive_on), hosts, hostfile)
    asked = jobs.asked_for(program, library, where, ranks)
    profiler = build_profiler(asked.library)
    with where.entered() as running:
        job = asked.job(wishes, running)
        directory = jobs.new_directory(output, "profile")
        (directory / RANKS_FOLDER).mkdir()
        started = datetime.now(UTC).isoformat(timespec="seconds")
        profiled = with_profiler(job, profiler, directory / RANKS_FOLDER)
        code = run_limited(profiled, running, limit, **({"stdout": sys.stderr} if as_json else {}))
    # Here, because loading these takes half a second that a program need not wait.
    from barewire.measure.environment import describe_machine
    from barewire.report.profile_page import profile_page

    summary = summed_up(keep_ranks(directory / RANKS_FOLDER), asked.ranks)
    notes = notes_of(summary, code, limit)
    facts = {
        "schema": "barewire-profile/1",
        "created": started,
        "command": [*asked.command],
        "fabric": fabric,
        "shares": [list(share) for share in asked.shares],
        "exit_code": code,
        "notes": notes,
        "environment": describe_machine(),
    }
    write_result(directory, PROFILE_FILE, facts | summary.to_json())
    page = profile_page(summary, facts, shlex.join(sys.argv), notes)
    write_atomically(directory / REPORT_FILE, page.encode())
    if as_json:
        typer.echo(json.dumps({"directory": str(directory), **facts, **summary.to_json()}, allow_nan=False))
    else:
        print_profile(Console(stderr=True, highlight=False), summary, fabric, notes)
        typer.echo(f"the page is {directory / REPORT_FILE}; all of it as JSON is beside it", err=True)
    if code is None:
        raise MeasurementFailed(f"the program had not ended after {limit:g} s, and was ended with all its processes")
    raise typer.Exit(code if code or summary.ranks else _FAILED)


def keep_ranks(folder: Path) -> list[RankProfile]:
    """Turn what the ranks left in a folder into a JSON file each."""
    found = read_profiles(folder)
    for number, one in enumerate(found):
        write_result(
            folder,
            f"spawned-{one.rank}-{number}.json" if one.spawned else f"rank-{one.rank}-{number}.json",
            one.to_json(),
        )
    for file in folder.glob(f"*{SUFFIX}"):
        file.unlink()
    return found


def notes_of(summary: JobProfile, code: int | None, limit: float | None) -> list[str]:
    """What a reader must know before the numbers."""
    notes = []
    launched = [one for one in summary.ranks if not one.spawned]
    if not summary.ranks:
        notes.append(
            "No process called MPI_Init under the profiler: the program is not an MPI program, is linked statically, "
            "ended before MPI_Init, or ran where this directory cannot be written"
        )
    elif len(launched) < summary.expected_ranks:
        notes.append(f"Only {len(launched)} of {summary.expected_ranks} ranks left a profile")
    if len(summary.ranks) > len(launched):
        notes.append(f"Spawned by the program: {len(summary.ranks) - len(launched)}")
    if code is None:
        notes.append(f"The program was ended after {limit:g} s: numbers are up to each rank's last call")
    elif code:
        notes.append(f"The program ended with exit code {code}")
    notes += [_unfinished(one) for one in summary.unfinished[:_RANKS_NAMED]]
    if len(summary.unfinished) > _RANKS_NAMED:
        notes.append(f"So it is with {len(summary.unfinished) - _RANKS_NAMED} more ranks")
    if summary.threads_unrecorded:
        notes.append(f"{summary.threads_unrecorded} threads beyond the profiler's 128 at once were not recorded")
    return notes


def _unfinished(one: RankParts) -> str:
    how = "called MPI_Abort" if one.state == "aborted" else "did not come to the end of MPI_Finalize"
    calls = " and ".join(f"in {call.call} since {call.at_s:.3g} s after MPI_Init began" for call in one.inside)
    if not calls and one.last_call_s is not None:
        calls = f"outside MPI since {one.last_call_s:.3g} s after MPI_Init began"
    return f"Rank {one.rank} on {one.host} {how}{', and was ' + calls if calls else ''}"


def write_result(directory: Path, name: str, document: dict[str, Any]) -> None:
    """Write one JSON document."""
    try:
        write_atomically(directory / name, json.dumps(document, allow_nan=False, indent=1).encode())
    except OSError as error:
        raise MeasurementFailed(f"cannot write {directory / name}: {error.strerror}") from error
