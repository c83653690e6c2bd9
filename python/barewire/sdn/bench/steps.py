# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Receives a program's announcements of steps (`--steps` of mpi/beff), and answers when the network is prepared."""

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from barewire.errors import BarewireError

# Called with a step's name and number before the program begins it.
Prepare = Callable[[str, int], None]
_STOP_S = 10.0


class Steps:
    """A Unix socket at `path` for one program, open within a `with` block.

    `heartbeat` is a file that grows with each step. An error raised by `prepare` closes the connection, which ends the
    program, and is stored in `failure`. `received` counts steps.
    """

    def __init__(self, path: Path, heartbeat: Path, prepare: Prepare) -> None:
        """Initialise; the context manager listens."""
        self.path, self._heartbeat, self._prepare = path, heartbeat, prepare
        self.failure: BarewireError | None = None
        self.received = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection: socket.socket | None = None
        self._lock = threading.Lock()
        self._is_over = False
        self._thread = threading.Thread(target=self._serve, name="steps", daemon=True)

    def __enter__(self) -> "Steps":
        """Listen."""
        self._socket.bind(str(self.path))
        self._socket.listen(1)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; a preparation in progress is completed."""
        with self._lock:
            self._is_over = True
            for endpoint in (self._socket, self._connection):
                if endpoint is not None:
                    # Wakes the thread; closing alone would not.
                    with contextlib.suppress(OSError):
                        endpoint.shutdown(socket.SHUT_RDWR)
        self._thread.join(_STOP_S)
        self._socket.close()
        self.path.unlink(missing_ok=True)

    def _serve(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:  # no program connected
            return
        with self._lock:
            self._connection = connection
            if self._is_over:
                return
        with connection, connection.makefile("r") as lines, self._heartbeat.open("a") as heartbeat:
            try:
                for line in lines:
                    name, number = line.split()
                    heartbeat.write(line)
                    heartbeat.flush()
                    self._prepare(name, int(number))
                    self.received += 1
                    connection.sendall(b"\n")
            except BarewireError as error:
                self.failure = error
            except OSError:  # the program has exited, which its starter detects
                return
