# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Bound of any routing: the largest share of a demand that all pairs can have at once (maximum concurrent flow).

A linear programme in which flows may split arbitrarily over any paths (Shahrokhi and Matula 1990), solved by HiGHS
through scipy. Hosts have one link each, so their limits are computed directly, and the traffic of all hosts of one
switch is one commodity.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from barewire.errors import WrongUse
from barewire.topology import Network, Port

# With more variables the solver takes minutes; an 8-port fat-tree with all hosts sending has 16,000.
VARIABLES_MAX = 50_000

Demand = Mapping[tuple[str, str], float]


def concurrent_flow(network: Network, demand: Demand) -> float:
    """Return the largest feasible λ, in bytes/s for each demanded byte: 1/λ is the minimum time in seconds.

    WrongUse for a demand that is empty, negative, of a host without exactly one link or of hosts without a path, and
    for a network too large to solve.
    """
    at_hosts = host_links(network, demand)
    between: defaultdict[tuple[str, str], float] = defaultdict(float)
    for (source, destination), volume in demand.items():
        first, last = network.attachment(source), network.attachment(destination)
        if first is not None and last is not None and first.node != last.node:
            between[first.node, last.node] += volume * at_hosts
    return at_hosts * _share(network, between) if any(between.values()) else at_hosts


def host_links(network: Network, demand: Demand) -> float:
    """Return the λ that the hosts' links allow: never below `concurrent_flow`'s. Errors as there, except for paths."""
    used = {pair: volume for pair, volume in demand.items() if volume}
    if not used or min(used.values()) < 0 or any(source == destination for source, destination in used):
        raise WrongUse("a bound needs at least one demand, each above 0 and between two hosts")
    times_s: defaultdict[Port, float] = defaultdict(float)
    for (source, destination), volume in used.items():
        for host in (source, destination):
            if host not in network.host_numbers or len(network.ports[host]) != 1:
                raise WrongUse(f"the topology has no host '{host}' with one link")
        uplink = network.ports[source][0]
        downlink = network.peers[network.ports[destination][0]]
        times_s[uplink] += volume / network.rate_byte_s(uplink)
        times_s[downlink] += volume / network.rate_byte_s(downlink)
    return 1 / max(times_s.values())


def _share(network: Network, between: Demand) -> float:
    """The share, at most 1, of these rates between switches that the links between them can carry."""
    from scipy.optimize import linprog  # imported late, as in `barewire.stats.intervals`
    from scipy.sparse import coo_array

    switches = frozenset(network.switches)
    ports = sorted(port for port, peer in network.peers.items() if port.node in switches and peer.node in switches)
    sources = sorted({source for source, _ in between})
    variables = len(ports) * len(sources) + 1
    if variables > VARIABLES_MAX:
        raise WrongUse(
            f"the bound of {len(sources)} switches with senders on {len(ports)} directed links has {variables} "
            f"variables, above {VARIABLES_MAX}; use fewer hosts, or the hosts' links as the bound"
        )
    # In units of a typical link, so that the solver's tolerances are relative.
    unit = network.usual_rate_bit_s / 8
    objective = np.zeros(variables)
    objective[-1] = -1
    conservation = _conservation(network, {pair: rate / unit for pair, rate in between.items()}, ports, sources)
    links = np.tile(np.arange(len(ports)), len(sources))
    capacity: Any = coo_array((np.ones(len(links)), (links, np.arange(len(links)))), shape=(len(ports), variables))
    rates = np.array([network.rate_byte_s(port) for port in ports]) / unit
    bounds = [*[(0.0, None)] * (variables - 1), (0.0, 1.0)]
    solved: Any = linprog(objective, capacity, rates, conservation, np.zeros(conservation.shape[0]), bounds)
    if solved.status != 0:
        raise AssertionError(f"a programme with the feasible solution 0 was not solved: {solved.message}")
    if not solved.x[-1] > 0:
        raise WrongUse("some of the demand is between hosts that no path joins")
    return float(solved.x[-1])


def _conservation(network: Network, between: Demand, ports: Sequence[Port], sources: Sequence[str]) -> Any:
    """Flow conservation: outflow minus inflow equals supply minus demand; one row for each source and switch.

    Variables: each source's flow over each port, sources first; then the share.
    """
    from scipy.sparse import coo_array

    switches = {switch: number for number, switch in enumerate(network.switches)}
    leaves = np.array([switches[port.node] for port in ports])
    enters = np.array([switches[network.peers[port].node] for port in ports])
    share = len(ports) * len(sources)
    rows, columns, values = [], [], []
    for number, source in enumerate(sources):
        flows = number * len(ports) + np.arange(len(ports))
        for ends, sign in ((leaves, 1.0), (enters, -1.0)):
            rows.append(number * len(switches) + ends)
            columns.append(flows)
            values.append(np.full(len(ports), sign))
        wanted = np.zeros(len(switches))
        for (sender, receiver), rate in between.items():
            if sender == source:
                wanted[switches[sender]] -= rate
                wanted[switches[receiver]] += rate
        rows.append(number * len(switches) + np.arange(len(switches)))
        columns.append(np.full(len(switches), share))
        values.append(wanted)
    entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
    return coo_array(entries, shape=(len(switches) * len(sources), share + 1))
