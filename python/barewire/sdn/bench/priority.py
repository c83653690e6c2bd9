# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Switches before hosts: a switch that is a process must not wait for a core until some host's program gives it up."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from barewire.lab.kernel import Process

# Of real-time priorities the lowest: enough to go before everything that has none.
_PRIORITY = 1


def put_first(servers: Iterable[Process]) -> str | None:
    """Give all threads of the switches a real-time priority; return what this machine did not allow."""
    for server in servers:
        for thread in Path(f"/proc/{server.pid}/task").iterdir():
            try:
                with suppress(ProcessLookupError):  # a thread that has ended
                    os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(_PRIORITY))
            except PermissionError as error:
                return f"the switches share cores with the hosts as equals: no real-time priority: {error.strerror}"
    return None
