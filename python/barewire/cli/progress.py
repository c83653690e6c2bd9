# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How far a run has come, on standard error."""

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def progress_bar(*, quiet: bool) -> Any:
    """A bar on standard error, moved between launches only: a thread that draws would be measured too."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda done, total, doing: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as bar:
        task = bar.add_task("measuring")

        def show(done: int, total: int, doing: str) -> None:
            bar.update(task, completed=done, total=total, description=doing, refresh=True)

        shown: Callable[[int, int, str], None] = show
        yield shown
