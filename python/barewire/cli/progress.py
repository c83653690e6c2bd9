# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A run's progress on standard error."""

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def progress_bar(*, quiet: bool) -> Any:
    """A progress bar on standard error, updated between launches only: a drawing thread would disturb them."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda done, total, label: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as bar:
        task = bar.add_task("measuring")

        def show(done: int, total: int, label: str) -> None:
            bar.update(task, completed=done, total=total, description=label, refresh=True)

        callback: Callable[[int, int, str], None] = show
        yield callback
