# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Process 1 of an emulated machine: starts what `remote_shell.py` asks for on the other end of a serial port.

Usage: agent.py PROGRAMS, the folder of Barewire's native programs. One command runs at a time. What it prints is kept
in memory until it ends, except its beginning, by which it says that it is ready: nothing but it runs while it measures.

Messages are lines of JSON. To here {"command": [...]}, {"eof": true}, {"signal": number}; from here {"out": text},
{"err": text}, which are bytes as Latin-1, and {"exit": code}.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

# How often the other end is looked for, and the beginning of a program's output.
INTERVAL_S = 0.02
_CHUNK_BYTES = 16 << 10
_NOT_FOUND = 127


class Port:
    """The serial port: messages in and out."""

    def __init__(self, descriptor: int) -> None:
        """Take over an open one."""
        self.descriptor = descriptor
        self._unread = b""
        self._messages: list[dict[str, Any]] = []

    def receive(self) -> "dict[str, Any] | None":
        """Return the next message, waiting for it; None if nobody is at the other end."""
        while not self._messages:
            chunk = os.read(self.descriptor, 65536)
            if not chunk:
                self._unread = b""
                return None
            *lines, self._unread = (self._unread + chunk).split(b"\n")
            self._messages += [json.loads(line) for line in lines if line.startswith(b"{")]
        return self._messages.pop(0)

    def send(self, **message: object) -> None:
        """Send one; dropped if nobody is at the other end."""
        data = json.dumps(message).encode() + b"\n"
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self.descriptor, data) :]

    def has_message(self) -> bool:
        """Whether one was received already."""
        return bool(self._messages)


def run(port: Port, command: list[str], environment: dict[str, str]) -> "dict[str, Any] | None":
    """Run a command to its end; return the message that ended it early, another command."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=err, env=environment)
        except OSError as error:
            port.send(err=f"{command[0]}: {error.strerror}\n")
            port.send(exit=_NOT_FOUND)
            return None
        outputs: dict[str, tuple[IO[bytes], int]] = {"out": (out, 0), "err": (err, 0)}
        following: dict[str, Any] | None = attend(port, process, outputs)
        process.wait()
        if following is None:
            forward(port, outputs)
            port.send(exit=process.returncode)
        return following


def attend(port: Port, process: "subprocess.Popen[bytes]", outputs: "dict[str, tuple[IO[bytes], int]]") -> Any:
    """Do what the other end says until the process ends; return a command that takes its place."""
    assert process.stdin is not None
    ends = os.pidfd_open(process.pid)
    try:
        while True:
            waits = INTERVAL_S if outputs["out"][1] == 0 else None
            ready = (
                [port.descriptor] if port.has_message() else select.select([port.descriptor, ends], [], [], waits)[0]
            )
            if outputs["out"][1] == 0:
                forward(port, outputs)
            if ends in ready:
                return None
            if port.descriptor not in ready:
                continue
            message = port.receive()
            if message is None or "command" in message:
                process.kill()
                return message or {}
            if "eof" in message:
                process.stdin.close()
            elif "signal" in message:
                process.send_signal(message["signal"])
    finally:
        os.close(ends)
        process.stdin.close()


def forward(port: Port, outputs: "dict[str, tuple[IO[bytes], int]]") -> None:
    """Send what has been printed since the last time."""
    for name, (file, done) in outputs.items():
        while chunk := os.pread(file.fileno(), _CHUNK_BYTES, done):
            port.send(**{name: chunk.decode("latin-1")})
            done += len(chunk)
        outputs[name] = (file, done)


def serve(port: Port, programs: str) -> None:
    """Run commands for ever."""
    environment = {"PATH": f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp"}
    message: dict[str, Any] | None = None
    while True:
        message = message or port.receive()
        if message is None:
            time.sleep(INTERVAL_S)
            continue
        command, message = message.get("command"), None
        if command:
            message = run(port, command, environment)


if __name__ == "__main__":
    print("guest: ready", flush=True)
    serve(Port(os.open(next(Path("/dev").glob("vport*p*")), os.O_RDWR)), sys.argv[1])
