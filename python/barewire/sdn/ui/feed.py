# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The events of the live page, each built and encoded once for all viewers.

An event is the latest state of one kind, so a slow viewer skips states and nothing is queued for it. Memory is
bounded by kind: texts and lists in `documents`, the history here.

    controller ── every second ──▶ {kind: (number, encoded state)} ──▶ each viewer writes the kinds that are newer
"""

import asyncio
import heapq
import itertools
import json
import math
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import msgspec

from barewire.errors import WrongUse
from barewire.sdn.api.documents import FLOWS_PER_TURN, tenants_with
from barewire.sdn.controller.outbox import Event
from barewire.sdn.controller.routes import Route
from barewire.sdn.controller.shell import Shell
from barewire.sdn.ui import documents
from barewire.sdn.ui.cables import Cables
from barewire.topology import Network

PERIOD_S = 1.0
# Five minutes of loads; of very large networks less, by the encoded size.
HISTORY_ROWS_MAX = 300
HISTORY_BYTES_MAX = 4 << 20
EVENTS_MAX = 100
# The system's clock was set, or the machine slept, if the clocks differ by more than this.
CLOCK_STEP_S = 5.0
# Failed cables are removed this often.
NUMBER_EVERY_S = 10.0
# Flows that are listed, for which a job may have to be looked for among a thousand.
FLOWS_LISTED_PER_TURN = 10
EXPERIMENT_TEXT_MAX = 200


class Feed:
    """The latest states of a controller. `changed` wakes viewers."""

    def __init__(self, shell: Shell, tell: Callable[[Event], None], period_s: float = PERIOD_S) -> None:
        """Observe a controller; `run` keeps the states up to date, and tells if it fails."""
        self.number = 0
        # Without viewers only the history is kept up to date.
        self.viewers = 0
        self.is_over = False
        self.states: dict[str, tuple[int, bytes]] = {}
        self.changed = asyncio.Condition()
        self._shell, self._tell, self._period_s = shell, tell, period_s
        self._epoch_s = time.time() - shell.now
        self._texts: dict[str, str] = {}
        self._cables = Cables()
        self._drawn: tuple[Any, ...] = ()
        self._network: Network | None = None
        self._numbered_s = -math.inf
        self._history: deque[str] = deque(maxlen=HISTORY_ROWS_MAX)
        self._history_bytes = 0
        self._events: deque[documents.Document] = deque(maxlen=EVENTS_MAX)
        self._experiment: documents.Document | None = None
        # Jobs of listed flows, by the flows' numbers, while `_jobs` are the announced ones.
        self._jobs: tuple[str, ...] = ()
        self._job_ids: dict[int, str | None] = {}

    @property
    def is_shown(self) -> bool:
        """Whether there is a network to show: a standby has none, and its viewers ask the leader."""
        return not self.is_over and self._shell.is_leader

    def note(self, event: Event) -> None:
        """Remember an event of the controller."""
        text = event.text if len(event.text) <= documents.TEXT_MAX else event.text[: documents.TEXT_MAX] + " …"
        self._events.append({"at_s": round(self._clock_s(), 1), "kind": event.kind, "text": text})

    def set_experiment(self, document: object) -> None:
        """Show the progress of an experiment, or none for None. WrongUse if it is invalid."""
        self._experiment = None if document is None else _experiment(document)

    def history(self) -> bytes:
        """Return the loads of the last minutes as one event."""
        return encoded("history", f"[{','.join(self._history)}]")

    async def run(self) -> None:
        """Update the states until cancelled, or until `close`."""
        try:
            while not self.is_over:
                began_s = self._shell.now
                await self.update()
                await asyncio.sleep(max(self._period_s - (self._shell.now - began_s), self._period_s / 2))
        except Exception as error:  # a mistake in the page must not stop the network
            self._tell(Event("page failed", f"the live page ends, the network goes on: {error!r}"))
            await self.close()

    async def close(self) -> None:
        """End all viewers."""
        self.is_over = True
        async with self.changed:
            self.changed.notify_all()

    async def update(self) -> None:
        """Build all states once, and wake the viewers; a standby's core has nothing, so its links have not failed."""
        if self._shell.is_leader:
            await self._build()
        async with self.changed:
            self.changed.notify_all()

    async def _build(self) -> None:
        core = self._shell.core
        await self._draw()
        load = {
            "at_s": round(self._clock_s(), 1),
            "generation": self._cables.generation,
            "loads": self._cables.loads_bit_s(core.rates.load_byte_s, core.rates.received_byte_s),
        }
        self._remember(self._put("load", load))
        self._put("status", documents.status(core))
        self._put("jobs", documents.jobs(core.jobs.all))
        self._put("events", {"events": list(self._events)})
        self._put("experiment", {"experiment": self._experiment})
        if self.viewers:
            self._put("flows", await self._flows())
        else:
            self._forget("flows", "tenants")

    def _clock_s(self) -> float:
        """Return the system's time by the controller's clock, so that flows begin at the same time in every state."""
        if abs(self._shell.now + self._epoch_s - time.time()) > CLOCK_STEP_S:
            self._epoch_s = time.time() - self._shell.now
        return self._shell.now + self._epoch_s

    async def _draw(self) -> None:
        """Number the cables and draw the network again if either changed, in turns with the controller's work."""
        core, now = self._shell.core, self._shell.now
        found, discovery = core.network(), core.discovery
        lost = tuple(name for name in discovery.switches if not discovery.is_connected(name))
        generation = self._cables.generation
        if found is not self._network or now >= self._numbered_s + NUMBER_EVERY_S:
            self._numbered_s = now
            self._cables.update(found, now)
            await asyncio.sleep(0)
        if generation != self._cables.generation:
            self._history.clear()
            self._history_bytes = 0
        # The whole network is compared only by identity, which changes with each link and host.
        drawn = id(found), lost, tuple((cable.number, cable.down_s is None) for cable in self._cables)
        if drawn != self._drawn:
            self._drawn, self._network = drawn, found
            up = {name: sum(port.is_up for port in discovery.ports(name).values()) for name in found.switches}
            edges = [name for name, ports in up.items() if ports > len(found.ports[name])]
            drawing = documents.network(found, self._cables, lost, edges)
            await asyncio.sleep(0)
            self._put("network", drawing)

    async def _flows(self) -> documents.Document:
        """Count all flows and list the fastest, in turns with the controller's work."""
        core = self._shell.core
        sent: Counter[str] = Counter()
        sums, fastest = documents.FlowSums(), list[Route]()
        routes = list(core.router.routes)
        for at in range(0, len(routes), FLOWS_PER_TURN):
            some = routes[at : at + FLOWS_PER_TURN]
            sums.add(some)
            sent += core.slices.sent_bit_s(some)
            fastest = heapq.nlargest(documents.FLOWS_MAX, itertools.chain(fastest, some), key=_rate)
            await asyncio.sleep(0)
        self._put("tenants", msgspec.to_builtins(tenants_with(core, sent)))
        jobs = tuple(job.id for job in core.jobs.all)
        if jobs != self._jobs or len(self._job_ids) > 4 * documents.FLOWS_MAX:
            self._jobs, self._job_ids = jobs, {}
        listed = []
        for at, route in enumerate(fastest):
            listed.append(documents.flow(route, self._cables, core.policy, self._job_of(route), self._epoch_s))
            if at % FLOWS_LISTED_PER_TURN == FLOWS_LISTED_PER_TURN - 1:
                await asyncio.sleep(0)
        return {"total": len(routes), "groups": sums.to_json(core.policy), "flows": listed}

    def _job_of(self, route: Route) -> str | None:
        """Return the id of an announced flow's job, looked up once until a job comes or goes."""
        if route.known_by != "announced":
            return None
        if route.number not in self._job_ids:
            job = self._shell.core.jobs.of(route.key)
            self._job_ids[route.number] = None if job is None else job.id
        return self._job_ids[route.number]

    def _put(self, kind: str, document: documents.Document) -> str:
        """Set the state of a kind; return it as JSON."""
        text = json.dumps(document, separators=(",", ":"))
        if self._texts.get(kind) != text:
            self.number += 1
            self._texts[kind] = text
            self.states[kind] = self.number, encoded(kind, text)
        return text

    def _forget(self, *kinds: str) -> None:
        for kind in kinds:
            self.states.pop(kind, None)
            self._texts.pop(kind, None)

    def _remember(self, row: str) -> None:
        if len(self._history) == HISTORY_ROWS_MAX:
            self._history_bytes -= len(self._history.popleft())
        self._history.append(row)
        self._history_bytes += len(row)
        while self._history_bytes > HISTORY_BYTES_MAX:
            self._history_bytes -= len(self._history.popleft())


def encoded(kind: str, text: str) -> bytes:
    """Return a server-sent event; JSON contains no line break."""
    return f"event: {kind}\ndata: {text}\n\n".encode()


def _rate(route: Route) -> float:
    return route.placed.rate_byte_s


def _experiment(document: object) -> documents.Document:
    if (
        not isinstance(document, dict)
        or document.keys() != {"text", "done", "total"}
        or not isinstance(document["text"], str)
        or len(document["text"]) > EXPERIMENT_TEXT_MAX
        or not all(type(document[name]) is int for name in ("done", "total"))
        or not 0 <= document["done"] <= document["total"]
    ):
        raise WrongUse(
            'an experiment is null, or {"text": "rings, planned, 16 hosts", "done": 3, "total": 54}, '
            f"with at most {EXPERIMENT_TEXT_MAX} characters and done at most total"
        )
    return document
