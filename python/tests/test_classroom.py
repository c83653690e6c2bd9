# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The checker of exercises: right and wrong answers, and the student's own material."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from synthetic import run_of, series_of
from typer.testing import CliRunner

from barewire.classroom.exercises import EXERCISES, Checked, Exercise, check
from barewire.cli.commands import app
from barewire.errors import MeasurementFailed, WrongUse
from barewire.models.wire import latency_limit_us
from barewire.results.run import Run

DOCS = Path(__file__).parents[2] / "docs" / "classroom"
BY_NAME = {exercise.name: exercise for exercise in EXERCISES}


def frame_run() -> Run:
    """10 µs of software and the wire's time, exactly."""
    times = {size: 10 + latency_limit_us(size, "raw", 1500, 10e6) for size in (1, 64, 256, 1400)}
    return run_of("frame", [series_of([time] * 6, message_bytes=size) for size, time in times.items()])


def says(exercise: Exercise, material: Any, answers: Mapping[str, Any]) -> dict[str, bool]:
    return {each.question.name: each.right for each in check(exercise, material, answers)}


def test_right_answers_are_right_and_wrong_ones_get_a_hint_without_the_number() -> None:
    exercise, run = BY_NAME["frame"], frame_run()
    right = {
        "wire_bytes_1": 84,
        "wire_bytes_1400_tcp": 1490,
        "wire_us_1400": 1150.4,
        "rate_mbit_s": 10,
        "software_us": 10,
    }
    assert all(says(exercise, run, right).values())
    for name, value in right.items():
        checked: list[Checked] = check(exercise, run, right | {name: value * 1.5})
        (wrong,) = (each for each in checked if not each.right)
        assert wrong.question.name == name and wrong.says.startswith("not yet: ")
        assert str(value) not in wrong.says
    assert not says(exercise, run, {})["software_us"]


@pytest.mark.parametrize(
    "answers",
    [
        {"wire_bytes": 84},
        *({"wire_bytes_1": value} for value in ("84", True, float("nan"), float("inf"), 10**400)),
    ],
)
def test_a_name_or_value_that_cannot_be_an_answer_is_an_error(answers: Mapping[str, Any]) -> None:
    with pytest.raises(WrongUse, match=r"has no question 'wire_bytes'|is a number, not"):
        check(BY_NAME["frame"], frame_run(), answers)


def test_material_of_another_exercise_is_an_error() -> None:
    other = run_of("other", [series_of([1.0] * 6, subject="udp", message_bytes=64)])
    with pytest.raises(WrongUse, match="measure with the exercise's own command"):
        check(BY_NAME["frame"], other, {"software_us": 3})


@pytest.mark.parametrize(
    "document",
    [
        {"series": 1},
        {"series": [1]},
        {"series": [{"subject": "udp", "test": "stream", "median": 1.0}]},
        {"series": [{"strategy": "ecmp", "workload": "permutation", "mean": float("nan")}]},
    ],
)
def test_a_document_of_something_else_is_an_error(tmp_path: Path, document: dict[str, Any]) -> None:
    file = tmp_path / "other.json"
    file.write_text(json.dumps(document))
    with pytest.raises(WrongUse, match="is not what `barewire sdn simulate "):
        BY_NAME["collisions"].read(file)


def test_windows_are_compared_as_the_run_has_them() -> None:
    series = [
        series_of([rate] * 6, subject=f"endpoint+window={window}+acknowledge_every=1", test="stream", unit="Mbit/s")
        for window, rate in [(2, 500.0), (63, 2000.0)]
    ]
    run, exercise = run_of("window", series), BY_NAME["window"]
    assert all(says(exercise, run, {"frames_in_flight": 9, "gain": 4, "repeated": 63}).values())
    assert not says(exercise, run, {"gain": 0.25})["gain"]


def simulated(**means: float) -> dict[str, Any]:
    return {"series": [{"workload": "permutation", "strategy": name, "mean": mean} for name, mean in means.items()]}


def test_a_strategy_must_be_told_right_and_be_better() -> None:
    exercise = BY_NAME["strategy"]
    assert says(exercise, simulated(ecmp=0.5, planned=1.0, mine=0.6), {"gain": 1.2})["gain"]
    (slow,) = check(exercise, simulated(ecmp=0.5, planned=1.0, mine=0.5), {"gain": 1.0})
    assert not slow.right and "it must reach 1.1" in slow.says
    with pytest.raises(WrongUse, match="no rate to compare with"):
        check(exercise, simulated(ecmp=0, mine=0.5), {"gain": 1.0})
    with pytest.raises(WrongUse, match="no strategy of yours"):
        check(exercise, simulated(ecmp=0.5, planned=1.0), {"gain": 1.0})
    assert all(
        says(
            BY_NAME["collisions"],
            simulated(ecmp=0.64, planned=1.0),
            dict(paths=4, collision=0.5, ecmp=0.64, planned=1.0),
        ).values()
    )


def test_every_exercise_has_a_page_with_its_command_and_its_options_exist() -> None:
    assert {path.stem for path in DOCS.glob("*.md")} == {"README", *BY_NAME}
    for exercise in EXERCISES:
        command = exercise.command.replace("barewire ", "bin/barewire ", 1)
        assert command in (DOCS / f"{exercise.name}.md").read_text(), exercise.name
        words = exercise.command.partition("barewire ")[2].split(" > ")[0].split()
        count = 2 if words[0] == "sdn" else 1
        help_text = CliRunner().invoke(app, [*words[:count], "--help"]).output
        assert all(word in help_text for word in words if word.startswith("--"))


def test_the_command_checks_and_says_by_its_exit_code(tmp_path: Path) -> None:
    document, answers = tmp_path / "collisions.json", tmp_path / "answers.toml"
    document.write_text(json.dumps(simulated(ecmp=0.64, planned=1.0)))
    answers.write_text("paths = 4\ncollision = 0.5\necmp = 0.64\nplanned = 1\n")
    runner = CliRunner()
    command = ["exercise", "check", "collisions", str(answers), str(document)]
    done = runner.invoke(app, command)
    assert done.exit_code == 0 and "4 of 4 right" in done.output
    answers.write_text("paths = 2\n")
    done = runner.invoke(app, [*command, "--json"])
    assert isinstance(done.exception, MeasurementFailed) and json.loads(done.output.splitlines()[0])["right"] == 0
    for text, message in [
        ("paths =", "needs lines such as"),
        (f"paths = {'9' * 5000}", "needs lines such as"),
        ("path = 4", "has no question 'path'"),
    ]:
        answers.write_text(text)
        with pytest.raises(WrongUse, match=message):
            runner.invoke(app, command, catch_exceptions=False)
    document.write_text("{")
    with pytest.raises(WrongUse, match="is not what"):
        runner.invoke(app, command, catch_exceptions=False)
    assert "frame: What a frame costs" in runner.invoke(app, ["exercise", "list"]).output
