# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Implements `barewire run`: starts an MPI program over the chosen fabric, in a lab or on real hosts.

Every import here delays each launch: imports that only some launches need are local to functions.
"""

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING

from barewire.cli.host_slots import host_slots_of
from barewire.cli.output import print_document
from barewire.cli.run_arguments import SDN_URL, Request
from barewire.errors import MachineCannot, WrongUse
from barewire.mpi import start
from barewire.mpi.fabrics import HIDDEN, LABELS, LINK, FabricOptions
from barewire.mpi.job import Job
from barewire.mpi.libraries import find_library, library_of_program
from barewire.mpi.placement import spread
from barewire.mpi.prepare import prepare
from barewire.mpi.rights import check_rights

if TYPE_CHECKING:
    from barewire.cli.labs import LabChoice
    from barewire.lab import Lab
    from barewire.mpi.explain import Row
    from barewire.sdn.api.client import Client

_LINES_SHOWN = 12
_MAX_LOG_COLUMNS = 1000
"""A table that goes to a file or a pipe is as wide as its rows, so that a path in it can be searched for."""


def launch(request: Request) -> int:
    """Run the program and return its exit code; with --dry-run print its command instead."""
    options = (request.interface, request.link, request.wait, request.progress)
    requested = FabricOptions(request.fabric, *options, ulfm=request.ulfm, auth=request.auth)
    chosen = None if request.library is None else find_library(request.library)
    library, reason = library_of_program(request.program[0], chosen, os.environ)
    if request.hosts is not None and request.hostfile is not None:
        raise WrongUse("--hosts and --hostfile exclude each other")
    controller = _controller(request)
    lab = _lab_choice(request)
    _check_capture(request, lab)
    host_slots = host_slots_of(request.hosts, request.hostfile, None if lab is None else lab.topology)
    shares = spread(request.ranks, host_slots)
    with nullcontext() if lab is None else lab.entered() as running:
        job = prepare(library, requested, shares, request.program, running, with_library_path=chosen is not None)
        if request.dry:
            _print_dry(job, requested, reason, running, request.explained, request.as_json)
            return 0
        check_rights(job)
        if request.explained:
            _explain(job, requested, reason, running, request.as_json)
        if controller is not None:
            job = _labelled(job, request.fabric, controller)
        with _announcement_context(job, request.fabric, controller), _capture_context(job, request, running):
            return start.run(job, running)


def _lab_choice(request: Request) -> "LabChoice | None":
    links = (request.rate, request.mtu, request.loss, request.offloads, request.receive_on)
    defaults = (Request.rate, Request.mtu, Request.loss, Request.offloads, Request.receive_on)
    if request.lab is None and links == defaults:
        return None
    from barewire.cli.labs import optional_lab
    from barewire.lab import LinkSpec, parse_loss, parse_rate

    link = LinkSpec(
        parse_rate(request.rate), request.mtu, request.offloads, parse_loss(request.loss), request.receive_on
    )
    return optional_lab(request.lab, link)


def _controller(request: Request) -> "Client | None":
    if request.sdn is None and request.sdn_token is None and not os.environ.get(SDN_URL):
        return None
    from barewire.cli.sdn_client import optional_client

    return optional_client(request.sdn, request.sdn_token)


def _announcement_context(job: Job, fabric: str, controller: "Client | None") -> AbstractContextManager[object]:
    if controller is None:
        return nullcontext()
    import socket

    from barewire.mpi.announcement import announcement
    from barewire.sdn.api.client import Announced

    return Announced(
        controller, announcement(job, fabric, socket.gethostname()), lambda text: print(text, file=sys.stderr)
    )


def _labelled(job: Job, fabric: str, controller: "Client") -> Job:
    """The job with the network's labels, unless the user has set others."""
    if LABELS in os.environ:
        return job
    from barewire.mpi.announcement import PROFILE, labelled

    return labelled(job, fabric, controller.labels(PROFILE, lambda text: print(text, file=sys.stderr)))


def _check_capture(request: Request, lab: "LabChoice | None") -> None:
    if request.capture is None:
        return
    if lab is None:
        raise WrongUse(
            "--capture captures in a lab: add --lab pair. On real hosts run `tcpdump -i eth1 -Q in -w HOST.pcap` on "
            "each, then `mergecap -w ALL.pcapng *.pcap`"
        )
    from barewire.account import capture

    capture.check(request.capture)


def _capture_context(job: Job, request: Request, lab: "Lab | None") -> AbstractContextManager[None]:
    if request.capture is None or lab is None:
        return nullcontext()
    from barewire.account import capture

    hosts = [host for host, _ in job.shares]
    # AF_XDP takes a frame before any tap of the same interface.
    if job.environment().get(LINK, "").startswith("xdp") and any(lab.far_end(host).node in hosts for host in hosts):
        raise WrongUse(
            "--capture: in a pair without a switch AF_XDP takes frames before they are captured: --lab star:2"
        )
    return capture.captured(lab, hosts, request.capture)


def _print_dry(
    job: Job, requested: FabricOptions, reason: str, lab: "Lab | None", explained: bool, as_json: bool
) -> None:
    from barewire.mpi import explain

    if as_json:
        document = {
            "command": job.command(os.environ),
            "environment": {name: value for name, value in job.environment().items() if name not in HIDDEN},
            "path": [asdict(row) for row in explain.rows(job, requested, reason, None)],
        }
        print_document("run", document)
        return
    if explained:
        _print_table(explain.rows(job, requested, reason, None))
    print(job.shell_line(os.environ))
    if lab is not None:
        print("# on the first host of the lab, which this run would create unless it is running")


def _explain(job: Job, requested: FabricOptions, reason: str, lab: "Lab | None", as_json: bool) -> None:
    from barewire.mpi import explain

    evidence, output = start.witness(job, lab)
    table = explain.rows(job, requested, reason, evidence)
    if as_json:
        print_document("run", {"path": [asdict(row) for row in table]}, to=sys.stderr)
    else:
        _print_table(table)
    wrong = [f"{row.what}: {row.wrong}" for row in table if row.wrong]
    if wrong:
        last_lines = "\n".join(f"  {line}" for line in output.strip().splitlines()[-_LINES_SHOWN:])
        raise MachineCannot(f"the path is not the requested one: {'; '.join(wrong)}. Last output:\n{last_lines}")


def _print_table(rows: "list[Row]") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for heading in ("what", "path taken", "decided by", "known by"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        seen = f"[red]NOT as requested: {escape(row.wrong)}[/]" if row.wrong else escape(row.seen)
        table.add_row(row.what, escape(row.taken), escape(row.source), seen)
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        unbroken = console.options.update(width=_MAX_LOG_COLUMNS)
        console.width = console.measure(table, options=unbroken).maximum
    console.print(table)
