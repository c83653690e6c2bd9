# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A test that failed while the whole machine stood still runs once more, and the last lines say so, with the failure.

Virtual machines are paused for seconds (snapshots, migration, a busy host). No program runs meanwhile, but the clock
does, and time limits expire in all tests at once. A thread that only sleeps sees such a pause; ordinary load it does
not. A second run that is skipped counts as the first one.
"""

import threading
import time
from itertools import chain

import pytest
from _pytest.runner import runtestprotocol

STALL_S = 1.0
PROPERTY = "ran again"
_PERIOD_S = 0.05


class Watch:
    """The longest time for which this process did not run although it wanted to, since `restart`."""

    def __init__(self) -> None:
        self._longest_s = 0.0
        self._last = time.monotonic()
        threading.Thread(target=self._look, daemon=True).start()

    def restart(self) -> None:
        self._longest_s = 0.0

    @property
    def longest_s(self) -> float:
        """Includes the time since the thread last ran: after a stall a test may end before the thread runs."""
        return max(self._longest_s, time.monotonic() - self._last - _PERIOD_S)

    def _look(self) -> None:
        while True:
            time.sleep(_PERIOD_S)
            self._longest_s = self.longest_s
            self._last = time.monotonic()


class RunAgain:
    """Pytest plugin: see the module."""

    def __init__(self) -> None:
        self._watch = Watch()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        self._watch.restart()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        failed = [report for report in reports if report.failed]
        if failed and self._watch.longest_s > STALL_S:
            item.user_properties.append(
                (PROPERTY, f"{self._watch.longest_s:.1f} s: {item.nodeid}\n{failed[0].longrepr}")
            )
            second = runtestprotocol(item, nextitem=nextitem, log=False)
            if not any(report.skipped for report in second):
                reports = second
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        reports = chain.from_iterable(terminalreporter.stats.values())
        properties = (entry for report in reports for entry in getattr(report, "user_properties", ()))
        for _, text in sorted({entry for entry in map(tuple, properties) if entry[0] == PROPERTY}):
            terminalreporter.write_line(f"ran again, since the machine stood still for {text}")
