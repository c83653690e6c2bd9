# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Creates a lab's hosts and network: runs in a fork of `Lab.up`'s process, in the lab's new namespaces.

    unshare ── init.py (process 1, the bridges' network) ─┬─ h1   own network, UTS and mount namespace
                                                          ├─ h2
                                                          ├─ ovsdb-server s1   own network namespace
                                                          ├─ ovs-vswitchd s1   the same
                                                          └─ …

It creates the hosts, the wires between them and, if the plan has any, Open vSwitch's switches; lets the hosts configure
themselves, and ends; its children then belong to process 1. Hosts execute `sleep`. Every process reports on one socket,
whose credentials give the creator the process's number in its own namespace. No code here cleans up: when process 1
ends, the kernel does.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from pyroute2.netlink.exceptions import NetlinkError

from barewire.errors import BarewireError, MachineCannot
from barewire.lab import openvswitch
from barewire.lab.kernel import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWUTS,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    enter_network,
    mount,
    unshare,
)
from barewire.lab.network import (
    build_wires,
    bypass_netfilter,
    configure_host,
    configure_switch,
    silence_ipv6,
)
from barewire.lab.plan import HostPlan, Plan, barewire_hosts_file, hosts_file
from barewire.lab.qdiscs import needs
from barewire.lab.shaping import choose_wire
from barewire.lab.state import Wire, etc_directory, names_file, writing_to

_HOST_ENDED = "a host of the lab ended before it was ready"


def create(plan: Plan, directory: Path, report: socket.socket) -> None:
    """Create the lab of the plan in this process's namespaces, and report to its creator."""
    _or_report(report, partial(_create_lab, plan, directory, report))


def _create_lab(plan: Plan, directory: Path, report: socket.socket) -> None:
    socket.sethostname(f"barewire-{plan.id}")
    notes = []
    if not _mount_fresh("proc", "/proc"):
        notes.append("/proc shows the machine's processes: mounting over it is not allowed here (a container?)")
    if not silence_ipv6():
        notes.append("hosts send IPv6 frames: /proc/sys/net is read-only here")
    if plan.switched is not None:
        bypass_netfilter()
    choice = choose_wire(plan)
    wire = None if choice is None else choice.wire
    notes += () if choice is None else choice.notes
    with writing_to(directory):
        _write_name_files(plan, directory)
    ready_read, ready_write = os.pipe()
    go_read, go_write = os.pipe()
    # A host that fails reports why and ends; this process must not wait for it.
    signal.signal(signal.SIGCHLD, _host_ended)
    pids = {}
    for host in plan.hosts:
        pid = os.fork()
        if pid == 0:
            os.close(go_write)
            _or_report(report, partial(_create_host, plan, host, wire, directory, report, ready_write, go_read))
            _execute_sleep(plan, host)
        pids[host.name] = pid
    os.close(ready_write)
    _wait_for_hosts(ready_read, len(plan.hosts))
    if plan.switched is None:
        build_wires(plan, pids, wire)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    else:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        spawn = partial(_spawn, report, plan)
        databases = openvswitch.start_databases(plan, directory, spawn)
        build_wires(plan, pids | databases, wire)
        openvswitch.start_switches(plan, directory, spawn, databases)
    os.close(go_write)
    os.close(go_read)
    _send(report, {"role": "lab", "notes": notes, "wire": wire})


def _create_host(
    plan: Plan,
    host: HostPlan,
    wire: Wire | None,
    directory: Path,
    report: socket.socket,
    ready_write: int,
    go_read: int,
) -> None:
    with needs(
        "namespaces of their own to hosts", "sysctl -w user.max_net_namespaces=1024 user.max_mnt_namespaces=1024"
    ):
        unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS)
    socket.sethostname(host.name)
    silence_ipv6()
    _mount_fresh("sysfs", "/sys")  # shows /sys/class/net of this namespace instead of the machine's
    _mount_fresh("tmpfs", "/dev/shm")  # files of killed programs are removed with the host
    _bind(etc_directory(directory) / "hosts", "/etc/hosts")
    _bind(etc_directory(directory) / f"hostname-{host.name}", "/etc/hostname")
    os.write(ready_write, b"1")
    os.close(ready_write)
    os.read(go_read, 1)  # returns when the wires are there
    os.close(go_read)
    configure_host(plan, host, wire)
    _send(report, {"role": "host", "name": host.name, "inner_pid": os.getpid()})


