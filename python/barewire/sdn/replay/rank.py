# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One rank of a training job: exchanges messages with other ranks, step by step. Started on its host.

    rank.py PORT < job       {"rank": 0, "peers": {"1": ["10.77.0.3", 21001], …},
                              "steps": [{"send": [[1, 50000], …], "receive": [[3, 50000], …]}, …]}

The job is the first line of the input, answered by `listening`. After `connect` the rank opens a connection to each
higher rank that it exchanges messages with, waits for those of the lower ones, and prints `ready`. The line `begin`
starts one iteration; at its end the rank prints {"ended": seconds of the machine's monotonic clock}. After `hold` no
further step begins until `go`. The rank exits at the end of the input. It needs no package, so that it starts quickly.
"""

import json
import os
import socket
import struct
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_RANK = struct.Struct("!I")  # who connects
_CHUNK_BYTES = 1 << 18
# Data of all messages: the same pages.
_DATA_BYTES = 1 << 20
_PATIENCE_S = 60.0

_data = os.memfd_create("gradients")
_may_send = threading.Event()


def connected(rank: int, peers: dict[int, tuple[str, int]], listener: socket.socket) -> dict[int, socket.socket]:
    """Return a connection to each peer; the lower rank opens it."""
    connections: dict[int, socket.socket] = {}
    for peer, (host, port) in peers.items():
        if peer > rank:
            connections[peer] = socket.create_connection((host, port), timeout=_PATIENCE_S)
            connections[peer].sendall(_RANK.pack(rank))
    while len(connections) < len(peers):
        connection, _ = listener.accept()
        connection.settimeout(_PATIENCE_S)
        said = connection.recv(_RANK.size, socket.MSG_WAITALL)
        if len(said) == _RANK.size and _RANK.unpack(said)[0] in peers:
            connections[_RANK.unpack(said)[0]] = connection
        else:
            connection.close()
    for connection in connections.values():
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(None)
    return connections


def send(connection: socket.socket, size_bytes: int) -> None:
    """Send a message."""
    while size_bytes > 0:
        size_bytes -= os.sendfile(connection.fileno(), _data, 0, min(size_bytes, _DATA_BYTES))


def receive(connection: socket.socket, size_bytes: int) -> None:
    """Receive a message; the kernel counts and discards its bytes."""
    untouched = bytearray(min(size_bytes, _CHUNK_BYTES))
    while size_bytes > 0:
        got = connection.recv_into(untouched, min(size_bytes, _CHUNK_BYTES), socket.MSG_TRUNC)
        if got == 0:
            raise ConnectionError(f"a rank closed its connection with {size_bytes} bytes to come")
        size_bytes -= got


def iterate(steps: list[dict[str, Any]], connections: dict[int, socket.socket], pool: ThreadPoolExecutor) -> None:
    """Exchange all messages of one iteration, and print its end; a failure ends the process."""
    try:
        for step in steps:
            _may_send.wait()
            messages = [pool.submit(send, connections[peer], size) for peer, size in step["send"]]
            messages += [pool.submit(receive, connections[peer], size) for peer, size in step["receive"]]
            for message in messages:
                message.result()
        print(json.dumps({"ended": time.monotonic()}), flush=True)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main(port: int) -> None:
    """Connect, and iterate as told by the input."""
    os.ftruncate(_data, _DATA_BYTES)
    job = json.loads(sys.stdin.readline())
    steps: list[dict[str, Any]] = job["steps"]
    peers = {int(peer): (host, number) for peer, (host, number) in job["peers"].items()}
    most = max((len(step["send"]) + len(step["receive"]) for step in steps), default=1)
    with socket.create_server(("0.0.0.0", port), backlog=512) as listener, ThreadPoolExecutor(most) as pool:
        print("listening", flush=True)
        if sys.stdin.readline() != "connect\n":
            return
        connections = connected(job["rank"], peers, listener)
        _may_send.set()
        print("ready", flush=True)
        for line in sys.stdin:
            match line.strip():
                case "begin":
                    threading.Thread(target=iterate, args=(steps, connections, pool), daemon=True).start()
                case "hold":
                    _may_send.clear()
                case "go":
                    _may_send.set()


if __name__ == "__main__":
    main(int(sys.argv[1]))
