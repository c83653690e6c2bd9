# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Shared by `make survive` and `make soak`: jobs in a lab, and faults that are injected and repaired."""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from common import BAREWIRE, ROOT

from barewire.errors import BarewireError, MachineCannot, unknown
from barewire.lab import Lab, LinkSpec
from barewire.mpi import Library, installed_libraries
from barewire.sdn.api.client import Client

BROKER = str(ROOT / "target" / "release" / "barewire-broker")
POLICY = """
[[allow]]
users = [0]
interfaces = ["eth0"]
saps = ["0x02-0xfe"]
at_most = 127
"""
# A rank finds its host's broker by the host's name.
BROKERED = 'export FI_BAREWIRE_BROKER="{folder}/broker-$(hostname)"; exec "$0" "$@"'
# Growth of a broker or the controller per job: log and tables.
SERVER_GROWN_BYTES_MAX = 8 << 20
UNDER_WAY = "under way"
KILLED = "rank killed"
# Two hosts on separate switches, with two paths between these.
SWITCHES = """
switches = ["s1", "s2", "s3"]
hosts = ["h1", "h2"]
links = [{ends=["h1", "s1"]}, {ends=["h2", "s2"]}, {ends=["s1", "s2"]}, {ends=["s1", "s3"]}, {ends=["s3", "s2"]}]
"""


def libraries_over_barewire(names: str) -> list[Library]:
    """Return the installed libraries that the provider supports, or those of the comma-separated `names`."""
    installed = {library.name: library for library in installed_libraries() if library.name != "mpich"}
    if not installed:
        raise MachineCannot("no MPI library that runs over Barewire is installed: make setup")
    for name in (wanted := names.split(",") if names else list(installed)):
        if name not in installed:
            raise unknown("MPI library", name, installed)
    return [installed[name] for name in dict.fromkeys(wanted)]


def built(library: Library, source: str, folder: Path) -> str:
    """Build a program of tests/mpi with a library's own compiler, once per folder."""
    program = folder / f"{source}-{library.name}"
    if not program.exists():
        command = [library.program("mpicc"), "-O2", str(ROOT / "tests/mpi" / f"{source}.c"), "-o", str(program)]
        environment = dict(os.environ) | {"I_MPI_ROOT": str(library.prefix)}
        subprocess.run([*command, "-lpthread"], check=True, env=environment)
    return str(program)


@dataclass
class JobResult:
    """The end of a job: its exit code (None: it hung and was terminated), and its output."""

    code: int | None
    output: str
    errors: str
    seconds: float


