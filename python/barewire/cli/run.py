# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire run` for typer: its options, for help, errors, and arguments that `run_arguments` does not parse."""

from pathlib import Path
from typing import Annotated

import typer

from barewire.cli import links
from barewire.cli.labs import LAB_HELP
from barewire.cli.launch import launch
from barewire.cli.run_arguments import Request
from barewire.cli.sdn_client import Sdn, SdnToken
from barewire.mpi.fabrics import FABRICS, PROVIDER

_HOSTS = "On real hosts"
_PATH = "The path"


def run(
    program: Annotated[list[str], typer.Argument(metavar="-- PROGRAM…", help="the program and its arguments")],
    ranks: Annotated[int, typer.Option("-n", "--ranks", min=1, help="number of ranks")],
    fabric: Annotated[str, typer.Option(help=FABRICS, rich_help_panel=_PATH)] = PROVIDER,
    library: Annotated[
        str | None,
        typer.Option(
            help="MPI library by name or folder; only if the program does not determine it", rich_help_panel=_PATH
        ),
    ] = None,
    interface: Annotated[
        str | None, typer.Option(help="Ethernet interface; default: the first one that is up", rich_help_panel=_PATH)
    ] = None,
    link: Annotated[str | None, typer.Option(help="barewire: auto, packet, xdp, udp", rich_help_panel=_PATH)] = None,
    wait: Annotated[str | None, typer.Option(help="barewire: spin, adaptive, block", rich_help_panel=_PATH)] = None,
    progress: Annotated[
        str | None,
        typer.Option(
            help="while the program computes: barewire auto (a progress thread) or manual; thread (the library's own)",
            rich_help_panel=_PATH,
        ),
    ] = None,
    auth: Annotated[
        str | None,
        typer.Option(
            help="frames of barewire: none, job (authenticated), encrypt (and messages encrypted)",
            rich_help_panel=_PATH,
        ),
    ] = None,
    ulfm: Annotated[
        bool,
        typer.Option(
            "--ulfm",
            help="survivors of a failed rank continue (user-level failure mitigation): Open MPI 5",
            rich_help_panel=_PATH,
        ),
    ] = False,
    lab: Annotated[str | None, typer.Option(help=LAB_HELP, rich_help_panel=links.IN_A_LAB)] = None,
    rate: links.Rate = "unshaped",
    mtu: links.Mtu = 1500,
    loss: links.Loss = "0",
    offloads: links.Offloads = links.OnOff.off,
    receive_on: links.ReceiveOn = links.CoreOf.sender,
    hosts: Annotated[
        str | None, typer.Option(help="a,b or a:4,b:4, real or of the lab; default: this host", rich_help_panel=_HOSTS)
    ] = None,
    hostfile: Annotated[
        Path | None, typer.Option(help="a file with lines a, a:4 or a slots=4", rich_help_panel=_HOSTS)
    ] = None,
    sdn: Sdn = None,
    sdn_token: SdnToken = None,
    capture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="capture all frames of the job's hosts, for `barewire account FILE`",
            rich_help_panel=links.IN_A_LAB,
        ),
    ] = None,
    explained: Annotated[
        bool, typer.Option("--explain", help="first verify which path is taken; a table on standard error")
    ] = False,
    dry: Annotated[bool, typer.Option("--dry-run", help="print the command line and start no rank")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="print the output of --explain and --dry-run as JSON")
    ] = False,
) -> None:
    """Run an MPI program over plain Ethernet frames, or over another fabric to compare.

    Finds the MPI library that the program was built with, selects its path, and starts it with that library's own
    launcher. The exit code is the program's. On a network with Barewire's controller, use --sdn: the job is announced
    there while it runs.
    """
    request = Request(
        program=tuple(program[1:] if program[0] == "--" else program),
        ranks=ranks,
        fabric=fabric,
        library=library,
        interface=interface,
        link=link,
        wait=wait,
        progress=progress,
        auth=auth,
        ulfm=ulfm,
        lab=lab,
        rate=rate,
        mtu=mtu,
        loss=loss,
        offloads=offloads is links.OnOff.on,
        receive_on=receive_on.value,
        hosts=hosts,
        hostfile=hostfile,
        sdn=sdn,
        sdn_token=sdn_token,
        capture=capture,
        explained=explained,
        dry=dry,
        as_json=as_json,
    )
    raise typer.Exit(launch(request))
