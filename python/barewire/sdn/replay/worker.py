# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One host's part of a shuffle: serves mappers' outputs, and fetches what its reducers want. Started in that host.

    worker.py PORT < job            {"reducers": [{"number": 0, "copies": 5, "parts": [["10.77.0.3", 40000], …]}, …]}

The job is the first line of the input. The answer to it is `ready`, when the port is open; the next line lets the
reducers begin, once for each line, and each time they are done a line {"fetched": [[reducer, bytes, began, ended], …]}
says when, in seconds of the machine's monotonic clock. The end of the input ends the worker. Needs no package, so that
it starts quickly in many hosts at once.
"""

import json
import os
import socket
import socketserver
import struct
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_WANTED = struct.Struct("!Q")  # how many bytes a reducer asks for
_CHUNK_BYTES = 1 << 18
_PATIENCE_S = 60.0
# What a mapper sends: pages that exist once, however many it serves.
_OUTPUT_BYTES = 1 << 20

_untouched = bytearray(_CHUNK_BYTES)
_output = os.memfd_create("mapper output")

Fetch = tuple[int, int, float, float]


class _Mapper(socketserver.BaseRequestHandler):
    """Answers one connection: a number of bytes, then so many bytes."""

    def handle(self) -> None:
        """Serve until all is sent, or the reducer is gone."""
        connection: socket.socket = self.request
        asked = connection.recv(_WANTED.size, socket.MSG_WAITALL)
        if len(asked) < _WANTED.size:
            return
        left = _WANTED.unpack(asked)[0]
        while left > 0:
            left -= os.sendfile(connection.fileno(), _output, 0, min(left, _OUTPUT_BYTES))


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 512


def fetch(reducer: int, host: str, port: int, size_bytes: int) -> Fetch:
    """Fetch one part; its bytes are counted and thrown away by the kernel, unread."""
    began = time.monotonic()
    with socket.create_connection((host, port), timeout=_PATIENCE_S) as connection:
        connection.sendall(_WANTED.pack(size_bytes))
        left = size_bytes
        while left > 0:
            got = connection.recv_into(_untouched, min(left, _CHUNK_BYTES), socket.MSG_TRUNC)
            if got == 0:
                raise ConnectionError(f"{host} closed a connection with {left} of {size_bytes} bytes to come")
            left -= got
    return reducer, size_bytes, began, time.monotonic()


def reduce(reducer: dict[str, Any], port: int) -> list[Fetch]:
    """Fetch all parts of one reducer, some at a time, in their order."""
    with ThreadPoolExecutor(max_workers=reducer["copies"]) as copies:
        waiting = [copies.submit(fetch, reducer["number"], host, port, size) for host, size in reducer["parts"]]
        return [one.result() for one in waiting]


def main(port: int) -> None:
    """Serve; and reduce whenever told to."""
    os.ftruncate(_output, _OUTPUT_BYTES)
    reducers: list[dict[str, Any]] = json.loads(sys.stdin.readline())["reducers"]
    with _Server(("0.0.0.0", port), _Mapper) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print("ready", flush=True)
        while sys.stdin.readline():
            with ThreadPoolExecutor(max_workers=max(1, len(reducers))) as all_reducers:
                results = list(all_reducers.map(lambda reducer: reduce(reducer, port), reducers))
            print(json.dumps({"fetched": [one for result in results for one in result]}), flush=True)
        server.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
