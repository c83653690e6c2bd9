# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What `make survive` and `make soak` share: jobs in a lab, and what breaks and is mended under them."""

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

from promises import BAREWIRE, ROOT

from barewire.errors import MachineCannot
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
# A rank finds the broker of its own host by the host's name.
BROKERED = 'export FI_BAREWIRE_BROKER="{folder}/broker-$(hostname)"; exec "$0" "$@"'
UNDER_WAY = "under way"
KILLED = "rank killed"
# Two hosts at switches of their own, with two paths between these.
SWITCHES = """
switches = ["s1", "s2", "s3"]
hosts = ["h1", "h2"]
links = [{ends=["h1", "s1"]}, {ends=["h2", "s2"]}, {ends=["s1", "s2"]}, {ends=["s1", "s3"]}, {ends=["s3", "s2"]}]
"""


def libraries_over_barewire(names: str) -> list[Library]:
    """The installed libraries that the provider can carry; those of the comma-separated `names` if there are any."""
    found = [one for one in installed_libraries() if one.name != "mpich"]
    chosen = [one for one in found if not names or one.name in names.split(",")]
    if not chosen:
        raise MachineCannot(f"none of {names or 'the libraries'} is installed; found: {[one.name for one in found]}")
    return chosen


def built(library: Library, source: str, folder: Path) -> str:
    """Build a program of tests/mpi with a library's own compiler, once in a folder."""
    program = folder / f"{source}-{library.name}"
    if not program.exists():
        command = [library.program("mpicc"), "-O2", str(ROOT / "tests/mpi" / f"{source}.c"), "-o", str(program)]
        environment = dict(os.environ) | {"I_MPI_ROOT": str(library.prefix)}
        subprocess.run([*command, "-lpthread"], check=True, env=environment)
    return str(program)


@dataclass
class Ended:
    """How a job ended: its exit code (None: it was ended because it hung), and what it said."""

    code: int | None
    output: str
    errors: str
    seconds: float


