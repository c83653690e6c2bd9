# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Input files of the programs, by application, and how they get into a launch's folder."""

import math
import shutil
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from barewire.applications.application import Application

_HERE = Path(__file__).parent


def put_inputs(application: Application, folder: Path, *, ranks: int, processes: int) -> None:
    """Write an application's inputs; templates are of a problem for `ranks`, solved by `processes`."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = max(row for row in range(1, math.isqrt(processes) + 1) if processes % row == 0)
    known = {"ranks": ranks, "processes": processes, "rows": rows, "columns": processes // rows}
    given = _HERE / application.name
    for file in sorted(filter(Path.is_file, given.rglob("*"))):
        if file.parent.name == "__pycache__":
            continue
        target = folder / file.relative_to(given)
        target.parent.mkdir(exist_ok=True)
        if file.suffix == ".j2":
            text = Environment(undefined=StrictUndefined, autoescape=False).from_string(file.read_text())
            target.with_suffix("").write_text(text.render(known) + "\n")
        else:
            shutil.copyfile(file, target)
    if application.generate is not None:
        application.generate(folder)
