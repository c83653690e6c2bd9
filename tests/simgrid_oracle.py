# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Simulates given transfers over given routes with SimGrid; run by the Python that has Debian's `python3-simgrid`.

Reads {"settings": [...], "latency_s": s, "rates_byte_s": [...], "transfers": [{"links": [...], "bytes": n}, ...]} from
standard input and writes the end of each transfer in seconds. SimGrid has one route for each pair of hosts, so each
transfer has a pair of its own.
"""

import json
import sys

from simgrid import Actor, Engine, LinkInRoute, Mailbox, NetZone


def main() -> None:
    given = json.load(sys.stdin)
    engine = Engine(["oracle", "--log=root.thres:critical", *(f"--cfg={text}" for text in given["settings"])])
    zone = NetZone.create_full_zone("all")
    links = []
    for number, rate_byte_s in enumerate(given["rates_byte_s"]):
        link = zone.create_link(f"l{number}", rate_byte_s)
        if given["latency_s"]:
            link.set_latency(given["latency_s"])
        links.append(link.seal())
    ends = {}

    def send(number: int, size: int) -> None:
        Mailbox.by_name(str(number)).put(number, size)

    def receive(number: int) -> None:
        Mailbox.by_name(str(number)).get()
        ends[number] = Engine.clock

    for number, transfer in enumerate(given["transfers"]):
        source, target = (zone.create_host(f"{side}{number}", 1e9).seal() for side in ("from", "to"))
        route = [LinkInRoute(links[link]) for link in transfer["links"]]
        zone.add_route(source.netpoint, target.netpoint, None, None, route, False)
        Actor.create(f"send{number}", source, send, number, transfer["bytes"])
        Actor.create(f"receive{number}", target, receive, number)
    zone.seal()
    engine.run()
    json.dump([ends[number] for number in range(len(ends))], sys.stdout)


main()