@dataclass
class Site:
    """A lab in which jobs run, its brokers by host and its controller, if it has these."""

    lab: Lab
    folder: Path
    brokers: "dict[str, subprocess.Popen[str]]" = field(default_factory=dict)
    controller: "subprocess.Popen[str] | None" = None

    def start_broker(self, host: str) -> None:
        """Start a host's broker, at the socket that it always has."""
        files = {name: self.lab.directory / f"{name}-{host}" for name in ("broker", "policy", "audit")}
        files["policy"].write_text(POLICY)
        options = ["--socket", files["broker"], "--policy", files["policy"], "--audit", files["audit"]]
        broker = self.lab.popen(host, [BROKER, "serve", *map(str, options)], stdout=subprocess.PIPE, text=True)
        self.brokers[host] = broker
        assert broker.stdout is not None
        if "ready" not in broker.stdout.readline():
            raise MachineCannot(f"the broker of {host} does not start")

    def start_controller(self) -> None:
        """Start the controller and wait until it knows all switches."""
        api, token, log = f"unix:{self.folder}/api-{self.lab.id}", self.folder / "token", self.folder / "controller"
        command = [BAREWIRE, "sdn", "start", "--lab", self.lab.id, "--api", api, "--token", str(token)]
        with log.open("a") as said:
            self.controller = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, text=True)
        assert self.lab.network is not None
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with suppress(Exception):
                if Client(api, token).get("status")["connected"] == len(self.lab.network.switches):
                    return
            time.sleep(0.1)
        raise MachineCannot(f"the controller does not reach all switches: {log.read_text()[-1000:]}")

    def end(self) -> None:
        """End brokers and controller."""
        for process in [*self.brokers.values(), *([self.controller] if self.controller else [])]:
            end_process(process, signal.SIGTERM)

    def ranks(self, program: str) -> list[int]:
        """The processes of the lab's hosts that execute `program`."""
        return [number for number, executable in self._processes() if executable == Path(program).resolve()]

    def servers(self) -> dict[int, tuple[int, int]]:
        """Brokers and controller by process, each with its resident bytes and its descriptors."""
        found = {}
        for process in self._own():
            with suppress(OSError):
                kilobytes = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
                resident = int(kilobytes[1]) * 1024 if kilobytes else 0
                found[process] = (resident, len(list(Path(f"/proc/{process}/fd").iterdir())))
        return found

    def grown(self, before: dict[int, tuple[int, int]], bytes_max: int) -> list[str]:
        """Which of the servers of `before` have more descriptors, or that many more bytes, now that no job runs."""
        wrong = []
        for process, (resident, descriptors) in self.servers().items():
            was = before.get(process, (resident, descriptors))
            if resident > was[0] + bytes_max or descriptors > was[1]:
                wrong.append(f"server {process} grew from {was} to {(resident, descriptors)} bytes and descriptors")
        return wrong

    def traces(self) -> set[str]:
        """What the lab's hosts have that jobs may leave: processes, packet sockets without a process, shared memory."""
        own = {host.pid for host in self.lab.hosts} | set(self._own())
        found = {f"process {number}, {executable}" for number, executable in self._processes() if number not in own}
        for host in self.lab.hosts:
            sockets = Path(f"/proc/{host.pid}/net/packet").read_text().splitlines()[1:]
            found |= {f"{host.name}: packet socket {socket.split()[-1]}" for socket in sockets}
            shared = Path(f"/proc/{host.pid}/root/dev/shm").iterdir()
            found |= {f"{host.name}: /dev/shm/{file.name}" for file in shared}
        return found

    def left_since(self, before: set[str], *, with_foreign: bool) -> list[str]:
        """What jobs have left since `traces` said `before`; MPICH's own files of jobs that failed only if asked."""
        left = sorted(self.traces() - before)
        return [f"left behind: {one}" for one in left if with_foreign or "/dev/shm/mpich_shm_" not in one]

    def _processes(self) -> list[tuple[int, Path]]:
        networks = {Path(f"/proc/{host.pid}/ns/net").readlink() for host in self.lab.hosts}
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdecimal():
                with suppress(OSError):
                    if (process / "ns/net").readlink() in networks:
                        found.append((int(process.name), (process / "exe").readlink()))
        return sorted(found)

    def _own(self) -> list[int]:
        """The controller, and the brokers with what entered their hosts for them."""
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
    ) -> Ended:
        """Run a job to its end; `fault` is called once the job's first line says that it is under way."""
        # Behind who breaks and mends: what is meant to last a second shall not last as long as the ranks are busy.
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
        began = time.monotonic()
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen([*command, program, *map(str, arguments)], text=True, **streams) as process:
            hung = threading.Event()

            def give_up() -> None:
                hung.set()
                # The launcher passes it on to all ranks.
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
        seconds = time.monotonic() - began
        return Ended(None if hung.is_set() else process.returncode, output, "".join(errors), seconds)


@contextmanager
def standing(topology: str, folder: Path, link: LinkSpec | None = None, *, brokers: bool = False) -> Iterator[Site]:
    """A lab with brokers where asked, and with a controller where it has switches of Open vSwitch."""
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
    """Two hosts' frames go through tools/faulty_wire.py instead of the switch."""
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
    """Send a process of ours a signal and wait for its end."""
    if process.poll() is None:
        process.send_signal(by)
    process.wait(20)
    if process.stdout is not None:
        process.stdout.close()


class JobOver(Exception):
    """There is nobody left to hit."""


