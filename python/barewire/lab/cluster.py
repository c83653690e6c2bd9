# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The user's interface to labs: creates, lists, enters and ends them."""

import builtins
import contextlib
import json
import os
import secrets
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from barewire.errors import BarewireError, MachineCannot, MeasurementFailed, WrongUse, unknown
from barewire.interrupts import interrupts_held
from barewire.lab import agent, enter, openvswitch, state
from barewire.lab.inside import call_inside
from barewire.lab.kernel import Process
from barewire.lab.layout import is_oversubscribed, make_plan
from barewire.lab.plan import HOST_INTERFACE, MANAGEMENT_INTERFACE, End, Plan, Switched, plan_from_json
from barewire.lab.spec import LinkSpec, Topology, parse_topology, topology_of
from barewire.lab.startup import LabHandles, needs_user_namespace, start
from barewire.lab.state import Host, LabState
from barewire.lab.switched import interfaces_of_link, switched_plan
from barewire.processes import wait
from barewire.topology import Network

# Ending takes some 50 ms; the limit is for a process that cannot be killed (stuck in a driver).
_KILL_TIMEOUT_S = 10.0


class Lab:
    """An emulated cluster. As a context manager it ends with the block; otherwise call `down`.

    A lab that is not persistent also ends with its creator, however that ends.
    """

    def __init__(self, initial_state: LabState, handles: LabHandles | None = None, plan: Plan | None = None) -> None:
        """Wrap an existing lab; `Lab.up` creates one, `Lab.open` finds one."""
        self._state = initial_state
        self._handles = handles
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
        """Create a lab. It is complete on return; on an exception nothing of it remains.

        The last two options are for networks of switches, which forward nothing until a controller listens on
        `controller_socket`. With `standalone` they learn addresses themselves, which needs a network without loops.
        Hosts resolve MAC addresses with ARP, or have static entries (`static_neighbours`), as in other labs.
        """
        shape = _shape(topology)
        lab_id = secrets.token_hex(4)
        plan = _plan(lab_id, shape, link or LinkSpec(), standalone, static_neighbours)
        initial_state = LabState(
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
        lab = cls(initial_state, LabHandles(), plan)
        try:
            lab._start(plan)
        except BaseException:
            lab.down()
            raise
        return lab

    @classmethod
    def open(cls, lab_id: str) -> "Lab":
        """Return a lab by its id, running or gone; WrongUse if there is none."""
        return cls(state.load(lab_id))

    @classmethod
    def list(cls) -> "builtins.list[Lab]":
        """Return this user's labs, oldest first, including those that are gone."""
        labs = []
        for lab_id in state.known_ids():
            with contextlib.suppress(FileNotFoundError, WrongUse):  # ended in the meantime, or of another version
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
        """Id, unique among this user's labs."""
        return self._state.id

    def to_json(self) -> dict[str, Any]:
        """Return the lab's record as plain JSON, also of a lab that has been removed since it was opened."""
        return self._state.to_json()

    @property
    def topology(self) -> str:
        """The topology as `parse_topology` reads it."""
        return self._state.topology

    @property
    def link(self) -> LinkSpec:
        """The specification of each link."""
        return self._state.link

    @property
    def hosts(self) -> "builtins.list[Host]":
        """The hosts, h1 first."""
        return builtins.list(self._state.hosts)

    @property
    def created(self) -> str:
        """Time of creation, ISO 8601 in UTC."""
        return self._state.created

    @property
    def persistent(self) -> bool:
        """Whether the lab outlives its creator."""
        return self._state.persistent

    @property
    def status(self) -> str:
        """`running`, `being made` or `gone`."""
        return self._state.status

    @property
    def notes(self) -> "builtins.list[str]":
        """Restrictions of this machine that the lab works around."""
        return builtins.list(self._state.notes)

    @property
    def wire(self) -> str | None:
        """What makes a frame take its time: `clock`, `netem`, or `tbf`, which limits the rate only; None unshaped."""
        return self._state.wire

    @property
    def oversubscribed(self) -> bool:
        """Whether hosts share a core, so that times depend on the scheduler."""
        return is_oversubscribed(host.cpus for host in self._state.hosts)

    @property
    def directory(self) -> Path:
        """The lab's scratch directory, accessible on all hosts, removed with the lab."""
        return state.scratch_directory(self.id)

    @property
    def network(self) -> Network | None:
        """The network of switches with the rates of its links; None for other labs."""
        switched = self._plan.switched
        return None if switched is None else switched.network

    @property
    def controller_socket(self) -> Path:
        """The Unix socket that the switches' controller must listen on."""
        self._switched()
        return openvswitch.controller_socket(self.directory)

    @property
    def standby_socket(self) -> Path:
        """The Unix socket of a second controller, which the switches know after `reconnect_switches` for it."""
        self._switched()
        return openvswitch.standby_socket(self.directory)

    def reconnect_switches(self, socket: Path | None = None) -> None:
        """Make the switches connect to a controller that has just begun to listen; they would wait for up to 8 s.

        `socket` is `controller_socket`, the default, or `standby_socket`.
        """
        path = socket or self.controller_socket
        openvswitch.reconnect(self.directory, self._switched().network.switches, path)

    @property
    def management_interface(self) -> str | None:
        """The hosts' interface to the management network; None without one."""
        return None if self.network is None else MANAGEMENT_INTERFACE

    @property
    def servers(self) -> "dict[str, Process]":
        """Open vSwitch's processes, such as `ovs-vswitchd s1`; none in labs without its switches."""
        return dict(self._state.servers)

    def host(self, name: str) -> Host:
        """Return the host of that name; WrongUse if there is none."""
        for host in self._state.hosts:
            if host.name == name:
                return host
        raise unknown(f"host of lab {self.id}", name, [host.name for host in self._state.hosts])

    def command(self, host_name: str, command: Sequence[str]) -> "builtins.list[str]":
        """Return the command line that runs `command` on a host, on its cores, where the lab's names resolve."""
        self._require_running()
        host = self.host(host_name)
        if not command:
            raise WrongUse(f"no command given to run on {host_name}")
        return self._enter_command(Process(host.pid, host.start_ticks), host.cpus, command)

    def switch_command(self, command: Sequence[str]) -> "builtins.list[str]":
        """Return the command line that runs `command` in the namespace of the lab's bridges, on any core.

        Its address on the management network is 10.78.0.254, its name mgmt.
        """
        return self._enter_command(self._keeper, sorted(os.sched_getaffinity(0)), command)

    def far_end(self, host_name: str) -> End:
        """Return the other end of a host's link: every frame that the host sends arrives there, once."""
        near = (host_name, self.host(host_name).interface)
        return next(
            far for wire in self._plan.wires for end, far in (wire, wire[::-1]) if (end.node, end.interface) == near
        )

    def command_at(self, end: End, command: Sequence[str]) -> "builtins.list[str]":
        """Return the command line that runs `command` in the namespace of an interface, on any core."""
        if end.node is None:
            return self.switch_command(command)
        if any(host.name == end.node for host in self._state.hosts):
            host = self.host(end.node)
            process = Process(host.pid, host.start_ticks)
        else:
            process = self._state.servers[f"{openvswitch.FORWARDER} {end.node}"]
        return self._enter_command(process, sorted(os.sched_getaffinity(0)), command)

    def remote_shell(self) -> tuple[str, dict[str, str]]:
        """Return a program that replaces ssh inside the lab, for launchers, and its environment."""
        hosts = {host.name: [host.inner_pid, list(host.cpus)] for host in self._state.hosts}
        return str(self._remote_shell_file()), {agent.VARIABLE: json.dumps(hosts, separators=(",", ":"))}

    def popen(self, host_name: str, command: Sequence[str], **popen_arguments: Any) -> "subprocess.Popen[Any]":
        """Start a command on a host, on its cores.

        The handle represents the command: it has the command's return code and forwards signals, and killing it kills
        the command. 125 means that the host is gone, 126 and 127 that the command cannot be executed.
        """
        return subprocess.Popen(self.command(host_name, command), **popen_arguments)

    def run(self, host_name: str, command: Sequence[str], **run_arguments: Any) -> "subprocess.CompletedProcess[Any]":
        """Run a command on a host to its end; arguments as for subprocess.run."""
        return subprocess.run(self.command(host_name, command), **run_arguments)

    def set_link(self, host_name: str, up: bool) -> None:
        """Set a host's link down or up."""
        from barewire.lab.network import set_host_link

        host, plan = self.host(host_name), self._plan
        # On any core: the host's own may be busy with programs that use the link.
        self._call_inside(Process(host.pid, host.start_ticks), lambda: set_host_link(plan, plan.host(host_name), up=up))

    def set_carrier(self, host_name: str, up: bool) -> None:
        """Set the switch's end of a host's link down or up: the host's interface stays up and loses its carrier.

        Both hosts of a pair with a rate lose theirs. WrongUse for a pair without a rate, whose ends are both hosts'.
        """
        interface = self.host(host_name).interface
        if self._plan.is_cable:
            self._set_interfaces([end for wire in self._plan.wires for end in wire if end.node is None], up)
            return
        for wire in self._plan.wires:
            ends = {(end.node, end.interface) == (host_name, interface): end for end in wire}
            if True in ends and ends[False].node is None:
                self._set_interfaces([ends[False]], up)
                return
        raise WrongUse(f"the link of {host_name} has no switch port: use star:2")

    def set_cable(self, first: str, second: str, up: bool) -> None:
        """Disconnect a link of a network of switches at both of its ends, or connect it again.

        Each end is a node, s5, or for parallel links one of its ports, s5:3. The ports lose their carrier.
        """
        self._switched()
        self._set_interfaces(interfaces_of_link(self._plan, first, second), up)

    def set_switch(self, name: str, up: bool) -> None:
        """Switch a switch of the network off, or on again in its initial state, without flows.

        While it is off, all of its links lack a carrier.
        """
        network = self._switched().network
        if name not in network.switches:
            raise unknown("switch", name, network.switches)
        change = partial(openvswitch.add_switch, self._plan) if up else openvswitch.remove_switch
        self._call_inside(self._keeper, lambda: change(self.directory, name))
        links = [interfaces_of_link(self._plan, str(port), str(network.peers[port])) for port in network.ports[name]]
        self._set_interfaces([end for link in links for end in link], up)

    def down(self) -> None:
        """End the lab and remove its record; for a lab that is gone only the latter."""
        with interrupts_held():
            if self._handles is None and self.status == "being made":
                raise WrongUse(f"lab {self.id} is being created by process {self._state.creator.pid}; end that process")
            handles = self._handles or LabHandles()
            handles.cut()
            keeper = self._state.keeper
            ended = keeper is None or keeper.kill(_KILL_TIMEOUT_S)
            if handles.unshare is not None:
                _end_unshare(handles.unshare, at_once=keeper is None or not ended)
            if not ended:
                raise MachineCannot(f"process {keeper} of lab {self.id} cannot be killed; it may be stuck in a driver")
            state.forget(self.id)

    def _remote_shell_file(self) -> Path:
        """Return the agent as a single program, as launchers need it, run by this Python interpreter in isolated mode.

        `env python3` would search the PATH, where version managers put scripts that take longer than the agent.
        """
        if os.statvfs(self.directory).f_flag & os.ST_NOEXEC:
            return Path(agent.__file__)
        file = self.directory / "agent"
        if not file.exists():
            temporary = file.with_name(f"agent.{os.getpid()}")
            temporary.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-I", "-S", agent.__file__])} "$@"\n')
            temporary.chmod(0o700)
            temporary.replace(file)
        return file

    @property
    def _plan(self) -> Plan:
        if self._known_plan is None:
            try:
                self._known_plan = plan_from_json(json.loads((self.directory / "plan.json").read_text()))
            except FileNotFoundError as error:
                raise MeasurementFailed(f"lab {self.id} is not running: {error}") from error
        return self._known_plan

    def _switched(self) -> Switched:
        switched = self._plan.switched
        if switched is None:
            raise WrongUse(f"lab {self.id} ({self.topology}) has no Open vSwitch switches; fat-tree:4 does")
        return switched

    @property
    def _keeper(self) -> Process:
        if self._state.keeper is None:
            raise MeasurementFailed(f"lab {self.id} is not running")
        return self._state.keeper

    def _require_running(self) -> None:
        status = self.status
        if status == "being made":
            raise MeasurementFailed(f"lab {self.id} is still being created")
        if status != "running":
            raise MeasurementFailed(f"lab {self.id} is gone; `barewire lab down {self.id}` removes its remains")

    def _enter_command(self, process: Process, cpus: Sequence[int], command: Sequence[str]) -> "builtins.list[str]":
        self._require_running()
        program = [sys.executable, "-I", "-S", enter.__file__, str(process.pid), str(process.start_ticks)]
        user = str(int(self._state.user_namespace))
        names = f"{state.NAMES_VARIABLE}={state.names_file(self.directory)}"
        return [*program, user, ",".join(map(str, cpus)), names, "--", *map(str, command)]

    def _set_interfaces(self, ends: Sequence[End], up: bool) -> None:
        from barewire.lab.network import set_interfaces

        for node in sorted({end.node or "" for end in ends}):
            names = [end.interface for end in ends if (end.node or "") == node]
            process = self._state.servers[f"{openvswitch.FORWARDER} {node}"] if node else self._keeper
            self._call_inside(process, partial(set_interfaces, names, up))

    def _call_inside(self, process: Process, work: Callable[[], None]) -> None:
        """Change something in a process's namespaces."""
        self._require_running()
        try:
            call_inside(process, self._state.user_namespace, work)
        except ProcessLookupError as error:
            raise MeasurementFailed(f"lab {self.id}: {error}") from None
        except BarewireError as error:
            raise type(error)(f"lab {self.id}: {error}") from error

    def _start(self, plan: Plan) -> None:
        assert self._handles is not None
        handles = self._handles
        state.save(self._state)
        self.directory.mkdir(mode=0o700)
        start(handles, plan, self.directory, self._state.user_namespace)
        self._state = replace(
            self._state,
            keeper=Process.of(handles.keeper_pid),
            hosts=tuple(
                Host(
                    name=host.name,
                    address=host.address,
                    mac=host.mac,
                    interface=HOST_INTERFACE,
                    cpus=host.cpus,
                    pid=handles.host_pids[host.name],
                    start_ticks=Process.of(handles.host_pids[host.name]).start_ticks,
                    inner_pid=handles.inner_pids[host.name],
                    management=host.management,
                )
                for host in plan.hosts
            ),
            notes=tuple(handles.notes),
            servers={name: Process.of(pid) for name, pid in handles.server_pids.items()},
            wire=handles.wire,
        )
        state.save(self._state)
        if self.persistent:
            handles.release()


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
    """Reap unshare(1), which ends after the keeper; killing it also kills a keeper that is not known yet."""
    if not at_once and wait(process, _KILL_TIMEOUT_S) is not None:
        return
    process.kill()
    process.wait()
