# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Tenants' shares of links, by a meter for each tenant at each port of each switch. No clock, no I/O.

    flow of a tenant ──▶ its rule at s1: meter of (port 3, tenant), then output to port 3
    counters of the meters, twice a second ──▶ shares ──▶ new rates of the meters

A meter that limits nothing has a rate beyond the link's. Rules refer only to meters that the switch has confirmed,
since it would refuse them otherwise.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from barewire.sdn.classify.jobs import Jobs
from barewire.sdn.classify.tenants import TENANTS_MAX, Tenant, Tenants
from barewire.sdn.controller.discovery import Discovery
from barewire.sdn.controller.outbox import Outbox
from barewire.sdn.controller.routes import Route
from barewire.sdn.controller.shares import Use, share_out
from barewire.sdn.openflow.messages import MeterCounter, Request, RequestKind, SetMeter, SwitchError
from barewire.topology import Port

PERIOD_S = 0.5
# Open vSwitch numbers meters up to 2¹⁸; six bits are the tenant.
PORTS_MAX = 4000
_TENANT_BITS = 6
assert TENANTS_MAX < 1 << _TENANT_BITS
# A meter's burst: a time at its rate, so that TCP whose mean is below the limit loses nothing, or a short one if its
# tenant sends far more, which would fill queues; at least 64 KiB. The kernel's datapath computes what a meter gains, at
# most a burst, in 32 bits.
_BURST_S, _BURST_OVER_S, _FAR_OVER = 0.5, 0.1, 1.15
_BURST_MIN_KBIT, _BURST_MAX_KBIT = 525, 4_000_000
# The rate of a meter that limits nothing: beyond what all ports of a switch can bring.
_UNLIMITED, _KBIT_MAX = 100, 4_000_000_000
# A rate is changed if it differs by more than the first, or some time after its last change by more than the second:
# each change fills the meter's bucket again.
_CHANGE, _SMALL_CHANGE, _CHANGE_S = 0.1, 0.02, 3.0
# The least time from setting a rate to the next count: bytes of a shorter one tell no rate.
_COUNTED_MIN_S = 0.05
# Errors of a meter that exists already, and of one that does not exist yet: each meter is changed, then added.
_METER_MOD_FAILED, _EXPECTED_CODES = 12, (1, 3)


@dataclass
class _Meters:
    """The meters of one port: each tenant's use, rates in kbit/s as set, when, and the last counts (bytes, age).

    `is_set` has the rates set since the last count.
    """

    uses: list[Use]
    rates: list[int]
    last: dict[int, tuple[int, float]] = field(default_factory=dict)
    set_s: dict[int, float] = field(default_factory=dict)
    is_set: set[int] = field(default_factory=set)
    is_confirmed: bool = False
    # Whether the switch counts from 0 when a rate is set, as Open vSwitch does.
    restarts: bool = False

    def demand_bit_s(self, index: int, counter: MeterCounter, asked_s: float) -> float:
        """Return the rate at which bytes came to a meter since the last count, or since its rate was set.

        The counter was asked for at `asked_s`, after the rate was set.
        """
        carried, age_s = self.last.get(index, (counter.bytes, counter.age_s))
        self.last[index] = counter.bytes, counter.age_s
        is_set = index in self.is_set
        self.is_set.discard(index)
        self.restarts = self.restarts or (is_set and counter.bytes < carried)
        if is_set and self.restarts:
            return 8 * counter.bytes / max(asked_s - self.set_s[index], _COUNTED_MIN_S)
        if counter.age_s <= age_s or counter.bytes < carried:
            return 0.0  # the switch has restarted
        return 8 * (counter.bytes - carried) / (counter.age_s - age_s)

    def set_rate(self, index: int, rate_kbit_s: int, now: float) -> bool:
        """Change a rate if it differs enough; return whether it changed."""
        settled = now >= self.set_s.get(index, -math.inf) + _CHANGE_S
        change = _SMALL_CHANGE if settled else _CHANGE
        if abs(rate_kbit_s - self.rates[index]) <= change * self.rates[index]:
            return False
        self.rates[index], self.set_s[index] = rate_kbit_s, now
        self.is_set.add(index)
        return True


