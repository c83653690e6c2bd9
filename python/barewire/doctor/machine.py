# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The machine below the network, from /sys and /proc: cores, clocks, kernel, privilege. Tests pass another root."""

import os
import platform
import re
import resource
from pathlib import Path

from barewire.doctor.finding import Finding, Status
from barewire.lab.kernel import CAP_NET_ADMIN, CAP_NET_RAW, effective_capabilities

# Busy polling needs a core for each side of a pair; with fewer, latency measures the scheduler.
CORES_WANTED = 2
# Room for one 64 KiB message per core of a small cluster; with less, sockets lose bursts.
SOCKET_BUFFER_BYTES_WANTED = 4 << 20
# Debian 12's kernel, the oldest that the tests run on; setns by pidfd needs 5.8.
KERNEL_WANTED, KERNEL_NEEDED = (6, 1), (5, 8)
NOT_EXPOSED = "not exposed (virtual machine)"

# linux/capability.h, in order of their bits.
_CAPABILITY_NAMES = (
    "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE "
    "NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN "
    "SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE "
    "MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE"
)
CAPABILITIES = _CAPABILITY_NAMES.split()
_CAPABILITIES_USED = ("NET_RAW", "NET_ADMIN", "SYS_ADMIN", "IPC_LOCK", "BPF", "SYS_NICE")


def machine_findings(root: Path = Path("/")) -> list[Finding]:
    """Examine cores, clocks, kernel, privilege and limits."""
    cpu = root / "sys/devices/system/cpu"
    return [
        _cores(os.sched_getaffinity(0), read(cpu / "online")),
        _isolation(read(cpu / "isolated")),
        _siblings(read(cpu / "smt/active")),
        _governor(cpu),
        _idle_states(cpu),
        _clock(read(root / "sys/devices/system/clocksource/clocksource0/current_clocksource")),
        _kernel(platform.release()),
        _privilege(effective_capabilities()),
        _locked_memory(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]),
        *_sysctls(root / "proc/sys/net/core"),
    ]


