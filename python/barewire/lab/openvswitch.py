# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A lab's own Open vSwitch: database, sockets and logs in the lab's directory, servers in its process namespace.

A system's Open vSwitch is never touched: every command names the lab's database, and OVS_RUNDIR and its like lead the
servers to the lab's directory for all else. Bridges forward in the userspace datapath, so no kernel module is needed.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from barewire.errors import MachineCannot, MeasurementFailed
from barewire.lab.plan import Plan
from barewire.lab.switched import interface_of, switch_mac
from barewire.topology.checks import switch_number

SERVERS = ("ovsdb-server", "ovs-vswitchd")
FIX = "apt install openvswitch-switch"
_PROGRAMS = (*SERVERS, "ovsdb-tool", "ovs-vsctl")
_SERVER_FOLDERS = ("/usr/sbin", "/sbin", "/usr/local/sbin")
_TUN = "/dev/net/tun"
# The servers start in some 50 ms, a fat-tree of 20 switches stands in a second: whoever needs longer hangs.
_DEADLINE_S = 20.0
# How long a switch waits at most between attempts to reach its controller, and how long that may be silent. Before the
# first connection Open vSwitch 3.1 waits 1, 2, 4 and then 8 s nevertheless.
_BACKOFF_MS_MAX = 1000
_PROBE_MS = 5000

# Starts a program as a child of the lab's first process, by a name under which it is reported to the creator.
Spawn = Callable[[str, list[str], dict[str, str]], int]


def directory_of(scratch: Path) -> Path:
    """Return the folder of the lab's Open vSwitch in the lab's directory."""
    return scratch / "ovs"


def controller_socket(scratch: Path) -> Path:
    """Return where the switches look for their controller; Open vSwitch confines such sockets to its folder."""
    return directory_of(scratch) / "controller.sock"


def which(name: str) -> str | None:
    """Return where a program is, also one for administrators, which is not on the PATH of an ordinary user."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", os.defpath), *_SERVER_FOLDERS)))


def find_program(name: str) -> str:
    """Return a program of Open vSwitch's; MachineCannot says how to get it."""
    found = which(name)
    if found is None:
        raise MachineCannot(f"a network of switches needs Open vSwitch, and there is no {name}. Fix: {FIX}")
    return found


def require() -> None:
    """Raise MachineCannot if Open vSwitch is not installed."""
    for name in _PROGRAMS:
        find_program(name)


def start(plan: Plan, scratch: Path, spawn: Spawn) -> list[str]:
    """Start the servers and make all switches; return what this machine did not allow. Call in their namespace."""
    assert plan.switched is not None
    folder = directory_of(scratch)
    folder.mkdir(mode=0o700)
    _run(find_program("ovsdb-tool"), "create", str(folder / "conf.db"), folder=folder)
    logs = ["-vconsole:off", "-vsyslog:off", "-vfile:warn", "--no-chdir"]
    datapath, notes = _datapath()
    for name, arguments in (
        ("ovsdb-server", [str(folder / "conf.db"), f"--remote=punix:{_database(folder)}"]),
        ("ovs-vswitchd", [f"unix:{_database(folder)}", *(["--enable-dummy"] if datapath == "dummy" else [])]),
    ):
        own = [f"--unixctl={folder / f'{name}.ctl'}", f"--log-file={folder / f'{name}.log'}", *logs]
        pid = spawn(name, [find_program(name), *arguments, *own], _environment(folder))
        _wait_for(folder / f"{name}.ctl", name, pid)
    _configure(scratch, ["init"], wait=False)
    commands = [word for switch in plan.switched.network.switches for word in _made(plan, scratch, switch, datapath)]
    _configure(scratch, commands)
    _check_ports(plan, folder)
    return notes


def add_switch(plan: Plan, scratch: Path, switch: str) -> None:
    """Make one switch again, as it was when the lab was made: no flow, no group."""
    _configure(scratch, _made(plan, scratch, switch, _datapath()[0]))


