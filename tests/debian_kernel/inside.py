# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Run in the guest: exchanges frames over a lab's link and prints what it took, as lines of JSON.

Arguments: links, each its rate in Mb/s and its delay in µs; the rate 0 is none.
"""

import json
import statistics
import subprocess
import sys

from barewire.lab import Lab, LinkSpec

EXCHANGES = 30

ECHO = """
import socket
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5))
link.bind(("eth0", 0x88B5))
print("ready", flush=True)
while True:
    frame = link.recv(2000)
    link.send(frame[6:12] + frame[:6] + frame[12:])
"""

ASK = """
import json, socket, sys, time
to, count = bytes.fromhex(sys.argv[1]), int(sys.argv[2])
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5))
link.bind(("eth0", 0x88B5))
link.settimeout(10)
frame = (to + link.getsockname()[4] + b"\\x88\\xb5").ljust(1414, b"x")
times = []
for _ in range(count):
    begin = time.perf_counter_ns()
    link.send(frame)
    link.recv(2000)
    times.append(time.perf_counter_ns() - begin)
print(json.dumps(times))
"""


def exchange(link: LinkSpec) -> dict[str, object]:
    """Return the means of the lab and the round trips of 1400 bytes in ns."""
    with Lab.up("pair", link) as lab:
        echo = lab.popen("h2", [sys.executable, "-I", "-c", ECHO], stdout=subprocess.PIPE, text=True)
        assert echo.stdout is not None and echo.stdout.readline() == "ready\n"
        ask = [sys.executable, "-I", "-c", ASK, lab.host("h2").mac.replace(":", ""), str(EXCHANGES)]
        times = json.loads(lab.run("h1", ask, capture_output=True, text=True, check=True).stdout)
        echo.kill()
        echo.wait()
        return {"wire": lab.wire, "least_ns": min(times), "median_ns": statistics.median(times), "notes": lab.notes}


def main(links: list[str]) -> None:
    """Measure all links."""
    for link in links:
        rate_mbit_s, delay_us = map(int, link.split(","))
        print(json.dumps(exchange(LinkSpec(rate_mbit_s * 10**6 or None, delay_us=delay_us))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
