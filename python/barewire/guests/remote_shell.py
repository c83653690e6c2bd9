# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs a command on an emulated machine, as ssh does on a real one; `agent.py` has the other end and the messages.

Usage: remote_shell.py FOLDER ADDRESS COMMAND. FOLDER has a socket named as the machine's address. The end of standard
input and signals are passed on. Exit code: the command's; 255 if the machine has ended.
"""

import json
import os
import select
import shlex
import signal
import socket
import sys

_LOST = 255


def main(folder: str, address: str, command: str) -> int:
    """Run the command; return its exit code."""
    channel = socket.socket(socket.AF_UNIX)
    try:
        # A path below a long folder may not fit into an address.
        os.chdir(folder)
        channel.connect(address)
    except OSError as error:
        print(f"the emulated machine {address} is gone: {error.strerror}", file=sys.stderr)
        return _LOST

    def send(**message: object) -> None:
        channel.sendall(json.dumps(message).encode() + b"\n")

    # Python's handler runs between two system calls, so a message is not cut by another one.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: send(signal=number))
    send(command=shlex.split(command))
    unread, sources = b"", [channel.fileno(), 0]
    while True:
        ready, _, _ = select.select(sources, [], [])
        if 0 in ready and not os.read(0, 65536):
            sources.remove(0)
            send(eof=True)
        if channel.fileno() not in ready:
            continue
        try:
            chunk = channel.recv(65536)
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            print(f"the emulated machine {address} has ended", file=sys.stderr)
            return _LOST
        *lines, unread = (unread + chunk).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "exit" in message:
                code: int = message["exit"]
                return 128 - code if code < 0 else code
            for name, output in (("out", sys.stdout), ("err", sys.stderr)):
                output.buffer.write(message.get(name, "").encode("latin-1"))
                output.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
