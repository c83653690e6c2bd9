# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Programs and libraries that Barewire builds with or measures: toolchains, libfabric."""

import re
import subprocess
import sys
from pathlib import Path

from barewire.doctor.finding import Finding, Status
from barewire.lab import openvswitch

_VERSION_TIMEOUT_S = 10
_LIBRARY_PLACES = ("/usr/lib", "/usr/lib64", "/usr/lib/*-linux-gnu", "/usr/local/lib", "/opt/*/lib", "/opt/*/*/lib")


def software_findings() -> list[Finding]:
    """Look for toolchains and libfabric."""
    return [
        _tool("cargo", "the probe is built with it", "apt install cargo, or https://rustup.rs"),
        _tool("cc", "the floor and the MPI tests are built with it", "apt install gcc"),
        _tool("tshark", "captures are checked with it", "apt install tshark"),
        _tool("ovs-vswitchd", "networks of switches in the lab are made with it", openvswitch.FIX),
        _libfabric(),
    ]


def describe_version(output: str) -> str:
    """Return the line of a program's --version output that says which and how new it is."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    numbered = [line for line in lines if re.search(r"\d+\.\d+", line)]
    return (numbered or lines or ["version unknown"])[0][:100]


def libfabric_version(real_name: str) -> str:
    """Return what a library file's name says: libtool's number, which is the ABI's and not the release's."""
    match = re.search(r"\.so\.([\d.]+)$", real_name)
    return f"ABI {match[1]}" if match else "ABI unknown"


def _tool(name: str, use: str, fix: str) -> Finding:
    program = openvswitch.which(name)
    if program is None:
        return Finding("software", name, Status.WARNING, f"not found; {use}", fix)
    return Finding("software", name, Status.OK, f"{_version(program)} ({program})")


def _libfabric() -> Finding:
    folders = [folder for pattern in _LIBRARY_PLACES for folder in Path("/").glob(pattern.lstrip("/"))]
    folders.append(Path(sys.prefix) / "lib")
    found = {file.resolve() for folder in folders for file in folder.glob("libfabric.so*")}
    if not found:
        fix = "apt install libfabric1 libfabric-dev libfabric-bin"
        return Finding("software", "libfabric", Status.WARNING, "not found; raw measuring works", fix)
    detail = ", ".join(f"{libfabric_version(file.name)} ({file})" for file in sorted(found))
    return Finding("software", "libfabric", Status.OK, detail)


def _version(program: str) -> str:
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run: {error}"
    return describe_version(done.stdout or done.stderr)
