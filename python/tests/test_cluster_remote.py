# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Remote shells that greet, hang and start others."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from barewire.cluster import ClusterHost, ShellReach, survey
from barewire.cluster.agents import agents
from barewire.cluster.doctors import examine
from barewire.cluster.remote import run

# Starts what hangs, which notes its number and holds the script's pipes.
HANGS = """sh -c 'echo $$ > {noted}; exec sleep 60'; true"""
GREETS = """printf 'Welcome!\\n{{}}\\nto \\033]0;a'"""


@pytest.fixture
def noted(tmp_path: Path) -> Path:
    return tmp_path / "number"


@pytest.fixture
def shell(tmp_path: Path, noted: Path) -> Callable[[str], ShellReach]:
    """A remote shell with this text."""

    def make(text: str) -> ShellReach:
        file = tmp_path / "shell"
        file.write_text(f"#!/bin/sh\n{text.format(noted=noted)}\n")
        file.chmod(0o755)
        return ShellReach((str(file),))

    return make


def eventually(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + 10
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


def is_over(noted: Path) -> bool:
    """Whether the process with this number has ended; only its parent can take a zombie away."""
    file = Path("/proc") / noted.read_text().strip() / "stat"
    return not file.exists() or file.read_text().rpartition(") ")[2].startswith("Z")


def test_hosts_that_greet_are_asked_and_examined(shell: Callable[[str], ShellReach]) -> None:
    reach = shell(GREETS + '; shift; exec sh -c "$*"')
    (host,) = survey.survey(reach, ["a"], None)
    assert host.name == "a" and host.mtu is not None
    said = json.dumps({"findings": [{"what": "SMT", "status": "missing", "detail": "on", "fix": "off"}]})
    examined, remarks = asyncio.run(
        examine(shell(f"{GREETS}; echo '{said.replace('{', '{{').replace('}', '}}')}'"), [ClusterHost("a", "e")])
    )
    assert examined == {"a": {"SMT": "on; fix: off"}} and not remarks[1:]


def test_files_among_the_interfaces_are_none(shell: Callable[[str], ShellReach], tmp_path: Path) -> None:
    """As bonding_masters is one."""
    (tmp_path / "net" / "eth0").mkdir(parents=True)
    for name, value in {"type": "1", "operstate": "up", "mtu": "1500", "speed": "1000"}.items():
        (tmp_path / "net" / "eth0" / name).write_text(f"{value}\n")
    (tmp_path / "net" / "bonding_masters").write_text("bond0\n")
    reach = shell(f'shift; exec sh -c "$(echo "$*" | sed s,/sys/class/net,{tmp_path}/net,)"')
    assert survey.survey(reach, ["a"], None) == [
        ClusterHost("a", "eth0", 1000, 1500, ("eth0: up, 1000 Mbit/s, MTU 1500",))
    ]


def test_a_hanging_shell_ends_with_its_limit(shell: Callable[[str], ShellReach], noted: Path) -> None:
    began = time.monotonic()
    status, _, said = asyncio.run(run(shell(HANGS).command("a", ["true"]), 1.0))
    assert (status, said) == (124, "no answer within 1 s") and time.monotonic() - began < 20
    assert eventually(lambda: is_over(noted))


def test_a_pipe_that_somebody_else_holds_is_not_waited_for(shell: Callable[[str], ShellReach], noted: Path) -> None:
    began = time.monotonic()
    status, _, _ = asyncio.run(run(shell(f"exec setsid {HANGS}").command("a", ["true"]), 1.0))
    assert status == 124 and time.monotonic() - began < 20
    os.kill(int(noted.read_text()), signal.SIGKILL)


def test_a_hanging_agent_ends_with_the_check(
    shell: Callable[[str], ShellReach], noted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barewire.cluster.agents._START_TIMEOUT_S", 1.0)
    monkeypatch.setattr("barewire.cluster.agents.find_program", lambda name: name)

    async def start() -> dict[str, str]:
        async with agents(shell(HANGS), [ClusterHost("a", "eth0")], "auto") as (working, _, failed):
            assert not working
            return failed

    began = time.monotonic()
    assert asyncio.run(start()) == {"a": "no answer within 1 s"} and time.monotonic() - began < 20
    assert eventually(lambda: is_over(noted))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_a_hanging_shell(
    shell: Callable[[str], ShellReach], noted: Path, tmp_path: Path, number: signal.Signals
) -> None:
    (script,) = shell(HANGS).remote_shell
    command = [sys.executable, "-m", "barewire", "cluster", "init", "--remote-shell", script, "--hosts", "127.0.0.1"]
    with subprocess.Popen([*command, "-o", str(tmp_path / "cluster.toml")], stderr=subprocess.DEVNULL) as process:
        assert eventually(lambda: noted.exists() and noted.read_text() != "")
        process.send_signal(number)
        assert process.wait(20) == 130
    assert eventually(lambda: is_over(noted))
