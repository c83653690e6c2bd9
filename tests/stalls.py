# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A test that failed while the whole machine stood still runs once more, and the last lines say so.

Virtual machines are paused for seconds (snapshots, migration, a busy host). No program runs meanwhile, but the clock
does, and time limits expire in all tests at once. A thread that only sleeps sees such a pause; mere load it does not.
"""

import threading
import time
from collections.abc import Iterator

import pytest
from _pytest.runner import runtestprotocol

STALL_S = 1.0
PROPERTY = "stalled_s"
_PERIOD_S = 0.05


class Watch:
    """The longest time for which this process did not run although it wanted to, since `restart`."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        threading.Thread(target=self._look, daemon=True).start()

    def restart(self) -> None:
        self.longest_s = 0.0

    def _look(self) -> None:
        last = time.monotonic()
        while True:
            time.sleep(_PERIOD_S)
            now = time.monotonic()
            self.longest_s = max(self.longest_s, now - last - _PERIOD_S)
            last = now


class RunAgain:
    """Pytest plugin: see the module."""

    def __init__(self) -> None:
        self._watch = Watch()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        self._watch.restart()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if any(report.failed for report in reports) and self._watch.longest_s > STALL_S:
            item.user_properties.append((PROPERTY, self._watch.longest_s))
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for report in _reports(terminalreporter):
            for name, seconds in report.user_properties:
                if name == PROPERTY:
                    line = f"ran again, the machine stood still for {seconds:.1f} s: {report.nodeid}"
                    terminalreporter.write_line(line)


def _reports(reporter: pytest.TerminalReporter) -> Iterator[pytest.TestReport]:
    for outcome in ("passed", "failed"):
        for report in reporter.stats.get(outcome, ()):
            if report.when == "call":
                yield report
