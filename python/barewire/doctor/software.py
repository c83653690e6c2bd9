# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Programs and libraries that Barewire is built with or measures: toolchains, libfabric."""

import re
import subprocess
import sys
from pathlib import Path

from barewire.doctor.finding import Finding, Status
from barewire.installed import IS_PACKAGE
from barewire.lab import openvswitch

_VERSION_TIMEOUT_S = 10
_LIBRARY_FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/lib/*-linux-gnu", "/usr/local/lib", "/opt/*/lib", "/opt/*/*/lib")


def software_findings() -> list[Finding]:
    """Find toolchains and libfabric."""
    # Packages contain what a checkout builds.
    cargo = _tool("cargo", "needed to build the probe", "apt install cargo, or https://rustup.rs")
    return [
        *([] if IS_PACKAGE else [cargo]),
        _tool("cc", "needed to build the MPI measurements", "apt install gcc"),
        _tool("tshark", "needed to capture jobs and to account for captures", "apt install tshark"),
        _tool("ovs-vswitchd", "needed for networks of switches in the lab", openvswitch.FIX),
        _libfabric(),
    ]


def describe_version(output: str) -> str:
    """Return the line of a program's --version output that has its name and version."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    numbered = [line for line in lines if re.search(r"\d+\.\d+", line)]
    return (numbered or lines or ["version unknown"])[0][:100]


def libfabric_version(real_name: str) -> str:
    """Return the version in a library's file name: libtool's number, which is the ABI's and not the release's."""
    match = re.search(r"\.so\.([\d.]+)$", real_name)
    return f"ABI {match[1]}" if match else "ABI unknown"


def _tool(name: str, use: str, fix: str) -> Finding:
    program = openvswitch.which(name)
    if program is None:
        return Finding("software", name, Status.WARNING, f"not found; {use}", fix)
    return Finding("software", name, Status.OK, f"{_version(program)} ({program})")


def _libfabric() -> Finding:
    folders = [folder for pattern in _LIBRARY_FOLDERS for folder in Path("/").glob(pattern.lstrip("/"))]
    folders.append(Path(sys.prefix) / "lib")
    files = {file.resolve() for folder in folders for file in folder.glob("libfabric.so*")}
    if not files:
        fix = "apt install libfabric1 libfabric-bin"
        return Finding("software", "libfabric", Status.WARNING, "not found; raw measuring works", fix)
    detail = ", ".join(f"{libfabric_version(file.name)} ({file})" for file in sorted(files))
    return Finding("software", "libfabric", Status.OK, detail)


def _version(program: str) -> str:
    try:
        completed = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run: {error}"
    return describe_version(completed.stdout or completed.stderr)
