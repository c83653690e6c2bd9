# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire bench`: measure transports between two hosts, in the lab or on real machines."""

import secrets
import sys
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from barewire.cli import links
from barewire.cli.measuring import (
    EFFORT,
    LAB,
    AsJson,
    Budget,
    ControlPort,
    Launches,
    Output,
    Precision,
    RawInterface,
    RemoteShell,
    RoundTrips,
    Seconds,
    Seed,
    TwoHosts,
    WarmUp,
    kept_if_broken_off,
    lab_facts,
    parse_launches,
    print_result,
)
from barewire.cli.progress import progress_bar
from barewire.errors import WrongUse
from barewire.lab import Lab, LinkSpec, parse_rate, parse_topology
from barewire.measure import LabSite, Plan, RemoteSite, Site, measure, parse_processes, parse_subjects, parse_tests
from barewire.measure.brokers import brokers_in
from barewire.measure.launch import Effort
from barewire.measure.programs import expand_sizes
from barewire.measure.session import Enough
from barewire.measure.subjects import TRANSPORTS
from barewire.models.naming import PACKET


def bench(
    tests: Annotated[
        str,
        typer.Argument(
            metavar="TEST[,TEST]",
            help="pingpong, stream, bidirectional; or host, or budget, which have a --help of their own",
        ),
    ],
    transport: Annotated[
        str,
        typer.Option(help=f"{', '.join(TRANSPORTS)}, libfabric-NAME for another provider; several with commas"),
    ] = "tcp,udp,raw",
    link: Annotated[
        str,
        typer.Option(
            help="of raw, llc, endpoint and messages: packet, xdp, xdp-generic, xdp-native, xdp-zerocopy; or several"
        ),
    ] = PACKET,
    wait: Annotated[str, typer.Option(help="spin, adaptive, block, busypoll; several with commas")] = "spin",
    sizes: Annotated[str, typer.Option(help="message sizes: 64,1400,4KiB or 1..64KiB, which doubles")] = "64,1400",
    perturbation: Annotated[int, typer.Option(min=0, help="around each size of a range also so many bytes")] = 0,
    pairs: Annotated[
        int, typer.Option(min=1, max=64, help="pairs that measure at once, as threads of one process")
    ] = 1,
    processes: Annotated[
        str | None,
        typer.Option(help="processes that measure at once, on each side: 1,2,4,8; each number by itself"),
    ] = None,
    cache: Annotated[links.OnOff, typer.Option(help="off: walk a buffer larger than the cache")] = links.OnOff.on,
    walk_bytes: Annotated[int | None, typer.Option(min=1, help="size of that buffer")] = None,
    lab: Annotated[str, typer.Option(help="pair or star:N", rich_help_panel=LAB)] = "pair",
    rate: links.Rate = "unshaped",
    mtu: links.Mtu = 1500,
    offloads: links.Offloads = links.OnOff.off,
    loss: links.Loss = "0",
    receive_on: links.ReceiveOn = links.CoreOf.sender,
    broker: Annotated[
        bool,
        typer.Option(
            "--broker",
            help="llc1, llc2, llc3 and endpoints by a broker in each host, all behind one hook",
            rich_help_panel=LAB,
        ),
    ] = False,
    hosts: TwoHosts = None,
    interface: RawInterface = None,
    remote_shell: RemoteShell = None,
    port: ControlPort = 5288,
    launches: Launches = "6..12",
    precision: Precision = 0.02,
    budget: Budget = 120,
    samples: RoundTrips = 3000,
    seconds: Seconds = 0.2,
    blocks: Annotated[int, typer.Option(min=1, help="timed blocks of a stream", rich_help_panel=EFFORT)] = 10,
    warmup: WarmUp = 200,
    tuned: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="of endpoint and messages, such as eager_bytes=4096; may be repeated"),
    ] = None,
    seed: Seed = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Measure what transports give a program between two hosts, interleaved in one run.

    Prints a table with the physical limit, and leaves a directory with every sample; `barewire report` makes a page.
    """
    plan = Plan(
        tests=parse_tests(tests),
        subjects=parse_subjects(transport, wait, link),
        sizes=expand_sizes(sizes, perturbation),
        seed=secrets.randbits(32) if seed is None else seed,
        pairs=pairs,
        processes=None if processes is None else parse_processes(processes),
        cache=cache is links.OnOff.on,
        walk_bytes=walk_bytes,
        tuned=tuple(_parse_tuned(text) for text in tuned or []),
        effort=Effort(samples, seconds, warmup, blocks),
        enough=Enough(*parse_launches(launches), precision, budget),
    )
    place: AbstractContextManager[tuple[Site, dict[str, Any] | None]]
    if hosts is None:
        place = in_lab(lab, links.read(rate, mtu, offloads, loss, receive_on), broker)
    else:
        if broker:
            raise WrongUse("--broker starts brokers in a lab's hosts: leave it out with --hosts")
        place = nullcontext(
            (RemoteSite.parse(hosts, interface, remote_shell, port=port, rate_bit_s=parse_rate(rate), mtu=mtu), None)
        )
    directory = output or Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{'-'.join(plan.tests)}"
    with place as (site, lab_facts), progress_bar(quiet=as_json) as progress, kept_if_broken_off(directory):
        run = measure(site, plan, directory, command=sys.argv, lab=lab_facts, progress=progress)
    print_result(run, directory, as_json)


def _parse_tuned(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not name or not value.isdecimal():
        raise WrongUse(f"'{text}' is no value of the tuning file; write NAME=NUMBER, such as eager_bytes=4096")
    return name, int(value)


def in_lab(topology: str, link: LinkSpec, broker: bool) -> AbstractContextManager[tuple[Site, dict[str, Any]]]:
    """The first two hosts of a lab that is made for the block, and what a run keeps of it."""
    shape = parse_topology(topology)

    @contextmanager
    def made() -> Any:
        with Lab.up(shape, link, standalone=True) as lab:
            facts = lab_facts(lab) | {"broker": broker}
            with brokers_in(lab, lab.hosts[:2] if broker else []) as brokers:
                yield LabSite(lab, brokers), facts

    return made()
