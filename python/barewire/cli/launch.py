# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Launches what `barewire run` was asked for: an MPI program over a fabric of one's choice, in a lab or on real hosts.

Every import here is waited for by each launch: what only some launches need is imported where they need it.
"""

import json
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING

from barewire.cli.places import places_of
from barewire.cli.run_arguments import SDN_URL, Request
from barewire.errors import MachineCannot, WrongUse
from barewire.mpi import start
from barewire.mpi.fabrics import HIDDEN, Wishes
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


def launch(request: Request) -> int:
    """Run the program and return its exit code; or print what would be run."""
    own = (request.interface, request.link, request.wait, request.progress)
    wishes = Wishes(request.fabric, *own, ulfm=request.ulfm, auth=request.auth)
    chosen = None if request.library is None else find_library(request.library)
    used, reason = library_of_program(request.program[0], chosen, os.environ)
    if request.hosts is not None and request.hostfile is not None:
        raise WrongUse("--hosts and --hostfile both say where: give one of them")
    controller = _controller(request)
    lab = _lab(request)
    places = places_of(request.hosts, request.hostfile, None if lab is None else lab.topology)
    shares = spread(request.ranks, places)
    with nullcontext() if lab is None else lab.entered() as running:
        job = prepare(used, wishes, shares, request.program, running, carried=chosen is not None)
        if request.dry:
            _print_dry(job, wishes, reason, running, request.explained, request.as_json)
            return 0
        check_rights(job)
        if request.explained:
            _explain(job, wishes, reason, running, request.as_json)
        with _announced(job, request.fabric, controller):
            return start.run(job, running)


def _lab(request: Request) -> "LabChoice | None":
    links = (request.rate, request.mtu, request.loss, request.offloads, request.receive_on)
    unsaid = (Request.rate, Request.mtu, Request.loss, Request.offloads, Request.receive_on)
    if request.lab is None and links == unsaid:
        return None
    from barewire.cli.labs import lab_if_asked
    from barewire.lab import LinkSpec, parse_loss, parse_rate

    link = LinkSpec(
        parse_rate(request.rate), request.mtu, request.offloads, parse_loss(request.loss), request.receive_on
    )
    return lab_if_asked(request.lab, link)


def _controller(request: Request) -> "Client | None":
    if request.sdn is None and request.sdn_token is None and not os.environ.get(SDN_URL):
        return None
    from barewire.cli.sdn_client import client_if_wanted

    return client_if_wanted(request.sdn, request.sdn_token)


def _announced(job: Job, fabric: str, controller: "Client | None") -> AbstractContextManager[object]:
    if controller is None:
        return nullcontext()
    import socket

    from barewire.mpi.announcement import announcement
    from barewire.sdn.api.client import Announced

    return Announced(
        controller, announcement(job, fabric, socket.gethostname()), lambda text: print(text, file=sys.stderr)
    )


def _print_dry(job: Job, wishes: Wishes, reason: str, lab: "Lab | None", explained: bool, as_json: bool) -> None:
    from barewire.mpi import explain

    if as_json:
        document = {
            "command": job.command(os.environ),
            "environment": {name: value for name, value in job.environment().items() if name not in HIDDEN},
            "path": [asdict(row) for row in explain.rows(job, wishes, reason, None)],
        }
        print(json.dumps(document))
        return
    if explained:
        _print_table(explain.rows(job, wishes, reason, None))
    print(job.shell_line(os.environ))
    if lab is not None:
        print("# inside the first host of a lab that this run would make, or of the one that stands")


def _explain(job: Job, wishes: Wishes, reason: str, lab: "Lab | None", as_json: bool) -> None:
    from barewire.mpi import explain

    evidence, output = start.witness(job, lab)
    table = explain.rows(job, wishes, reason, evidence)
    if as_json:
        print(json.dumps({"path": [asdict(row) for row in table]}), file=sys.stderr)
    else:
        _print_table(table)
    wrong = [f"{row.what}: {row.wrong}" for row in table if row.wrong]
    if wrong:
        said = "\n".join(f"  {line}" for line in output.strip().splitlines()[-_LINES_SHOWN:])
        raise MachineCannot(f"the path is not the one asked for: {'; '.join(wrong)}. What was said last:\n{said}")


def _print_table(rows: "list[Row]") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for heading in ("what", "path taken", "decided by", "known by"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        seen = f"[red]NOT as asked: {escape(row.wrong)}[/]" if row.wrong else escape(row.seen)
        table.add_row(row.what, escape(row.taken), escape(row.source), seen)
    Console(stderr=True, highlight=False).print(table)
