# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A lab's own Open vSwitch: databases, sockets and logs in the lab's directory, servers in its process namespace.

The system's Open vSwitch is never touched: every command names the lab's database, and OVS_RUNDIR and similar variables
direct the servers to the lab's directory. Each switch has its own servers, in its own network namespace with its ports.
One ovs-vswitchd for all switches would forward in one thread that polls all of their ports, so that one core would
limit a fat-tree; and each server scans its ports again whenever any interface in its namespace changes
(docs/performance.md). Switches use the userspace datapath, which needs no kernel module, under its name `dummy`: the
same datapath without tap interfaces, one of which has a fixed name and could exist only once.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from barewire.errors import MachineCannot, MeasurementFailed
from barewire.lab.plan import Plan
from barewire.lab.switched import interface_of, switch_mac
from barewire.topology.checks import switch_number

SERVERS = DATABASE, FORWARDER = ("ovsdb-server", "ovs-vswitchd")
FIX = "apt install openvswitch-switch"
_PROGRAMS = (*SERVERS, "ovsdb-tool", "ovs-vsctl")
_SERVER_FOLDERS = ("/usr/sbin", "/sbin", "/usr/local/sbin")
# The servers start in some 50 ms, a fat-tree of 20 switches in a second; a longer start hangs.
_DEADLINE_S = 20.0
# How long a controller may be silent. Reconnection is tried after 1, 2, 4 and then every 8 s: Open vSwitch 3.1 ignores
# the setting that would shorten this (max_backoff). A controller that starts has them reconnect at once (`reconnect`).
_PROBE_MS = 5000

# Starts a program as a child of the lab's first process, under a name that is reported to the creator: in a new
# network namespace or, given a switch and a process, in that process's namespace with the switch's ports up.
Spawn = Callable[[str, list[str], dict[str, str], "tuple[str, int] | None"], int]


def directory_of(scratch: Path) -> Path:
    """Return the lab's Open vSwitch folder in the lab's directory."""
    return scratch / "ovs"


def controller_socket(scratch: Path) -> Path:
    """Return the socket of the switches' controller; Open vSwitch restricts such sockets to its folder."""
    return directory_of(scratch) / "controller.sock"


def standby_socket(scratch: Path) -> Path:
    """Return the socket of a pair's second controller; switches connect once `reconnect` was called for it."""
    return directory_of(scratch) / "standby.sock"


def which(name: str) -> str | None:
    """Return the path of a program, also in administrators' folders, which are not on an ordinary user's PATH."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", os.defpath), *_SERVER_FOLDERS)))


def find_program(name: str) -> str:
    """Return the path of an Open vSwitch program; MachineCannot if it is missing."""
    path = which(name)
    if path is None:
        raise MachineCannot(f"a network of switches needs Open vSwitch, but {name} is missing. Fix: {FIX}")
    return path


def require() -> None:
    """Raise MachineCannot if Open vSwitch is not installed."""
    for name in _PROGRAMS:
        find_program(name)


def start_databases(plan: Plan, scratch: Path, spawn: Spawn) -> dict[str, int]:
    """Start the switches' databases; return their processes, which are in the switches' namespaces."""
    assert plan.switched is not None
    folder = directory_of(scratch)
    folder.mkdir(mode=0o700)
    empty = folder / "empty.db"
    _run([find_program("ovsdb-tool"), "create", str(empty)], folder)
    for switch in plan.switched.network.switches:
        shutil.copyfile(empty, folder / f"{switch}.db")
    return _start_servers(DATABASE, folder, spawn, dict.fromkeys(plan.switched.network.switches))


def start_switches(plan: Plan, scratch: Path, spawn: Spawn, databases: Mapping[str, int]) -> None:
    """Start the switches themselves; `databases` are their processes. Their ports must exist."""
    assert plan.switched is not None
    folder = directory_of(scratch)
    _start_servers(FORWARDER, folder, spawn, {switch: (switch, pid) for switch, pid in databases.items()})
    switches = plan.switched.network.switches
    _run_all([[*_control(folder, switch), *_creation_words(plan, scratch, switch)] for switch in switches], folder)
    _check_ports(plan, folder)


def add_switch(plan: Plan, scratch: Path, switch: str) -> None:
    """Create one switch again in its initial state, without flows and groups."""
    folder = directory_of(scratch)
    _run([*_control(folder, switch), *_creation_words(plan, scratch, switch)], folder)


def remove_switch(scratch: Path, switch: str) -> None:
    """Remove one switch, with its flows and its connection to the controller."""
    folder = directory_of(scratch)
    _run([*_control(folder, switch), "del-br", switch], folder)


def database_of(scratch: Path, switch: str) -> Path:
    """Return the socket of a switch's database."""
    return directory_of(scratch) / f"{switch}.sock"


