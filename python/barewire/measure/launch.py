# SPDX-License-Identifier: Apache-2.0 OR MIT
"""One launch: starts both sides of one subject, waits for their end, and leaves their samples in a file."""

import contextlib
import secrets
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from barewire.errors import BarewireError, MachineCannot, MeasurementFailed, WrongUse, finite_above_0
from barewire.measure.programs import FLOOR, HOST, INSTALL_THERE, NOT_FOUND, PROBE, XDP_FLOOR, find_program
from barewire.measure.sites import Site, Station
from barewire.measure.subjects import BROKERED, Subject
from barewire.models.naming import LIBFABRIC, PACKET
from barewire.processes import end_process, wait

READY_TIMEOUT_S = 20.0
# A side that has finished ends by itself; a longer wait would only hide that it does not.
END_TIMEOUT_S = 10.0
_PASSIVE_SESSION = f"{PROBE}: a session ended early"
_ERRORS: dict[int, type[BarewireError]] = {2: WrongUse, 3: MachineCannot}


@dataclass(frozen=True)
class Effort:
    """Amount of measurement per size in one launch."""

    samples: int = 3000
    seconds: float = 0.2
    warmup: int = 200
    blocks: int = 10

    def __post_init__(self) -> None:
        """Reject invalid values."""
        finite_above_0("--seconds", self.seconds)


@dataclass(frozen=True)
class Order:
    """One planned launch."""

    number: int
    test: str
    subject: Subject
    sizes: tuple[int, ...]
    seed: int
    pairs: int = 1
    processes: int | None = None
    # Tuning of endpoints and messages that overrides both sides' tuning files.
    tuned: tuple[tuple[str, int], ...] = ()
    cache: bool = True
    walk_bytes: int | None = None
    effort: Effort = Effort()

    @property
    def subject_name(self) -> str:
        """The subject's name."""
        return self.subject.name

    @property
    def label(self) -> str:
        """A description of the launch."""
        processes = "" if self.processes is None else f" × {self.processes}"
        return f"{self.test} {self.subject.name}{processes}"


def launch(site: Site, order: Order, samples_file: Path) -> None:
    """Run `order` and leave the JSON Lines of the side that records the samples in `samples_file`.

    Raises the programs' failure with its message: MeasurementFailed, WrongUse or MachineCannot. In any case both
    programs are ended, and the samples so far are kept.
    """
    run = _run_floor if order.subject.is_floor else _run_probe
    with tempfile.TemporaryFile("w+") as errors:
        try:
            run(site, order, samples_file, errors)
        except OSError as error:
            raise MeasurementFailed(f"{error.filename or samples_file}: {error.strerror}") from error


def _run_probe(site: Site, order: Order, samples_file: Path, errors: IO[str]) -> None:
    probe = find_program(PROBE)
    with (
        site.listen() as (listen, connect),
        tempfile.NamedTemporaryFile("w") as ready,
        samples_file.open("w") as samples,
    ):
        # Not announced, so that the link carries the measurement only.
        serve = [probe, "serve", "--until-eof", "--no-announce", "--listen", listen]
        serve += _placement_arguments(site.passive, order)
        if order.processes is not None:
            serve.append("--processes")
        drive = [probe, *_probe_arguments(site, order, connect), *_placement_arguments(site.active, order)]
        with _running(site, site.passive, serve, ready, errors) as passive:
            _wait_until_ready(passive, Path(ready.name), errors)
            with _running(site, site.active, drive, samples, errors) as active:
                active.wait()
            raise_failure(active.returncode, errors)


def _run_floor(site: Site, order: Order, samples_file: Path, errors: IO[str]) -> None:
    link = order.subject.link
    program = [find_program(FLOOR)] if link == PACKET else [find_program(XDP_FLOOR), "-l", link]
    effort = order.effort
    common = ["-s", ",".join(map(str, order.sizes)), "-w", str(effort.warmup), "-b", str(effort.blocks)]
    # Another measurement may use the interface at the same time.
    common += ["-r", str(secrets.randbelow(1 << 16))]

    def command(role: str, station: Station, peer: Station) -> list[str]:
        placement = ["-i", str(station.interface), "-p", str(peer.mac), "-c", str(station.cpus[0])]
        amount = ["-n", str(effort.samples), "-t", str(effort.seconds)]
        return [*program, *placement, *common, *amount, role, order.test]

    # The side that measures time records the samples: a stream's receiver, else the one that awaits replies.
    with tempfile.NamedTemporaryFile("w") as discarded, samples_file.open("w") as samples:
        outputs = (samples, discarded) if order.test == "stream" else (discarded, samples)
        passive_command = command("passive", site.passive, site.active)
        with _running(site, site.passive, passive_command, outputs[0], errors) as passive:
            _wait_until_ready(passive, Path(outputs[0].name), errors)
            active_command = command("active", site.active, site.passive)
            with _running(site, site.active, active_command, outputs[1], errors) as active:
                active.wait()
            raise_failure(active.returncode, errors)
            _wait_for_end(passive)
        raise_failure(passive.returncode, errors)


