# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire trajectory`: how every value changed over many runs, and with which run."""

from pathlib import Path
from typing import Annotated

from rich.console import Console

from barewire.cli import options
from barewire.cli.compare import AcrossEnvironments, FloorName, Margin, read_settings
from barewire.cli.output import print_document
from barewire.cli.progress import progress_bar
from barewire.measure.recover import recover_run
from barewire.models.naming import FLOOR
from barewire.report import trajectory as tracks
from barewire.report.trajectory_page import print_trajectory
from barewire.report.versus import MARGIN


def trajectory(
    runs: Annotated[list[Path], options.RUNS],
    margin: Margin = MARGIN,
    confidence: options.Confidence = 99,
    floor: FloorName = FLOOR,
    across_environments: AcrossEnvironments = False,
    as_json: options.AsJson = False,
) -> None:
    """Follow every test, subject and size over many runs, and name the run with which it became faster or slower.

    The oldest run comes first. Each is normalised by its own floor, so that a busy machine is not taken for a slower
    program.
    """
    settings = read_settings(margin, confidence, floor)
    with progress_bar("reading") as progress:
        loaded = []
        for number, run in enumerate(runs):
            progress(number, len(runs) + 1, f"reading {run}")
            loaded.append(recover_run(run))
        progress(len(runs), len(runs) + 1, "comparing")
        found = tracks.trajectory(loaded, settings, across_environments=across_environments)
    if as_json:
        print_document("trajectory", found.to_json())
    else:
        print_trajectory(Console(highlight=False), found)
