# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A broker in each of a lab's hosts, so that what is measured gets its sockets as ordinary users' programs do."""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from barewire.errors import MachineCannot
from barewire.lab import Host, Lab
from barewire.measure.launch import end_process
from barewire.measure.programs import find_program

BROKER = "barewire-broker"
# The lab's programs are root there; all service access points, as many as there are.
_POLICY = """
[[allow]]
users = [0]
interfaces = ["{interface}"]
saps = ["0x02-0xfe"]
at_most = 127
"""


@contextlib.contextmanager
def brokers_in(lab: Lab, hosts: Sequence[Host]) -> Iterator[dict[str, str]]:
    """Where each host's broker listens, by the host's name; they end with the block."""
    with contextlib.ExitStack() as running:
        yield {host.name: running.enter_context(_broker(lab, host)) for host in hosts}


@contextlib.contextmanager
def _broker(lab: Lab, host: Host) -> Iterator[str]:
    directory = lab.directory / f"broker-{host.name}"
    directory.mkdir()
    policy, socket, audit = directory / "policy.toml", directory / "socket", directory / "audit"
    policy.write_text(_POLICY.format(interface=host.interface))
    files = ["--policy", policy, "--socket", socket, "--audit", audit]
    command = [find_program(BROKER), "serve", *map(str, files)]
    with tempfile.TemporaryFile("w+") as errors:
        process = lab.popen(host.name, command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            _wait_until_ready(process, errors)
            yield str(socket)
        finally:
            process.terminate()
            end_process(process)
    _refuse_what_was_not_shared(audit)


def _wait_until_ready(process: "subprocess.Popen[str]", errors: IO[str]) -> None:
    assert process.stdout is not None
    if '"ready"' not in process.stdout.readline():
        process.wait()
        errors.seek(0)
        raise MachineCannot(errors.read().strip() or f"{BROKER} ended before it served")


def _refuse_what_was_not_shared(audit: Path) -> None:
    """Sockets that each saw every frame are not what was asked for."""
    alone = [line for line in audit.read_text().splitlines() if '"not in a group"' in line]
    if alone:
        raise MachineCannot(f"the broker could not put sockets behind one hook: {alone[0]}")
