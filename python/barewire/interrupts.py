# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Interrupts that wait until what must not be broken off is done.

A blocked signal mask would not do: it is one thread's, and libraries start threads of their own, which take the
signal and have the main one raise KeyboardInterrupt all the same.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

_HELD = (signal.SIGINT, signal.SIGTERM)


class Hold:
    """A time in which SIGINT and SIGTERM only leave a note; made by `interrupts_held`.

    Its handlers stay in place until the end. What changes is whether they pass a signal on, and whoever is passed one
    closes that way behind it: so a second one, which may come at any moment, breaks off nothing that is held.
    """

    def __init__(self) -> None:
        """Nothing is held yet."""
        self._before: dict[int, Any] = {}
        self._came: int | None = None
        self._passes = False

    def released(self) -> "Released":
        """Let interrupts through during a block, the one that waits first; the first of them ends that."""
        return Released(self)

    def _take(self) -> None:
        # Python raises KeyboardInterrupt in the main thread only, so there is nothing to hold in any other.
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _HELD:
            handler = signal.getsignal(number)
            # One that is ignored stays so; None is a handler that is not Python's to put back.
            if handler not in (signal.SIG_IGN, None):
                self._before[number] = handler
                signal.signal(number, self._handle)

    def _give_back(self) -> None:
        # What is given back first may raise while the others are not.
        try:
            while self._before:
                number = next(iter(self._before))
                signal.signal(number, self._before[number])
                del self._before[number]
        finally:
            if self._before:
                self._give_back()

    def _deliver(self) -> None:
        came, self._came = self._came, None
        if came is not None:
            signal.raise_signal(came)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._passes:
            self._came = number
            return
        self._passes = False
        before = self._before[number]
        if callable(before):
            before(number, frame)
        else:
            signal.signal(number, before)
            signal.raise_signal(number)


class Released:
    """A block within a hold that an interrupt may break off."""

    def __init__(self, hold: Hold) -> None:
        """Of that hold."""
        self._hold = hold

    def __enter__(self) -> None:
        """Let through what waits, and what comes."""
        self._hold._passes = True
        self._hold._deliver()

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Hold again."""
        self._hold._passes = False


@contextmanager
def interrupts_held() -> Iterator[Hold]:
    """Let SIGINT and SIGTERM that come during the block wait for its end, or for a `released` block within."""
    hold = Hold()
    try:
        hold._take()
        yield hold
    finally:
        hold._give_back()
        hold._deliver()