@dataclass
class Site:
    """A lab for jobs, with its brokers by host and its controller, if any."""

    lab: Lab
    folder: Path
    brokers: "dict[str, subprocess.Popen[str]]" = field(default_factory=dict)
    controller: "subprocess.Popen[str] | None" = None

    def start_broker(self, host: str) -> None:
        """Start a host's broker at its fixed socket."""
        files = {name: self.lab.directory / f"{name}-{host}" for name in ("broker", "policy", "audit")}
        files["policy"].write_text(POLICY)
        options = ["--socket", files["broker"], "--policy", files["policy"], "--audit", files["audit"]]
        broker = self.lab.popen(host, [BROKER, "serve", *map(str, options)], stdout=subprocess.PIPE, text=True)
        self.brokers[host] = broker
        assert broker.stdout is not None
        if "ready" not in broker.stdout.readline():
            raise MachineCannot(f"the broker of {host} does not start")

    def start_controller(self) -> None:
        """Start the controller and wait until all switches are connected."""
        api, token, log = f"unix:{self.folder}/api-{self.lab.id}", self.folder / "token", self.folder / "controller"
        command = [BAREWIRE, "sdn", "start", "--lab", self.lab.id, "--api", api, "--token", str(token)]
        with log.open("a") as output:
            self.controller = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True)
        assert self.lab.network is not None
        deadline, last = time.monotonic() + 30, ""
        while time.monotonic() < deadline:
            try:
                last = f"{(status := Client(api, token).get('status'))['connected']} are connected"
                if status["connected"] == len(self.lab.network.switches):
                    return
            except (BarewireError, OSError) as error:
                last = str(error)
            time.sleep(0.1)
        raise MachineCannot(f"the controller does not reach all switches: {last}; {log.read_text()[-1000:]}")

    def end(self) -> None:
        """End brokers and controller, all of them even if one does not end."""
        with ExitStack() as stack:
            for process in [*self.brokers.values(), *([self.controller] if self.controller else [])]:
                stack.callback(end_process, process, signal.SIGTERM)

    def ranks(self, program: str) -> list[int]:
        """Return the processes of the lab's hosts that execute `program`."""
        return [number for number, executable in self._processes() if executable == Path(program).resolve()]

    def servers(self) -> dict[int, tuple[int, int]]:
        """Return resident bytes and descriptors of brokers and controller, by process."""
        by_process = {}
        for process in self._server_processes():
            with suppress(OSError):
                kilobytes = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
                resident = int(kilobytes[1]) * 1024 if kilobytes else 0
                by_process[process] = (resident, len(list(Path(f"/proc/{process}/fd").iterdir())))
        return by_process

    def grown(self, before: dict[int, tuple[int, int]]) -> list[str]:
        """Return the servers of `before` that have more descriptors, or `SERVER_GROWN_BYTES_MAX` more memory."""
        wrong = []
        for process, (resident, descriptors) in self.servers().items():
            previous = before.get(process, (resident, descriptors))
            if resident > previous[0] + SERVER_GROWN_BYTES_MAX or descriptors > previous[1]:
                wrong.append(
                    f"server {process} grew from {previous} to {(resident, descriptors)} bytes and descriptors"
                )
        return wrong

    def traces(self) -> set[str]:
        """Return what jobs may leave on the lab's hosts: processes, packet sockets without a process, shared memory."""
        expected = {host.pid for host in self.lab.hosts} | set(self._server_processes())
        remains = {
            f"process {number}, {executable}" for number, executable in self._processes() if number not in expected
        }
        for host in self.lab.hosts:
            sockets = Path(f"/proc/{host.pid}/net/packet").read_text().splitlines()[1:]
            remains |= {f"{host.name}: packet socket {socket.split()[-1]}" for socket in sockets}
            shared = Path(f"/proc/{host.pid}/root/dev/shm").iterdir()
            remains |= {f"{host.name}: /dev/shm/{file.name}" for file in shared}
        return remains

    def left_since(self, before: set[str], *, with_foreign: bool) -> list[str]:
        """Return what jobs have left since `before`; files of MPICH's shared memory only if `with_foreign`."""
        new = sorted(self.traces() - before)
        return [f"left behind: {item}" for item in new if with_foreign or "/dev/shm/mpich_shm_" not in item]

    def _processes(self) -> list[tuple[int, Path]]:
        networks = {Path(f"/proc/{host.pid}/ns/net").readlink() for host in self.lab.hosts}
        processes = []
        for process in Path("/proc").iterdir():
            if process.name.isdecimal():
                with suppress(OSError):
                    if (process / "ns/net").readlink() in networks:
                        processes.append((int(process.name), (process / "exe").readlink()))
        return sorted(processes)

    def _server_processes(self) -> list[int]:
        """Return the controller, the brokers, and their processes that entered the hosts."""
        socket = str(self.lab.directory / "broker-")
        brokers = []
        for number, _ in self._processes():
            with suppress(OSError):
                if socket in Path(f"/proc/{number}/cmdline").read_text():
                    brokers.append(number)
        return brokers + ([self.controller.pid] if self.controller is not None else [])

    def run(
        self,
        library: Library,
        program: str,
        arguments: Sequence[object],
        ranks: int,
        fault: Callable[[], None] | None,
        patience_s: float,
        options: Sequence[str] = (),
    ) -> JobResult:
        """Run a job to its end; `fault` is called when the job's first line reports that it is under way."""
        # Lower priority than the fault injection: a fault of one second must not last as long as the ranks are busy.
        command = [
            "nice",
            BAREWIRE,
            "run",
            "-n",
            str(ranks),
            "--lab",
            self.lab.id,
            "--library",
            library.name,
            *options,
            "--",
        ]
        if self.brokers:
            command += ["/bin/sh", "-c", BROKERED.format(folder=self.lab.directory)]
        started = time.monotonic()
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen([*command, program, *map(str, arguments)], text=True, **streams) as process:
            hung = threading.Event()

            def give_up() -> None:
                hung.set()
                # The launcher forwards it to all ranks.
                process.terminate()

            timer = threading.Timer(patience_s, give_up)
            timer.start()
            errors: list[str] = []
            assert process.stdout is not None and process.stderr is not None
            reader = threading.Thread(target=lambda: errors.append(process.stderr.read()))  # type: ignore[union-attr]
            reader.start()
            try:
                line = process.stdout.readline()
                if fault is not None and UNDER_WAY in line:
                    fault()
                output = line + process.stdout.read()
                process.wait()
                reader.join()
            finally:
                timer.cancel()
        seconds = time.monotonic() - started
        return JobResult(None if hung.is_set() else process.returncode, output, "".join(errors), seconds)


