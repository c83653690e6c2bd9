# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Starts the processes of a lab and collects their reports: the lab is complete, or nothing of it remains."""

import contextlib
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import barewire
from barewire.errors import MachineCannot
from barewire.lab import init
from barewire.lab.inside import start_inside
from barewire.lab.kernel import CAP_NET_ADMIN, CAP_SYS_ADMIN, Process, effective_capabilities
from barewire.lab.plan import Plan
from barewire.lab.state import writing_to

# A pair takes 0.2 s on two slow cores, and 250 hosts a few seconds; a longer start hangs.
_DEADLINE_S = 30.0
_DEADLINE_PER_HOST_S = 0.5
_REPORT_BYTES_MAX = 65536
_CREDENTIALS = struct.Struct("iII")  # struct ucred: pid, uid, gid
_RELEASE = b"r"


@dataclass
class LabHandles:
    """The creator's handles of a lab; closing the lifeline ends the lab, as does the creator's end."""

    lifeline: int = -1
    unshare: "subprocess.Popen[bytes] | None" = None
    keeper_pid: int = 0
    host_pids: dict[str, int] = field(default_factory=dict)
    inner_pids: dict[str, int] = field(default_factory=dict)
    server_pids: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    wire: str | None = None

    def release(self) -> None:
        """Let the lab outlive its creator."""
        os.write(self.lifeline, _RELEASE)
        self.cut()

    def cut(self) -> None:
        """Close the lifeline; ends the lab unless it was released."""
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1


def start(handles: LabHandles, plan: Plan, directory: Path, user_namespace: bool) -> None:
    """Start a lab's processes and fill `handles`; on an exception the caller must `cut` and end `unshare`."""
    program = shutil.which("unshare")
    if program is None:
        raise MachineCannot("the lab needs unshare(1). Fix: apt install util-linux")
    with writing_to(directory):
        (directory / "plan.json").write_text(json.dumps(plan.to_json()))
    command = [program, "--mount", "--propagation", "slave", "--pid", "--net", "--uts", "--fork", "--kill-child"]
    if user_namespace:
        command += ["--user", "--map-root-user"]
    command += [sys.executable, "-I", "-S", init.__file__]
    reports = _Reports(plan, directory / "lab.log")
    lifeline_read, handles.lifeline = os.pipe()
    try:
        with reports.channel() as sender:
            handles.unshare = subprocess.Popen(
                [*command, str(sender.fileno()), str(lifeline_read), f"barewire-lab-{plan.id}"],
                stdin=subprocess.DEVNULL,
                stdout=reports.log,
                stderr=reports.log,
                pass_fds=(sender.fileno(), lifeline_read),
                start_new_session=True,  # a terminal's Ctrl-C goes to the creator, which ends the lab in order
            )
        # Imported while unshare(1) works: it takes longer.
        from barewire.lab.creation import create

        handles.keeper_pid, _ = reports.next()
        keeper = Process.of(handles.keeper_pid)
        with reports.channel() as sender:
            create_lab = partial(create, plan, directory, sender)
            start_inside(keeper, user_namespace, create_lab, sender.fileno(), reports.log.fileno())
        _collect(handles, plan, reports)
    except ProcessLookupError as error:
        raise MachineCannot(f"the lab ended before it was complete: {reports.last_line() or error}") from None
    finally:
        os.close(lifeline_read)
        reports.close()


def environment() -> dict[str, str]:
    """Return this process's environment, with this package importable."""
    root = str(Path(barewire.__file__).parent.parent)
    previous = os.environ.get("PYTHONPATH")
    return dict(os.environ) | {"PYTHONPATH": f"{root}:{previous}" if previous else root}


def needs_user_namespace(capabilities: int | None = None) -> bool:
    """Return whether this process needs a user namespace to create the lab's namespaces."""
    held = effective_capabilities() if capabilities is None else capabilities
    required = 1 << CAP_SYS_ADMIN | 1 << CAP_NET_ADMIN
    return held & required != required


