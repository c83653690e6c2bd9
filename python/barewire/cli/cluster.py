# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire cluster`: what the hosts and cables of a cluster really do, and which one is bad."""

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from barewire.cli import complete, links, options
from barewire.cli.directories import make_empty, results_directory
from barewire.cli.groups import typer_group
from barewire.cli.host_slots import host_slots_of
from barewire.cli.labs import LabChoice, optional_lab
from barewire.cli.output import print_document
from barewire.cli.progress import progress_bar
from barewire.cluster import ClusterHost, LabReach, Reach, ShellReach, check, read_cluster_file, write_cluster_file
from barewire.cluster.check import Checked
from barewire.cluster.measured import SCHEMA
from barewire.cluster.nodelist import expand_nodelist
from barewire.cluster.survey import NoAnswer, failure_of, survey
from barewire.errors import WrongUse
from barewire.measure.sites import parse_remote_shell
from barewire.report.cluster import print_check, verdict
from barewire.report.cluster_page import render_check
from barewire.results.store import write_output

DOCUMENT, PAGE = "check.json", "check.html"
_FILE = Path("cluster.toml")
_EXIT_WRONG = 1


class Carrier(StrEnum):
    """What carries the measurement."""

    auto = "auto"
    packet = "packet"
    udp = "udp"


app = typer_group("Check the hosts, cables and switch of a cluster, and name what is wrong.")

Interface = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Ethernet interface, on every host",
        show_default="the fastest card that is up",
        rich_help_panel=options.HOSTS,
        autocompletion=complete.interfaces,
    ),
]


@app.command()
def init(
    hosts: options.ManyHosts = None,
    hostfile: options.Hostfile = None,
    interface: Interface = None,
    remote_shell: options.RemoteShell = None,
    output: Annotated[Path, options.OUTPUT_FILE] = _FILE,
    force: Annotated[bool, typer.Option("--force", help="overwrite the file")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Ask hosts for their interfaces and speeds, and write cluster.toml."""
    if hosts is None and hostfile is None:
        raise WrongUse("name the hosts: --hosts a,b,c, --hosts 'node[01-16]' or --hostfile FILE")
    if output.exists() and not force:
        raise WrongUse(f"{output} exists already; --force overwrites it")
    with progress_bar("asking the hosts"):
        found, failures = survey(_shell(remote_shell), _names(hosts, hostfile, None), interface)
    if failures:
        raise failure_of(failures)
    write_cluster_file(output, found, force=force)
    if as_json:
        print_document("cluster init", {"file": str(output), "hosts": [asdict(host) for host in found]})
        return
    for host in found:
        speed = "unknown speed" if host.speed_mbit_s is None else f"{host.speed_mbit_s} Mbit/s"
        typer.echo(f"{host.name}: {host.interface}, {speed}, MTU {host.mtu}")
    typer.echo(f"written to {output}; `barewire cluster check {output}` measures them")


@app.command("check")
def check_command(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="written by init", show_default="cluster.toml"),
    ] = None,
    hosts: options.ManyHosts = None,
    hostfile: options.Hostfile = None,
    interface: Interface = None,
    remote_shell: options.RemoteShell = None,
    lab: Annotated[str | None, options.LAB_CHOICE] = None,
    rate: links.Rate = "unshaped",
    mtu: links.Mtu = 1500,
    loss: links.Loss = "0",
    offloads: links.Offloads = links.OnOff.off,
    receive_on: links.ReceiveOn = links.CoreOf.sender,
    carrier: Annotated[
        Carrier, typer.Option("--link", help="what carries the measurement; auto: frames, or UDP where not permitted")
    ] = Carrier.auto,
    doctor: Annotated[bool, typer.Option(help="also run doctor on every host")] = True,
    output: options.Output = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure all pairs of hosts, then all hosts at once, and name what is wrong. Exit code 1 if anything is."""
    choice = optional_lab(lab, links.read(rate, mtu, offloads, loss, receive_on))
    if choice is not None and (file, hostfile, interface, remote_shell) != (None,) * 4:
        raise WrongUse("FILE, --hostfile, --interface and --remote-shell are for real machines: omit them, or --lab")
    if file is not None and (hosts, hostfile) != (None, None):
        raise WrongUse("give a file or hosts, not both")
    with results_directory(output, "cluster") as directory:
        make_empty(directory)
        with _reach(choice, remote_shell) as reach, progress_bar() as progress:
            known, unreachable = _hosts(reach, choice, file, hosts, hostfile, interface)
            checked = check(
                reach,
                known,
                carrier=carrier.value,
                unreachable=unreachable,
                with_doctor=doctor,
                progress=progress,
            )
        document = _document(checked)
        try:
            _write(directory, checked, document)
        finally:
            # Also if the directory is not writable any more.
            if as_json:
                print_document("cluster check", {"directory": str(directory), **document})
            else:
                print_check(Console(highlight=False), checked)
    if not as_json:
        typer.echo(f"page: {directory / PAGE}; every number: {directory / DOCUMENT}")
    if checked.findings:
        raise typer.Exit(_EXIT_WRONG)


@contextmanager
def _reach(choice: LabChoice | None, remote_shell: str | None) -> Iterator[Reach]:
    if choice is None:
        yield _shell(remote_shell)
        return
    with choice.entered() as lab:
        yield LabReach(lab)


def _shell(remote_shell: str | None) -> ShellReach:
    return ShellReach() if remote_shell is None else ShellReach(parse_remote_shell(remote_shell))


def _hosts(
    reach: Reach,
    choice: LabChoice | None,
    file: Path | None,
    hosts: str | None,
    hostfile: Path | None,
    interface: str | None,
) -> tuple[list[ClusterHost], dict[str, str]]:
    """Return the hosts to check: the lab's, those of the options, which are asked first, or those of the file.

    Hosts that cannot be asked follow with the reason.
    """
    if isinstance(reach, LabReach):
        return [ClusterHost(name, reach.lab.host(name).interface) for name in _names(hosts, hostfile, choice)], {}
    if hosts is not None or hostfile is not None:
        asked, failures = survey(reach, _names(hosts, hostfile, None), interface)
        if failures and not asked:
            raise failure_of(failures)
        unreachable = {
            name: failure.reason if isinstance(failure, NoAnswer) else str(failure)
            for name, failure in failures.items()
        }
        # What a host says of itself is no expectation of it.
        return [ClusterHost(host.name, host.interface) for host in asked], unreachable
    known = read_cluster_file(file or _FILE)
    return known if interface is None else [ClusterHost(host.name, interface) for host in known], {}


def _names(hosts: str | None, hostfile: Path | None, choice: LabChoice | None) -> list[str]:
    expanded = None if hosts is None else expand_nodelist(hosts)
    topology = choice.topology if choice else None
    return [entry.host for entry in host_slots_of(expanded, hostfile, topology, resolve=False)]


def _document(checked: Checked) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "created": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": shlex.join(sys.argv),
        "verdict": verdict(checked),
        "findings": [finding.to_json() for finding in checked.findings],
        "unconfirmed": [finding.to_json() for finding in checked.unconfirmed],
        "remarks": list(checked.remarks),
        **checked.measured.to_json(),
    }


def _write(directory: Path, checked: Checked, document: dict[str, Any]) -> None:
    page = render_check(checked, created=document["created"], command=document["command"])
    write_output(
        directory / DOCUMENT, json.dumps(document, indent=1, ensure_ascii=False).encode(errors="backslashreplace")
    )
    write_output(directory / PAGE, page.encode())
