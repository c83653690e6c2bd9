# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The commands of a controller against a real one without switches, whose API is a Unix socket."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest
from typer.testing import CliRunner

from barewire.cli.commands import app
from barewire.errors import WrongUse
from barewire.sdn.api.client import Client

JOB = {"profile": "mpi", "hosts": ["h1", "h2"], "patterns": [[{"from": "h1", "to": "h2", "bytes": 5}]] * 2}
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
_START_S = 30.0


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "barewire", "sdn", *words]


def listens(api: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
        connection.connect(str(api))
        return True
    return False


@contextmanager
def started(folder: Path, output: "int | IO[str]") -> Iterator[tuple["subprocess.Popen[str]", Client]]:
    """A controller that knows two hosts and prints its events to `output`; it ends with the block."""
    hosts, token, api = folder / "hosts", folder / "token", folder / "api"
    hosts.write_text("h1 02:00:00:00:00:01 eth0\nh2 02:00:00:00:00:02 eth0\n")
    places = {"--listen": f"unix:{folder / 'switches'}", "--api": f"unix:{api}", "--token": token}
    words = [str(word) for option in {**places, "--hosts-file": hosts}.items() for word in option]
    process = subprocess.Popen(command("start", *words), stdout=output, text=True, env=ENVIRONMENT)
    try:
        deadline = time.monotonic() + _START_S
        # Its token is there before its socket, which is there before it listens.
        while not listens(api):
            assert process.poll() is None and time.monotonic() < deadline, "the controller does not start"
            time.sleep(0.02)
        yield process, Client(f"unix:{api}", token)
    finally:
        process.terminate()
        process.wait(_START_S)
        if process.stdout is not None and not process.stdout.closed:
            process.stdout.close()


@pytest.mark.parametrize("output", ["pipe", "full disk"])
def test_a_controller_goes_on_when_nobody_takes_its_events(output: str, tmp_path: Path) -> None:
    """`sdn start | tee log` whose tee has ended, and a log on a full disk: an event is lost, and nothing else."""
    with (
        Path("/dev/full").open("w") as full,
        started(tmp_path, subprocess.PIPE if output == "pipe" else full) as (process, client),
    ):
        if process.stdout is not None:
            assert "ready" in process.stdout.readline()
            process.stdout.close()
        for number in range(3):
            assert client.announce({**JOB, "name": f"job {number}"})["name"] == f"job {number}"
        assert len(client.get("jobs")["jobs"]) == 3 and process.poll() is None


def run(client: Client, *words: str) -> "subprocess.CompletedProcess[str]":
    places = ["--sdn", client.url, "--sdn-token", str(client.token_file)]
    return subprocess.run(command(*words, *places), capture_output=True, text=True, check=False, env=ENVIRONMENT)


def test_status_shows_a_jobs_name_as_it_is_and_its_patterns_from_1(tmp_path: Path) -> None:
    with started(tmp_path, subprocess.DEVNULL) as (_, client):
        job = client.announce({**JOB, "name": "[/red]"})["id"]
        assert all(text in run(client, "status").stdout for text in ("[/red]", "1 of 2"))
        client.step(job)
        assert "2 of 2" in run(client, "status").stdout


def test_jobs_are_withdrawn_beside_ids_that_are_none(tmp_path: Path) -> None:
    with started(tmp_path, subprocess.DEVNULL) as (_, client):
        jobs = [client.announce(JOB)["id"] for _ in range(2)]
        done = run(client, "withdraw", jobs[0], "../a b", jobs[1])
        assert done.returncode == 1 and "there is no job ../a b" in done.stderr
        assert done.stdout == "".join(f"job {job} withdrawn\n" for job in jobs)
        assert client.get("jobs")["jobs"] == []


@pytest.mark.parametrize("text", ["[" * 100_000, '{"name": "\\ud800"}', '{"lease_s": NaN}', ""])
def test_what_is_no_json_is_not_announced(text: str, tmp_path: Path) -> None:
    file, token = tmp_path / "job.json", tmp_path / "token"
    file.write_text(text)
    token.write_text("a-token-of-sixteen-characters")
    token.chmod(0o600)
    result = CliRunner().invoke(app, ["sdn", "announce", str(file), "--sdn-token", str(token)])
    assert isinstance(result.exception, WrongUse) and "is not JSON" in str(result.exception)
