# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A small study from its plan to its page: steps are run in labs, interrupted and continued, and claims judged."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import BAREWIRE, barewire, eventually, processes_with

pytestmark = pytest.mark.usefixtures("lab_allowed", "nothing_left")

PLAN = """
title = "Frames"
question = "Are plain frames faster than TCP?"
source = "this test"

[[step]]
name = "frames"
what = "ping-pongs"
command = ["bench", "pingpong", "--transport", "raw,tcp", "--sizes", "64,1400"]
lab = ["--lab", "pair"]
quick = ["--launches", "6", "--seconds", "0.01"]
full = ["--launches", "400", "--seconds", "0.5", "--budget", "100"]

[[step]]
name = "elsewhere"
what = "a library that is not here"
command = ["mpi", "pingpong", "--library", "mpich-99", "--fabric", "tcp"]
lab = ["--lab", "pair"]

[[claim]]
text = "A plain frame takes microseconds."
kind = "within"
a = {step = "frames", subject = "raw", message_bytes = 64}
low = 0.1
high = 100000

[[claim]]
text = "It takes nanoseconds."
kind = "within"
a = {step = "frames", subject = "raw", message_bytes = 64}
low = 0.0001
high = 0.01

[[claim]]
text = "Another library is faster."
kind = "faster"
a = {step = "elsewhere"}
b = {step = "frames"}
"""


def test_a_study_is_run_judged_and_shown(tmp_path: Path) -> None:
    plan, folder = tmp_path / "mine.toml", tmp_path / "study"
    plan.write_text(PLAN)
    done = barewire("study", "run", str(plan), "--quick", "-o", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    true, false, other = found["claims"]
    assert (true["verdict"], false["verdict"]) == ("held", "did not hold"), found
    assert found["steps"]["elsewhere"]["state"] == "left out"
    assert other["verdict"] == "cannot be decided" and "mpich-99 is not installed here" in other["why"]
    page = (folder / "study.html").read_text()
    assert "Are plain frames faster than TCP?" in page and "did not hold" in page
    # What is done is not done again.
    created = (folder / "frames" / "run.json").stat().st_mtime_ns
    again = barewire("study", "run", str(plan), "--quick", "-o", str(folder))
    assert again.returncode == 0 and (folder / "frames" / "run.json").stat().st_mtime_ns == created
    text = barewire("study", "report", str(folder), "--plan", str(plan), "--markdown", str(tmp_path / "study.md"))
    assert text.returncode == 0 and "**Held.**" in (tmp_path / "study.md").read_text()


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGHUP, marks=pytest.mark.matrix), signal.SIGKILL]
)
def test_an_interrupted_study_leaves_no_lab_and_can_be_continued(number: signal.Signals, tmp_path: Path) -> None:
    """Also one that is killed. While it runs, the same command is refused."""
    plan, folder = tmp_path / "mine.toml", tmp_path / "study"
    plan.write_text(PLAN)
    command = ["study", "run", str(plan), "-o", str(folder)]
    study = subprocess.Popen([BAREWIRE, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert eventually(lambda: (folder / "frames" / "launches").is_dir(), 30)
    second = barewire(*command)
    assert second.returncode == 2 and f"is being run by process {study.pid}" in second.stderr, second.stderr
    assert (folder / "frames" / "launches").is_dir()
    study.send_signal(number)
    _, errors = study.communicate(timeout=60)
    assert study.returncode == (-number if number == signal.SIGKILL else 130), errors
    record = json.loads((folder / "study.json").read_text())
    assert "frames" not in record["steps"]
    assert eventually(lambda: processes_with(os.environ["XDG_RUNTIME_DIR"]) == [], 30)
    refused = barewire("study", "run", str(plan), "--quick", "-o", str(folder))
    assert refused.returncode == 2 and "continue it as it was begun" in refused.stderr


def test_a_study_under_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    plan, folder = tmp_path / "mine.toml", tmp_path / "study"
    plan.write_text(PLAN)
    command = ["nohup", BAREWIRE, "study", "run", str(plan), "-o", str(folder)]
    study = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert eventually(lambda: (folder / "frames" / "launches").is_dir(), 30)
    study.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        study.wait(0.5)
    study.send_signal(signal.SIGTERM)
    _, errors = study.communicate(timeout=60)
    assert study.returncode == 130, errors


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["geromel1998", "paz2010"])
def test_a_study_run_twice_agrees_with_itself(name: str, tmp_path: Path) -> None:
    """What held in one does not fail to hold in the other; what one cannot decide contradicts nothing."""
    found = []
    for time in ("first", "second"):
        done = barewire("study", "run", name, "--quick", "-o", str(tmp_path / time), "--json", timeout=600)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
        assert {step["state"] for step in found[-1]["steps"].values()} == {"done"}, done.stderr
    pairs = list(zip(*(each["claims"] for each in found), strict=True))
    assert [
        (one, other) for one, other in pairs if {one["verdict"], other["verdict"]} == {"held", "did not hold"}
    ] == []
