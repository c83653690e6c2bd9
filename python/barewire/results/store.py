# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A run's directory: `run.json` and `samples.parquet`, each written atomically."""

import contextlib
import errno
import fcntl
import io
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from barewire.errors import MeasurementFailed, WrongUse
from barewire.results.run import Run
from barewire.results.schema import METADATA_KEY, SAMPLES_SCHEMA, check_samples_schema, sample_frame

RUN_FILE = "run.json"
SAMPLES_FILE = "samples.parquet"


def write_run(directory: Path, run: Run, frame: pl.DataFrame | None = None) -> None:
    """Write `run` and, if given, its samples (columns of `SAMPLE_SCHEMA`) into `directory`, created if missing.

    Each file is replaced atomically: written to a temporary file, synced, renamed. The samples are written first, so
    `run.json` never describes missing samples. MeasurementFailed if the system refuses (full disk, no permission);
    ValueError for a frame without the columns, or a run that JSON cannot hold, before anything is written.
    """
    text = json.dumps(run.to_json(), indent=1, allow_nan=False, ensure_ascii=False)
    # A name that is no text, such as a file's in another encoding, is kept as JSON's escape.
    content = text.encode(errors="backslashreplace") + b"\n"
    parquet = io.BytesIO()
    if frame is not None:
        metadata = {METADATA_KEY: SAMPLES_SCHEMA}
        sample_frame(frame).write_parquet(parquet, compression="zstd", metadata=metadata)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if frame is not None:
            write_atomically(directory / SAMPLES_FILE, parquet.getvalue())
        write_atomically(directory / RUN_FILE, content)
    except OSError as error:
        raise MeasurementFailed(_write_failure(directory, error)) from error


@contextlib.contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Let no other process finish or recover the run in `directory` during the block.

    Without effect on file systems that have no locks of directories, such as NFS.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        # Its reader or writer reports that.
        yield
        return
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def read_run(directory: Path) -> Run:
    """Read the run in `directory`; WrongUse with the reason if it is invalid or unreadable."""
    path = directory / RUN_FILE
    if not path.exists():
        raise WrongUse(_missing_run(directory))
    try:
        data = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except OSError as error:
        raise WrongUse(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise WrongUse(f"{path} is not JSON ({error}): it is damaged or not a Barewire run") from error
    try:
        return Run.from_json(data)
    except WrongUse as error:
        raise WrongUse(f"{directory}: {error}") from error


def samples(directory: Path) -> pl.DataFrame:
    """Read all raw samples of the run, with warm-up, columns of `SAMPLE_SCHEMA`, older versions converted.

    WrongUse if there are none, or if they are of a newer version.
    """
    path = directory / SAMPLES_FILE
    if not path.is_file():
        raise WrongUse(_missing_run(directory, SAMPLES_FILE))
    try:
        check_samples_schema(pl.read_parquet_metadata(path).get(METADATA_KEY))
        # A name such as `a[1]` is a directory's, not a pattern that also matches another run's.
        return sample_frame(pl.read_parquet(path, glob=False))
    except OSError as error:
        raise WrongUse(f"cannot read {path}: {error}") from error
    except (pl.exceptions.PolarsError, ValueError) as error:
        raise WrongUse(f"{path} is damaged: {error}") from error


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by `content`, so that a crash or a full disk leaves the old file intact; raises OSError.

    A link stays one: its target is replaced. Devices and pipes, such as /dev/stdout and /dev/null, are written to.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp creates files with mode 0600; results get the usual mode.
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    _sync_directory(path.parent)


def write_output(path: Path, content: bytes) -> None:
    """Write a file where the caller wants it, and the folder if it is missing; WrongUse if that cannot be.

    Not MeasurementFailed: its exit code says that something is slower, broken or not confirmed.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as error:
        raise WrongUse(f"cannot write {path}: {error.strerror or error}") from error


def _write_failure(directory: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of {directory} is full; previous results are kept. Free space and run again"
    return f"cannot write {error.filename or directory}: {error.strerror or error}"


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number")


def _missing_run(directory: Path, name: str = RUN_FILE) -> str:
    if not directory.exists():
        return f"there is no directory {directory}"
    if not directory.is_dir():
        return f"{directory} is a file; give the run's directory"
    if any(directory.glob("launches/*.jsonl")):
        return f"the run in {directory} ended before its results were written: only launches/*.jsonl exist"
    return f"{directory} has no {name}: it is not a Barewire run"


def _umask() -> int:
    # umask can only be read by setting it.
    current = os.umask(0o077)
    os.umask(current)
    return current


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
