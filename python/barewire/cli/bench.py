# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire bench`: measure transports between two hosts, in the lab or on real machines."""

import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
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
    Refine,
    RefineSmallest,
    RemoteShell,
    RoundTrips,
    Seconds,
    Seed,
    TwoHosts,
    WarmUp,
    facts_of_all,
    lab_facts,
    parse_launches,
    parse_refinement,
    print_result,
    report_kept_samples,
)
from barewire.cli.progress import progress_bar
from barewire.errors import WrongUse
from barewire.lab import Lab, LinkSpec, parse_rate, parse_topology
from barewire.measure import LabSite, Plan, RemoteSite, Site, measure, parse_processes, parse_subjects, parse_tests
from barewire.measure.brokers import brokers_in
from barewire.measure.launch import Effort
from barewire.measure.programs import expand_sizes
from barewire.measure.session import StoppingRule
from barewire.measure.subjects import TRANSPORTS, swept
from barewire.models.naming import PACKET


def bench(
    tests: Annotated[
        str,
        typer.Argument(
            metavar="TEST[,TEST]",
            help="pingpong, stream, bidirectional; or host, or budget, each with its own --help",
        ),
    ],
    transport: Annotated[
        str,
        typer.Option(help=f"{', '.join(TRANSPORTS)}, libfabric-NAME for another provider; several with commas"),
    ] = "tcp,udp,raw",
    link: Annotated[
        str,
        typer.Option(
            help="for raw, llc, endpoint and messages: packet, xdp, xdp-generic, xdp-native, xdp-zerocopy, or udp, "
            "which puts each frame into a datagram; or several"
        ),
    ] = PACKET,
    wait: Annotated[str, typer.Option(help="spin, adaptive, block, busypoll; several with commas")] = "spin",
    sizes: Annotated[str, typer.Option(help="message sizes: 64,1400,4KiB or 1..64KiB, which doubles")] = "64,1400",
    perturbation: Annotated[
        int, typer.Option(min=0, help="also measure this many bytes around each size of a range")
    ] = 0,
    pairs: Annotated[int, typer.Option(min=1, max=64, help="concurrent pairs, as threads of one process")] = 1,
    processes: Annotated[
        str | None,
        typer.Option(help="concurrent processes on each side: 1,2,4,8; each number separately"),
    ] = None,
    cache: Annotated[links.OnOff, typer.Option(help="off: walk a buffer larger than the cache")] = links.OnOff.on,
    walk_bytes: Annotated[int | None, typer.Option(min=1, help="size of that buffer")] = None,
    lab: Annotated[str, typer.Option(help="pair, star:N or routed:N", rich_help_panel=LAB)] = "pair",
    rate: links.Rate = "unshaped",
    mtu: links.Mtus = "1500",
    offloads: links.Offloads = links.OnOff.off,
    loss: links.Loss = "0",
    receive_on: links.ReceiveOn = links.CoreOf.sender,
    broker: Annotated[
        bool,
        typer.Option(
            "--broker",
            help="llc1, llc2, llc3 and endpoints get their sockets from a broker on each host",
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
    refine: Refine = None,
    refine_smallest: RefineSmallest = None,
    samples: RoundTrips = 3000,
    seconds: Seconds = 0.2,
    blocks: Annotated[int, typer.Option(min=1, help="timed blocks of a stream", rich_help_panel=EFFORT)] = 10,
    warmup: WarmUp = 200,
    tuned: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=NUMBER[,NUMBER]",
            help="tuning of endpoint and messages, such as eager_bytes=4096; with several numbers each is measured; "
            "may be repeated",
        ),
    ] = None,
    seed: Seed = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Measure transports between two hosts, interleaved in one run.

    Prints a table with the physical limit, and leaves a directory with every sample; `barewire report` makes a page.
    """
    mtus, tunings = links.parse_mtus(mtu), _parse_tuned(tuned or [])
    several = {name: values for name, values in tunings.items() if len(values) > 1}
    subjects = parse_subjects(transport, wait, link)
    if several or len(mtus) > 1:
        subjects = swept(subjects, several, mtus if len(mtus) > 1 else (None,))
    plan = Plan(
        tests=parse_tests(tests),
        subjects=subjects,
        sizes=expand_sizes(sizes, perturbation),
        seed=secrets.randbits(32) if seed is None else seed,
        pairs=pairs,
        processes=None if processes is None else parse_processes(processes),
        cache=cache is links.OnOff.on,
        walk_bytes=walk_bytes,
        tuned=tuple((name, values[0]) for name, values in tunings.items() if len(values) == 1),
        effort=Effort(samples, seconds, warmup, blocks),
        stopping_rule=StoppingRule(
            *parse_launches(launches), precision, budget, parse_refinement(refine, refine_smallest)
        ),
    )
    site_context: AbstractContextManager[tuple[Mapping[int, Site], dict[str, Any] | None]]
    if hosts is None:
        site_context = _in_labs(
            lab, [links.read(rate, each, offloads, loss, receive_on) for each in mtus], broker=broker
        )
    else:
        if broker:
            raise WrongUse("--broker starts brokers on a lab's hosts: omit it with --hosts")
        if len(mtus) > 1:
            raise WrongUse(f"--mtu {mtu}: {links.ONE_MTU}: give one with --hosts")
        remote = RemoteSite.parse(hosts, interface, remote_shell, port=port, rate_bit_s=parse_rate(rate), mtu=mtus[0])
        site_context = nullcontext(({mtus[0]: remote}, None))
    directory = output or Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{'-'.join(plan.tests)}"
    with site_context as (sites, facts), progress_bar(quiet=as_json) as progress, report_kept_samples(directory):
        run = measure(
            sites[mtus[0]], plan, directory, command=sys.argv, lab=facts, sites_by_mtu=sites, progress=progress
        )
    print_result(run, directory, as_json)


def _parse_tuned(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Read the values of each name, which may be in one text or in several."""
    tunings: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        parts = values.split(",")
        if not name or not all(part.isdecimal() for part in parts):
            raise WrongUse(
                f"'{text}' is no tuning; write NAME=NUMBER, such as eager_bytes=4096, or several: NAME=NUMBER,NUMBER"
            )
        tunings[name] = tuple(dict.fromkeys([*tunings.get(name, ()), *map(int, parts)]))
    return tunings


@contextmanager
def _in_labs(
    topology: str, specs: Sequence[LinkSpec], *, broker: bool
) -> Iterator[tuple[Mapping[int, Site], dict[str, Any]]]:
    """Yield the sites in a lab for each MTU, and their facts for the run."""
    with ExitStack() as stack:
        entered = [stack.enter_context(in_lab(topology, link, broker)) for link in specs]
        sites = {link.mtu: site for link, (site, _) in zip(specs, entered, strict=True)}
        yield sites, facts_of_all([facts for _, facts in entered])


def in_lab(topology: str, link: LinkSpec, broker: bool) -> AbstractContextManager[tuple[Site, dict[str, Any]]]:
    """Return a context that makes a lab for the block and yields its first two hosts, and its facts for the run."""
    shape = parse_topology(topology)

    @contextmanager
    def lab_site() -> Any:
        with Lab.up(shape, link, standalone=True) as lab:
            facts = lab_facts(lab) | {"broker": broker}
            with brokers_in(lab, lab.hosts[:2] if broker else []) as brokers:
                yield LabSite(lab, brokers), facts

    return lab_site()
