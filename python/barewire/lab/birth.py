# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Starts the processes of a lab and hears from them, until all stand or none."""

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

# A pair takes 0.4 s on two slow cores and 250 hosts some seconds: whoever needs longer hangs.
_DEADLINE_S = 30.0
_DEADLINE_PER_HOST_S = 0.5
_REPORT_BYTES_MAX = 65536
_CREDENTIALS = struct.Struct("iII")  # struct ucred: pid, uid, gid
_RELEASE = b"r"


@dataclass
class Birth:
    """The handles on a lab that its creator holds; closing the lifeline, or just ending, ends the lab."""

    lifeline: int = -1
    unshare: "subprocess.Popen[bytes] | None" = None
    keeper_pid: int = 0
    host_pids: dict[str, int] = field(default_factory=dict)
    inner_pids: dict[str, int] = field(default_factory=dict)
    server_pids: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def release(self) -> None:
        """Let the lab outlive its creator."""
        os.write(self.lifeline, _RELEASE)
        self.cut()

    def cut(self) -> None:
        """Drop the lifeline; ends the lab unless it was released."""
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1


def start(birth: Birth, plan: Plan, directory: Path, user_namespace: bool) -> None:
    """Start a lab's processes and fill `birth`; on any exception the caller must cut the lifeline and end `unshare`."""
    program = shutil.which("unshare")
    if program is None:
        raise MachineCannot("the lab needs unshare(1). Fix: apt install util-linux")
    (directory / "plan.json").write_text(json.dumps(plan.to_json()))
    lifeline_read, birth.lifeline = os.pipe()
    # A sequence of packets: one report each, and an end when the last process that could report is gone.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    log = directory / "keeper.log"
    try:
        # The kernel then adds the sender's process number as *this* namespace counts it.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        command = [program, "--mount", "--propagation", "slave", "--pid", "--net", "--uts", "--fork", "--kill-child"]
        if user_namespace:
            command += ["--user", "--map-root-user"]
        command += [
            sys.executable,
            "-m",
            "barewire.lab.keeper",
            str(directory),
            str(theirs.fileno()),
            str(lifeline_read),
        ]
        with log.open("wb") as log_file:
            birth.unshare = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                env=environment(),
                pass_fds=(theirs.fileno(), lifeline_read),
                start_new_session=True,  # a terminal's Ctrl-C is for the creator, which ends the lab in order
            )
        theirs.close()
        _hear(birth, plan, ours, log)
    finally:
        os.close(lifeline_read)
        ours.close()
        theirs.close()


def environment() -> dict[str, str]:
    """Return this process's environment with this very package importable."""
    root = str(Path(barewire.__file__).parent.parent)
    others = os.environ.get("PYTHONPATH")
    return dict(os.environ) | {"PYTHONPATH": f"{root}:{others}" if others else root}


def needs_user_namespace(capabilities: int | None = None) -> bool:
    """Tell whether this process may not make the lab's namespaces without a user namespace around them."""
    held = effective_capabilities() if capabilities is None else capabilities
    wanted = 1 << CAP_SYS_ADMIN | 1 << CAP_NET_ADMIN
    return held & wanted != wanted


def namespace_fix(user_namespace: bool, settings: Mapping[str, int]) -> str:
    """Say what to change so that namespaces can be made; `settings` maps the sysctls that exist to their values."""
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
    """Read the sysctls that decide about namespaces."""
    names = ["kernel.unprivileged_userns_clone", "kernel.apparmor_restrict_unprivileged_userns"]
    names += [f"user.max_{kind}_namespaces" for kind in ("user", "net", "mnt", "pid", "uts")]
    settings = {}
    for name in names:
        try:
            settings[name] = int(Path("/proc/sys", *name.split(".")).read_text())
        except (OSError, ValueError):
            continue
    return settings


def _hear(birth: Birth, plan: Plan, reports: socket.socket, log: Path) -> None:
    """Take one report from the keeper, one from every host and each of Open vSwitch's servers."""
    deadline = time.monotonic() + _DEADLINE_S + _DEADLINE_PER_HOST_S * len(plan.hosts)
    while not birth.keeper_pid or len(birth.host_pids) < len(plan.hosts):  # servers report before the keeper
        reports.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            data, ancillary, _, _ = reports.recvmsg(_REPORT_BYTES_MAX, socket.CMSG_SPACE(_CREDENTIALS.size))
        except TimeoutError:
            raise MachineCannot(f"the lab did not stand in time; what it said is: {_said(log) or 'nothing'}") from None
        if not data:
            fix = namespace_fix(needs_user_namespace(), namespace_settings())
            raise MachineCannot(f"no namespaces for the lab: {_said(log) or 'no reason given'}. Fix: {fix}")
        report: dict[str, Any] = json.loads(data)
        if report["role"] == "error":
            raise MachineCannot(report["message"])
        pid = _sender(ancillary)
        if report["role"] == "keeper":
            birth.keeper_pid, birth.notes = pid, report["notes"]
        elif report["role"] == "server":
            birth.server_pids[report["name"]] = pid
        else:
            birth.host_pids[report["name"]] = pid
            birth.inner_pids[report["name"]] = report["inner_pid"]


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return int(_CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0])
    raise MachineCannot("this kernel does not say who sent a message on a Unix socket (SO_PASSCRED)")


def _said(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