def decode_capabilities(mask: int) -> list[str]:
    """Return the names of the capabilities in a mask; a bit unknown here is returned as its number."""
    bits = [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
    return [CAPABILITIES[bit] if bit < len(CAPABILITIES) else str(bit) for bit in bits]


def decode_cpu_list(text: str) -> list[int]:
    """Parse the kernel's list of cores, such as `0-3,8`."""
    cpus: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


def decode_release(release: str) -> tuple[int, int]:
    """Parse major and minor number of a kernel's release."""
    match = re.match(r"(\d+)\.(\d+)", release)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def read(file: Path) -> str:
    """Return a small file's text, or an empty string if it cannot be read."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _cores(usable: set[int], online: str) -> Finding:
    detail = f"{len(usable)} usable of {len(decode_cpu_list(online)) or 'unknown'} online: {sorted(usable)}"
    if len(usable) >= CORES_WANTED:
        return Finding("cores", "cores", Status.OK, detail)
    fix = f"allow this process {CORES_WANTED} cores (taskset, the container's --cpuset-cpus, the machine's size)"
    return Finding("cores", "cores", Status.WARNING, detail, fix)


def _isolation(isolated: str) -> Finding:
    if isolated:
        return Finding("cores", "isolation", Status.OK, f"cores {isolated} are kept free of other work")
    fix = "for the least noise boot with isolcpus=2,3 nohz_full=2,3 (cores of your choice)"
    return Finding("cores", "isolation", Status.WARNING, "no core is kept free of other work", fix)


def _siblings(active: str) -> Finding:
    if active != "1":
        return Finding("cores", "SMT", Status.OK, "off" if active else NOT_EXPOSED)
    fix = "echo off > /sys/devices/system/cpu/smt/control"
    return Finding("cores", "SMT", Status.WARNING, "on: two usable cores may be one", fix)


def _governor(cpu: Path) -> Finding:
    governors = {read(file) for file in cpu.glob("cpu[0-9]*/cpufreq/scaling_governor")} - {""}
    if not governors:
        return Finding("cores", "frequency governor", Status.OK, NOT_EXPOSED)
    frequencies = sorted({read(file) for file in cpu.glob("cpu[0-9]*/cpufreq/scaling_cur_freq")} - {""})
    detail = f"{', '.join(sorted(governors))}; now {', '.join(frequencies) or 'unknown'} kHz"
    if governors == {"performance"}:
        return Finding("cores", "frequency governor", Status.OK, detail)
    return Finding("cores", "frequency governor", Status.WARNING, detail, "cpupower frequency-set -g performance")


def _idle_states(cpu: Path) -> Finding:
    enabled = sorted(
        {
            (int(read(state / "latency") or 0), read(state / "name"))
            for state in cpu.glob("cpu[0-9]*/cpuidle/state[0-9]*")
            if read(state / "disable") == "0"
        }
    )
    if not enabled:
        return Finding("cores", "C-states", Status.OK, NOT_EXPOSED)
    detail = ", ".join(f"{name} ({latency_us} µs)" for latency_us, name in enabled)
    # A wake-up of 10 µs is several times a small message's one-way time.
    if enabled[-1][0] < 10:
        return Finding("cores", "C-states", Status.OK, detail)
    return Finding("cores", "C-states", Status.WARNING, f"deep sleep enabled: {detail}", "cpupower idle-set -D 2")


def _clock(source: str) -> Finding:
    if source in ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"):
        return Finding("cores", "clock source", Status.OK, f"{source}: read without a system call")
    detail = f"{source or 'unknown'}: every reading is a system call"
    fix = "boot with clocksource=tsc tsc=reliable if the processor's counter is constant"
    return Finding("cores", "clock source", Status.WARNING, detail, fix)


def _kernel(release: str) -> Finding:
    version = decode_release(release)
    if version >= KERNEL_WANTED:
        return Finding("kernel", "Linux", Status.OK, release)
    fix = f"use Linux {'.'.join(map(str, KERNEL_WANTED))} or later (Debian 12 has it)"
    if version >= KERNEL_NEEDED:
        return Finding("kernel", "Linux", Status.WARNING, f"{release}: not tested", fix)
    return Finding("kernel", "Linux", Status.MISSING, f"{release}: too old", fix, essential=True)


def _privilege(mask: int) -> Finding:
    held = decode_capabilities(mask)
    detail = ", ".join(name for name in _CAPABILITIES_USED if name in held) or "none of the relevant ones"
    if mask >> CAP_NET_RAW & 1 and mask >> CAP_NET_ADMIN & 1:
        return Finding("privilege", "capabilities", Status.OK, detail)
    fix = "in a lab nothing is needed; on real interfaces run as root, or: setcap cap_net_raw+ep PATH/barewire-probe"
    return Finding("privilege", "capabilities", Status.WARNING, f"{detail}; no raw frames on real interfaces", fix)


def _locked_memory(limit_bytes: int) -> Finding:
    if limit_bytes == resource.RLIM_INFINITY or limit_bytes >= 64 << 20:
        detail = "unlimited" if limit_bytes == resource.RLIM_INFINITY else f"{limit_bytes} bytes"
        return Finding("privilege", "locked memory", Status.OK, detail)
    fix = "ulimit -l unlimited (permanently: memlock in /etc/security/limits.conf)"
    return Finding("privilege", "locked memory", Status.WARNING, f"{limit_bytes} bytes: too little for AF_XDP", fix)


def _sysctls(core: Path) -> list[Finding]:
    findings = []
    for name in ("rmem_max", "wmem_max"):
        value = int(read(core / name) or 0)
        fix = f"sysctl -w net.core.{name}={SOCKET_BUFFER_BYTES_WANTED}"
        is_enough = value >= SOCKET_BUFFER_BYTES_WANTED
        detail = f"{value} bytes" if value else "not visible here"
        status = Status.OK if is_enough or not value else Status.WARNING
        findings.append(Finding("kernel", f"net.core.{name}", status, detail, "" if status is Status.OK else fix))
    for name in ("busy_poll", "busy_read"):
        value_us = read(core / name)
        detail = (
            f"{value_us} µs for all sockets" if value_us not in ("", "0") else "off; programs may enable it per socket"
        )
        findings.append(Finding("kernel", f"net.core.{name}", Status.OK, detail))
    return findings