def _spawn(
    report: socket.socket,
    plan: Plan,
    name: str,
    command: list[str],
    environment: dict[str, str],
    switch: tuple[str, int] | None,
) -> int:
    """Start a program that runs as long as the lab, as `openvswitch.Spawn` defines."""
    pid = os.fork()
    if pid == 0:
        # The child must end here in any case: it is a copy of the creation's process.
        try:
            _or_report(report, partial(_enter_switch, plan, switch))
            _send(report, {"role": "server", "name": name})
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            os.execve(command[0], command, environment)
        finally:
            os._exit(127)
    return pid


def _enter_switch(plan: Plan, switch: tuple[str, int] | None) -> None:
    if switch is None:
        with needs("namespaces of their own to switches", "sysctl -w user.max_net_namespaces=1024"):
            unshare(CLONE_NEWNET)
        silence_ipv6()
    else:
        name, pid = switch
        enter_network(pid)
        configure_switch(plan, name)


def _wait_for_hosts(ready_read: int, count: int) -> None:
    """Read one byte from each host."""
    arrived = 0
    while arrived < count:
        chunk = os.read(ready_read, count)
        if not chunk:
            raise MachineCannot(_HOST_ENDED)
        arrived += len(chunk)
    os.close(ready_read)


def _host_ended(_number: int, _frame: object) -> NoReturn:
    raise MachineCannot(_HOST_ENDED)


def _write_name_files(plan: Plan, directory: Path) -> None:
    etc = etc_directory(directory)
    etc.mkdir(mode=0o755)
    (etc / "hosts").write_text(hosts_file(plan.hosts))
    names_file(directory).write_text(barewire_hosts_file(plan.hosts))
    for host in plan.hosts:
        (etc / f"hostname-{host.name}").write_text(f"{host.name}\n")


def _mount_fresh(kind: str, target: str) -> bool:
    """Mount this namespace's own file system; read-only where the machine's own is, as the kernel demands."""
    for extra in (0, MS_RDONLY):
        with contextlib.suppress(OSError):
            mount(kind, target, kind, MS_NOSUID | MS_NODEV | MS_NOEXEC | extra)
            return True
    return False


def _bind(source: Path, target: str) -> None:
    # Without /etc/hostname on the machine there is nothing to cover; creating it would outlive the lab.
    if Path(target).exists():
        with needs(
            "bind mounts", "allow mount(2) to this process (a container's seccomp or AppArmor profile forbids it)"
        ):
            mount(str(source), target, "", MS_BIND)


def _or_report(report: socket.socket, work: Callable[[], None]) -> None:
    """Run `work`; on failure report why to the creator and end."""
    try:
        work()
    except BarewireError as error:
        _fail(report, str(error))
    except (NetlinkError, OSError) as error:
        _fail(report, f"the kernel refused: {error}")
    except Exception as error:  # a bug here must not be taken for a limit of the machine
        os.write(2, traceback.format_exc().encode())  # `sys.stderr` is the creator's
        _fail(report, f"bug in barewire, please report it: {error!r}")


def _fail(report: socket.socket, message: str) -> NoReturn:
    # The creator may have ended already, which is then the reason of this failure.
    with contextlib.suppress(OSError):
        _send(report, {"role": "error", "message": message})
    os._exit(1)


def _send(report: socket.socket, message: dict[str, Any]) -> None:
    report.send(json.dumps(message).encode())


def _execute_sleep(plan: Plan, host: HostPlan) -> NoReturn:
    """Keep the host's namespaces alive at the least cost."""
    program = shutil.which("sleep") or "/bin/sleep"
    # A multi-call binary selects its command by argument zero, which must then stay.
    label = f"barewire-lab-{plan.id}-{host.name}" if Path(program).resolve().name == "sleep" else "sleep"
    os.execv(program, [label, "infinity"])
