# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A wire between two interfaces that loses frames, delivers some twice, and delays some, so that later ones overtake.

    faulty_wire.py SEED ONE OTHER      run where both interfaces are; says `ready`, and goes on until it is ended

For kernels without netem. What each frame suffers is drawn from the seed, in the order in which frames come.
"""

import contextlib
import heapq
import random
import select
import socket
import subprocess
import sys
import time

LOST, TWICE, DELAYED = 0.005, 0.005, 0.02
# Some ten frames' time. Those that 64 or more others of their connection overtake still end it: S PDUs do not say which
# round of sequence numbers they mean.
DELAY_S = 0.0002
_SOL_PACKET, _IGNORE_OUTGOING = 263, 23
_ETH_P_ALL = 3
_FRAME_BYTES_MAX = 65600
_AT_ONCE = 64


def main(seed: str, *names: str) -> None:
    """Carry frames between the two interfaces."""
    source = random.Random(seed)
    ends = [_open(name) for name in names]
    print("ready", flush=True)
    held: list[tuple[float, int, int, bytes]] = []
    number = 0
    while True:
        timeout = max(held[0][0] - time.monotonic(), 0) if held else None
        ready, _, _ = select.select(ends, [], [], timeout)
        for end in ready:
            to = 1 - ends.index(end)
            for _ in range(_AT_ONCE):
                try:
                    frame = end.recv(_FRAME_BYTES_MAX)
                except OSError:  # nothing more, or it was down
                    break
                if source.random() < LOST:
                    continue
                for _ in range(1 + (source.random() < TWICE)):
                    if source.random() < DELAYED:
                        number += 1
                        heapq.heappush(held, (time.monotonic() + source.uniform(0, DELAY_S), number, to, frame))
                    else:
                        _send(ends[to], frame)
        while held and held[0][0] <= time.monotonic():
            _, _, to, frame = heapq.heappop(held)
            _send(ends[to], frame)


def _open(name: str) -> socket.socket:
    # Out of its bridge, which would carry the frames, too.
    subprocess.run(["ip", "link", "set", name, "nomaster"], check=True)
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    end.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    end.bind((name, _ETH_P_ALL))
    end.setblocking(False)
    return end


def _send(end: socket.socket, frame: bytes) -> None:
    with contextlib.suppress(OSError):  # full, or down: lost, as on a wire
        end.send(frame)


if __name__ == "__main__":
    main(*sys.argv[1:])
