# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire run` for typer: its options, for help, errors, and arguments that `run_arguments` does not parse."""

from pathlib import Path
from typing import Annotated

import typer

from barewire.cli import complete, links, options
from barewire.cli.launch import launch
from barewire.cli.run_arguments import Request
from barewire.cli.sdn_client import Sdn, SdnToken
from barewire.mpi.fabrics import AUTHS, PROVIDER


def run(
    program: options.ProgramArguments,
    ranks: Annotated[int, options.RANKS],
    fabric: Annotated[str, options.FABRIC] = PROVIDER,
    library: Annotated[str | None, options.LIBRARY] = None,
    interface: Annotated[str | None, options.PATH_INTERFACE] = None,
    link: Annotated[str | None, options.LINK] = None,
    wait: Annotated[str | None, options.WAIT] = None,
    progress: Annotated[str | None, options.PROGRESS] = None,
    auth: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="frames of barewire: none, job (authenticated), encrypt (and messages encrypted)",
            rich_help_panel=options.PATH,
            autocompletion=complete.names(lambda: AUTHS),
        ),
    ] = None,
    ulfm: Annotated[
        bool,
        typer.Option(
            "--ulfm",
            help="survivors of a failed rank continue (user-level failure mitigation): Open MPI 5",
            rich_help_panel=options.PATH,
        ),
    ] = False,
    lab: Annotated[str | None, options.LAB_CHOICE] = None,
    rate: links.Rate = "unshaped",
    mtu: links.Mtu = 1500,
    loss: links.Loss = "0",
    offloads: links.Offloads = links.OnOff.off,
    receive_on: links.ReceiveOn = links.CoreOf.sender,
    hosts: options.JobHosts = None,
    hostfile: options.Hostfile = None,
    sdn: Sdn = None,
    sdn_token: SdnToken = None,
    capture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="capture all frames of the job's hosts, for `barewire account FILE`",
            rich_help_panel=options.LAB,
        ),
    ] = None,
    explained: Annotated[
        bool, typer.Option("--explain", help="first verify which path is taken; a table on standard error")
    ] = False,
    dry: Annotated[bool, typer.Option("--dry-run", help="print the command line and start no rank")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Run an MPI program over plain Ethernet frames, or over another fabric to compare.

    Finds the MPI library that the program was built with, selects its path, and starts it with that library's own
    launcher. The exit code is the program's. On a network with Barewire's controller, use --sdn: the job is announced
    there while it runs. With --json, --explain and --dry-run print JSON.
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