@dataclass(frozen=True)
class Faults:
    """What can break, each drawn from `source` and mended after about `seconds`; a fault returns what it did."""

    site: Site
    program: str
    source: random.Random
    seconds: float = 1.0
    # How long each fault lasted, which on a busy machine is longer than was meant.
    lasted_s: list[float] = field(default_factory=list)

    def strike(self, names: Sequence[str], over: threading.Event, did: list[str]) -> None:
        """Draw faults from `names`, one after the other, from when the job's ranks are there until `over`.

        What was done goes to `did`. A rank is killed once.
        """
        while names and not over.wait(0.1) and KILLED not in did:
            if not self.site.ranks(self.program) or over.wait(self.source.uniform(0.2, 2)):
                continue
            with suppress(JobOver):
                did.append(getattr(self, self.source.choice(names))())

    def interface(self) -> str:
        """One host's interface down, or both."""
        hosts = self._sides()
        self._for_a_while(hosts, self.site.lab.set_link)
        return f"interface of {'+'.join(hosts)} down"

    def carrier(self) -> str:
        """The switch's end of a host's link down, or of both."""
        hosts = self._sides()
        self._for_a_while(hosts, self.site.lab.set_carrier)
        return f"carrier of {'+'.join(hosts)} lost"

    def broker(self) -> str:
        """A host's broker ended or killed, and started again."""
        (host,), by = self._sides(1), self.source.choice([signal.SIGTERM, signal.SIGKILL])
        end_process(self.site.brokers[host], by)
        time.sleep(self.source.uniform(0, self.seconds))
        self.site.start_broker(host)
        return f"broker of {host}: {by.name}"

    def controller(self) -> str:
        """The controller ended or killed, and started again."""
        by = self.source.choice([signal.SIGTERM, signal.SIGKILL])
        assert self.site.controller is not None
        end_process(self.site.controller, by)
        time.sleep(self.source.uniform(0, self.seconds))
        self.site.start_controller()
        return f"controller: {by.name}"

    def cable(self) -> str:
        """A cable between two switches pulled, and plugged in again."""
        network = self.site.lab.network
        assert network is not None
        cables = sorted(
            (str(port), str(peer))
            for port, peer in network.peers.items()
            if {port.node, peer.node} <= set(network.switches) and str(port) < str(peer)
        )
        one, other = self.source.choice(cables)
        self._for_a_while([other], lambda end, up: self.site.lab.set_cable(one, end, up))
        return f"cable {one} to {other} pulled"

    def stopped(self) -> str:
        """A rank stopped, as by a debugger."""
        return self._stop([self.source.choice(self._ranks())])

    def all_stopped(self) -> str:
        """All ranks stopped at once, as by a paused machine."""
        return self._stop(self._ranks())

    def killed(self) -> str:
        """A rank killed; the job cannot end right."""
        with self._held([self.source.choice(self._ranks())]) as held:
            signal.pidfd_send_signal(held[0], signal.SIGKILL)
        return KILLED

    def _sides(self, count: int | None = None) -> list[str]:
        hosts = [host.name for host in self.site.lab.hosts]
        return sorted(self.source.sample(hosts, count or self.source.randint(1, len(hosts))))

    def _for_a_while(self, hosts: Sequence[str], set_state: Callable[[str, bool], None]) -> None:
        began = time.monotonic()
        try:
            for host in hosts:
                set_state(host, False)
            time.sleep(self.seconds)
        finally:
            for host in hosts:
                set_state(host, True)
            self.lasted_s.append(time.monotonic() - began)

    def _ranks(self) -> list[int]:
        found = self.site.ranks(self.program)
        if not found:
            raise JobOver
        return found

    def _stop(self, ranks: Sequence[int]) -> str:
        began = time.monotonic()
        with self._held(ranks) as held:
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for rank in held:
                    with suppress(ProcessLookupError):
                        signal.pidfd_send_signal(rank, number)
                if number == signal.SIGSTOP:
                    time.sleep(self.seconds)
        self.lasted_s.append(time.monotonic() - began)
        return f"{len(ranks)} stopped for {self.seconds:g} s"

    @contextmanager
    def _held(self, ranks: Sequence[int]) -> Iterator[list[int]]:
        """Handles of these processes, which are ranks still: none has ended and given its number to another."""
        with ExitStack() as stack:
            held: list[int] = []
            try:
                for rank in ranks:
                    held.append(os.pidfd_open(rank))
                    stack.callback(os.close, held[-1])
            except ProcessLookupError as error:
                raise JobOver from error
            if not set(ranks) <= set(self._ranks()):
                raise JobOver
            yield held