@contextmanager
def running_site(topology: str, folder: Path, link: LinkSpec | None = None, *, brokers: bool = False) -> Iterator[Site]:
    """Run a lab, with brokers if requested, and with a controller if it has Open vSwitch switches."""
    if topology == "switches":
        (folder / "switches.toml").write_text(SWITCHES)
        topology = str(folder / "switches.toml")
    with ExitStack() as stack:
        lab = stack.enter_context(Lab.up(topology, link, static_neighbours=True))
        site = Site(lab, folder)
        stack.callback(site.end)
        if brokers:
            for host in lab.hosts:
                site.start_broker(host.name)
        if lab.network is not None:
            site.start_controller()
        yield site


@contextmanager
def with_faulty_wire(site: Site, seed: int) -> Iterator[None]:
    """Route two hosts' frames through tools/faulty_wire.py instead of the switch."""
    wire = [sys.executable, str(ROOT / "tools" / "faulty_wire.py"), str(seed)]
    command = site.lab.switch_command([*wire, *(f"to-{host.name}" for host in site.lab.hosts)])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if "ready" not in process.stdout.readline():
                raise MachineCannot("the faulty wire does not start")
            yield
        finally:
            end_process(process, signal.SIGTERM)


def end_process(process: "subprocess.Popen[str]", by: signal.Signals) -> None:
    """Send a process of ours a signal and wait for its end; one that does not end is killed, and an error."""
    try:
        if process.poll() is None:
            process.send_signal(by)
        process.wait(20)
    finally:
        process.kill()
        if process.stdout is not None:
            process.stdout.close()


class NoTarget(Exception):
    """No process is left as a target."""