def reconnect(scratch: Path, switches: Iterable[str], socket_path: Path) -> None:
    """Make switches connect to a controller's socket now, however long they would still wait.

    A switch connects at once to a controller with another name; both names are those of one socket.
    """
    names = [f"unix:{socket_path}", f"unix:{socket_path.parent}//{socket_path.name}"]
    for switch in switches:
        current = {"op": "select", "table": "Controller", "where": [], "columns": ["target"]}
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):  # a switch that was stopped
            database = database_of(scratch, switch)
            targets = {row["target"] for row in _transact(database, current)["rows"]}
            known = next((name for name in names if name in targets), None)
            if known is None:
                _transact(database, *_added(switch, names[0]))
            else:
                where, row = [["target", "==", known]], {"target": names[known == names[0]]}
                _transact(database, {"op": "update", "table": "Controller", "where": where, "row": row})


def _added(switch: str, target: str) -> list[Mapping[str, object]]:
    """Return the operations that add a controller to a switch."""
    row = {"target": target, "inactivity_probe": _PROBE_MS}
    added = ["set", [["named-uuid", "added"]]]
    return [
        {"op": "insert", "table": "Controller", "row": row, "uuid-name": "added"},
        {
            "op": "mutate",
            "table": "Bridge",
            "where": [["name", "==", switch]],
            "mutations": [["controller", "insert", added]],
        },
    ]


