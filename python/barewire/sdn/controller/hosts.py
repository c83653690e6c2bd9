# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The hosts and their ports: from a hosts file and learnt from frames. No clock, no I/O."""

import ipaddress
import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from barewire.errors import WrongUse
from barewire.topology import Port

# Bounds on learnt MAC addresses, per port and in total.
HOSTS_PER_PORT_MAX = 256
HOSTS_MAX = 65_536
ADDRESSES_PER_HOST_MAX = 16
# An address that its host has not named for this long may be another's by now; and a host with that many gets another
# one for it: IPv6 changes addresses daily.
ADDRESS_FORGOTTEN_S = 600.0
# A host seen at a port so recently is still there: its frame from another port is an echo, or forged.
MOVES_AFTER_S = 1.0
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_SWITCH = re.compile(r"s[0-9]+")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


class Address(NamedTuple):
    """An IPv4 or IPv6 address in a VLAN (0: without a tag); each VLAN has its own."""

    vlan: int
    ip: str


_UNSPECIFIED = ("0.0.0.0", "::")


@dataclass
class Host:
    """A host: its name (its MAC address if no file names it), its addresses with when each was heard of, its port."""

    name: str
    mac: str
    is_named: bool = False
    addresses: dict[Address, float] = field(default_factory=dict)
    port: Port | None = None
    seen_s: float = 0.0


class Hosts:
    """All hosts. `version` increases when a host is attached, moves or is removed."""

    def __init__(
        self,
        named: Mapping[str, str] | None = None,
        addresses: Mapping[str, str] | None = None,
        expected: Mapping[str, Port] | None = None,
    ) -> None:
        """Begin with `named`, name to MAC address, and `addresses`, IP address (without a VLAN) to name.

        `expected` are ports of MAC addresses that are known without a frame, as in a lab.
        """
        self.version = 0
        self.expected = expected or {}
        self.by_mac: dict[str, Host] = {mac: Host(name, mac, is_named=True) for name, mac in (named or {}).items()}
        self.by_name: dict[str, Host] = {host.name: host for host in self.by_mac.values()}
        self._by_address: dict[Address, Host] = {}
        self._at_port: dict[Port, dict[str, Host]] = {}
        # MAC addresses of hosts that were attached or detached, or got an address, since the last `take_changed`.
        self._changed: dict[str, None] = {}
        # Addresses that hosts have lost since the last `take_lost`, with the MAC address of each.
        self._lost: list[tuple[str, Address]] = []
        # Addresses from a file are never reassigned by learning.
        self._fixed: set[Address] = set()
        for ip, name in (addresses or {}).items():
            if name in self.by_name:
                self._give(self.by_name[name], Address(0, ip), 0.0)
                self._fixed.add(Address(0, ip))

    def named(self, mac: str) -> str:
        """Return the name of the host with a MAC address: the address itself if it has no name."""
        host = self.by_mac.get(mac)
        return mac if host is None else host.name

    def with_address(self, ip: str, vlan: int = 0) -> Host | None:
        """Return the host that has an IP address in a VLAN (0: without a tag)."""
        return self._by_address.get(Address(vlan, ip))

    def attached(self) -> Iterable[Host]:
        """Return the hosts whose port is known."""
        return (host for at in self._at_port.values() for host in at.values())

    def at_switch(self, switch: str) -> list[Host]:
        """Return the hosts attached to a switch."""
        return [host for port, at in self._at_port.items() if port.node == switch for host in at.values()]

    @property
    def has_changed(self) -> bool:
        """Whether `take_changed` would return any."""
        return bool(self._changed)

    def take_changed(self) -> list[str]:
        """Return the MAC addresses of hosts whose port or addresses have changed since the last call."""
        changed, self._changed = list(self._changed), {}
        return changed

    def take_lost(self) -> list[tuple[str, Address]]:
        """Return MAC addresses and the addresses that their hosts have lost since the last call."""
        lost, self._lost = self._lost, []
        return lost

    def learn(self, mac: str, port: Port, now: float) -> Host | None:
        """Learn a host from a frame at an edge port; None if the port's limit is reached, or it is at another port."""
        host = self.by_mac.get(mac)
        if host is not None and host.port == port:
            host.seen_s = now
            return host
        if host is not None and host.port is not None and now < host.seen_s + MOVES_AFTER_S:
            return None
        if host is None:
            at_port = self._at_port.get(port, {})
            if (
                len(self.by_mac) >= HOSTS_MAX
                or sum(not host.is_named for host in at_port.values()) >= HOSTS_PER_PORT_MAX
            ):
                return None
            host = self.by_mac[mac] = self.by_name[mac] = Host(mac, mac)
        self._detach(host)
        host.port, host.seen_s = port, now
        self._at_port.setdefault(port, {})[mac] = host
        self._changed[mac] = None
        self.version += 1
        return host

    def add_without_port(self, mac: str, now: float) -> None:
        """Add a host by MAC address, without a port."""
        if mac not in self.by_mac and len(self.by_mac) < HOSTS_MAX:
            self.by_mac[mac] = self.by_name[mac] = Host(mac, mac, seen_s=now)

    def learn_address(self, host: Host, address: Address, now: float, *, is_named: bool = True) -> bool:
        """Learn an address of a host; False if another attached host has it, or a file gives it to another.

        Not `is_named`: it is the source of a packet, which the host may only have forwarded. A host that has as many as
        it may have loses the one that was not heard of for longest, if that is long.
        """
        owner = self._by_address.get(address)
        if owner is host:
            if is_named:
                host.addresses[address] = now
            return True
        if address in self._fixed:
            return False
        if owner is not None and owner.port is not None:
            is_old = now >= owner.addresses[address] + ADDRESS_FORGOTTEN_S
            if not (is_named and is_old):
                return False
        if address.ip in _UNSPECIFIED or not self._has_room(host, now):
            return True  # nobody can be asked for it, or those who ask are flooded
        if owner is not None:
            self._take(owner, address)
        self._give(host, address, now)
        self._changed[host.mac] = None
        return True

    def forget_port(self, port: Port) -> list[Host]:
        """Detach all hosts of a port that is down or turned out to lead to a switch; return them."""
        gone = list(self._at_port.get(port, {}).values())
        for host in gone:
            self._detach(host)
        if gone:
            self.version += 1
        return gone

    def age(self, before_s: float, in_use: Callable[[], Container[str]]) -> None:
        """Remove unnamed hosts not seen since `before_s`, except those that `in_use` returns the names of."""
        silent = [host for host in self.by_mac.values() if not host.is_named and host.seen_s < before_s]
        used = in_use() if silent else ()
        for host in silent:
            if host.name not in used:
                self._detach(host)
                del self.by_mac[host.mac], self.by_name[host.name]
                for address in host.addresses:
                    del self._by_address[address]
                self.version += 1

    def _has_room(self, host: Host, now: float) -> bool:
        if len(host.addresses) < ADDRESSES_PER_HOST_MAX:
            return True
        learnt = [(seen_s, address) for address, seen_s in host.addresses.items() if address not in self._fixed]
        oldest_s, oldest = min(learnt, default=(now, None))
        if oldest is None or now < oldest_s + ADDRESS_FORGOTTEN_S:
            return False
        self._take(host, oldest)
        return True

    def _give(self, host: Host, address: Address, now: float) -> None:
        host.addresses[address] = now
        self._by_address[address] = host

    def _take(self, host: Host, address: Address) -> None:
        del host.addresses[address], self._by_address[address]
        self._lost.append((host.mac, address))

    def _detach(self, host: Host) -> None:
        if host.port is not None:
            at_port = self._at_port[host.port]
            del at_port[host.mac]
            self._changed[host.mac] = None
            if not at_port:
                del self._at_port[host.port]
            host.port = None


