# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire lab`: manages an emulated cluster from the shell."""

import os
import sys
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from barewire.cli import complete, links, options
from barewire.cli.drawing import drawn_network, save_picture, table
from barewire.cli.groups import typer_group
from barewire.cli.labs import choose_lab
from barewire.cli.output import print_document
from barewire.cli.progress import progress_bar
from barewire.errors import MeasurementFailed, WrongUse
from barewire.lab import Lab, LinkSpec, format_rate, parse_topology
from barewire.lab.state import Wire
from barewire.topology import to_json, with_rate
from barewire.topology.picture import counted

app = typer_group("An emulated cluster: hosts, links and a switch on this machine.")

_COMMAND_FOLLOWS = {"allow_interspersed_args": False, "ignore_unknown_options": True}
_WIRES = {
    Wire.CLOCK: "frames take their time by the clock",
    Wire.EMULATOR: "frames take their time by timers",
    Wire.BUCKET: "only the rate is limited",
}
_HostName = Annotated[str, typer.Argument(metavar="HOST", help="name of a host, such as h1")]


class UpDown(StrEnum):
    """State of a link or a switch."""

    up = "up"
    down = "down"


@app.command()
def up(
    topology: Annotated[
        str,
        typer.Option(
            metavar="TOPOLOGY",
            help="pair; star:N: N hosts on one switch; routed:N: in N subnets; fat-tree:K; leaf-spine:LxSxH (leaves, "
            "spines, hosts at a leaf); dragonfly:AxHxP (switches in a group, global links and hosts of each); "
            "FILE.toml",
            autocompletion=complete.topologies,
        ),
    ] = "pair",
    rate: links.Rate = "unshaped",
    mtu: links.Mtu = 1500,
    offloads: links.Offloads = links.OnOff.off,
    loss: links.Loss = "0",
    receive_on: links.ReceiveOn = links.CoreOf.sender,
    delay: links.Delay = "0",
    jitter: links.Jitter = "0",
    standalone: Annotated[
        bool,
        typer.Option(
            "--standalone", help="switches learn addresses, without a controller; for topologies without loops"
        ),
    ] = False,
    static_neighbours: Annotated[
        bool,
        typer.Option(
            "--static-neighbours", help="hosts have static entries of all MAC addresses, as always in pair and star:N"
        ),
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Create a lab that exists until `barewire lab down`."""
    link = links.read(rate, mtu, offloads, loss, receive_on, delay, jitter)
    shape = parse_topology(topology)
    if shape.network is None and (standalone or static_neighbours):
        raise WrongUse(f"--standalone and --static-neighbours need a network of switches; {topology} has none")
    with progress_bar("creating the lab"):
        lab = Lab.up(shape, link, persistent=True, standalone=standalone, static_neighbours=static_neighbours)
    console = Console(highlight=False)
    try:
        if as_json:
            print_document("lab up", lab_document(lab))
        else:
            console.print(f"lab [bold]{lab.id}[/]: {escape(lab.topology)}, {_describe(lab)}")
        sys.stdout.flush()
    except BaseException:
        # Nobody has read its id.
        lab.down()
        raise
    if not as_json:
        _print_hosts(console, lab)
        if shape.network is not None and not standalone:
            console.print(
                escape(f"nothing is forwarded until a controller listens on {lab.controller_socket}"), soft_wrap=True
            )
        console.print(f"try: barewire lab exec --lab {lab.id} {lab.hosts[0].name} -- hostname", soft_wrap=True)


def _print_hosts(console: Console, lab: Lab) -> None:
    hosts = Table("host", "address", "MAC", "interface", "cores")
    for host in lab.hosts:
        hosts.add_row(host.name, host.address, host.mac, host.interface, ", ".join(map(str, host.cpus)))
    console.print(hosts)
    for note in lab.notes + ["hosts share cores: times depend on the scheduler"] * lab.oversubscribed:
        console.print(f"note: {note}", markup=False, soft_wrap=True)


@app.command()
def show(
    lab_or_topology: Annotated[
        str | None,
        typer.Argument(
            metavar="[LAB|TOPOLOGY]", help="id of a lab, or any topology", autocompletion=complete.labs_and_topologies
        ),
    ] = None,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="draw it to this SVG file")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="draw it to this HTML page")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Show a network: its switches, their ports with peers, and the rates."""
    chosen = choose_lab(lab_or_topology or _chosen_lab(None).id)
    network = drawn_network(chosen.topology)
    if chosen.running is None:
        title = str(chosen.topology)
    else:
        title = f"lab {chosen.running.id}: {chosen.topology}"
        network = with_rate(network, chosen.link.rate_bit_s)
    for file, page in ((svg, False), (html, True)):
        if file is not None:
            save_picture(network, title, file, page=page)
    if as_json:
        print_document("lab show", to_json(network))
    else:
        console = Console(highlight=False)
        console.print(f"{title}: {counted(network)}", markup=False, soft_wrap=True)
        if network.switches:
            console.print(table(network))
    if chosen.running is not None and (
        ended := [name for name, server in chosen.running.servers.items() if not server.alive]
    ):
        raise MeasurementFailed(
            f"{' and '.join(ended)} of lab {chosen.running.id} ended; see the logs in {chosen.running.directory}/ovs"
        )


@app.command()
def link(
    first: Annotated[str, typer.Argument(metavar="NODE", help="s5 or h1; or the port, s5:3, where links are parallel")],
    second: Annotated[str, typer.Argument(metavar="NODE")],
    state: Annotated[UpDown, typer.Argument()],
    lab: options.LabId = None,
) -> None:
    """Disconnect a link of a network of switches, or connect it again; its ports lose their carrier."""
    _chosen_lab(lab).set_cable(first, second, up=state is UpDown.up)


@app.command()
def switch(
    name: Annotated[str, typer.Argument(metavar="SWITCH")],
    state: Annotated[UpDown, typer.Argument()],
    lab: options.LabId = None,
) -> None:
    """Switch a switch off or on; it loses its flows, and its peers lose the carrier of their links."""
    _chosen_lab(lab).set_switch(name, up=state is UpDown.up)


@app.command("list")
def list_labs(as_json: options.AsJson = False) -> None:
    """List this user's labs."""
    labs = Lab.list()
    if as_json:
        print_document("lab list", {"labs": [lab_document(lab) for lab in labs]})
        return
    if not labs:
        typer.echo("no labs; `barewire lab up` creates one")
        return
    labs_table = Table("lab", "status", "topology", "rate", "MTU", "offloads", "created")
    for lab in labs:
        offloads = "on" if lab.link.offloads else "off"
        labs_table.add_row(
            lab.id,
            lab.status,
            lab.topology,
            format_rate(lab.link.rate_bit_s),
            str(lab.link.mtu),
            offloads,
            lab.created.removesuffix("+00:00") + "Z",
        )
    Console(highlight=False, markup=False).print(labs_table)


@app.command("exec", context_settings=_COMMAND_FOLLOWS)
def execute(
    host: _HostName,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND…", help="the command and its arguments")],
    lab: options.LabId = None,
) -> None:
    """Run a command on a host, on its cores, and return its exit code."""
    # click keeps the separator if it follows a positional argument.
    _replace_this_process(_chosen_lab(lab), host, command[1:] if command[0] == "--" else command)


@app.command()
def shell(host: _HostName, lab: options.LabId = None) -> None:
    """Open a shell on a host."""
    _replace_this_process(_chosen_lab(lab), host, [os.environ.get("SHELL") or "/bin/sh"])


@app.command()
def down(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[LAB]…", help="ids of the labs to remove", autocompletion=complete.labs),
    ] = None,
    all_labs: Annotated[bool, typer.Option("--all", help="remove all labs of this user")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Remove labs, and the records of those that have ended."""
    if bool(ids) == all_labs:
        raise WrongUse("name the labs to remove: `barewire lab down LAB…`, or --all; `barewire lab list` lists them")
    labs = (
        [lab for lab in Lab.list() if lab.status != "being made"]
        if all_labs
        else [Lab.open(name) for name in ids or []]
    )
    for lab in labs:
        lab.down()
        if not as_json:
            typer.echo(f"lab {lab.id} ended")
    if as_json:
        print_document("lab down", {"ended": [lab.id for lab in labs]})
    elif not labs:
        typer.echo("no labs to end")


def lab_document(lab: Lab) -> dict[str, Any]:
    """Return all facts about a lab, for --json."""
    document = lab.to_json()
    # That of the file.
    del document["schema"]
    derived: dict[str, Any] = {
        "status": lab.status,
        "oversubscribed": lab.oversubscribed,
        "directory": str(lab.directory),
    }
    with suppress(MeasurementFailed):  # it has just ended
        if lab.status == "running" and lab.network is not None:
            derived["controller_socket"] = str(lab.controller_socket)
    return document | derived


def _describe(lab: Lab) -> str:
    link = lab.link
    details = f", loss {100 * link.loss:g} %" if link.loss else ""
    details += f", received on the {link.receive_on}'s core" if link.receive_on != LinkSpec.receive_on else ""
    details += f", delay {link.delay_us:g} ± {link.jitter_us:g} µs" if link.delay_us else ""
    details += f", {_WIRES[Wire(lab.wire)]} ({lab.wire})" if lab.wire is not None else ""
    return f"{format_rate(link.rate_bit_s)}, MTU {link.mtu}, offloads {'on' if link.offloads else 'off'}{details}"


def _chosen_lab(lab_id: str | None) -> Lab:
    if lab_id is not None:
        return Lab.open(lab_id)
    running = [lab for lab in Lab.list() if lab.status == "running"]
    if len(running) == 1:
        return running[0]
    if not running:
        raise WrongUse("no lab is running; `barewire lab up` creates one")
    raise WrongUse(f"several labs are running; choose one with --lab: {', '.join(lab.id for lab in running)}")


def _replace_this_process(lab: Lab, host: str, command: list[str]) -> NoReturn:
    line = lab.command(host, command)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(line[0], line)
