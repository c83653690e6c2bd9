# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a job outlives: an interface that is down for a while, a rank that is stopped or fails; and whom it hears."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import BAREWIRE, barewire, names_taken, stand_up
from mpi_libraries import library, needs, program

from barewire.lab import Lab
from barewire.mpi import FabricOptions
from barewire.mpi.fabrics import TOKEN, Setting
from barewire.mpi.prepare import prepare

pytestmark = pytest.mark.usefixtures("lab_allowed", "nothing_left")

LIBRARIES = [
    "openmpi",
    "mpich-5",
    pytest.param("openmpi-5", marks=pytest.mark.matrix),
]

# Exists when a job is to end.
OVER = "over"


@contextmanager
def job_under_way(name: str, lab: Lab, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """Two ranks on two hosts that exchange messages; each is checked. They go on until `ended_right`, or as said."""
    arguments = arguments or ("0", "0", "1", str(lab.directory / OVER))
    command = [BAREWIRE, "run", "-n", "2", "--lab", lab.id, "--", program(name, "goes_on"), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        timer = threading.Timer(100, process.terminate)
        timer.start()
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "under way" in line, line + (process.stderr.read() if process.stderr and not line else "")
            yield process
        finally:
            timer.cancel()


def ended_right(process: "subprocess.Popen[str]", lab: Lab) -> None:
    (lab.directory / OVER).touch()
    assert process.stdout is not None and process.stderr is not None
    output, error = process.stdout.read(), process.stderr.read()
    assert process.wait() == 0 and '"right": true' in output, output[-1000:] + error[-2000:]


@pytest.mark.parametrize("name", [pytest.param("openmpi", marks=pytest.mark.matrix), *LIBRARIES[1:]])
def test_a_job_goes_on_when_an_interface_was_down(name: str) -> None:
    """For a second at one host, then for a second at the other; the launcher's connections outlive it as TCP's do."""
    needs("barewire")
    with stand_up("pair") as lab, job_under_way(name, lab) as process:
        for host in ("h2", "h1"):
            lab.set_link(host, up=False)
            time.sleep(1)
            lab.set_link(host, up=True)
            time.sleep(0.3)
        ended_right(process, lab)


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_job_starts_though_another_user_holds_the_names_of_its_hosts(name: str) -> None:
    """Two ranks on each of two hosts: each pair of a host meets, and each has a service access point."""
    needs("barewire")
    with stand_up("pair") as lab, names_taken(lab, "h1", "h2"):
        done = barewire("run", "-n", "4", "--lab", lab.id, "--", program(name, "collectives"))
    assert done.returncode == 0 and '"right": true' in done.stdout, done.stdout[-1000:] + done.stderr[-2000:]


@pytest.mark.parametrize("name", ["openmpi", pytest.param("mpich-5", marks=pytest.mark.matrix), *LIBRARIES[2:]])
def test_a_rank_that_is_stopped_for_less_than_the_patience_is_not_given_up(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With messages under way: their repetitions, which begin microseconds apart, do not use up the patience."""
    needs("barewire")
    monkeypatch.setenv("FI_BAREWIRE_PATIENCE", "8")
    with stand_up("pair") as lab, job_under_way(name, lab, "6", "5") as process:
        ended_right(process, lab)


@pytest.mark.parametrize(
    "victims",
    [
        pytest.param(["3"], id="other host", marks=pytest.mark.matrix),
        pytest.param(["1"], id="same host", marks=pytest.mark.matrix),
        pytest.param(["2", "1"], id="both"),
    ],
)
def test_survivors_of_failed_ranks_revoke_agree_shrink_and_go_on(
    victims: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """User-level failure mitigation as Open MPI 5 has it, with two ranks on each of two hosts. Closing its endpoint, a
    survivor waits for the dead for no longer than its patience."""
    needs("barewire")
    monkeypatch.setenv("FI_BAREWIRE_PATIENCE", "3")
    command = ["run", "-n", "4", "--lab", "pair", "--ulfm", "--", program("openmpi-5", "ulfm"), *victims]
    try:
        done = barewire(*command, timeout=40)
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]
        output = done.stdout
    except subprocess.TimeoutExpired as late:
        # In MPI_Finalize survivors may wait for a fence of the launcher's that never ends, over TCP as well
        # (docs/reliability.md). They have said by then how it went.
        output = os.fsdecode(late.stdout or b"")
    told = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    left = [one["left"] for one in told]
    assert sorted(left, reverse=True) == [3] * 3 + [2] * 2 * (len(victims) - 1), told
    assert max(one["went_on_s"] for one in told) < 10, told


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_job_of_a_plain_launcher_is_open_to_nobody_else(name: str) -> None:
    """Its ranks have a token if their launcher draws a random key; else only who has their addresses may connect."""
    needs("barewire")
    with Lab.up("pair") as lab:
        made = prepare(library(name), FabricOptions(), [("h1", 1), ("h2", 1)], [program(name, "goes_on"), "1"], lab)
        kept = tuple(setting for setting in made.settings if setting.name != TOKEN)
        assert len(kept) == len(made.settings) - 1
        job = replace(made, settings=(*kept, Setting("FI_LOG_LEVEL", "info", "test")))
        environment = {key: value for key, value in os.environ.items() if key != TOKEN}
        environment |= job.environment() | lab.remote_shell()[1]
        command = lab.command("h1", job.command(environment))
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 0 and '"right": true' in done.stdout, done.stdout[-1000:] + done.stderr[-2000:]
    told = [line.split("token from ")[1] for line in done.stderr.splitlines() if "token from " in line]
    source = "Open MPI's transport key" if name == "openmpi" else "nowhere: peers need this address"
    assert len(told) >= 2 and set(told) == {source}, told


def test_two_jobs_with_different_tokens_do_not_hear_each_other(tmp_path: Path) -> None:
    """The same program, at the same time, on the same interfaces: each is right, and neither is disturbed."""
    needs("barewire")
    with stand_up("pair") as lab:
        command = [BAREWIRE, "run", "-n", "2", "--lab", lab.id, "--", program("openmpi", "goes_on"), "2"]
        # Two launchers of Open MPI 4.1 that start at once fail now and then to create their common folder.
        own_folder = os.environ | {"OMPI_MCA_orte_tmpdir_base": str(tmp_path)}
        other = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=own_folder)
        done = barewire(*command[1:])
        output, error = other.communicate(timeout=60)
    assert done.returncode == 0 and other.returncode == 0, done.stderr[-1000:] + error[-1000:]
    assert '"right": true' in done.stdout and '"right": true' in output
