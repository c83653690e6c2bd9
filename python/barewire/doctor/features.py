# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Kernel features, each tried in a temporary namespace, and finally a frame sent through a whole lab."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping

from barewire.doctor.finding import Finding, Status
from barewire.errors import BarewireError
from barewire.lab import Lab, LinkSpec, openvswitch
from barewire.lab.startup import environment, namespace_fix, namespace_settings, needs_user_namespace
from barewire.topology import Network, star

_ATTEMPT_TIMEOUT_S = 20
_KERNEL_FIX = "see the kernel's findings above"

# key: display name, fix, and whether it is essential
_FEATURES = {
    "veth": ("veth", "modprobe veth (CONFIG_VETH)", True),
    "bridge": ("bridge", "modprobe bridge (CONFIG_BRIDGE)", False),
    "tbf": ("tbf", "modprobe sch_tbf (CONFIG_NET_SCH_TBF); without it links cannot have a rate", False),
    "clock": (
        "links whose frames take their time, by a BPF program",
        "run as root on Linux 5.17 or later (CONFIG_BPF_SYSCALL, CONFIG_NET_CLS_BPF); otherwise netem is used",
        False,
    ),
    "netem": (
        "netem",
        "modprobe sch_netem (CONFIG_NET_SCH_NETEM); without it links have no --delay and --jitter",
        False,
    ),
    "htb": ("htb", "modprobe sch_htb (CONFIG_NET_SCH_HTB)", False),
    "packet_ring": ("AF_PACKET with a mapped TPACKET_V2 ring", "modprobe af_packet (CONFIG_PACKET)", True),
    "qdisc_bypass": ("AF_PACKET past the queueing discipline", "use Linux 3.14 or later (CONFIG_PACKET)", True),
    "xdp_socket": ("AF_XDP socket", "use a kernel with CONFIG_XDP_SOCKETS; ulimit -l unlimited", False),
}

_SEND = """
import socket
sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
sender.bind(("eth0", 0))
sender.send(b"\\xff" * 6 + b"\\x02\\xba\\x7e\\0\\0\\1" + b"\\x88\\xb5" + bytes(46))
"""
_RECEIVE = """
import socket
receiver = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88b5))
receiver.settimeout(5)
receiver.bind(("eth0", 0x88b5))
print("ready", flush=True)
assert len(receiver.recv(2000)) == 60
"""


def feature_findings() -> list[Finding]:
    """Try all features; takes about two seconds."""
    user_namespace = needs_user_namespace()
    fix = namespace_fix(user_namespace, namespace_settings())
    user_options = ["--user", "--map-root-user"] if user_namespace else []
    hosts = ["--net", "--mount", "--pid", "--uts", "--fork"]
    return [
        _namespaces("namespaces (network, mount, process, UTS)", [*user_options, *hosts], fix, essential=True),
        _namespaces(
            "user namespaces", ["--user", "--map-root-user"], namespace_fix(True, namespace_settings()), essential=False
        ),
        *judge_attempts(*_attempt([*user_options, "--net", sys.executable, "-m", "barewire.doctor.attempts"])),
        _lab("lab: pair, raw frames", "pair", LinkSpec(), _KERNEL_FIX, essential=True),
        _lab("lab: pair at 1 Gb/s", "pair", LinkSpec(rate_bit_s=10**9), _KERNEL_FIX),
        _lab("lab: a switch of Open vSwitch at 1 Gb/s", star(2), LinkSpec(rate_bit_s=10**9), openvswitch.FIX),
    ]


def judge_attempts(results: Mapping[str, str], failure: str = "") -> list[Finding]:
    """Turn each attempt's error, empty if it worked, into a finding; `failure` is why there are no results."""
    findings = []
    for name, (what, fix, essential) in _FEATURES.items():
        error = results.get(name, failure or "not tried")
        if error:
            findings.append(Finding("kernel", what, Status.MISSING, error, fix, essential))
        else:
            findings.append(Finding("kernel", what, Status.OK, "tried: works", essential=essential))
    return findings


def _namespaces(what: str, options: list[str], fix: str, essential: bool) -> Finding:
    failure = _unshare([*options, "true"])[1]
    if failure:
        status = Status.MISSING if essential else Status.WARNING
        return Finding("kernel", what, status, failure, fix, essential)
    return Finding("kernel", what, Status.OK, "tried: works", essential=essential)


def _attempt(arguments: list[str]) -> tuple[dict[str, str], str]:
    output, failure = _unshare(arguments)
    return ({}, failure) if failure else (json.loads(output), "")


def _unshare(arguments: list[str]) -> tuple[str, str]:
    """Run unshare(1); return its output, and why it failed, which is empty on success."""
    program = shutil.which("unshare")
    if program is None:
        return "", "unshare(1) is missing: apt install util-linux"
    try:
        completed = subprocess.run(
            [program, *arguments], capture_output=True, text=True, env=environment(), timeout=_ATTEMPT_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return "", f"no answer within {_ATTEMPT_TIMEOUT_S} s"
    if completed.returncode != 0:
        return "", (completed.stderr.strip().splitlines() or [f"exit code {completed.returncode}"])[-1]
    return completed.stdout, ""


def _lab(what: str, topology: str | Network, link: LinkSpec, fix: str, essential: bool = False) -> Finding:
    try:
        with Lab.up(topology, link, standalone=True) as lab:
            receive = [sys.executable, "-I", "-S", "-c", _RECEIVE]
            with lab.popen("h2", receive, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as receiver:
                assert receiver.stdout is not None
                receiver.stdout.readline()
                lab.run("h1", [sys.executable, "-I", "-S", "-c", _SEND], capture_output=True)
                errors = receiver.communicate(timeout=_ATTEMPT_TIMEOUT_S)[1]
            notes = "; ".join(lab.notes)
            if receiver.returncode == 0:
                detail = "a frame went from h1 to h2" + (f" (but {notes})" if notes else "")
                return Finding("lab", what, Status.OK, detail, essential=essential)
            detail = (errors.strip().splitlines() or ["no reason given"])[-1]
    except (BarewireError, subprocess.TimeoutExpired) as error:
        detail = str(error)
    return Finding("lab", what, Status.MISSING, detail, fix, essential)
