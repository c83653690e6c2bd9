# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Hears a program say which step comes next (`--steps` of mpi/beff), and lets it go on when all is ready for it."""

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from barewire.errors import BarewireError

# Called with a step's name and number before the program may begin it.
Prepare = Callable[[str, int], None]
_STOP_S = 10.0


class Steps:
    """A Unix socket at `path` for one program, listened at while the `with` lasts.

    `heartbeat` is a file that grows with each step. What `prepare` raises ends the conversation, and so the program;
    it is `failure` then. `heard` counts steps.
    """

    def __init__(self, path: Path, heartbeat: Path, prepare: Prepare) -> None:
        """Nothing is listened at yet."""
        self.path, self._heartbeat, self._prepare = path, heartbeat, prepare
        self.failure: BarewireError | None = None
        self.heard = 0
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
        """Hear no more; a step that is being prepared is prepared to its end."""
        with self._lock:
            self._is_over = True
            for one in (self._socket, self._connection):
                if one is not None:
                    # Wakes the thread, which closing would not.
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)
        self._thread.join(_STOP_S)
        self._socket.close()
        self.path.unlink(missing_ok=True)

    def _serve(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:  # nobody came
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
                    self.heard += 1
                    connection.sendall(b"\n")
            except BarewireError as error:
                self.failure = error
            except OSError:  # the program is gone, which whoever started it sees
                return
