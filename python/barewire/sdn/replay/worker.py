# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One host's part of a shuffle: serves mappers' outputs, and fetches its reducers' parts. Started on that host.

    worker.py PORT < job            {"reducers": [{"number": 0, "copies": 5, "parts": [["10.77.0.3", 40000], …]}, …]}

The job is the first line of the input, answered by `ready` once the port is open. The line `begin` starts the reducers
once; at their end the worker prints {"fetched": [[reducer, bytes, began, ended], …]}, in seconds of the machine's
monotonic clock. After `hold` nothing is fetched until `go`. The worker exits at the end of the input. It needs
no package, so that it starts quickly on many hosts at once.
"""

import json
import os
import socket
import socketserver
import struct
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_WANTED = struct.Struct("!Q")  # number of bytes that a reducer requests
_CHUNK_BYTES = 1 << 18
_PATIENCE_S = 60.0
# Data sent by mappers: the same pages for all.
_OUTPUT_BYTES = 1 << 20

_untouched = bytearray(_CHUNK_BYTES)
_output = os.memfd_create("mapper output")
_may_fetch = threading.Event()

Fetch = tuple[int, int, float, float]


class _Mapper(socketserver.BaseRequestHandler):
    """Serves one connection: reads a number, then sends that many bytes."""

    def handle(self) -> None:
        """Serve until everything is sent, or the reducer has disconnected."""
        connection: socket.socket = self.request
        request = connection.recv(_WANTED.size, socket.MSG_WAITALL)
        if len(request) < _WANTED.size:
            return
        remaining = _WANTED.unpack(request)[0]
        while remaining > 0:
            remaining -= os.sendfile(connection.fileno(), _output, 0, min(remaining, _OUTPUT_BYTES))


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 512


def fetch(reducer: int, host: str, port: int, size_bytes: int) -> Fetch:
    """Fetch one part as soon as it may, which counts as its time; the kernel counts and discards its bytes."""
    began = time.monotonic()
    _may_fetch.wait()
    with socket.create_connection((host, port), timeout=_PATIENCE_S) as connection:
        connection.sendall(_WANTED.pack(size_bytes))
        remaining = size_bytes
        while remaining > 0:
            _may_fetch.wait()  # who does not read is not sent more
            got = connection.recv_into(_untouched, min(remaining, _CHUNK_BYTES), socket.MSG_TRUNC)
            if got == 0:
                raise ConnectionError(f"{host} closed a connection with {remaining} of {size_bytes} bytes to come")
            remaining -= got
    return reducer, size_bytes, began, time.monotonic()


def reduce(reducer: dict[str, Any], port: int) -> list[Fetch]:
    """Fetch all parts of one reducer in order, some at a time."""
    with ThreadPoolExecutor(max_workers=reducer["copies"]) as copies:
        waiting = [copies.submit(fetch, reducer["number"], host, port, size) for host, size in reducer["parts"]]
        return [future.result() for future in waiting]


def run(reducers: list[dict[str, Any]], port: int) -> None:
    """Run all reducers once, and print what they fetched; a failure ends the process."""
    try:
        with ThreadPoolExecutor(max_workers=max(1, len(reducers))) as all_reducers:
            results = list(all_reducers.map(lambda reducer: reduce(reducer, port), reducers))
        print(json.dumps({"fetched": [fetch for result in results for fetch in result]}), flush=True)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main(port: int) -> None:
    """Serve, and run the reducers on each line of input."""
    os.ftruncate(_output, _OUTPUT_BYTES)
    reducers: list[dict[str, Any]] = json.loads(sys.stdin.readline())["reducers"]
    with _Server(("0.0.0.0", port), _Mapper) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _may_fetch.set()
        print("ready", flush=True)
        for line in sys.stdin:
            match line.strip():
                case "begin":
                    threading.Thread(target=run, args=(reducers, port), daemon=True).start()
                case "hold":
                    _may_fetch.clear()
                case "go":
                    _may_fetch.set()
        server.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
