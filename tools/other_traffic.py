# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Traffic that is neither MPI nor Big Data, between the hosts of a lab; tools/learn_traffic.py starts it on each.

    other_traffic.py SEED KINDS ADDRESS…     until its input ends; KINDS with commas; its own address first

web        pages of 0.3 to 300 kB over connections that live for some requests; long pauses
files      whole files of 0.1 to 3 MB, one connection each, at ports that the server chose, as passive FTP does
database   small questions and answers over connections that stay
terminal   a byte now and then, echoed
names      datagrams, one question and one answer
stream     datagrams at a constant rate
backup     one long upload to a registered port
"""

import contextlib
import random
import socket
import socketserver
import struct
import sys
import threading
import time

PORTS = {"web": 80, "files": 21, "database": 5432, "terminal": 2222, "names": 53, "stream": 5004, "backup": 8730}
_ASK = struct.Struct("!II")  # bytes that follow, bytes to answer


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        got = connection.recv(min(size - len(data), 1 << 16))
        if not got:
            raise ConnectionError("the other end has gone")
        data += got
    return bytes(data)


class _Answers(socketserver.BaseRequestHandler):
    """Answers each question with as many bytes as it asks for."""

    def handle(self) -> None:
        """Answer until the other end has gone."""
        with contextlib.suppress(OSError):
            while True:
                follow, wanted = _ASK.unpack(_exactly(self.request, _ASK.size))
                _exactly(self.request, follow)
                self.request.sendall(bytes(wanted))


class _Files(socketserver.BaseRequestHandler):
    """Answers on the control connection with a port at which one file can be fetched."""

    def handle(self) -> None:
        """Serve files until the other end has gone."""
        with contextlib.suppress(OSError):
            while True:
                _, wanted = _ASK.unpack(_exactly(self.request, _ASK.size))
                with socket.create_server((self.server.server_address[0], 0)) as listener:
                    listener.settimeout(30)
                    self.request.sendall(struct.pack("!H", listener.getsockname()[1]))
                    connection, _ = listener.accept()
                    with connection:
                        connection.sendall(bytes(wanted))


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def _ask(connection: socket.socket, sends: int, wants: int) -> None:
    connection.sendall(_ASK.pack(sends, wants) + bytes(sends))
    _exactly(connection, wants)


def web(rng: random.Random, server: str) -> None:
    """Fetch pages over one connection."""
    with socket.create_connection((server, PORTS["web"]), timeout=60) as connection:
        for _ in range(rng.randint(1, 8)):
            _ask(connection, rng.randint(100, 900), int(10 ** rng.uniform(2.5, 5.5)))
            time.sleep(rng.expovariate(1))


def files(rng: random.Random, server: str) -> None:
    """Fetch files over connections of their own."""
    with socket.create_connection((server, PORTS["files"]), timeout=60) as control:
        for _ in range(rng.randint(1, 3)):
            size = int(10 ** rng.uniform(5, 6.5))
            control.sendall(_ASK.pack(0, size))
            port = struct.unpack("!H", _exactly(control, 2))[0]
            with socket.create_connection((server, port), timeout=60) as data:
                _exactly(data, size)
            time.sleep(rng.uniform(0, 4))


def database(rng: random.Random, server: str) -> None:
    """Ask small questions for a while."""
    with socket.create_connection((server, PORTS["database"]), timeout=60) as connection:
        pause_s = 10 ** rng.uniform(-2, 0.3)
        for _ in range(int(rng.uniform(5, 40) / (pause_s + 0.1))):
            _ask(connection, rng.randint(50, 400), int(10 ** rng.uniform(1.5, 4.2)))
            time.sleep(rng.expovariate(1 / pause_s))


def terminal(rng: random.Random, server: str) -> None:
    """Type."""
    with socket.create_connection((server, PORTS["terminal"]), timeout=60) as connection:
        for _ in range(rng.randint(20, 150)):
            _ask(connection, rng.randint(20, 60), rng.randint(20, 400))
            time.sleep(rng.expovariate(4))


def names(rng: random.Random, server: str) -> None:
    """Ask for names."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        asker.settimeout(2)
        for _ in range(rng.randint(1, 5)):
            asker.sendto(struct.pack("!H", rng.randint(60, 400)) + bytes(30), (server, PORTS["names"]))
            with contextlib.suppress(TimeoutError):
                asker.recv(2048)
            time.sleep(rng.expovariate(0.5))


def stream(rng: random.Random, server: str) -> None:
    """Send at a constant rate."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        packets_s, size = rng.randint(10, 60), rng.randint(200, 1400)
        for _ in range(int(packets_s * rng.uniform(8, 40))):
            sender.sendto(bytes(size), (server, PORTS["stream"]))
            time.sleep(1 / packets_s)


def backup(rng: random.Random, server: str) -> None:
    """Upload."""
    with socket.create_connection((server, PORTS["backup"]), timeout=60) as connection:
        for _ in range(rng.randint(20, 100)):
            _ask(connection, 1 << 16, 8)
            time.sleep(rng.uniform(0, 0.2))


KINDS = {function.__name__: function for function in (web, files, database, terminal, names, stream, backup)}


def _answer_names(address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, PORTS["names"]))
        while True:
            question, asker = server.recvfrom(2048)
            server.sendto(bytes(struct.unpack_from("!H", question)[0]), asker)


def _take_stream(address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, PORTS["stream"]))
        while True:
            server.recv(2048)


def _sessions(seed: str, kind: str, others: list[str]) -> None:
    rng = random.Random(seed)
    while True:
        with contextlib.suppress(OSError):
            KINDS[kind](rng, rng.choice(others))
        time.sleep(rng.expovariate(0.5))


def main(seed: str, kinds: list[str], own: str, others: list[str]) -> None:
    """Serve all kinds, and begin sessions of some."""
    for name in ("web", "database", "terminal", "backup", "files"):
        server = _Server((own, PORTS[name]), _Files if name == "files" else _Answers)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    for serve in (_answer_names, _take_stream):
        threading.Thread(target=serve, args=(own,), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.readline()
    for kind in kinds:
        threading.Thread(target=_sessions, args=(f"{seed} {kind} {own}", kind, others), daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2].split(","), sys.argv[3], sys.argv[4:])