def _placement_arguments(station: Station, order: Order) -> list[str]:
    options: list[str] = []
    if station.interface is not None:
        options += ["--interface", station.interface]
    if station.address is not None:
        options += ["--address", station.address]
    if station.cpus:
        options += ["--cpus", ",".join(map(str, station.cpus))]
    if station.broker is not None and order.subject.transport in BROKERED and order.subject.link == PACKET:
        options += ["--broker", station.broker]
    return options


def _probe_arguments(site: Site, order: Order, peer: str) -> list[str]:
    options: dict[str, object] = {
        "--peer": peer,
        "--transport": LIBFABRIC if order.subject.provider else order.subject.transport,
        "--provider": order.subject.provider,
        "--link": order.subject.link if order.subject.has_link else None,
        "--wait": order.subject.wait,
        "--sizes": ",".join(map(str, order.sizes)),
        "--pairs": order.pairs if order.processes is None else None,
        "--processes": order.processes,
        "--cache": "on" if order.cache else "off",
        "--walk-bytes": order.walk_bytes,
        "--samples": order.effort.samples,
        "--seconds": order.effort.seconds,
        "--warmup": order.effort.warmup,
        "--blocks": order.effort.blocks,
        "--rate": site.shaped_rate_bit_s,
        "--seed": order.seed,
    }
    arguments = [order.test]
    for name, value in options.items():
        if value is not None:
            arguments += [name, str(value)]
    for name, number in order.tuned:
        arguments += ["--tuned", f"{name}={number}"]
    return [*arguments, "--give-way"] if site.shares_core else arguments


@contextlib.contextmanager
def _running(
    site: Site, station: Station, command: Sequence[str], output: IO[str], errors: IO[str]
) -> Iterator["subprocess.Popen[Any]"]:
    """Run a program during the block; at its end close its input, then terminate it, then kill it."""
    process = site.popen(station, command, stdin=subprocess.PIPE, stdout=output, stderr=errors)
    try:
        yield process
    finally:
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        end_process(process)


def _wait_for_end(passive: "subprocess.Popen[Any]") -> None:
    """Let the active floor's end marker reach the passive one."""
    if wait(passive, END_TIMEOUT_S) is None:
        raise MeasurementFailed("the floor's passive side received no end marker: too many frames were lost")


def _wait_until_ready(process: "subprocess.Popen[Any]", output: Path, errors: IO[str]) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while '"ready"' not in output.read_text():
        if process.poll() is not None:
            raise_failure(process.returncode or 1, errors)
        if time.monotonic() > deadline:
            raise MeasurementFailed(f"the passive side did not start within {READY_TIMEOUT_S:.0f} s")
        time.sleep(0.003)


def raise_failure(code: int, errors: IO[str]) -> None:
    """Raise the failure of a program, from its exit code and the last line of `errors`; return for 0."""
    if code == 0:
        return
    if code == 130:
        raise KeyboardInterrupt
    errors.seek(0)
    lines = [line.strip() for line in errors.read().splitlines() if line.strip()]
    # The active side's message includes that of the passive side, and is the last unless processes end with it.
    lines = [line for line in lines if not line.startswith(_PASSIVE_SESSION)] or lines
    if code == WrongUse.exit_code:
        # Of wrong arguments the programs tell more in further lines.
        lines = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")] or lines
    message = lines[-1] if lines else f"the program ended with code {code} and no message"
    for prefix in (f"{PROBE}: ", f"{FLOOR}: ", f"{XDP_FLOOR}: ", f"{HOST}: "):
        message = message.removeprefix(prefix)
    if code == NOT_FOUND:  # by the shell of another machine
        raise MachineCannot(f"{message}; {INSTALL_THERE}")
    raise _ERRORS.get(code, MeasurementFailed)(message)
