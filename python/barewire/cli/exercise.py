# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire exercise`: the classroom's exercises, and the checker of answers."""

import tomllib
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from barewire.classroom.exercises import EXERCISES, Exercise, check
from barewire.cli import complete, options
from barewire.cli.groups import typer_group
from barewire.cli.output import print_document
from barewire.errors import MeasurementFailed, WrongUse, unknown

app = typer_group("Exercises for a course on networks or parallel computing.")

_NAME = typer.Argument(metavar="EXERCISE", help="name of an exercise", autocompletion=complete.exercises)


@app.command("list")
def list_exercises(as_json: options.AsJson = False) -> None:
    """List the exercises, each with its command and questions. docs/classroom has a page for each."""
    if as_json:
        print_document("exercise list", {"exercises": [_plain(exercise) for exercise in EXERCISES]})
        return
    console = Console()
    for exercise in EXERCISES:
        console.print(Text(f"{exercise.name}: {exercise.title}", style="bold"))
        console.print(Text(f"  {exercise.command}", style="dim"), soft_wrap=True)
        for question in exercise.questions:
            console.print(Text(f"  {question.name}: {question.text}"))


@app.command("check")
def check_answers(
    exercise: Annotated[str, _NAME],
    answers: Annotated[Path, typer.Argument(metavar="ANSWERS.toml", help="a line for each question: name = number")],
    material: Annotated[
        Path, typer.Argument(metavar="RUN|FILE", help="what the exercise's command left", autocompletion=complete.runs)
    ],
    as_json: options.AsJson = False,
) -> None:
    """Check the answers to an exercise against theory and against the student's own run.

    The exit code is 1 if an answer is not right yet; a hint says where to look, and not the number.
    """
    chosen = {each.name: each for each in EXERCISES}.get(exercise)
    if chosen is None:
        raise unknown("exercise", exercise, (each.name for each in EXERCISES))
    try:
        given = tomllib.loads(answers.read_text(encoding="utf-8"))
    except OSError as error:
        raise WrongUse(f"cannot read {answers}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # ValueError also of a number of thousands of digits
        raise WrongUse(f"{answers} needs lines such as wire_bytes_1 = 84: {error}") from error
    checked = check(chosen, chosen.read(material), given)
    right = sum(each.right for each in checked)
    if as_json:
        results = [{"question": each.question.name, "right": each.right, "says": each.says} for each in checked]
        print_document("exercise check", {"exercise": exercise, "right": right, "of": len(checked), "answers": results})
    else:
        console = Console()
        for each in checked:
            style = "green" if each.right else "yellow"
            console.print(Text(f"{each.question.name}: ").append(each.says, style=style))
        console.print(Text(f"{right} of {len(checked)} right", style="bold"))
    if right < len(checked):
        raise MeasurementFailed(f"{len(checked) - right} of {len(checked)} answers to {exercise} are not right yet")


def _plain(exercise: Exercise) -> dict[str, object]:
    return {
        "name": exercise.name,
        "title": exercise.title,
        "command": exercise.command,
        "questions": [
            {"name": question.name, "text": question.text, "unit": question.unit} for question in exercise.questions
        ],
    }
