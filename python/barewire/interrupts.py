# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Deferring SIGINT, SIGTERM and SIGHUP until a critical section ends.

A blocked signal mask is not enough: it applies to one thread only. Libraries start threads of their own; one of these
would receive the signal, and the main thread would raise KeyboardInterrupt all the same.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

_HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Hold:
    """A block that only records SIGINT, SIGTERM and SIGHUP; created by `interrupts_held`.

    Its handlers stay installed until the end of the block; a flag decides whether they forward a signal. Forwarding a
    signal clears the flag, so that a second one, which may arrive at any moment, does not interrupt the held block.
    """

    def __init__(self) -> None:
        """Start without installed handlers."""
        self._previous: dict[int, Any] = {}
        self._pending: int | None = None
        self._forwarding = False

    def released(self) -> "Released":
        """Deliver interrupts during a block, a pending one first; the first delivered signal ends the delivery."""
        return Released(self)

    def _install(self) -> None:
        # Python raises KeyboardInterrupt in the main thread only: other threads need no handlers.
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _HELD:
            handler = signal.getsignal(number)
            # Ignored signals stay ignored; None is a handler that was not installed by Python and cannot be restored.
            if handler not in (signal.SIG_IGN, None):
                self._previous[number] = handler
                signal.signal(number, self._handle)

    def _restore(self) -> None:
        # A restored handler may raise before the others are restored.
        try:
            while self._previous:
                number = next(iter(self._previous))
                signal.signal(number, self._previous[number])
                del self._previous[number]
        finally:
            if self._previous:
                self._restore()

    def _deliver(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            signal.raise_signal(pending)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._forwarding:
            self._pending = number
            return
        self._forwarding = False
        previous = self._previous[number]
        if callable(previous):
            previous(number, frame)
        else:
            signal.signal(number, previous)
            signal.raise_signal(number)


class Released:
    """A block within a hold that an interrupt may end."""

    def __init__(self, hold: Hold) -> None:
        """Create a block of `hold`."""
        self._hold = hold

    def __enter__(self) -> None:
        """Deliver a pending signal and forward later ones."""
        self._hold._forwarding = True
        self._hold._deliver()

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Defer signals again."""
        self._hold._forwarding = False


@contextmanager
def interrupts_held() -> Iterator[Hold]:
    """Defer SIGINT, SIGTERM and SIGHUP until the end of the block, or until a `released` block within it."""
    hold = Hold()
    try:
        hold._install()
        yield hold
    finally:
        hold._restore()
        hold._deliver()
