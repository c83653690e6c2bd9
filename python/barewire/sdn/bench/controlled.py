# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A controller of a lab's switches: started in the lab, so that it ends with it; ready when all links are known."""

import json
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from barewire.errors import MeasurementFailed
from barewire.lab import Lab, format_rate
from barewire.lab.kernel import Process
from barewire.lab.startup import environment
from barewire.processes import terminate
from barewire.sdn.api.client import Client
from barewire.sdn.token import make_token

_READY_S = 30.0
# The controller's event once it listens; its socket exists slightly earlier.
_READY = '"event": "ready"'
_END_S = 5.0
_ASK_S = 0.02
_CREDENTIALS = struct.Struct("3i")
_TENANTS = "sdn.tenants.toml"
# Jobs that take turns ask every few milliseconds.
_REQUESTS_PER_S = 10_000


class Controller:
    """A running controller: its API, and its process."""

    def __init__(self, client: Client, process: Process, api: Path, token: Path, tenants: Mapping[str, Client]) -> None:
        """`client` is connected to the API of `process`: a socket, with the token in a file; `tenants` with theirs."""
        self.client, self.process, self.api, self.token, self._tenants = client, process, api, token, tenants

    def client_of(self, job: str) -> Client:
        """Return the client with the token of a job's tenant, or the operator's if it has none."""
        return self._tenants.get(job, self.client)

    def settle(self, patience_s: float) -> bool:
        """Wait until the switches have confirmed all rules; return whether they did in time."""
        deadline = time.monotonic() + patience_s
        while self.client.get("status")["being_installed"]:
            if time.monotonic() > deadline:
                return False
            time.sleep(_ASK_S)
        return True


@contextmanager
def controlled(
    lab: Lab, strategies: Sequence[str], rate_bit_s: int, options: Sequence[str] = (), tenants: Sequence[str] = ()
) -> Iterator[Controller]:
    """Start a controller with these `PROFILE=STRATEGY`; it ends with the block. `options` are more of `sdn start`.

    Each of the jobs `tenants` has an equal guaranteed share of every link.
    """
    folder = lab.directory
    token, api, log = folder / "sdn.token", folder / "sdn.api", folder / "sdn.log"
    tokens = {job: folder / f"sdn.token-{_tenant_name(job)}" for job in tenants}
    if tokens:
        (folder / _TENANTS).write_text(tenants_file(tokens))
        options = [*options, "--tenants", str(folder / _TENANTS)]
    with log.open("w") as output:
        process = subprocess.Popen(
            [*_command(lab, folder, strategies, rate_bit_s, token, api), *options],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        client = _ready(lab, process, token, api, log)
        by_job = {job: Client(client.url, file) for job, file in tokens.items()}
        yield Controller(client, _listener(api), api, token, by_job)
    finally:
        terminate(process, _END_S)


def _command(lab: Lab, folder: Path, strategies: Sequence[str], rate_bit_s: int, token: Path, api: Path) -> list[str]:
    hosts, addresses = folder / "sdn.hosts", folder / "sdn.addresses"
    hosts.write_text("".join(f"{host.name} {host.mac} {host.interface}\n" for host in lab.hosts))
    addresses.write_text("".join(f"{host.address} {host.name}\n" for host in lab.hosts))
    options = {
        "--listen": f"unix:{lab.controller_socket}",
        "--hosts-file": hosts,
        "--addresses": addresses,
        "--rate": format_rate(rate_bit_s),
        "--api": f"unix:{api}",
        "--token": token,
        # As published.
        "--hard": 60,
    }
    words = [str(word) for option in options.items() for word in option]
    words += [word for strategy in strategies for word in ("--strategy", strategy)]
    return lab.switch_command([sys.executable, "-m", "barewire", "sdn", "start", "--json", *words])


def _tenant_name(job: str) -> str:
    return re.sub(r"\W+", "-", job)


def tenants_file(tokens: Mapping[str, Path]) -> str:
    """Return the tenants file of jobs with equal shares of every link, and make their tokens in these files."""
    parts = []
    for job, file in tokens.items():
        make_token(file)
        parts += ["[[tenant]]", f'name = "{_tenant_name(job)}"', f"share = {1 / len(tokens)!r}"]
        parts += [f'token_file = "{file.name}"', f"requests_per_s = {_REQUESTS_PER_S}"]
    return "\n".join(parts) + "\n"


def _ready(lab: Lab, process: "subprocess.Popen[bytes]", token: Path, api: Path, log: Path) -> Client:
    """Wait until all switches are connected and all links between them are known."""
    network = lab.network
    assert network is not None
    switches = set(network.switches)
    links = sum(port.node in switches and peer.node in switches for port, peer in network.peers.items()) // 2
    deadline = time.monotonic() + _READY_S
    state = "its API does not answer"
    client = None
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise MeasurementFailed(f"the controller ended: {_last_words(log)}")
        if client is None and _READY in log.read_text(errors="replace"):
            client = Client(f"unix:{api}", token)
            # They have tried in vain while it started, and would wait for seconds.
            lab.reconnect_switches()
        if client is not None:
            status = client.get("status")
            if status["connected"] == len(switches) and status["links"] == links:
                return client
            state = (
                f"{status['connected']} of {len(switches)} switches and {status['links']} of {links} links are known"
            )
        time.sleep(_ASK_S)
    raise MeasurementFailed(f"the controller is not ready after {_READY_S:g} s: {state}; {_last_words(log)}")


def _listener(api: Path) -> Process:
    """The process that listens at a Unix socket, in this process's PID namespace."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(api))
        packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return Process.of(_CREDENTIALS.unpack(packed)[0])


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    if not lines:
        return "it said nothing"
    try:
        return str(json.loads(lines[-1])["text"])
    except (ValueError, KeyError):
        return lines[-1]
