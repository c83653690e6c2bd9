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

from barewire.cluster import ClusterHost, ShellReach, check, survey
from barewire.cluster.agents import agents
from barewire.cluster.doctors import examine
from barewire.cluster.finding import Kind
from barewire.cluster.remote import run
from barewire.errors import MachineCannot, MeasurementFailed, WrongUse

# Starts what hangs, which notes its number and holds the script's pipes.
HANGS = """sh -c 'echo $$ > {noted}; exec sleep 60'; true"""
# An agent whose paths are healthy; h2 ends, or answers no more, with the order named in `fails`.
AGENT = """
import json, sys, time
host, fails, how = sys.argv[1:4]
interface = {"speed_mbit_s": None, "duplex": None, "errors": {}}
print(json.dumps({"record": "ready", "address": host, "mtu": 1500, "payload_bytes_max": 1500, "carrier": "packet",
                  "reason": None, "machine": host, "cores": [0], "interface": interface}), flush=True)
told = {
    "ping": {"round_trips_ns": [20000], "lost": 0},
    "stream": {"sent": 1000, "nanoseconds": 10**7, "stalls": 0},
    "received": {"received": 1000, "reordered": 0, "nanoseconds": 12 * 10**6, "dropped_here": 0},
    "work": {"cpu_ns": 1, "wall_ns": 1, "best_unit_ns": 1},
    "interface": interface,
}
for line in sys.stdin:
    order = json.loads(line)
    if host == "h2" and order["do"] == fails and order.get("milliseconds") in (None, 150, 60):
        if how == "ends":
            sys.exit("h2: out of order")
        time.sleep(60)
    print(json.dumps({"record": "answer", "number": order["number"], "told": told[order["do"]]}), flush=True)
"""
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
    (host,), failures = survey.survey(reach, ["a"], None)
    assert not failures
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
    hosts, _ = survey.survey(reach, ["a"], None)
    assert hosts == [ClusterHost("a", "eth0", 1000, 1500, ("eth0: up, 1000 Mbit/s, MTU 1500",))]


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


def test_an_interrupt_while_a_shell_is_started_ends_it_with_all_that_it_started(
    shell: Callable[[str], ShellReach], noted: Path
) -> None:
    async def interrupted() -> None:
        task = asyncio.create_task(run(shell(HANGS).command("a", ["true"]), 60))
        # The program runs, and asyncio has not had the time to see it.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert eventually(lambda: noted.exists() and noted.read_text() != "")
        task.cancel()
        await task

    began = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(interrupted())
    assert time.monotonic() - began < 20 and eventually(lambda: is_over(noted))


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
    command += ["-o", str(tmp_path / "cluster.toml")]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment) as process:
        assert eventually(lambda: noted.exists() and noted.read_text() != "")
        process.send_signal(number)
        assert process.wait(20) == 130
    assert eventually(lambda: is_over(noted))


@pytest.mark.parametrize(
    ("how", "order"),
    [*(("ends", order) for order in ("work", "ping", "stream", "received", "interface")), ("hangs", "received")],
)
def test_a_host_that_fails_in_the_middle_does_not_end_the_check(
    shell: Callable[[str], ShellReach], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, order: str
) -> None:
    monkeypatch.setattr("barewire.cluster.agents._ANSWER_TIMEOUT_S", 2.0)
    monkeypatch.setattr("barewire.cluster.agents._END_TIMEOUT_S", 0.5)
    monkeypatch.setattr("barewire.cluster.agents.find_program", lambda name: name)
    (tmp_path / "agent.py").write_text(AGENT)
    reach = shell(f'exec {sys.executable} {tmp_path}/agent.py "$1" {order} {how}')
    hosts = [ClusterHost(f"h{number}", "eth0") for number in range(1, 5)]
    checked = check(reach, hosts, unreachable={"h5": "no route"}, with_doctor=False)
    reason = "h2: out of order" if how == "ends" else f"no answer to '{order}' in 2 s"
    assert checked.measured.unreachable == {"h5": "no route", "h2": reason}
    assert [(finding.kind, finding.subject) for finding in checked.findings] == [
        (Kind.UNREACHABLE, "h5"),
        (Kind.UNREACHABLE, "h2"),
    ]
    left = {"h1", "h3", "h4"}
    assert checked.measured.hosts.keys() == left
    assert len(checked.measured.paths) == len(checked.measured.together) == 6
    assert {end for ends in checked.measured.paths for end in ends} == left
    with pytest.raises(MachineCannot, match=r"only 1 of the hosts can be measured: h2: "):
        check(reach, hosts[:2], with_doctor=False)


def test_hosts_that_cannot_be_asked_do_not_keep_others_from_being_checked(shell: Callable[[str], ShellReach]) -> None:
    reach = shell("""[ "$1" = a ] || {{ echo no route >&2; exit 255; }}; shift; exec sh -c "$*" """)
    hosts, failures = survey.survey(reach, ["a", "b", "c"], None)
    assert [host.name for host in hosts] == ["a"] and failures.keys() == {"b", "c"}
    said = survey.failure_of(failures)
    assert isinstance(said, MeasurementFailed) and str(said).count("cannot be asked: no route; try: ssh ") == 2
    hosts, failures = survey.survey(reach, ["a"], "absent0")
    assert not hosts and isinstance(survey.failure_of(failures), WrongUse)
    began = time.monotonic()
    with pytest.raises(MachineCannot, match="only 1 of the hosts can be measured: b: no route"):
        check(reach, [ClusterHost("a", "eth0")], unreachable={"b": "no route"})
    assert time.monotonic() - began < 5
