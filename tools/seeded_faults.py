# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Faults that a lab can have, for `barewire cluster check` to find.

Each is made of what every kernel of the lab has: token buckets, MTUs, packet filters of interfaces, signals.
"""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from barewire.errors import MachineCannot
from barewire.lab import Lab, LinkSpec

# Of every tenth of a second a starved host gets the rest.
_STARVED_S, _FED_S = 0.088, 0.012
_JUMBO = LinkSpec(mtu=9000)


@dataclass(frozen=True)
class Fault:
    """A fault, the lab's links it is seeded in, and what the check must say: kind, host and direction."""

    seed: Callable[[Lab, str], "contextlib.AbstractContextManager[None]"]
    kind: str
    direction: str | None
    link: LinkSpec = LinkSpec()  # noqa: RUF009 - immutable
    is_of_network: bool = False


def _in_switch(*commands: str) -> Callable[[Lab, str], "contextlib.AbstractContextManager[None]"]:
    """Run shell commands in the switch's namespace; PORT stands for the host's port, PORTS for all of them."""

    @contextmanager
    def seed(lab: Lab, host: str) -> Iterator[None]:
        prefix = "to" if lab.link.rate_bit_s is None else "port"
        ports = ", ".join(f'"{prefix}-{each.name}"' for each in lab.hosts)
        for command in commands:
            text = command.replace("PORTS", ports).replace("PORT", f"to-{host}")
            done = subprocess.run(lab.switch_command(["sh", "-ec", text]), capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise MachineCannot(f"this kernel cannot have the fault: {text}: {done.stderr.strip()}")
        yield

    return seed


@contextmanager
def _small_mtu(lab: Lab, host: str) -> Iterator[None]:
    lab.run(host, ["ip", "link", "set", "dev", lab.host(host).interface, "mtu", "1500"], check=True)
    yield


@contextmanager
def _starved(lab: Lab, host: str) -> Iterator[None]:
    """Stop the host's agent most of the time, as a quota or a hypervisor does."""
    ended = threading.Event()

    def starve() -> None:
        while not ended.is_set():
            agents = _agents(lab, host)
            _signal(agents, signal.SIGSTOP)
            ended.wait(_STARVED_S)
            _signal(agents, signal.SIGCONT)
            ended.wait(_FED_S)

    thread = threading.Thread(target=starve)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _agents(lab: Lab, host: str) -> list[int]:
    """Return the probe's processes in a host's network namespace."""
    namespace = Path(f"/proc/{lab.host(host).pid}/ns/net").readlink()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            is_agent = b"barewire-probe\0agent" in (process / "cmdline").read_bytes()
            if is_agent and (process / "ns/net").readlink() == namespace:
                found.append(int(process.name))
    return found


def _signal(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def _filter(hook: str, rule: str) -> str:
    return _table(hook, f'chain c {{ type filter hook {hook} device "PORT" priority 0; {rule}; }}')


def _table(name: str, *parts: str) -> str:
    return f"nft 'table netdev {name} {{ {' '.join(f'{part};' for part in parts)} }}'"


# Long frames towards the host are lost while it sends long frames to their sender.
_DUPLEX = _table(
    "duplex",
    "set busy { typeof ether daddr; flags dynamic,timeout; timeout 20ms; size 1000; }",
    'chain i { type filter hook ingress device "PORT" priority 0; meta length > 500 update @busy { ether daddr }; }',
    'chain e { type filter hook egress device "PORT" priority 0; '
    "meta length > 500 ether saddr @busy numgen random mod 100 < 8 drop; }",
)
# A part of what the host sends goes a longer way to the same switch, on which frames wait for the one before.
_DETOUR = """
ip link add detour0 type veth peer name detour1
ip link set detour1 master switch
for i in detour0 detour1; do ip link set $i up; done
tc qdisc add dev detour0 root tbf rate 200mbit burst 1600 limit 4000000
"""
# What all ports together receive above this is dropped, at whichever port it arrives.
_BACKPLANE = _table(
    "backplane",
    "chain c { type filter hook ingress devices = { PORTS } priority 0; "
    "limit rate over 8 mbytes/second burst 64 kbytes drop; }",
)

FAULTS: dict[str, Fault] = {
    "slow_receive": Fault(
        _in_switch("tc qdisc add dev PORT root tbf rate 100mbit burst 10000 limit 300000"), "slow port", "receive"
    ),
    "slow_transmit": Fault(
        _in_switch('tc qdisc replace dev "$(echo PORT | sed s/to-/up-/)" root tbf rate 10mbit burst 4000 limit 300000'),
        "slow port",
        "transmit",
        LinkSpec(rate_bit_s=100_000_000),
    ),
    "mtu_of_host": Fault(_small_mtu, "MTU mismatch", None, _JUMBO),
    "mtu_of_port": Fault(_in_switch("ip link set dev PORT mtu 1500"), "frames too long for the path", "both", _JUMBO),
    "no_jumbo": Fault(
        _in_switch("for port in $(ip -o link | grep -o 'to-h[0-9]*'); do ip link set dev $port mtu 1500; done"),
        "switch without jumbo frames",
        None,
        _JUMBO,
        is_of_network=True,
    ),
    "drops_transmit": Fault(
        _in_switch(_filter("ingress", "numgen random mod 100 < 1 drop")), "port that drops", "transmit"
    ),
    "drops_receive": Fault(
        _in_switch(_filter("egress", "numgen random mod 100 < 1 drop")), "port that drops", "receive"
    ),
    "duplex": Fault(_in_switch(_DUPLEX), "duplex mismatch", "both"),
    "dead_transmit": Fault(_in_switch(_filter("ingress", "drop")), "dead port", "transmit"),
    "dead_receive": Fault(_in_switch(_filter("egress", "drop")), "dead port", "receive"),
    "starved": Fault(_starved, "shared cores", None),
    "reordering": Fault(
        _in_switch(_DETOUR, _filter("ingress", 'meta length > 500 numgen random mod 100 < 5 fwd to "detour0"')),
        "reordering",
        "transmit",
    ),
    # A pair at full load of both sides sends 5 MB/s, eight hosts 20 MB/s.
    "backplane": Fault(
        _in_switch(_BACKPLANE), "switch overloaded", None, LinkSpec(rate_bit_s=20_000_000), is_of_network=True
    ),
}
