# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A controller's events on standard output, whatever their reader does."""

import fcntl
import json
import os
import re
import time
from pathlib import Path
from threading import Thread

import pytest

from barewire.cli.sdn_events import EventPrinter


def test_a_reader_that_pauses_stops_nobody_and_is_told_what_it_has_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe takes 4 kB, and 10 events wait: the others are lost, and counted; what waited is written at the end."""
    monkeypatch.setattr("barewire.cli.sdn_events.WAITING_MAX", 10)
    reads, writes = os.pipe()
    fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, 4096)
    with os.fdopen(reads) as reader, os.fdopen(writes, "w") as writer:
        printer = EventPrinter(writer, as_json=True)
        for number in range(500):
            printer.event("flood", f"{number} " + 100 * "x")
        got: list[dict[str, str]] = []
        reading = Thread(target=lambda: got.extend(map(json.loads, reader)))
        reading.start()
        printer.close()
        writer.close()
        reading.join()
    told = [int(event["text"].split()[0]) for event in got if event["event"] == "flood"]
    lost = [int(event["text"].split()[0]) for event in got if event["event"] == "events lost"]
    assert told == sorted(set(told)) and 10 <= len(told) < 100, "10 if nothing was written before all had come"
    assert len(told) + sum(lost) == 500


def test_an_end_waits_for_a_reader_that_has_stopped_only_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barewire.cli.sdn_events.WAITING_MAX", 3)
    monkeypatch.setattr("barewire.cli.sdn_events.END_S", 0.01)
    reads, writes = os.pipe()
    with os.fdopen(writes, "w") as writer, os.fdopen(reads):
        printer = EventPrinter(writer, as_json=False)
        for _ in range(1000):
            printer.event("flood", 1000 * "x")
        began = time.monotonic()
        printer.close()
        assert time.monotonic() - began < 1, "a hundred times as long as it may wait, and not for ever"


def test_events_have_times_and_signs_that_their_stream_lacks(tmp_path: Path) -> None:
    for encoding, name in (("utf-8", "Müller"), ("ascii", "M\\xfcller")):
        with (tmp_path / "log").open("w", encoding=encoding) as log:
            printer = EventPrinter(log, as_json=False)
            printer.event("host", "Müller")
            printer.text("open it")
            printer.close()
        lines = (tmp_path / "log").read_text().splitlines()
        assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} host: (.*)", lines[0])[1] == name  # type: ignore[index]
        assert lines[1:] == ["open it"]