def remove_switch(scratch: Path, switch: str) -> None:
    """End one switch, with its flows and its connection to the controller."""
    _configure(scratch, ["del-br", switch])


def _made(plan: Plan, scratch: Path, switch: str, datapath: str) -> list[str]:
    """Return the commands that make a switch, with its ports under their numbers."""
    assert plan.switched is not None
    words = ["--", "add-br", switch, "--", "set", "bridge", switch, f"datapath_type={datapath}"]
    words += ["protocols=OpenFlow13", f"other_config:datapath-id={switch_number(switch):016x}"]
    words += [f'other_config:hwaddr="{switch_mac(switch)}"', "other_config:disable-in-band=true"]
    words += ["fail_mode=standalone" if plan.switched.standalone else "fail_mode=secure"]
    for port in plan.switched.network.ports[switch]:
        interface = interface_of(port)
        words += ["--", "add-port", switch, interface]
        words += ["--", "set", "interface", interface, f"ofport_request={port.number}"]
    if not plan.switched.standalone:
        words += ["--", "set-controller", switch, f"unix:{controller_socket(scratch)}"]
        words += ["--", "set", "controller", switch, f"max_backoff={_BACKOFF_MS_MAX}", f"inactivity_probe={_PROBE_MS}"]
    return words


def _datapath() -> tuple[str, list[str]]:
    """Return the userspace datapath's name, and a note if it is the one that makes no tap interface per switch."""
    try:
        os.close(os.open(_TUN, os.O_RDWR))
    except OSError as error:
        return "dummy", [f"switches have no local interface: {_TUN}: {error.strerror}"]
    return "netdev", []


def _configure(scratch: Path, commands: Sequence[str], *, wait: bool = True) -> None:
    folder = directory_of(scratch)
    options = [f"--db=unix:{_database(folder)}", f"--timeout={_DEADLINE_S:.0f}", *([] if wait else ["--no-wait"])]
    _run(find_program("ovs-vsctl"), *options, *commands, folder=folder)


def _check_ports(plan: Plan, folder: Path) -> None:
    """See that every port has its number and every switch its datapath: ovs-vsctl does not fail without."""
    assert plan.switched is not None
    columns = ["--format=json", "--columns=name,ofport,error", "list", "interface"]
    told = _run(find_program("ovs-vsctl"), f"--db=unix:{_database(folder)}", *columns, folder=folder)
    seen = {name: (number, error) for name, number, error in json.loads(told)["data"]}
    for switch in plan.switched.network.switches:
        for port in plan.switched.network.ports[switch]:
            number, error = seen.get(interface_of(port), (None, "was not added"))
            if number != port.number:
                said = "; ".join(_last_lines(folder / "ovs-vswitchd.log"))
                raise MachineCannot(f"Open vSwitch does not take port {port}: {error or number}. It said: {said}")


def _wait_for(socket: Path, name: str, pid: int) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not socket.exists():
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended or time.monotonic() > deadline:
            why = f"ended with {os.waitstatus_to_exitcode(status)}" if ended else "did not start in time"
            said = "; ".join(_last_lines(socket.with_suffix(".log")))
            raise MachineCannot(f"{name} {why}; it said: {said or 'nothing'}. Fix: {FIX}, version 2.17 or later")
        time.sleep(0.005)


def _last_lines(log: Path) -> Iterator[str]:
    if log.exists():
        yield from log.read_text(errors="replace").strip().splitlines()[-2:]


def _run(program: str, *arguments: str, folder: Path) -> str:
    done = subprocess.run([program, *arguments], env=_environment(folder), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MeasurementFailed(f"{Path(program).name} failed: {done.stderr.strip() or f'code {done.returncode}'}")
    return done.stdout


def _database(folder: Path) -> Path:
    return folder / "db.sock"


def _environment(folder: Path) -> dict[str, str]:
    own = dict.fromkeys(("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"), str(folder))
    return dict(os.environ) | own
