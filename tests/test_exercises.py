# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The six exercises as a student does them: the printed command, answers read from what it left, and the checker.

Answers are worked out here from the definitions of the pages, not by the checker's own functions.
"""

import json
import math
import os
import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import BAREWIRE, barewire
from documented import block, pages
from mpi_libraries import library, needs

pytestmark = [pytest.mark.matrix, pytest.mark.usefixtures("lab_allowed", "nothing_left")]
Answers = Mapping[str, float]
# Takes the path whose fullest port has the fewest flows.
FEWEST_FLOWS = """
        used = [port for placed in view.placed.values() for port in placed.path]
        return Placement(min(paths, key=lambda path: max(used.count(port) for port in path)))
"""


def run_command(name: str, folder: Path, *effort: str) -> Path:
    """Run the command of the exercise's page; what it leaves: a run's folder, or the document that it printed."""
    command = pages()[f"classroom/{name}.md"][0]
    *arguments, output, file = shlex.split(command.partition("bin/barewire ")[2])
    assert output in (">", "-o")
    options = ["-o", file] if output == "-o" else []
    done = subprocess.run(
        [BAREWIRE, *arguments, *options, *effort],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    if output == ">":
        (folder / file).write_text(done.stdout)
    return folder / file


def checked(name: str, answers: Answers, material: Path) -> "subprocess.CompletedProcess[str]":
    file = material.parent / "answers.toml"
    file.write_text("".join(f"{question} = {value}\n" for question, value in answers.items()))
    return barewire("exercise", "check", name, str(file), str(material))


def median(run: Path, subject: str, **wanted: Any) -> float:
    """The median of the only series of a subject with this in its name, and with these values."""
    (found,) = (
        each["median"]
        for each in json.loads((run / "run.json").read_text())["series"]
        if subject in each["subject"] and wanted.items() <= each.items()
    )
    return float(found)


def of_frames(run: Path) -> Answers:
    one_way_us = {size: median(run, "raw", message_bytes=size) for size in (64, 256, 1400)}
    return {
        "wire_bytes_1": 8 + 64 + 12,
        "wire_bytes_1400_tcp": 8 + 14 + 20 + 32 + 1400 + 4 + 12,
        "wire_us_1400": (8 + 14 + 1400 + 4 + 12) * 8 / 10,
        "rate_mbit_s": (1400 - 256) * 8 / (one_way_us[1400] - one_way_us[256]),
        "software_us": one_way_us[64] - (8 + 14 + 64 + 4 + 12) * 8 / 10,
    }


def of_windows(run: Path) -> Answers:
    narrow, wide = (median(run, f"+window={window}") for window in (2, 63))
    return {"frames_in_flight": math.ceil(1e9 * 100e-6 / (1538 * 8)), "gain": wide / narrow, "repeated": 63}


def of_eager(run: Path) -> Answers:
    """The highest step of the curves with a limit of 4 KiB, as `barewire model` prints it."""
    done = barewire("model", str(run), "--json")
    assert done.returncode == 0, done.stderr
    curves = [each for each in json.loads(done.stdout)["latency"] if "eager=4096" in each["subject"]]
    points = [each["point"] for curve in curves for each in curve["pieces"]["breaks"]]
    highest = max(points, key=lambda point: abs(point["jump"]))
    return {"messages": 3, "break_bytes": (highest["low"] + highest["high"]) / 2, "step_us": highest["jump"]}


def of_overlap(run: Path) -> Answers:
    return {
        f"hidden_{progress}": median(run, f"progress={progress}", quantity="hidden_share")
        for progress in ("manual", "auto")
    }


MEASURED: dict[str, Callable[[Path], Answers]] = {
    "frame": of_frames,
    "window": of_windows,
    "eager": of_eager,
    "overlap": of_overlap,
}


@pytest.mark.parametrize("name", MEASURED)
def test_a_measured_exercise_can_be_solved(name: str, tmp_path: Path) -> None:
    if name in ("eager", "overlap"):
        library({"eager": "openmpi", "overlap": "mpich-5"}[name])
        needs("barewire")
    run = run_command(name, tmp_path, "--launches", "6", "--seconds", "0.1")
    done = checked(name, MEASURED[name](run), run)
    assert done.returncode == 0, done.stdout + done.stderr


def rates(document: Path) -> dict[str, float]:
    return {each["strategy"]: each["mean"] for each in json.loads(document.read_text())["series"]}


def test_collisions_can_be_solved(tmp_path: Path) -> None:
    document = run_command("collisions", tmp_path)
    rate = rates(document)
    answers = {"paths": 4, "collision": 1 / 2, "ecmp": rate["ecmp"], "planned": rate["planned"]}
    done = checked("collisions", answers, document)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_printed_strategy_runs_and_a_better_one_is_enough(tmp_path: Path) -> None:
    printed = block("classroom/strategy.md", "python")
    better = printed.replace("\n        return Placement(paths[0])\n", FEWEST_FLOWS)
    assert better != printed
    for source, code, said in ((printed, 1, "it must reach 1.1"), (better, 0, "1 of 1 right")):
        (tmp_path / "mine.py").write_text(source)
        document = run_command("strategy", tmp_path)
        rate = rates(document)
        (mine,) = (rate[name] for name in rate if name not in ("ecmp", "planned"))
        done = checked("strategy", {"gain": mine / rate["ecmp"]}, document)
        assert done.returncode == code and said in done.stdout, done.stdout + done.stderr
