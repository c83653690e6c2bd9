# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The agents of a check: one process on each host, which is told what to measure."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from barewire.cluster.hosts import ClusterHost
from barewire.cluster.reach import Reach
from barewire.cluster.remote import document_in, kill, start
from barewire.errors import MeasurementFailed
from barewire.measure.programs import INSTALL_THERE, NOT_FOUND, PROBE, find_program

# A login may take seconds; so may sixteen at once.
_START_TIMEOUT_S = 30.0
# What an order takes longer than it says: a host that does not answer within this time is stuck or unreachable.
_ANSWER_TIMEOUT_S = 20.0
_END_TIMEOUT_S = 2.0


class HostFailed(MeasurementFailed):
    """A host's agent has ended or does not answer."""

    def __init__(self, host: str, reason: str) -> None:
        """`reason` does not name the host."""
        super().__init__(f"{host}: {reason}")
        self.host, self.reason = host, reason


class Agent:
    """One host's agent."""

    def __init__(self, host: ClusterHost, process: asyncio.subprocess.Process) -> None:
        """Wrap a process that has just been started; `ready` waits for its first words."""
        self.host = host
        self._process = process
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._numbers = itertools.count(1)
        self._end_reason = "its agent has ended"
        self._reader = asyncio.create_task(self._read())

    async def ready(self) -> dict[str, Any]:
        """Return what the agent says of its host when it has started. HostFailed if it does not."""
        try:
            return await asyncio.wait_for(asyncio.shield(self._ready), _START_TIMEOUT_S)
        except TimeoutError:
            raise HostFailed(self.host.name, f"no answer within {_START_TIMEOUT_S:g} s") from None

    async def order(self, what: str, **parameters: Any) -> dict[str, Any]:
        """Give an order and return its answer. HostFailed if the agent has ended or does not answer."""
        number = next(self._numbers) if "number" not in parameters else parameters.pop("number")
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        if self._reader.done():
            raise HostFailed(self.host.name, self._end_reason)
        self._waiting[number] = answer
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, "number": number, **parameters}).encode() + b"\n")
        try:
            return await asyncio.wait_for(answer, _ANSWER_TIMEOUT_S)
        except TimeoutError:
            raise HostFailed(self.host.name, f"no answer to '{what}' in {_ANSWER_TIMEOUT_S:g} s") from None
        finally:
            self._waiting.pop(number, None)

    async def end(self) -> None:
        """Close its input, which ends it; kill it if that does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait([self._reader], timeout=_END_TIMEOUT_S)
        finally:
            if not self._reader.done():
                await kill(self._process)
                self._reader.cancel()

    async def _read(self) -> None:
        """Hand answers to those who wait; at the end of the output tell them why there will be none."""
        assert self._process.stdout is not None and self._process.stderr is not None
        errors = asyncio.create_task(self._process.stderr.read())
        async for line in self._process.stdout:
            record = document_in(line)
            if record is None:  # a login's greeting
                continue
            if record.get("record") == "ready" and not self._ready.done():
                self._ready.set_result(record)
            waiting = self._waiting.get(record.get("number", 0))
            if waiting is not None and not waiting.done():
                waiting.set_result(record["told"])
        text = (await errors).decode(errors="replace").strip().splitlines()
        code = await self._process.wait()
        reason = text[-1].removeprefix(f"{PROBE}: ") if text else f"its agent ended with code {code}"
        if code == NOT_FOUND:
            reason += f"; {INSTALL_THERE}"
        self._end_reason = reason
        failure = HostFailed(self.host.name, reason)
        for waiting in (self._ready, *self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(failure)
        # Nobody may be waiting for the start any more.
        self._ready.exception()


@asynccontextmanager
async def agents(
    reach: Reach, hosts: Sequence[ClusterHost], carrier: str
) -> AsyncIterator[tuple[dict[str, Agent], dict[str, dict[str, Any]], dict[str, str]]]:
    """Start an agent on every host; yield those that work, what they say of their hosts, and why others do not work."""
    started: list[Agent] = []
    try:
        for host in hosts:
            command = [find_program(PROBE), "agent", "--interface", host.interface, "--link", carrier]
            process = await start(reach.command(host.name, command), stdin=asyncio.subprocess.PIPE)
            started.append(Agent(host, process))
        said = await asyncio.gather(*(agent.ready() for agent in started), return_exceptions=True)
        working: dict[str, Agent] = {}
        facts: dict[str, dict[str, Any]] = {}
        failed: dict[str, str] = {}
        for agent, result in zip(started, said, strict=True):
            if isinstance(result, HostFailed):
                failed[result.host] = result.reason
            elif isinstance(result, BaseException):
                raise result
            else:
                working[agent.host.name], facts[agent.host.name] = agent, result
        yield working, facts, failed
    finally:
        await asyncio.gather(*(agent.end() for agent in started))


def mixed_carriers(facts: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return why all hosts must use UDP, if some may not send frames and others may; else None."""
    reasons = {host: fact["reason"] for host, fact in facts.items() if fact["carrier"] == "udp"}
    if not reasons or len(reasons) == len(facts):
        return None
    return "; ".join(f"{host}: {reason}" for host, reason in reasons.items())
