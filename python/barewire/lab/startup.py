# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Starts the processes of a lab and collects their reports: the lab is complete, or nothing of it remains."""

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import barewire
from barewire.errors import MachineCannot
from barewire.lab.kernel import CAP_NET_ADMIN, CAP_SYS_ADMIN, effective_capabilities
from barewire.lab.plan import Plan

# A pair takes 0.4 s on two slow cores, and 250 hosts a few seconds; a longer start hangs.
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
    (directory / "plan.json").write_text(json.dumps(plan.to_json()))
    lifeline_read, handles.lifeline = os.pipe()
    # Packets of one report each; end of file when the last process that could report has ended.
    receiver, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    log = directory / "keeper.log"
    try:
        # The kernel then adds the sender's process number in *this* namespace.
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        command = [program, "--mount", "--propagation", "slave", "--pid", "--net", "--uts", "--fork", "--kill-child"]
        if user_namespace:
            command += ["--user", "--map-root-user"]
        command += [
            sys.executable,
            "-m",
            "barewire.lab.keeper",
            str(directory),
            str(sender.fileno()),
            str(lifeline_read),
        ]
        with log.open("wb") as log_file:
            handles.unshare = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                env=environment(),
                pass_fds=(sender.fileno(), lifeline_read),
                start_new_session=True,  # a terminal's Ctrl-C goes to the creator, which ends the lab in order
            )
        sender.close()
        _collect_reports(handles, plan, receiver, log)
    finally:
        os.close(lifeline_read)
        receiver.close()
        sender.close()


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


def _collect_reports(handles: LabHandles, plan: Plan, reports: socket.socket, log: Path) -> None:
    """Receive a report from the keeper, from every host, and from each of Open vSwitch's servers."""
    deadline = time.monotonic() + _DEADLINE_S + _DEADLINE_PER_HOST_S * len(plan.hosts)
    while not handles.keeper_pid or len(handles.host_pids) < len(plan.hosts):  # servers report before the keeper
        reports.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            data, ancillary, _, _ = reports.recvmsg(_REPORT_BYTES_MAX, socket.CMSG_SPACE(_CREDENTIALS.size))
        except TimeoutError:
            raise MachineCannot(f"the lab did not start in time; its output: {_last_line(log) or 'none'}") from None
        if not data:
            fix = namespace_fix(needs_user_namespace(), namespace_settings())
            raise MachineCannot(f"no namespaces for the lab: {_last_line(log) or 'no reason given'}. Fix: {fix}")
        report: dict[str, Any] = json.loads(data)
        if report["role"] == "error":
            raise MachineCannot(report["message"])
        pid = _sender(ancillary)
        if report["role"] == "keeper":
            handles.keeper_pid, handles.notes, handles.wire = pid, report["notes"], report["wire"]
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


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
