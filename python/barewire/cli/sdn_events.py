# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A controller's events on standard output, written by a thread: a reader that pauses must not stop the controller."""

import io
import os
import time
from contextlib import suppress
from queue import Full, Queue
from threading import Thread
from typing import TextIO

import typer

from barewire.cli.output import print_document

# Events that wait for a reader at most, some 10 MB; later ones are lost, and counted.
WAITING_MAX = 50_000
# How long the end waits for a reader that takes nothing.
END_S = 2.0


class EventPrinter:
    """Writes events, one a line. Its methods never wait, except `close`."""

    def __init__(self, to: TextIO, *, as_json: bool) -> None:
        """Begin to write to a stream's descriptor."""
        self._to, self._as_json = to, as_json
        self._waiting: Queue[bytes | None] = Queue(WAITING_MAX)
        self._lost = 0
        self._thread = Thread(target=self._write_all, name="events", daemon=True)
        self._thread.start()

    def event(self, kind: str, text: str) -> None:
        """Write an event soon. If too many wait, it is lost, which a later line says."""
        with suppress(Full):
            self._say_lost(0.0)
        self._lost += not self._put(self._line(kind, text))

    def text(self, text: str) -> None:
        """Write other text soon, for a person at a terminal."""
        self._put(f"{text}\n".encode(self._to.encoding, "backslashreplace"))

    def close(self) -> None:
        """Write what waits, as long as it is read."""
        with suppress(Full):
            self._say_lost(END_S)
            self._waiting.put(None, timeout=END_S)
        self._thread.join(END_S)

    def _say_lost(self, wait_s: float) -> None:
        """Say how many events were lost since this was said. Full if there is no room for it."""
        if self._lost:
            line = self._line("events lost", f"{self._lost} that waited for a reader of standard output")
            self._waiting.put(line, block=wait_s > 0, timeout=wait_s)
            self._lost = 0

    def _put(self, line: bytes) -> bool:
        try:
            self._waiting.put_nowait(line)
        except Full:
            return False
        return True

    def _line(self, kind: str, text: str) -> bytes:
        now, written = time.time(), io.BytesIO()
        line = io.TextIOWrapper(written, self._to.encoding, "backslashreplace", write_through=True)
        if self._as_json:
            print_document("sdn start", {"time_s": round(now, 6), "event": kind, "text": text}, to=line)
        else:
            stamp = time.strftime("%H:%M:%S", time.localtime(now))
            typer.echo(f"{stamp}.{int(now * 1000) % 1000:03d} {kind}: {text}", file=line)
        return written.getvalue()

    def _write_all(self) -> None:
        while (line := self._waiting.get()) is not None:
            # The reader may be gone, a log's disk full, the stream closed: the network does not depend on it. Not
            # through the stream, whose lock would be held when the process ends beside a reader that has stopped.
            with suppress(OSError, ValueError):
                while line:
                    line = line[os.write(self._to.fileno(), line) :]
