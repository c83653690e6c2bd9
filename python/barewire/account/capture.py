# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Captures what the hosts of a lab send while a job runs, each frame once, into one pcapng file.

A host's own interface does not show all of it: frames that bypass the queueing discipline, as ours do, bypass taps as
well. The other end of its link receives every frame that it sends, and none twice. So dumpcap listens there, for frames
from this host, and mergecap joins the files: one interface for each host, frames in order of time.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from barewire.account.comment import Comment
from barewire.account.tshark import find
from barewire.errors import MachineCannot, MeasurementFailed, WrongUse
from barewire.lab import Lab
from barewire.processes import end_with_this_process, terminate

PROGRAMS = ("dumpcap", "mergecap")
_BUFFER_MIB = 64
_START_TIMEOUT_S = 10.0
_END_TIMEOUT_S = 30.0
_POLL_INTERVAL_S = 0.01
# The kernel hands over a block of frames after a quarter of a second at most.
_LAST_BLOCK_S = 0.5
_READY = "File: "
STATISTICS = re.compile(r"Packets received/dropped on interface '.*': (\d+)/(\d+)")


def check(file: Path, lab: Lab | None = None) -> None:
    """Reject what cannot be captured; with `lab` also what that lab cannot. MachineCannot without dumpcap."""
    for program in PROGRAMS:
        find(program)
    if not file.parent.is_dir() or not os.access(file.parent, os.W_OK) or file.is_dir():
        raise WrongUse(f"--capture: {file} cannot be written")
    if lab is not None and lab.link.offloads:
        raise WrongUse("--capture: with offloads frames are cut after they were captured: omit --offloads on")


@contextmanager
def captured(lab: Lab, hosts: Sequence[str], file: Path) -> Iterator[None]:
    """Capture what `hosts` send during the block; then one line on standard error says what was caught and lost."""
    check(file, lab)
    addresses = {host: (lab.host(host).mac, lab.host(host).address) for host in hosts}
    described = str(Comment(addresses, lab.link.mtu))
    with ExitStack() as stack:
        taps = [stack.enter_context(_tap(lab, host, file, described)) for host in hosts]
        for tap in taps:
            tap.await_start()
        try:
            yield
        finally:
            time.sleep(_LAST_BLOCK_S)
            for tap in taps:
                tap.stop()
            _merge(file, taps)
            print(f"barewire: {summary(file, taps)}", file=sys.stderr)


class _Tap:
    """One dumpcap at the far end of a host's link."""

    def __init__(self, host: str, part: Path, process: "subprocess.Popen[bytes]", log: IO[bytes]) -> None:
        self.host = host
        self.part = part
        self.received = 0
        self.dropped = 0
        self._process = process
        self._log = log

    def await_start(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while _READY not in self._text():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise MachineCannot(f"--capture: dumpcap does not start for {self.host}: {self._last_words()}")
            time.sleep(_POLL_INTERVAL_S)

    def stop(self) -> None:
        ended_early = self._process.poll() is not None
        terminate(self._process, _END_TIMEOUT_S)
        statistics = STATISTICS.search(self._text())
        if ended_early or statistics is None:
            raise MeasurementFailed(
                f"--capture: dumpcap for {self.host} ended early, {self.part} has what it caught: {self._last_words()}"
            )
        self.received, self.dropped = (int(number) for number in statistics.groups())

    def _text(self) -> str:
        return os.pread(self._log.fileno(), 1 << 20, 0).decode(errors="replace")

    def _last_words(self) -> str:
        return " | ".join(self._text().strip().splitlines()[-2:]) or "no message"


@contextmanager
def _tap(lab: Lab, host: str, file: Path, described: str) -> Iterator[_Tap]:
    end = lab.far_end(host)
    part = file.absolute().with_name(f"{file.name}.{host}")
    options = ["-q", "-i", end.interface, "-p", "-f", f"ether src {lab.host(host).mac}", "-B", str(_BUFFER_MIB)]
    command = [find("dumpcap"), *options, "--capture-comment", described, "-w", str(part)]
    with tempfile.TemporaryFile() as log:
        # In a session of its own: an interrupt ends the job first. It also ends with this process, however that ends.
        process = subprocess.Popen(
            lab.command_at(end, command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=end_with_this_process(),
        )
        tap = _Tap(host, part, process, log)
        try:
            yield tap
        finally:
            terminate(process, _END_TIMEOUT_S)


def _merge(file: Path, taps: Sequence[_Tap]) -> None:
    parts = [str(tap.part) for tap in taps]
    command = [find("mergecap"), "-F", "pcapng", "-I", "none", "-w", str(file), *parts]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MeasurementFailed(f"--capture: mergecap fails, {', '.join(parts)} remain: {done.stderr.strip()}")
    for tap in taps:
        tap.part.unlink()


def summary(file: Path, taps: Sequence[_Tap]) -> str:
    """Return what was caught, and what dumpcap was too slow for."""
    frames = ", ".join(f"{tap.host} {tap.received}" for tap in taps)
    lost = {tap.host: tap.dropped for tap in taps if tap.dropped}
    loss = f"LOST {', '.join(f'{count} of {host}' for host, count in lost.items())}" if lost else "none lost"
    return f"captured {sum(tap.received for tap in taps)} frames ({frames}), {loss}; see: barewire account {file}"
