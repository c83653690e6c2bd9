# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire bench`: measure transports between two hosts, in the lab or on real machines."""

import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from barewire.cli import complete, links, options
from barewire.cli.directories import results_directory
from barewire.cli.labs import LabChoice, choose_lab
from barewire.cli.measuring import (
    facts_of_all,
    lab_facts,
    parse_launches,
    parse_refinement,
    print_result,
)
from barewire.cli.progress import progress_bar
from barewire.errors import WrongUse
from barewire.guests import EmulatedPair
from barewire.guests.machines import ADDRESSES, INTERFACE
from barewire.measure.brokers import brokers_in
from barewire.measure.launch import Effort
from barewire.measure.programs import PROBE, expand_sizes, find_program
from barewire.measure.runner import Plan, measure
from barewire.measure.session import StoppingRule
from barewire.measure.sites import LabSite, RemoteSite, Site, Station
from barewire.measure.subjects import (
    BROKERED,
    TESTS,
    TRANSPORTS,
    TUNED,
    WAITS,
    parse_processes,
    parse_subjects,
    parse_tests,
    swept,
)
from barewire.models.naming import LINKS, PACKET
from barewire.results.confidence import as_asked

# Default values of a lab's link options.
_ANY_LINK = ("unshaped", "1500", "0", links.OnOff.off, links.CoreOf.sender)


def bench(
    tests: Annotated[
        str,
        typer.Argument(
            metavar="TEST[,TEST]",
            help=f"{', '.join(TESTS)}; or host, or budget",
            autocompletion=complete.bench_tests,
        ),
    ],
    transport: Annotated[
        str,
        typer.Option(
            metavar="TRANSPORT,TRANSPORT",
            help=f"{', '.join(TRANSPORTS)}, libfabric-NAME for another provider",
            autocompletion=complete.transports,
        ),
    ] = "tcp,udp,raw",
    link: Annotated[
        str,
        typer.Option(
            metavar="LINK,LINK",
            help=f"of transports over frames: {', '.join(LINKS)}; udp puts each frame into a datagram",
            autocompletion=complete.probe_links,
        ),
    ] = PACKET,
    wait: Annotated[
        str,
        typer.Option(metavar="POLICY,POLICY", help=", ".join(WAITS), autocompletion=complete.probe_waits),
    ] = "spin",
    sizes: Annotated[str, options.SIZES] = "64,1400",
    perturbation: Annotated[int, options.PERTURBATION] = 0,
    pairs: Annotated[
        int, typer.Option(min=1, max=64, metavar="N", help="concurrent pairs, as threads of one process")
    ] = 1,
    processes: Annotated[
        str | None,
        typer.Option(metavar="N,N", help="concurrent processes on each side: 1,2,4,8; each number separately"),
    ] = None,
    cache: Annotated[links.OnOff, typer.Option(help="off: walk a buffer larger than the cache")] = links.OnOff.on,
    walk_bytes: Annotated[int | None, options.WALK_BYTES] = None,
    lab: Annotated[str | None, options.LAB_CHOICE] = None,
    rate: links.Rate = "unshaped",
    mtu: links.Mtus = "1500",
    loss: links.Loss = "0",
    offloads: links.Offloads = links.OnOff.off,
    receive_on: links.ReceiveOn = links.CoreOf.sender,
    broker: Annotated[
        bool,
        typer.Option(
            "--broker",
            help=f"{', '.join(BROKERED)} get their sockets from a broker on each host",
            rich_help_panel=options.LAB,
        ),
    ] = False,
    emulated: Annotated[
        bool,
        typer.Option(
            "--emulated",
            help="between two emulated machines with Debian's kernel (qemu), for transports of the kernel that no lab "
            "has, such as kernel-llc2",
            rich_help_panel=options.LAB,
        ),
    ] = False,
    hosts: options.TwoHosts = None,
    interface: options.InterfaceOfHosts = None,
    remote_shell: options.RemoteShell = None,
    port: options.ControlPort = options.CONTROL_PORT,
    launches: Annotated[str, options.LAUNCHES] = "6..12",
    precision: options.Precision = 0.02,
    confidence: options.Confidence = 95,
    budget: options.Budget = 120,
    refine: options.Refine = None,
    refine_smallest: options.RefineSmallest = None,
    samples: Annotated[int, options.SAMPLES] = 3000,
    seconds: options.Seconds = 0.2,
    blocks: Annotated[
        int,
        typer.Option(
            min=1,
            max=options.COUNT_MAX,
            metavar="N",
            help="timed blocks of a stream",
            rich_help_panel=options.EFFORT,
        ),
    ] = 10,
    warmup: Annotated[int, options.WARM_UP] = 200,
    tuned: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=NUMBER[,NUMBER]",
            help=f"tuning of {' and '.join(TUNED)}, such as eager_bytes=4096; with several numbers each is measured; "
            "may be repeated",
            autocompletion=complete.tuned,
        ),
    ] = None,
    seed: options.Seed = None,
    output: options.Output = None,
    as_json: options.AsJson = False,
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
            *parse_launches(launches),
            precision,
            budget,
            parse_refinement(refine, refine_smallest),
            options.read_confidence(confidence),
        ),
    )
    site_context: AbstractContextManager[tuple[Mapping[int, Site], dict[str, Any] | None]]
    if emulated:
        link_options = (rate, mtu, loss, offloads, receive_on)
        if hosts is not None or lab is not None or broker or link_options != _ANY_LINK:
            raise WrongUse(
                "--emulated replaces a lab and hosts: omit --lab, --hosts, --broker and a lab's link options"
            )
        options.check_in_a_lab(interface, remote_shell)
        site_context = _in_emulated_machines(port)
    elif hosts is None:
        options.check_in_a_lab(interface, remote_shell, port)
        specs = [links.read(rate, each, offloads, loss, receive_on) for each in mtus]
        site_context = _in_labs({link.mtu: choose_lab(lab or "pair", link) for link in specs}, broker=broker)
    else:
        if broker or lab is not None:
            raise WrongUse("--lab and --broker apply to a lab: omit them with --hosts")
        if len(mtus) > 1:
            raise WrongUse(f"--mtu {mtu}: {links.ONE_MTU}: give one with --hosts")
        limits = links.real(links.read(rate, mtus[0], offloads, loss, receive_on))
        limited = {"rate_bit_s": limits.rate_bit_s, "mtu": limits.mtu}
        remote = RemoteSite.parse(hosts, interface, remote_shell, port=port, **limited)
        site_context = nullcontext(({limits.mtu: remote}, None))
    with (
        site_context as (sites, facts),
        results_directory(output, "-".join(plan.tests)) as directory,
        progress_bar() as progress,
    ):
        run = measure(
            sites[mtus[0]], plan, directory, command=sys.argv, lab=facts, sites_by_mtu=sites, progress=progress
        )
    print_result("bench", as_asked(run, directory), directory, as_json)