class Slices:
    """The meters of all switches. The last of each port is for flows of no tenant."""

    def __init__(self, tenants: Tenants, discovery: Discovery, jobs: Jobs, outbox: Outbox) -> None:
        """Begin without switches."""
        self.tenants = tenants
        # Who announced a job, by its id.
        self.owners: dict[str, Tenant] = {}
        self._discovery, self._jobs, self._outbox = discovery, jobs, outbox
        self._meters: dict[Port, _Meters] = {}
        # When a switch was asked for the counters that it has not answered with yet.
        self._asked_s: dict[str, float] = {}
        self._index = {tenant.name: number for number, tenant in enumerate(tenants.all)}
        self._has_hostless = any(not tenant.hosts for tenant in tenants.all)
        self._refused: set[str] = set()
        self._told: set[str] = set()

    def tenant_of(self, route: Route) -> Tenant | None:
        """Return the tenant of a flow's source host; of a host of nobody, the one that announced the flow's job.

        Soon after a job came or went it is still the one whose meters the flow's rules refer to.
        """
        index = self._owner(route) if route.tenant is None else route.tenant
        return self.tenants.all[index] if index < len(self.tenants.all) else None

    def changed(self, route: Route) -> bool:
        """Find whose a flow is since a job came or went; return whether its rules must refer to other meters."""
        if route.tenant is None or not self._has_hostless:
            return False
        before, route.tenant = route.tenant, self._owner(route)
        return route.tenant != before

    def meter_of(self, route: Route, port: Port) -> int | None:
        """Return the meter of a flow's rule that sends to a port; None without one.

        All rules of a flow refer to the same tenant's meters, until `changed` finds another tenant.
        """
        meters = self._meters.get(port)
        if meters is None or not meters.is_confirmed:
            return None
        if route.tenant is None:
            route.tenant = self._owner(route)
        return _number(port.number, route.tenant)

    def forget_switch(self, switch: str) -> None:
        """Handle a new connection: the switch may have restarted, without meters, or may have them by now."""
        self._refused.discard(switch)
        self._asked_s.pop(switch, None)
        for port, meters in self._meters.items():
            if port.node == switch:
                meters.is_confirmed = False
                meters.last.clear()
                meters.is_set.clear()
                for use in meters.uses:
                    use.recent.clear()

    def add_meters(self, switch: str, then: Callable[[], None]) -> None:
        """Add the missing meters of a switch's ports; call `then` once rules may refer to them."""
        if not self.tenants.all or switch in self._refused:
            return
        added, without = [], []
        for number in self._discovery.ports(switch):
            port = Port(switch, number)
            rate_bit_s = self._discovery.rate_bit_s(port)
            known = self._meters.get(port)
            if known is not None and known.is_confirmed:
                continue
            if number > PORTS_MAX or rate_bit_s is None:
                without.append(number)
                continue
            if known is None:
                known = self._meters[port] = self._new(rate_bit_s)
            for index, rate in enumerate(known.rates):
                self._set(port, index, rate, _BURST_S)
                self._set(port, index, rate, _BURST_S, is_new=True)
            added.append(known)

        def confirmed(done: bool) -> None:
            if done and switch not in self._refused:
                for meters in added:
                    meters.is_confirmed = True
                then()

        if without and switch not in self._told:
            self._told.add(switch)
            text = f"no share holds at ports {without} of {switch}: their rate is unknown (give --rate)"
            self._outbox.emit("tenants not limited", f"{text}, or their number is above {PORTS_MAX}")
        if added:
            self._outbox.when_confirmed(switch, confirmed)

    def refused(self, switch: str, error: SwitchError) -> None:
        """Handle a meter that a switch refused."""
        if error.kind == _METER_MOD_FAILED and error.code in _EXPECTED_CODES:
            return
        if switch not in self._refused:
            self._refused.add(switch)
            self._outbox.emit("tenants not limited", f"{switch} has no meters ({error.text}): no share holds there")
        for port in [port for port in self._meters if port.node == switch]:
            del self._meters[port]

    def ask(self, switches: Iterable[str], now: float) -> None:
        """Ask switches for the counters of their meters, unless they still have to answer."""
        have = {port.node for port, meters in self._meters.items() if meters.is_confirmed}
        for switch in (have & set(switches)) - self._asked_s.keys():
            self._asked_s[switch] = now
            self._outbox.send(switch, Request(RequestKind.METER_COUNTERS))

    def counted(self, switch: str, counters: Iterable[MeterCounter], now: float) -> None:
        """Share out each port of a switch anew by what came to its meters since the last count.

        A first count, after a takeover or a new connection, tells no demand, so limits stay until the second one. The
        time of a count is when it was asked for: on a busy machine the answer waits to be handled.
        """
        asked_s = self._asked_s.pop(switch, now)
        by_port: dict[Port, dict[int, MeterCounter]] = {}
        for counter in counters:
            number, index = _port_and_index(counter.number)
            by_port.setdefault(Port(switch, number), {})[index] = counter
        for port, found in by_port.items():
            meters, rate_bit_s = self._meters.get(port), self._discovery.rate_bit_s(port)
            if meters is None or rate_bit_s is None:
                continue
            is_first = not found.keys() <= meters.last.keys()
            demands = {index: meters.demand_bit_s(index, counter, asked_s) for index, counter in found.items()}
            if is_first:
                continue
            for index, use in enumerate(meters.uses):
                if index in demands:
                    use.counted(asked_s, demands[index], rate_bit_s)
            share_out(meters.uses, rate_bit_s)
            for index, use in enumerate(meters.uses):
                rate = _kbit(use.limit_bit_s, rate_bit_s)
                if meters.set_rate(index, rate, now):
                    is_far_over = use.limit_bit_s is not None and use.mean_bit_s > _FAR_OVER * use.limit_bit_s
                    self._set(port, index, rate, _BURST_OVER_S if is_far_over else _BURST_S)

    def rates(self) -> dict[Port, list[int]]:
        """Return the rates of all ports' meters, in kbit/s, by number of tenant."""
        return {port: list(meters.rates) for port, meters in self._meters.items()}

    def restore(self, port: Port, rates: Sequence[int]) -> None:
        """Let the meters of a port begin with the rates of another controller that has the same tenants."""
        if len(rates) == len(self.tenants.all) + 1:
            uses = [*(Use(tenant.share, tenant.ceiling) for tenant in self.tenants.all), Use(0.0, 1.0)]
            self._meters[port] = _Meters(uses, list(rates))

    def limited(self) -> Mapping[str, list[Port]]:
        """Return the ports at which each tenant exceeds its share and is limited, by the tenant's name."""
        found: dict[str, list[Port]] = {tenant.name: [] for tenant in self.tenants.all}
        for port, meters in self._meters.items():
            for tenant, use in zip(self.tenants.all, meters.uses, strict=False):
                if use.limit_bit_s is not None and use.mean_bit_s > use.limit_bit_s:
                    found[tenant.name].append(port)
        return {name: sorted(ports) for name, ports in found.items()}

    def sent_bit_s(self, routes: Iterable[Route]) -> Counter[str]:
        """Return what each tenant's flows carry by their last counts, by the tenant's name."""
        sums: Counter[str] = Counter()
        for route in routes:
            tenant = self.tenant_of(route)
            if tenant is not None:
                sums[tenant.name] += round(8 * route.placed.rate_byte_s)
        return sums

    def _owner(self, route: Route) -> int:
        """Return the number of the tenant that a flow belongs to, or of nobody."""
        tenant = self.tenants.of_host(route.key.source)
        if tenant is None and self._has_hostless and self.owners:
            job = self._jobs.of(route.key)
            tenant = None if job is None else self.owners.get(job.id)
        return len(self.tenants.all) if tenant is None else self._index[tenant.name]

    def _new(self, rate_bit_s: int) -> _Meters:
        uses = [Use(tenant.share, tenant.ceiling) for tenant in self.tenants.all]
        uses.append(Use(0.0, 1.0))
        share_out(uses, rate_bit_s)
        return _Meters(uses, [_kbit(use.limit_bit_s, rate_bit_s) for use in uses])

    def _set(self, port: Port, index: int, rate_kbit_s: int, burst_s: float, is_new: bool = False) -> None:
        burst = min(max(int(burst_s * rate_kbit_s), _BURST_MIN_KBIT), _BURST_MAX_KBIT)
        self._outbox.send(port.node, SetMeter(_number(port.number, index), rate_kbit_s, burst, is_new))


def _number(port: int, index: int) -> int:
    return (port << _TENANT_BITS | index) + 1


def _port_and_index(number: int) -> tuple[int, int]:
    return (number - 1) >> _TENANT_BITS, (number - 1) & ((1 << _TENANT_BITS) - 1)


def _kbit(limit_bit_s: float | None, rate_bit_s: int) -> int:
    wanted = _UNLIMITED * rate_bit_s if limit_bit_s is None else limit_bit_s
    return min(max(math.ceil(wanted / 1000), 1), _KBIT_MAX)
