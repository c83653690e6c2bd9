# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The controller as a process, from reading its files until a signal ends it; the switches then keep their rules."""

import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from barewire.errors import WrongUse
from barewire.lab import Lab
from barewire.sdn.api.server import Api
from barewire.sdn.api.token import make_token
from barewire.sdn.classify.policy import Policy, parse_policy
from barewire.sdn.classify.tenants import Tenants, parse_tenants
from barewire.sdn.controller.hosts import Hosts, parse_addresses_file, parse_hosts_file
from barewire.sdn.controller.outbox import Event
from barewire.sdn.controller.settings import Settings
from barewire.sdn.controller.shell import Shell
from barewire.sdn.ui.feed import Feed
from barewire.sdn.ui.server import PAGE, Ui

Tell = Callable[[Event], None]
# gc thresholds: new objects per young collection, young collections per older one: 7 in 4,000 flows.
COLLECT_AFTER = (20_000, 20, 20)
# How long the event loop waits for a thread that makes a plan; Python's default is 5 ms.
SWITCH_INTERVAL_S = 0.001


@dataclass(frozen=True)
class Options:
    """An operator's options: addresses for switches and API, files."""

    listen: Sequence[str]
    api: str
    token_file: Path
    settings: Settings
    lab: str | None = None
    hosts: Path | None = None
    addresses: Path | None = None
    policy: Path | None = None
    strategies: Sequence[str] = ()
    ui: bool = False
    tenants: Path | None = None


def run(options: Options, tell: Tell) -> None:
    """Control a network until SIGINT or SIGTERM. WrongUse and MachineCannot before listening."""
    policy = policy_of(options.policy, options.strategies)
    hosts, listen = _network(options)
    tenants = Tenants()
    if options.tenants is not None:
        text = _read(options.tenants)
        tenants = parse_tenants(text, str(options.tenants), hosts.by_name.keys(), options.tenants.parent)
    token = make_token(options.token_file)
    prepare_interpreter()
    asyncio.run(_serve(options, policy, hosts, listen, token, tenants, tell))


def prepare_interpreter() -> None:
    """Keep Python's own pauses of the event loop short, in this process."""
    # Loaded objects are permanent, and flows create no cycles: a full collection would block for 80 ms.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    sys.setswitchinterval(SWITCH_INTERVAL_S)


async def _serve(
    options: Options,
    policy: Policy,
    hosts: Hosts,
    listen: Sequence[str],
    token: str,
    tenants: Tenants,
    tell: Tell,
) -> None:
    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    feed: Feed | None = None

    def tell_all(event: Event) -> None:
        tell(event)
        if feed is not None:
            feed.note(event)

    shell = Shell(options.settings, policy, hosts, listen, tell_all, tenants)
    feed = Feed(shell, tell) if options.ui else None
    api = Api(shell, options.api, token, None if feed is None else Ui(feed))
    watching = None
    try:
        await shell.open()
        await api.open()
        if options.lab is not None:
            await asyncio.to_thread(Lab.open(options.lab).reconnect_switches)
        addresses = ", ".join(listen)
        if feed is not None:
            watching = asyncio.create_task(feed.run())
            tell(Event("page", f"{_page_url(options.api)} asks for the token in {options.token_file}"))
        tell(Event("ready", f"switches connect to {addresses}; API at {options.api}, token in {options.token_file}"))
        await over.wait()
        tell(Event("ending", f"the switches keep the rules of {len(shell.core.router.routes)} flows"))
    finally:
        if watching is not None:
            watching.cancel()
        await api.close()
        await shell.close()


def _page_url(api: str) -> str:
    if not api.startswith("unix:"):
        return f"http://{api}{PAGE}"
    return f"ssh -L 8181:{api.removeprefix('unix:')} HOST makes this socket http://127.0.0.1:8181{PAGE}, which"


def policy_of(file: Path | None, strategies: Sequence[str]) -> Policy:
    """Return the policy of a file, overridden by `PROFILE=STRATEGY`. WrongUse names the mistake."""
    policy = Policy() if file is None else parse_policy(_read(file), str(file))
    for given in strategies:
        profile, equals, strategy = given.partition("=")
        if not equals:
            raise WrongUse(f"--strategy {given}: write PROFILE=STRATEGY, such as mpi=isolated")
        policy = policy.with_strategy(profile, strategy)
    return policy


def _network(options: Options) -> tuple[Hosts, Sequence[str]]:
    """The hosts, and the addresses for switches."""
    if options.lab is not None:
        if options.hosts is not None or options.addresses is not None:
            raise WrongUse("a lab's hosts are known: leave out --hosts-file and --addresses")
        lab = Lab.open(options.lab)
        named = {host.name: host.mac for host in lab.hosts}
        ports = {host.mac: lab.network.attachment(host.name) for host in lab.hosts} if lab.network is not None else {}
        expected = {mac: port for mac, port in ports.items() if port is not None}
        known = Hosts(named, {host.address: host.name for host in lab.hosts}, expected)
        return known, [*options.listen, f"unix:{lab.controller_socket}"]
    if options.addresses is not None and options.hosts is None:
        raise WrongUse("--addresses needs --hosts-file, which names the hosts: give both")
    named = {} if options.hosts is None else parse_hosts_file(_read(options.hosts), str(options.hosts))
    addresses = {}
    if options.addresses is not None:
        addresses = parse_addresses_file(_read(options.addresses), str(options.addresses), named)
    return Hosts(named, addresses), options.listen


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUse(f"cannot read {file}: {error}") from error
