# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Recordings: the features of labelled conversations as CSV, from which a classifier is trained.

One line for a conversation at some of its rounds: run, round, application, profile, numbers of the conversation and of
its service, then the features.
Labels are announcements: a job's profile and name. No address or name of a host is written.
"""

import csv
import gzip
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO

from barewire.errors import WrongUse
from barewire.sdn.classify.features import FEATURES, End, Features
from barewire.sdn.flow import FlowKey

COLUMNS = ("run", "round", "application", "profile", "conversation", "service", *FEATURES)
# Rounds of a conversation that are written: they double, so that a long one does not outweigh the others.
_WRITTEN = frozenset(1 << power for power in range(20))

# A flow's application and profile, None if it has no label.
Label = Callable[[FlowKey], tuple[str, str] | None]


class Recording:
    """A new file (gzipped if its name ends in .gz) with one run's conversations."""

    def __init__(self, file: Path, label: Label) -> None:
        """Create the file. WrongUse if it exists, or the system refuses."""
        self._label = label
        self._run = secrets.token_hex(4)
        self._rounds: dict[int, int] = {}
        self._services: dict[End, int] = {}
        try:
            self._file: IO[str] = gzip.open(file, "xt") if file.suffix == ".gz" else file.open("x")  # noqa: SIM115
        except FileExistsError:
            raise WrongUse(f"{file} exists: a recording is a new file; `barewire sdn learn` takes several") from None
        except OSError as error:
            raise WrongUse(f"cannot write the recording {file}: {error.strerror or error}") from error
        self._lines = csv.writer(self._file)
        self._lines.writerow(COLUMNS)

    def add(self, features: Features) -> None:
        """Write those conversations that are due."""
        rounds = {number: self._rounds.get(number, 0) + 1 for number in features.numbers}
        self._rounds = rounds
        every = zip(features.keys, features.services, features.numbers, features.rows, strict=True)
        for key, service, number, row in every:
            if rounds[number] not in _WRITTEN or (label := self._label(key)) is None:
                continue
            served = self._services.setdefault(service, len(self._services))
            values = [f"{value:.4g}" for value in row.tolist()]
            self._lines.writerow([self._run, rounds[number], *label, number, served, *values])

    def close(self) -> None:
        """Complete the file."""
        self._file.close()