def _parse_tuned(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Read the values of each name, which may be in one text or in several."""
    tunings: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        parts = values.split(",")
        if not name or not all(map(options.is_whole, parts)):
            raise WrongUse(
                f"'{text}' is no tuning; write NAME=NUMBER, such as eager_bytes=4096, or several: NAME=NUMBER,NUMBER"
            )
        tunings[name] = tuple(dict.fromkeys([*tunings.get(name, ()), *map(int, parts)]))
    return tunings


@contextmanager
def _in_labs(labs: Mapping[int, LabChoice], *, broker: bool) -> Iterator[tuple[Mapping[int, Site], dict[str, Any]]]:
    """Yield the sites in a lab for each MTU asked for, and their facts for the run."""
    with ExitStack() as stack:
        entered = {mtu: stack.enter_context(in_lab(choice, broker)) for mtu, choice in labs.items()}
        sites = {mtu: site for mtu, (site, _) in entered.items()}
        yield sites, facts_of_all([facts for _, facts in entered.values()])


@contextmanager
def _in_emulated_machines(port: int) -> Iterator[tuple[Mapping[int, Site], None]]:
    """Yield a site of two emulated machines, by its MTU."""
    with EmulatedPair(Path(find_program(PROBE)).parent) as pair:
        active, passive = (Station(address, INTERFACE) for address in ADDRESSES)
        site = RemoteSite(active, passive, pair.remote_shell, port, warnings=(pair.warning,))
        yield {site.mtu: site}, None


def in_lab(choice: LabChoice, broker: bool) -> AbstractContextManager[tuple[Site, dict[str, Any]]]:
    """Return a context that enters the lab and yields its first two hosts, and its facts for the run."""

    @contextmanager
    def lab_site() -> Any:
        with choice.entered() as lab:
            facts = lab_facts(lab) | {"broker": broker}
            with brokers_in(lab, lab.hosts[:2] if broker else []) as brokers:
                yield LabSite(lab, brokers), facts

    return lab_site()
