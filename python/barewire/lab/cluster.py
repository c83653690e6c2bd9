# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A lab as its user sees it: made, listed, entered, ended."""

import builtins
import contextlib
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from barewire.errors import MachineCannot, MeasurementFailed, WrongUse
from barewire.lab import agent, enter, state
from barewire.lab.birth import Birth, environment, needs_user_namespace, start
from barewire.lab.kernel import Process
from barewire.lab.plan import HOST_INTERFACE, Plan, is_oversubscribed, make_plan
from barewire.lab.spec import LinkSpec, Topology, parse_topology
from barewire.lab.state import Host, LabState

# Ending takes some 50 ms; a process that cannot be killed (stuck in a driver) shall not hang its killer for ever.
_KILL_TIMEOUT_S = 10.0


class Lab:
    """An emulated cluster. As a context manager it ends with the block; otherwise call `down`.

    A lab that is not persistent also ends with the process that made it, however that ends.
    """

    def __init__(self, known: LabState, birth: Birth | None = None) -> None:
        """Wrap a lab that exists; make one with `Lab.up`, find one with `Lab.open`."""
        self._state = known
        self._birth = birth

    @classmethod
    def up(cls, topology: str | Topology, link: LinkSpec | None = None, *, persistent: bool = False) -> "Lab":
        """Make a lab. It stands whole when this returns, or nothing of it is left when this raises."""
        shape = parse_topology(topology) if isinstance(topology, str) else topology
        lab_id = secrets.token_hex(4)
        plan = make_plan(lab_id, shape, link or LinkSpec(), os.sched_getaffinity(0))
        known = LabState(
            id=lab_id,
            topology=str(shape),
            link=plan.link,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            persistent=persistent,
            user_namespace=needs_user_namespace(),
            creator=Process.of(os.getpid()),
            keeper=None,
            hosts=(),
            notes=(),
        )
        lab = cls(known, Birth())
        try:
            lab._stand_up(plan)
        except BaseException:
            lab.down()
            raise
        return lab

    @classmethod
    def open(cls, lab_id: str) -> "Lab":
        """Find a lab by its id, running or gone; WrongUse if there is none."""
        return cls(state.load(lab_id))

    @classmethod
    def list(cls) -> "builtins.list[Lab]":
        """Return this user's labs, oldest first, those that are gone included."""
        labs = []
        for lab_id in state.known_ids():
            with contextlib.suppress(FileNotFoundError, WrongUse):  # ended by somebody meanwhile, or of another version
                labs.append(cls.open(lab_id))
        return sorted(labs, key=lambda lab: lab.created)

    def __enter__(self) -> "Lab":
        """Return the lab itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the lab."""
        self.down()

    @property
    def id(self) -> str:
        """The name of this lab among this user's labs."""
        return self._state.id

    @property
    def topology(self) -> str:
        """The topology as `parse_topology` reads it."""
        return self._state.topology

    @property
    def link(self) -> LinkSpec:
        """What each link of the lab is."""
        return self._state.link

    @property
    def hosts(self) -> "builtins.list[Host]":
        """The hosts, h1 first."""
        return builtins.list(self._state.hosts)

    @property
    def created(self) -> str:
        """When the lab was made, ISO 8601 in UTC."""
        return self._state.created

    @property
    def persistent(self) -> bool:
        """Whether the lab outlives the process that made it."""
        return self._state.persistent

    @property
    def status(self) -> str:
        """`running`, `being made` or `gone`."""
        return self._state.status

    @property
    def notes(self) -> "builtins.list[str]":
        """What this machine did not allow and the lab does without."""
        return builtins.list(self._state.notes)

    @property
    def oversubscribed(self) -> bool:
        """Whether hosts share a core: then times depend on the scheduler."""
        return is_oversubscribed(host.cpus for host in self._state.hosts)

    @property
    def directory(self) -> Path:
        """The lab's scratch directory, reachable from inside all hosts, removed with the lab."""
        return state.scratch_directory(self.id)

    def host(self, name: str) -> Host:
        """Return the host of that name; WrongUse if there is none."""
        for host in self._state.hosts:
            if host.name == name:
                return host
        known = ", ".join(host.name for host in self._state.hosts) or "none"
        raise WrongUse(f"lab {self.id} has no host '{name}'; there are: {known}")

    def command(self, host_name: str, command: Sequence[str]) -> "builtins.list[str]":
        """Return the command line that runs `command` inside a host, on its cores, where the lab's names hold."""
        host = self.host(host_name)
        if not command:
            raise WrongUse(f"no command given to run on {host_name}")
        if self.status != "running":
            raise MeasurementFailed(f"lab {self.id} is gone; `barewire lab down {self.id}` clears what is left of it")
        program = [sys.executable, "-I", "-S", enter.__file__]
        cpus = ",".join(map(str, host.cpus))
        user = str(int(self._state.user_namespace))
        names = f"{state.NAMES_VARIABLE}={state.names_file(self.directory)}"
        return [*program, str(host.pid), str(host.start_ticks), user, cpus, names, "--", *map(str, command)]

    def remote_shell(self) -> tuple[str, dict[str, str]]:
        """Return a program that stands for ssh inside the lab, for launchers, and the environment that it needs."""
        hosts = {host.name: [host.inner_pid, list(host.cpus)] for host in self._state.hosts}
        return agent.__file__, {agent.VARIABLE: json.dumps(hosts, separators=(",", ":"))}

    def popen(self, host_name: str, command: Sequence[str], **popen_arguments: Any) -> "subprocess.Popen[Any]":
        """Start a command inside a host, on its cores.

        The handle stands for the command: its return code is the command's, signals are passed on, and killing the
        handle kills the command. 125 means that the host is gone, 126 and 127 that the command cannot be executed.
        """
        return subprocess.Popen(self.command(host_name, command), **popen_arguments)

    def run(self, host_name: str, command: Sequence[str], **run_arguments: Any) -> "subprocess.CompletedProcess[Any]":
        """Run a command inside a host to its end; arguments as for subprocess.run."""
        return subprocess.run(self.command(host_name, command), **run_arguments)

    def set_link(self, host_name: str, up: bool) -> None:
        """Take a host's link down, or up again."""
        program = [sys.executable, "-m", "barewire.lab.hostlink", str(self.directory / "plan.json")]
        command = [*program, host_name, "up" if up else "down"]
        done = self.run(host_name, command, env=environment(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise MeasurementFailed(f"cannot set {host_name}'s link: {shlex.join(command)}: {done.stderr.strip()}")

    def down(self) -> None:
        """End the lab and forget it; ending one that is gone just forgets it."""
        with _signals_held():
            if self._birth is None and self.status == "being made":
                raise WrongUse(f"lab {self.id} is being made by process {self._state.creator.pid}; end that")
            birth = self._birth or Birth()
            birth.cut()
            keeper = self._state.keeper
            ended = keeper is None or keeper.kill(_KILL_TIMEOUT_S)
            if birth.unshare is not None:
                _end_unshare(birth.unshare, at_once=keeper is None or not ended)
            if not ended:
                raise MachineCannot(f"process {keeper} of lab {self.id} cannot be killed; it may be stuck in a driver")
            state.forget(self.id)

    def _stand_up(self, plan: Plan) -> None:
        assert self._birth is not None
        birth = self._birth
        state.save(self._state)
        self.directory.mkdir(mode=0o700)
        start(birth, plan, self.directory, self._state.user_namespace)
        self._state = replace(
            self._state,
            keeper=Process.of(birth.keeper_pid),
            hosts=tuple(
                Host(
                    name=host.name,
                    address=host.address,
                    mac=host.mac,
                    interface=HOST_INTERFACE,
                    cpus=host.cpus,
                    pid=birth.host_pids[host.name],
                    start_ticks=Process.of(birth.host_pids[host.name]).start_ticks,
                    inner_pid=birth.inner_pids[host.name],
                )
                for host in plan.hosts
            ),
            notes=tuple(birth.notes),
        )
        state.save(self._state)
        if self.persistent:
            birth.release()


def _end_unshare(process: "subprocess.Popen[bytes]", at_once: bool) -> None:
    """Reap unshare(1), which ends once it has reaped the keeper; killing it kills a keeper still without a name."""
    if not at_once:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_TIMEOUT_S)
            return
    process.kill()
    process.wait()


@contextmanager
def _signals_held() -> Iterator[None]:
    """Let an interrupt that arrives while cleaning up wait until that is done."""
    held = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