@dataclass(frozen=True)
class Faults:
    """Faults, each drawn from `source` and repaired after about `seconds`; a fault returns a description."""

    site: Site
    program: str
    source: random.Random
    seconds: float = 1.0
    # Duration of each fault, which on a busy machine is longer than intended.
    lasted_s: list[float] = field(default_factory=list)
    # Why no fault could be injected any more.
    failure: str | None = None

    def inject(self, names: Sequence[str], finished: threading.Event, injected: list[str]) -> None:
        """Draw faults from `names`, one after the other, from when the job's ranks exist until `finished`.

        Descriptions go to `injected`, an unexpected error to `failure`. At most one rank is killed.
        """
        try:
            self._inject(names, finished, injected)
        except Exception as error:
            self.failure = f"no fault could be injected: {error!r}"

    def _inject(self, names: Sequence[str], finished: threading.Event, injected: list[str]) -> None:
        while names and not finished.wait(0.1) and KILLED not in injected:
            if not self.site.ranks(self.program) or finished.wait(self.source.uniform(0.2, 2)):
                continue
            with suppress(NoTarget):
                injected.append(getattr(self, self.source.choice(names))())

    def interface(self) -> str:
        """Set one or both hosts' interfaces down."""
        hosts = self._sides()
        self._temporarily(hosts, self.site.lab.set_link)
        return f"interface of {'+'.join(hosts)} down"

    def carrier(self) -> str:
        """Set the switch's end of one or both hosts' links down."""
        hosts = self._sides()
        self._temporarily(hosts, self.site.lab.set_carrier)
        return f"carrier of {'+'.join(hosts)} lost"

    def broker(self) -> str:
        """Terminate or kill a host's broker, and restart it."""
        (host,), by = self._sides(1), self.source.choice([signal.SIGTERM, signal.SIGKILL])
        end_process(self.site.brokers[host], by)
        time.sleep(self.source.uniform(0, self.seconds))
        self.site.start_broker(host)
        return f"broker of {host}: {by.name}"

    def controller(self) -> str:
        """Terminate or kill the controller, and restart it."""
        by = self.source.choice([signal.SIGTERM, signal.SIGKILL])
        assert self.site.controller is not None
        end_process(self.site.controller, by)
        time.sleep(self.source.uniform(0, self.seconds))
        self.site.start_controller()
        return f"controller: {by.name}"

    def cable(self) -> str:
        """Disconnect a cable between two switches, and connect it again."""
        network = self.site.lab.network
        assert network is not None
        cables = sorted(
            (str(port), str(peer))
            for port, peer in network.peers.items()
            if {port.node, peer.node} <= set(network.switches) and str(port) < str(peer)
        )
        first, second = self.source.choice(cables)
        self._temporarily([second], lambda end, up: self.site.lab.set_cable(first, end, up))
        return f"cable {first} to {second} disconnected"

    def stopped(self) -> str:
        """Stop a rank, like a debugger."""
        return self._stop([self.source.choice(self._ranks())])

    def all_stopped(self) -> str:
        """Stop all ranks at once, like a paused machine."""
        return self._stop(self._ranks())

    def killed(self) -> str:
        """Kill a rank; the job cannot succeed."""
        with self._rank_handles([self.source.choice(self._ranks())]) as handles:
            signal.pidfd_send_signal(handles[0], signal.SIGKILL)
        return KILLED

    def _sides(self, count: int | None = None) -> list[str]:
        hosts = [host.name for host in self.site.lab.hosts]
        return sorted(self.source.sample(hosts, count or self.source.randint(1, len(hosts))))

    def _temporarily(self, hosts: Sequence[str], set_state: Callable[[str, bool], None]) -> None:
        started = time.monotonic()
        try:
            for host in hosts:
                set_state(host, False)
            time.sleep(self.seconds)
        finally:
            for host in hosts:
                set_state(host, True)
            self.lasted_s.append(time.monotonic() - started)

    def _ranks(self) -> list[int]:
        ranks = self.site.ranks(self.program)
        if not ranks:
            raise NoTarget
        return ranks

    def _stop(self, ranks: Sequence[int]) -> str:
        started = time.monotonic()
        with self._rank_handles(ranks) as handles:
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for rank in handles:
                    with suppress(ProcessLookupError):
                        signal.pidfd_send_signal(rank, number)
                if number == signal.SIGSTOP:
                    time.sleep(self.seconds)
        self.lasted_s.append(time.monotonic() - started)
        return f"{len(ranks)} stopped for {self.seconds:g} s"

    @contextmanager
    def _rank_handles(self, ranks: Sequence[int]) -> Iterator[list[int]]:
        """Yield handles of these ranks, checked after opening so that no process number has been reused."""
        with ExitStack() as stack:
            handles: list[int] = []
            try:
                for rank in ranks:
                    handles.append(os.pidfd_open(rank))
                    stack.callback(os.close, handles[-1])
            except ProcessLookupError as error:
                raise NoTarget from error
            if not set(ranks) <= set(self._ranks()):
                raise NoTarget
            yield handles
