# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A lab as its user sees it: made, listed, entered, ended."""

import builtins
import contextlib
import json
import os
import secrets
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from barewire.errors import MachineCannot, MeasurementFailed, WrongUse
from barewire.interrupts import interrupts_held
from barewire.lab import agent, enter, openvswitch, state
from barewire.lab.birth import Birth, environment, needs_user_namespace, start
from barewire.lab.kernel import Process
from barewire.lab.layout import is_oversubscribed, make_plan
from barewire.lab.plan import HOST_INTERFACE, MANAGEMENT_INTERFACE, End, Plan, Switched, plan_from_json
from barewire.lab.spec import LinkSpec, Topology, parse_topology, topology_of
from barewire.lab.state import Host, LabState
from barewire.lab.switched import interfaces_of_link, switched_plan
from barewire.topology import Network

# Ending takes some 50 ms; a process that cannot be killed (stuck in a driver) shall not hang its killer for ever.
_KILL_TIMEOUT_S = 10.0


class Lab:
    """An emulated cluster. As a context manager it ends with the block; otherwise call `down`.

    A lab that is not persistent also ends with the process that made it, however that ends.
    """

    def __init__(self, known: LabState, birth: Birth | None = None, plan: Plan | None = None) -> None:
        """Wrap a lab that exists; make one with `Lab.up`, find one with `Lab.open`."""
        self._state = known
        self._birth = birth
        self._known_plan = plan

    @classmethod
    def up(
        cls,
        topology: str | Topology | Network,
        link: LinkSpec | None = None,
        *,
        persistent: bool = False,
        standalone: bool = False,
        static_neighbours: bool = False,
    ) -> "Lab":
        """Make a lab. It stands whole when this returns, or nothing of it is left when this raises.

        The last two are for networks of switches. These forward nothing before a controller listens on
        `controller_socket`; or they learn by themselves (`standalone`), which needs a network without loops. Hosts
        ask for each other's MAC addresses, or know them from the start (`static_neighbours`), as in other labs.
        """
        shape = _shape(topology)
        lab_id = secrets.token_hex(4)
        plan = _plan(lab_id, shape, link or LinkSpec(), standalone, static_neighbours)
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
        lab = cls(known, Birth(), plan)
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

    @property
    def network(self) -> Network | None:
        """The network of switches, with the rates of its links; None if the lab has no such."""
        switched = self._plan.switched
        return None if switched is None else switched.network

    @property
    def controller_socket(self) -> Path:
        """Where the switches look for a controller: a Unix socket that it must listen on."""
        self._switched()
        return openvswitch.controller_socket(self.directory)

    @property
    def management_interface(self) -> str | None:
        """The hosts' interface to the management network; None if there is none."""
        return None if self.network is None else MANAGEMENT_INTERFACE

    @property
    def servers(self) -> "dict[str, Process]":
        """Open vSwitch's processes, such as `ovs-vswitchd s1`; none in a lab without its switches."""
        return dict(self._state.servers)

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
        return self._entered(Process(host.pid, host.start_ticks), host.cpus, command)

    def switch_command(self, command: Sequence[str]) -> "builtins.list[str]":
        """Return the command line that runs `command` where the lab's bridges are, on any core.

        On the management network that is the address 10.78.0.254, and the name mgmt.
        """
        keeper = self._state.keeper
        if keeper is None:
            raise MeasurementFailed(f"lab {self.id} does not stand")
        return self._entered(keeper, sorted(os.sched_getaffinity(0)), command)

    def remote_shell(self) -> tuple[str, dict[str, str]]:
        """Return a program that stands for ssh inside the lab, for launchers, and the environment that it needs."""
        hosts = {host.name: [host.inner_pid, list(host.cpus)] for host in self._state.hosts}
        return str(self._remote_shell_file()), {agent.VARIABLE: json.dumps(hosts, separators=(",", ":"))}

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
        host, command = self.host(host_name), [*program, host_name, "up" if up else "down"]
        # On any core: the host's own may be busy with what shall lose the link now.
        entered = self._entered(Process(host.pid, host.start_ticks), sorted(os.sched_getaffinity(0)), command)
        done = subprocess.run(entered, env=environment(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise MeasurementFailed(f"cannot set {host_name}'s link: {shlex.join(command)}: {done.stderr.strip()}")

    def set_carrier(self, host_name: str, up: bool) -> None:
        """Take the switch's end of a host's link down, or up: the host's interface stays up and loses its carrier.

        WrongUse where the other end is a host's, too: a pair without a rate.
        """
        mine = self.host(host_name).interface
        for wire in self._plan.wires:
            ends = {(end.node, end.interface) == (host_name, mine): end for end in wire}
            if True in ends and ends[False].node is None:
                self._set_interfaces([ends[False]], up)
                return
        raise WrongUse(f"the link of {host_name} has no port of a switch: take star:2")

    def set_cable(self, one: str, other: str, up: bool) -> None:
        """Pull a link of a network of switches at both of its ends, or plug it in again.

        Each end is a node, s5, or where links are parallel one of its ports, s5:3. Ports see that they have no carrier.
        """
        self._switched()
        self._set_interfaces(interfaces_of_link(self._plan, one, other), up)

    def set_switch(self, name: str, up: bool) -> None:
        """Switch one switch of the network off, and on again as it was at first, without flows.

        One that is off takes the carrier from all of its links, too.
        """
        network = self._switched().network
        if name not in network.switches:
            raise WrongUse(f"the network has no switch {name}; there are: {', '.join(network.switches)}")
        self._fault(None, "switch", "up" if up else "down", name)
        links = [interfaces_of_link(self._plan, str(port), str(network.peers[port])) for port in network.ports[name]]
        self._set_interfaces([end for link in links for end in link], up)

    def down(self) -> None:
        """End the lab and forget it; ending one that is gone just forgets it."""
        with interrupts_held():
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

    def _remote_shell_file(self) -> Path:
        """The agent as one program, for launchers take a path alone, started by this very Python without its packages.

        `env python3` would search the PATH, and version managers put scripts there which take longer than the agent.
        """
        if os.statvfs(self.directory).f_flag & os.ST_NOEXEC:
            return Path(agent.__file__)
        file = self.directory / "agent"
        if not file.exists():
            mine = file.with_name(f"agent.{os.getpid()}")
            mine.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-I", "-S", agent.__file__])} "$@"\n')
            mine.chmod(0o700)
            mine.replace(file)
        return file

    @property
    def _plan(self) -> Plan:
        if self._known_plan is None:
            try:
                self._known_plan = plan_from_json(json.loads((self.directory / "plan.json").read_text()))
            except FileNotFoundError as error:
                raise MeasurementFailed(f"lab {self.id} does not stand, or is gone: {error}") from error
        return self._known_plan

    def _switched(self) -> Switched:
        switched = self._plan.switched
        if switched is None:
            raise WrongUse(f"lab {self.id} ({self.topology}) has no switches of Open vSwitch; fat-tree:4 has")
        return switched

    def _entered(self, process: Process, cpus: Sequence[int], command: Sequence[str]) -> "builtins.list[str]":
        if self.status != "running":
            raise MeasurementFailed(f"lab {self.id} is gone; `barewire lab down {self.id}` clears what is left of it")
        program = [sys.executable, "-I", "-S", enter.__file__, str(process.pid), str(process.start_ticks)]
        user = str(int(self._state.user_namespace))
        names = f"{state.NAMES_VARIABLE}={state.names_file(self.directory)}"
        return [*program, user, ",".join(map(str, cpus)), names, "--", *map(str, command)]

    def _set_interfaces(self, ends: Sequence[End], up: bool) -> None:
        for node in sorted({end.node or "" for end in ends}):
            names = [end.interface for end in ends if (end.node or "") == node]
            self._fault(node or None, "interfaces", "up" if up else "down", *names)

    def _fault(self, switch: str | None, *what: str) -> None:
        """Break or mend something in a switch's namespace, or where the bridges are."""
        command = [sys.executable, "-m", "barewire.lab.fault", str(self.directory), *what]
        if switch is None:
            command = self.switch_command(command)
        else:
            server = self._state.servers[f"{openvswitch.FORWARDER} {switch}"]
            command = self._entered(server, sorted(os.sched_getaffinity(0)), command)
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            kind = WrongUse if done.returncode == WrongUse.exit_code else MeasurementFailed
            raise kind(f"lab {self.id}: {done.stderr.strip()}")

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
                    management=host.management,
                )
                for host in plan.hosts
            ),
            notes=tuple(birth.notes),
            servers={name: Process.of(pid) for name, pid in birth.server_pids.items()},
        )
        state.save(self._state)
        if self.persistent:
            birth.release()


def _shape(topology: str | Topology | Network) -> Topology:
    if isinstance(topology, str):
        return parse_topology(topology)
    return topology_of(topology) if isinstance(topology, Network) else topology


def _plan(lab_id: str, shape: Topology, link: LinkSpec, standalone: bool, neighbours: bool) -> Plan:
    cpus = os.sched_getaffinity(0)
    if shape.network is None:
        return make_plan(lab_id, shape, link, cpus)
    openvswitch.require()
    return switched_plan(lab_id, shape.network, link, cpus, standalone=standalone, neighbours=neighbours)


def _end_unshare(process: "subprocess.Popen[bytes]", at_once: bool) -> None:
    """Reap unshare(1), which ends once it has reaped the keeper; killing it kills a keeper still without a name."""
    if not at_once:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_TIMEOUT_S)
            return
    process.kill()
    process.wait()
