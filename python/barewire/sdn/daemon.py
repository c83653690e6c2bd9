# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The controller as a process: files read, sockets open, until a signal ends it; the switches keep their rules then."""

import asyncio
import gc
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from barewire.errors import WrongUse
from barewire.lab import Lab
from barewire.sdn.api.server import Api
from barewire.sdn.api.token import make_token
from barewire.sdn.classify.policy import Policy, parse_policy
from barewire.sdn.controller.hosts import Hosts, parse_addresses_file, parse_hosts_file
from barewire.sdn.controller.outbox import Event
from barewire.sdn.controller.settings import Settings
from barewire.sdn.controller.shell import Shell

Tell = Callable[[Event], None]
# Objects made since the last collection of the youngest; collections until the next older ones: 7 in 4,000 flows.
COLLECT_AFTER = (20_000, 20, 20)


@dataclass(frozen=True)
class Wishes:
    """What an operator asks for: where switches connect, where the API is, files."""

    listen: Sequence[str]
    api: str
    token_file: Path
    settings: Settings
    lab: str | None = None
    hosts: Path | None = None
    addresses: Path | None = None
    policy: Path | None = None
    strategies: Sequence[str] = ()


def run(wishes: Wishes, tell: Tell) -> None:
    """Control a network until SIGINT or SIGTERM. WrongUse and MachineCannot before anything is listened to."""
    policy = policy_of(wishes.policy, wishes.strategies)
    hosts, listen = _network(wishes)
    token = make_token(wishes.token_file)
    # What is loaded by now stays, and flows make no cycles: a full collection would stop everything for 80 ms.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    asyncio.run(_serve(wishes, policy, hosts, listen, token, tell))


async def _serve(wishes: Wishes, policy: Policy, hosts: Hosts, listen: Sequence[str], token: str, tell: Tell) -> None:
    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    shell = Shell(wishes.settings, policy, hosts, listen, tell)
    api = Api(shell, wishes.api, token)
    try:
        await shell.open()
        await api.open()
        places = ", ".join(listen)
        tell(Event("ready", f"switches connect to {places}; API at {wishes.api}, token in {wishes.token_file}"))
        await over.wait()
        tell(Event("ending", f"the switches keep the rules of {len(shell.core.router.routes)} flows"))
    finally:
        await api.close()
        await shell.close()


def policy_of(file: Path | None, strategies: Sequence[str]) -> Policy:
    """Return the policy of a file with `PROFILE=STRATEGY` put over it. WrongUse says what is wrong where."""
    policy = Policy() if file is None else parse_policy(_read(file), str(file))
    for given in strategies:
        profile, equals, strategy = given.partition("=")
        if not equals:
            raise WrongUse(f"--strategy {given}: write PROFILE=STRATEGY, such as mpi=isolated")
        policy = policy.with_strategy(profile, strategy)
    return policy


def _network(wishes: Wishes) -> tuple[Hosts, Sequence[str]]:
    """Who the hosts are, and where switches connect."""
    if wishes.lab is not None:
        if wishes.hosts is not None or wishes.addresses is not None:
            raise WrongUse("a lab's hosts are known: leave out --hosts and --addresses")
        lab = Lab.open(wishes.lab)
        named = {host.name: host.mac for host in lab.hosts}
        known = Hosts(named, {host.address: host.name for host in lab.hosts})
        return known, [*wishes.listen, f"unix:{lab.controller_socket}"]
    if wishes.addresses is not None and wishes.hosts is None:
        raise WrongUse("--addresses are of hosts that --hosts names: give both")
    named = {} if wishes.hosts is None else parse_hosts_file(_read(wishes.hosts), str(wishes.hosts))
    addresses = {}
    if wishes.addresses is not None:
        addresses = parse_addresses_file(_read(wishes.addresses), str(wishes.addresses), named)
    return Hosts(named, addresses), wishes.listen


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUse(f"cannot read {file}: {error}") from error
