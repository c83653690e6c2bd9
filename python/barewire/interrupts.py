# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Interrupts that wait until what must not be broken off is done.

A blocked signal mask would not do: it is one thread's, and libraries start threads of their own, which take the
signal and have the main one raise KeyboardInterrupt all the same.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_HELD = (signal.SIGINT, signal.SIGTERM)


class Hold:
    """A time in which SIGINT and SIGTERM only leave a note; made by `interrupts_held`."""

    def __init__(self) -> None:
        """Nothing is held yet."""
        self._before: dict[int, Any] = {}
        self._came: int | None = None

    @contextmanager
    def released(self) -> Iterator[None]:
        """Let interrupts through during the block, the one that waits first."""
        self._give_back()
        try:
            self._deliver()
            yield
        finally:
            self._take()

    def _take(self) -> None:
        # Python raises KeyboardInterrupt in the main thread only, so there is nothing to hold in any other.
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _HELD:
            handler = signal.getsignal(number)
            # One that is ignored stays so; None is a handler that is not Python's to put back.
            if handler not in (signal.SIG_IGN, None):
                self._before[number] = handler
                signal.signal(number, self._note)

    def _give_back(self) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def _deliver(self) -> None:
        came, self._came = self._came, None
        if came is not None:
            signal.raise_signal(came)

    def _note(self, number: int, _: FrameType | None) -> None:
        self._came = number


@contextmanager
def interrupts_held() -> Iterator[Hold]:
    """Let SIGINT and SIGTERM that come during the block wait for its end, or for a `released` block within."""
    hold = Hold()
    hold._take()
    try:
        yield hold
    finally:
        hold._give_back()
        hold._deliver()