def parse_hosts_file(text: str, name: str) -> dict[str, str]:
    """Read lines `name MAC interface` of a barewire hosts file: name to MAC address. WrongUse names the line."""
    found: dict[str, str] = {}
    for where, words in _lines(text, name):
        mac = words[1].lower() if len(words) > 1 else ""
        if len(words) != 3 or not _NAME.fullmatch(words[0]):
            raise WrongUse(f"{where}: a line is 'name MAC interface', such as 'h2 02:00:00:00:00:02 eth0'")
        if _SWITCH.fullmatch(words[0]):
            raise WrongUse(f"{where}: switches are named like '{words[0]}'; give this host another name")
        if not _MAC.fullmatch(mac) or int(mac[:2], 16) & 1:
            raise WrongUse(f"{where}: '{words[1]}' is not a host's MAC address; write the one shown by `ip link` there")
        if words[0] in found or mac in found.values():
            raise WrongUse(f"{where}: {words[0]} or {mac} is there twice; remove one line")
        found[words[0]] = mac
    return found


def parse_addresses_file(text: str, name: str, known: Iterable[str]) -> dict[str, str]:
    """Read lines `address name…`, as /etc/hosts has them: IP address to name; lines of unknown hosts are ignored.

    A host may have several. What belongs to no single host of the network (loopback, multicast) is ignored, too.
    """
    names = set(known)
    found: dict[str, str] = {}
    for where, words in _lines(text, name):
        try:
            address = ipaddress.ip_address(words[0])
        except ValueError:
            raise WrongUse(
                f"{where}: '{words[0]}' is no IP address; a line is 'address name', as in /etc/hosts"
            ) from None
        host = next((word for word in words[1:] if word in names), None)
        if host is not None and not (address.is_loopback or address.is_multicast or address.is_unspecified):
            text = str(address).partition("%")[0]  # without the interface of a link-local address
            if found.get(text, host) != host:
                raise WrongUse(f"{where}: {text} is {found[text]}'s already; remove one line")
            found[text] = host
    return found


def _lines(text: str, name: str) -> Iterable[tuple[str, list[str]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if words := line.split("#")[0].split():
            yield f"{name}:{number}", words
