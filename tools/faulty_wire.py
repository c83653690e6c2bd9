# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A wire between two interfaces that loses, duplicates and delays frames, so that later ones overtake.

    faulty_wire.py SEED FIRST SECOND      run in the interfaces' namespace; prints `ready`, and runs until terminated

For kernels without netem. Each frame's fault is drawn from the seed, in the order of arrival.
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
# About ten frames' time. Frames overtaken by 64 or more others of their connection still end it: S PDUs do not say
# which round of sequence numbers they mean.
DELAY_S = 0.0002
_SOL_PACKET, _IGNORE_OUTGOING = 263, 23
_ETH_P_ALL = 3
_FRAME_BYTES_MAX = 65600
_BATCH = 64


def main(seed: str, *names: str) -> None:
    """Carry frames between the two interfaces."""
    source = random.Random(seed)
    ends = [_open(name) for name in names]
    print("ready", flush=True)
    delayed: list[tuple[float, int, int, bytes]] = []
    number = 0
    while True:
        timeout = max(delayed[0][0] - time.monotonic(), 0) if delayed else None
        ready, _, _ = select.select(ends, [], [], timeout)
        for end in ready:
            target = 1 - ends.index(end)
            for _ in range(_BATCH):
                try:
                    frame = end.recv(_FRAME_BYTES_MAX)
                except OSError:  # nothing pending, or the interface was down
                    break
                if source.random() < LOST:
                    continue
                for _ in range(1 + (source.random() < TWICE)):
                    if source.random() < DELAYED:
                        number += 1
                        heapq.heappush(delayed, (time.monotonic() + source.uniform(0, DELAY_S), number, target, frame))
                    else:
                        _send(ends[target], frame)
        while delayed and delayed[0][0] <= time.monotonic():
            _, _, target, frame = heapq.heappop(delayed)
            _send(ends[target], frame)


def _open(name: str) -> socket.socket:
    # Removed from its bridge, which would forward the frames as well.
    subprocess.run(["ip", "link", "set", name, "nomaster"], check=True)
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    end.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    end.bind((name, _ETH_P_ALL))
    end.setblocking(False)
    return end


def _send(end: socket.socket, frame: bytes) -> None:
    with contextlib.suppress(OSError):  # the queue is full, or the interface down: the frame is lost
        end.send(frame)


if __name__ == "__main__":
    main(*sys.argv[1:])
