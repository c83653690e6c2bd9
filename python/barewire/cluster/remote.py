# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Programs that a remote shell starts on hosts, and their end.

A remote shell may be a script that starts others. Killing the script alone would leave them, and they hold its pipes,
for whose end asyncio waits: so each is started in a session of its own, which is killed as a whole.
"""

import asyncio
import json
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

_KILLED_TIMEOUT_S = 1.0
_LINE_BYTES_MAX = 1 << 20


async def start(command: Sequence[str], stdin: int = DEVNULL) -> Process:
    """Start a program in a session of its own, with pipes for what it prints."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command, stdin=stdin, stdout=PIPE, stderr=PIPE, limit=_LINE_BYTES_MAX, start_new_session=True
        )
    )
    try:
        # If this is cancelled, asyncio would kill only the program, not what it has started.
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError):
            await kill(await starting)
        raise


async def kill(process: Process) -> None:
    """Kill a program that has not ended, or whose pipes are still open, with all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        await asyncio.wait_for(process.wait(), _KILLED_TIMEOUT_S)
    except TimeoutError:
        pass  # somebody outside of the session holds a pipe
    finally:
        process._transport.close()  # type: ignore[attr-defined]


async def run(command: Sequence[str], timeout_s: float) -> tuple[int, str, str]:
    """Run a command to its end; return its exit code and what it printed. Killed after the timeout, with code 124."""
    process = await start(command)
    try:
        output, errors = await asyncio.wait_for(process.communicate(), timeout_s)
    except TimeoutError:
        await kill(process)
        return 124, "", f"no answer within {timeout_s:g} s"
    except BaseException:
        await kill(process)
        raise
    return process.returncode or 0, output.decode(errors="replace"), errors.decode(errors="replace")


def document_in(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object with which a line ends, if any: a login may print something before it."""
    try:
        found = json.loads(line[max(0, line.find(b"{")) :])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
