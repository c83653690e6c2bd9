# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Emulated machines without qemu: the agent and the remote shell over a socket, and what a machine may lack."""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from barewire.cli.commands import app
from barewire.errors import MachineCannot, WrongUse
from barewire.guests import agent, image, machines
from barewire.guests.debian import CannotBuild, Debian
from barewire.guests.machines import EmulatedPair

ADDRESS = "10.77.0.1"
SHELL = Path(machines.__file__).with_name("remote_shell.py")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Let the agent answer one connection after the other at a socket in the returned folder."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / ADDRESS))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                port = agent.Port(connection.fileno())
                following = port.receive()
                while following:
                    following = agent.run(port, following["command"], {"PATH": "/usr/bin:/bin"})

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield tmp_path
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(timeout=5)
    assert not thread.is_alive()


def started(folder: Path, command: str) -> "subprocess.Popen[bytes]":
    pipe = subprocess.PIPE
    words = [sys.executable, "-I", "-S", str(SHELL), str(folder), ADDRESS, command]
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe)


def test_output_errors_and_the_exit_code_come_back_unchanged(folder: Path) -> None:
    code = "import os; os.write(1, bytes(range(256)) * 500); os.write(2, b'complaint'); os._exit(7)"
    out, err = (process := started(folder, f'{sys.executable} -c "{code}"')).communicate(timeout=10)
    assert (process.returncode, out, err) == (7, bytes(range(256)) * 500, b"complaint")
    assert started(folder, "nosuchprogram").wait(10) == 127, "and the agent serves the next command"


def test_the_end_of_standard_input_and_signals_reach_the_program(folder: Path) -> None:
    """As the probe's passive side is used: it says that it is ready, and runs until its input ends."""
    ready = started(folder, "sh -c 'echo ready; cat; echo over'")
    assert ready.stdout is not None and ready.stdin is not None
    assert ready.stdout.readline() == b"ready\n"
    ready.stdin.close()
    assert (ready.stdout.read(), ready.wait(10)) == (b"over\n", 0)
    sleeping = started(folder, "sh -c 'trap \"echo told; exit 3\" TERM; echo ready; while :; do sleep 0.01; done'")
    assert sleeping.stdout is not None and sleeping.stdout.readline() == b"ready\n"
    sleeping.terminate()
    assert (sleeping.stdout.read(), sleeping.wait(10)) == (b"told\n", 3)


def test_a_program_whose_shell_is_killed_is_killed(folder: Path) -> None:
    mark = folder / "alive"
    process = started(folder, f"sh -c 'echo ready; while :; do touch {mark}; sleep 0.01; done'")
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    process.kill()
    assert started(folder, "true").wait(10) == 0, "the next command is not kept waiting"
    mark.unlink()
    time.sleep(0.1)
    assert not mark.exists()


def test_a_program_that_a_signal_ends_has_a_shells_exit_code(folder: Path) -> None:
    assert started(folder, "sh -c 'kill -KILL $$'").wait(10) == 128 + signal.SIGKILL


def test_a_machine_that_is_gone_is_said(tmp_path: Path) -> None:
    out, err = (process := started(tmp_path, "true")).communicate(timeout=10)
    assert process.returncode == 255 and b"10.77.0.1 is gone" in err and not out


def test_without_qemu_or_apt_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineCannot, match="apt-get install qemu-system-x86"), EmulatedPair(tmp_path):
        pass
    with pytest.raises(CannotBuild, match="no apt-get, dpkg-deb here") as raised:
        image.build(tmp_path / "init", ())
    assert raised.value.exit_code == 3


def test_programs_that_an_emulated_machine_would_not_see_are_told_before_it_boots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has a /tmp of its own: a checkout there ended after two minutes with `did not boot`."""
    monkeypatch.setattr("barewire.guests.machines.shutil.which", lambda name: name)
    monkeypatch.setattr(machines, "build", lambda *_: pytest.fail("a kernel is fetched"))
    with pytest.raises(MachineCannot, match="a /tmp of their own"), EmulatedPair(Path("/tmp/barewire/release")):
        pass


def test_without_apts_lists_an_earlier_kernel_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(*_: object) -> tuple[str, str]:
        raise CannotBuild("apt knows no linux-image-amd64")

    init = tmp_path / "init"
    init.write_text("#!/bin/sh\n")
    monkeypatch.setattr(Debian, "concrete", unknown)
    monkeypatch.setattr("barewire.guests.image.shutil.which", lambda name: name)
    monkeypatch.setattr("barewire.guests.image.installed.guests", lambda: tmp_path)
    with pytest.raises(CannotBuild, match="knows no"):
        image.build(init, ("llc2",))
    made = tmp_path / f"6.1.1-2-{image._digest(init, ('llc2',))}"
    made.mkdir()
    (tmp_path / "6.1.1-2-otherdigest0").mkdir()
    found = image.build(init, ("llc2",))
    assert (found.kernel, found.version) == (made / "vmlinux", "6.1.1-2")


@pytest.mark.parametrize("more", ["--lab pair", "--hosts a,b", "--rate 1gbit", "--mtu 9000", "--broker"])
def test_emulated_machines_have_no_lab_s_options(more: str) -> None:
    words = ["bench", "pingpong", "--transport", "kernel-llc2", "--emulated", *more.split()]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, WrongUse) or result.exit_code == 2
    assert "--emulated" in str(result.exception) + result.output
