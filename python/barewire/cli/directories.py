# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Directories of results: a command that fails before its first result leaves none behind."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import typer

from barewire.errors import BarewireError, WrongUse

RUNS = Path("runs")


@contextmanager
def results_directory(requested: Path | None, name: str) -> Iterator[Path]:
    """Yield the directory for a command's results, created if it was missing; `name` is part of the default's.

    No other command gets the same default. If the block fails, says what was kept; a directory without results is
    removed, unless it was there before: then only what the block put into it is. WrongUse if it cannot be created.
    """
    if requested is None:
        directory, created = _create_default(f"{datetime.now():%Y%m%d-%H%M%S}-{name}")
    else:
        directory, created = requested, _create(requested)
    was_empty = bool(created) or (directory.is_dir() and not any(directory.iterdir()))
    try:
        yield directory
    except (Exception, KeyboardInterrupt):
        if was_empty and directory.is_dir():
            _keep_or_remove(directory, created)
        raise


def make_empty(directory: Path) -> None:
    """Create a directory; WrongUse if it is not empty or cannot be created."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise WrongUse(f"{directory} is not empty; results need an empty directory")
    except OSError as error:
        raise WrongUse(f"{directory} cannot be created: {error.strerror}") from error


def _create_default(name: str) -> tuple[Path, list[Path]]:
    directory, number = RUNS / name, 1
    # Another command that was started in the same second has it already.
    while not (created := _create(directory)):
        number += 1
        directory = RUNS / f"{name}-{number}"
    return directory, created


def _create(directory: Path) -> list[Path]:
    """Create a directory and its missing parents; return those that this very call created, the directory first.

    Nothing if the directory itself was there.
    """
    created: list[Path] = []
    try:
        for path in reversed([path for path in (directory, *directory.parents) if not path.exists()]):
            with suppress(FileExistsError):
                path.mkdir()
                created.insert(0, path)
    except OSError as error:
        _remove_empty(created)
        raise WrongUse(f"{directory} cannot be created: {error.strerror}") from error
    return created if directory in created else []


def _remove_empty(directories: list[Path]) -> None:
    # A parent may have another command's results by now.
    with suppress(OSError):
        for directory in directories:
            directory.rmdir()


def _keep_or_remove(directory: Path, created: list[Path]) -> None:
    if _has_results(directory):
        run = directory / "run.json"
        if run.exists():
            with suppress(BarewireError):
                _say_what_is_kept(directory, run.parent)
        return
    for entry in directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    _remove_empty(created)


def _say_what_is_kept(directory: Path, run: Path) -> None:
    from barewire.results.store import read_run

    complete = read_run(run).complete
    content = "all that was measured" if complete else "what was measured so far"
    typer.echo(f"{content} is in {directory}{'' if complete else ', marked incomplete'}", err=True)


def _has_results(directory: Path) -> bool:
    """Whether there are samples, records of launches, or output of programs, and not only plans and empty runs."""
    return any(_is_result(file) for file in directory.rglob("*") if not file.is_dir())


def _is_result(file: Path) -> bool:
    try:
        return _has_measurements(file)
    except BarewireError:
        # It is damaged, which is not the error to be told now.
        return True


def _has_measurements(file: Path) -> bool:
    from barewire.results.store import read_run, samples

    if file.name == "run.json":
        # A program that had started may have found a wrong result, which is not a sample.
        return any(launch.details.get("start") for launch in read_run(file.parent).launches)
    if file.name == "samples.parquet":
        return not samples(file.parent).is_empty()
    if file.suffix == ".jsonl":
        return file.stat().st_size > 0
    return file.name not in ("try.json", "plan.json")