def _transact(database: Path, *operations: Mapping[str, object]) -> dict[str, Any]:
    """Execute operations in a switch's database (RFC 7047); return the first one's result."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_DEADLINE_S)
        connection.connect(str(database))
        request = {"method": "transact", "params": ["Open_vSwitch", *operations], "id": 0}
        connection.sendall(json.dumps(request).encode())
        answer = b""
        while True:
            received = connection.recv(65536)
            answer += received
            try:
                document = json.loads(answer)
                break
            except ValueError:
                if not received:
                    raise MeasurementFailed(f"the database at {database} closed its connection") from None
    result = document.get("result")
    # A failed commit adds a result with the error.
    if not result or any(one is None or "error" in one for one in result):
        raise MeasurementFailed(f"the database at {database} refused {operations}: {document}")
    found: dict[str, Any] = result[0]
    return found


def _start_servers(
    name: str, folder: Path, spawn: Spawn, namespaces: "Mapping[str, tuple[str, int] | None]"
) -> dict[str, int]:
    pids = {
        switch: spawn(f"{name} {switch}", _server(name, folder, switch), _environment(folder), namespace)
        for switch, namespace in namespaces.items()
    }
    for switch, pid in pids.items():
        _wait_for(folder / f"{switch}-{name}.ctl", f"{name} {switch}", pid)
    return pids


def _server(name: str, folder: Path, switch: str) -> list[str]:
    database = f"unix:{folder / f'{switch}.sock'}"
    database_options = [str(folder / f"{switch}.db"), f"--remote=p{database}"]
    specific = database_options if name == DATABASE else [database, "--enable-dummy"]
    log = folder / f"{switch}-{name}.log"
    logs = [f"--log-file={log}", "-vconsole:off", "-vsyslog:off", "-vfile:warn"]
    return [find_program(name), *specific, f"--unixctl={log.with_suffix('.ctl')}", "--no-chdir", *logs]


def _creation_words(plan: Plan, scratch: Path, switch: str) -> list[str]:
    """Return the ovs-vsctl words that create a switch, with its ports under their numbers."""
    assert plan.switched is not None
    # Handler threads set up flows; one is enough for a switch, the default is one per core.
    words = ["set", "open_vswitch", ".", "other_config:n-handler-threads=1", "other_config:n-revalidator-threads=1"]
    words += ["--", "add-br", switch, "--", "set", "bridge", switch, "datapath_type=dummy"]
    words += ["protocols=OpenFlow13", f"other_config:datapath-id={switch_number(switch):016x}"]
    words += [f'other_config:hwaddr="{switch_mac(switch)}"', "other_config:disable-in-band=true"]
    words += ["fail_mode=standalone" if plan.switched.standalone else "fail_mode=secure"]
    for port in plan.switched.network.ports[switch]:
        interface = interface_of(port)
        words += ["--", "add-port", switch, interface]
        words += ["--", "set", "interface", interface, f"ofport_request={port.number}"]
    if not plan.switched.standalone:
        words += ["--", "set-controller", switch, f"unix:{controller_socket(scratch)}"]
        words += ["--", "set", "controller", switch, f"inactivity_probe={_PROBE_MS}"]
    return words


def _control(folder: Path, switch: str) -> list[str]:
    return [find_program("ovs-vsctl"), f"--db=unix:{folder / f'{switch}.sock'}", f"--timeout={_DEADLINE_S:.0f}"]


def _check_ports(plan: Plan, folder: Path) -> None:
    """Check that every port has its number: ovs-vsctl does not fail otherwise."""
    assert plan.switched is not None
    network = plan.switched.network
    columns = ["--format=json", "--columns=name,ofport,error", "list", "interface"]
    seen: dict[str, tuple[object, object]] = {}
    for listing in _run_all([[*_control(folder, switch), *columns] for switch in network.switches], folder):
        seen |= {name: (number, error) for name, number, error in json.loads(listing)["data"]}
    for port in (port for switch in network.switches for port in network.ports[switch]):
        number, error = seen.get(interface_of(port), (None, "was not added"))
        if number != port.number:
            reason = error if isinstance(error, str) else f"its number is {number}"
            raise MachineCannot(f"Open vSwitch does not accept port {port}: {reason}")


def _wait_for(path: Path, name: str, pid: int) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not path.exists():
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended or time.monotonic() > deadline:
            outcome = f"ended with {os.waitstatus_to_exitcode(status)}" if ended else "did not start in time"
            last_lines = "; ".join(_last_lines(path.with_suffix(".log")))
            raise MachineCannot(
                f"{name} {outcome}; its output: {last_lines or 'none'}. Fix: {FIX}, version 2.17 or later"
            )
        time.sleep(0.005)


def _last_lines(log: Path) -> Iterator[str]:
    if log.exists():
        yield from log.read_text(errors="replace").strip().splitlines()[-2:]


def _run(command: list[str], folder: Path) -> str:
    return _run_all([command], folder)[0]


def _run_all(commands: list[list[str]], folder: Path) -> list[str]:
    """Run commands concurrently; return their outputs."""
    environment = _environment(folder)
    started = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    outputs = []
    for command, process in zip(commands, started, strict=True):
        output, errors = process.communicate()
        if process.returncode != 0:
            reason = errors.strip() or f"code {process.returncode}"
            raise MeasurementFailed(f"{Path(command[0]).name} failed: {reason}")
        outputs.append(output)
    return outputs


def _environment(folder: Path) -> dict[str, str]:
    folders = dict.fromkeys(("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"), str(folder))
    return dict(os.environ) | folders