def namespace_fix(user_namespace: bool, settings: Mapping[str, int]) -> str:
    """Return how to allow namespaces; `settings` maps the existing sysctls to their values."""
    fixes = []
    if user_namespace:
        if settings.get("kernel.unprivileged_userns_clone") == 0:
            fixes.append("sysctl -w kernel.unprivileged_userns_clone=1")
        if settings.get("kernel.apparmor_restrict_unprivileged_userns") == 1:
            fixes.append("sysctl -w kernel.apparmor_restrict_unprivileged_userns=0")
        if settings.get("user.max_user_namespaces") == 0:
            fixes.append("sysctl -w user.max_user_namespaces=1024")
    for kind in ("net", "mnt", "pid", "uts"):
        if settings.get(f"user.max_{kind}_namespaces") == 0:
            fixes.append(f"sysctl -w user.max_{kind}_namespaces=1024")
    if fixes:
        return "as root: " + "; ".join(fixes)
    if user_namespace:
        return "run it as root, or allow user namespaces (in a container: start it with --privileged)"
    return "in a container: start it with --privileged, or with --cap-add SYS_ADMIN --cap-add NET_ADMIN"


def namespace_settings() -> dict[str, int]:
    """Read the sysctls that restrict namespaces."""
    names = ["kernel.unprivileged_userns_clone", "kernel.apparmor_restrict_unprivileged_userns"]
    names += [f"user.max_{kind}_namespaces" for kind in ("user", "net", "mnt", "pid", "uts")]
    settings = {}
    for name in names:
        try:
            settings[name] = int(Path("/proc/sys", *name.split(".")).read_text())
        except (OSError, ValueError):
            continue
    return settings


class _Reports:
    """What a lab's new processes report, and the file of their output."""

    def __init__(self, plan: Plan, log: Path) -> None:
        self.log = log.open("wb")
        self._receiver: socket.socket | None = None
        self._deadline = time.monotonic() + _DEADLINE_S + _DEADLINE_PER_HOST_S * len(plan.hosts)

    @contextlib.contextmanager
    def channel(self) -> Iterator[socket.socket]:
        """Give a new channel's end for those who report; its end of file comes when the last of them has ended."""
        self._close_receiver()
        # Packets of one report each.
        self._receiver, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with sender:
            # The kernel then adds the sender's process number in *this* namespace.
            self._receiver.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            yield sender

    def next(self) -> tuple[int, dict[str, Any]]:
        """Wait for a report; return its sender's process number as well."""
        assert self._receiver is not None
        self._receiver.settimeout(max(0.001, self._deadline - time.monotonic()))
        try:
            data, ancillary, _, _ = self._receiver.recvmsg(_REPORT_BYTES_MAX, socket.CMSG_SPACE(_CREDENTIALS.size))
        except TimeoutError:
            output = self.last_line() or "none"
            raise MachineCannot(f"the lab did not start in time; its output: {output}") from None
        if not data:
            fix = namespace_fix(needs_user_namespace(), namespace_settings())
            raise MachineCannot(f"no namespaces for the lab: {self.last_line() or 'no reason given'}. Fix: {fix}")
        return _sender(ancillary), json.loads(data)

    def last_line(self) -> str:
        """Return the last line of the output."""
        lines = Path(self.log.name).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def close(self) -> None:
        """Close the channel and the file."""
        self._close_receiver()
        self.log.close()

    def _close_receiver(self) -> None:
        if self._receiver is not None:
            self._receiver.close()


def _collect(handles: LabHandles, plan: Plan, reports: _Reports) -> None:
    """Receive a report from the lab's creation, from every host, and from each of Open vSwitch's servers."""
    complete = False
    while not complete or len(handles.host_pids) < len(plan.hosts):  # servers report before the creation ends
        pid, report = reports.next()
        if report["role"] == "error":
            raise MachineCannot(report["message"])
        if report["role"] == "lab":
            complete, handles.notes, handles.wire = True, report["notes"], report["wire"]
        elif report["role"] == "server":
            handles.server_pids[report["name"]] = pid
        else:
            handles.host_pids[report["name"]] = pid
            handles.inner_pids[report["name"]] = report["inner_pid"]


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return int(_CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0])
    raise MachineCannot("this kernel does not report the sender of a message on a Unix socket (SO_PASSCRED)")
