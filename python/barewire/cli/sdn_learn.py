# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire sdn learn`: trains a classifier of flows from recordings of an operator's own network."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from barewire.cli import options
from barewire.cli.output import print_document

if TYPE_CHECKING:
    from barewire.sdn.classify.learn import Evaluation


def learn(
    recordings: Annotated[
        list[Path], typer.Argument(metavar="RECORDING…", help="files that `sdn start --record` wrote")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="classifier to write, for `sdn start --classifier`"),
    ] = None,
    evaluate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="train nothing: evaluate this classifier on the recordings")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0.5,
            max=1.0,
            metavar="SHARE",
            help="probability below which a flow stays `default`, for --output: it is part of the classifier",
            show_default="0.9",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Train a classifier of flows from recordings, and report how it does on runs that it was not trained on.

    Announce jobs of each profile while `sdn start --record` runs, other traffic as profile `default`; record several
    runs. Training needs scikit-learn.
    """
    # Imported here: they take half a second, which other commands need not wait for.
    from barewire.errors import WrongUse
    from barewire.sdn.classify.learn import THRESHOLD, read_recordings, tested, train
    from barewire.sdn.classify.model import read_model

    if (output is None) == (evaluate is None):
        raise WrongUse("give --output FILE to train a classifier, or --evaluate FILE to evaluate one")
    if evaluate is not None and threshold is not None:
        raise WrongUse("--threshold is for --output: a classifier is evaluated with the one that it was trained with")
    if output is not None and (not os.access(output.parent, os.W_OK) or output.is_dir()):
        raise WrongUse(f"cannot write the classifier {output}: give a file in a folder that you may write to")
    recorded = read_recordings(recordings)
    if evaluate is not None:
        model = read_model(evaluate)
        evaluation = tested(model, recorded)
    else:
        model, evaluation = train(recorded, THRESHOLD if threshold is None else threshold)
    try:
        if output is not None:
            model.write(output)
    finally:
        # Also if the file is not writable any more.
        if as_json:
            print_document("sdn learn", {"trained": dict(model.trained), **evaluation.to_json()})
        else:
            # Jobs choose their names.
            _print(Console(highlight=False, markup=False), evaluation)
    if output is not None and not as_json:
        typer.echo(f"`barewire sdn start --classifier {output}` uses it")


def _print(console: Console, evaluation: "Evaluation") -> None:
    said = list(next(iter(evaluation.confusion.values())))
    table = Table("conversations of", *said, "right", title="Runs not trained on, each conversation at its end")
    for actual, counts in evaluation.confusion.items():
        table.add_row(actual, *(str(counts[name]) for name in said), f"{evaluation.recognised[actual]:.1%}")
    console.print(table)
    table = Table("application", "profile", "runs", "conversations", "right")
    for name, facts in evaluation.by_application.items():
        row = (facts["profile"], str(facts["runs"]), str(facts["conversations"]), f"{facts['recognised']:.1%}")
        table.add_row(name, *row)
    console.print(table)
    table = Table(
        "probability", "rows", "mean", "right", title=f"Calibration, error {evaluation.calibration_error:.3f}"
    )
    for part in evaluation.calibration:
        share = f"{part['from']:g} to {part['to']:g}"
        table.add_row(share, f"{part['rows']:.0f}", f"{part['probability']:.3f}", f"{part['right']:.3f}")
    console.print(table)
