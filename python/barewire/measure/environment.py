# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The facts about the machine that a measurement depends on."""

import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from barewire import __version__, installed
from barewire.measure.sites import Station
from barewire.models.wire import Link

_PACKAGES = ("numpy", "polars", "pyroute2", "scipy")
# Two runs are comparable if these are equal.
_FINGERPRINT = ("kernel", "cpu", "cores", "governor", "clock_source", "hypervisor", "lab", "link")


def describe_environment(
    stations: Mapping[str, Station], link: Link, lab: dict[str, Any] | None, mtus: Sequence[int] = ()
) -> dict[str, Any]:
    """Return the machine, the link and the versions as plain JSON; `fingerprint` hashes the facts of `_FINGERPRINT`.

    `stations` are the participants by role; the interface is the first one's. `mtus` are those of a run of several.
    Facts that the system does not report are None. Facts of a remote machine are in its launches' start records.
    """
    facts: dict[str, Any] = {
        **_machine(),
        **{role: _describe_station(station) for role, station in stations.items()},
        "lab": {key: value for key, value in (lab or {}).items() if key != "id"} or None,
        "link": {"rate_bit_s": link.rate_bit_s, "mtu": list(mtus) or link.mtu},
        "interface": _describe_interface(next(iter(stations.values())).interface, lab),
    }
    return {**facts, "versions": _versions(), "fingerprint": _fingerprint(facts, (*_FINGERPRINT, *stations))}


def describe_machine() -> dict[str, Any]:
    """Return the same facts for this machine alone."""
    facts = _machine()
    return {**facts, "versions": _versions(), "fingerprint": _fingerprint(facts, _FINGERPRINT)}


def _machine() -> dict[str, Any]:
    return {
        "kernel": platform.release(),
        "system": _os_name(),
        "architecture": platform.machine(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "clock_source": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "smt": _read("/sys/devices/system/cpu/smt/control"),
        "hypervisor": "hypervisor" in _cpu_flags(),
        "memory_kib": _memory_kib(),
        "caches": _caches(),
    }


def _fingerprint(facts: dict[str, Any], keys: Sequence[str]) -> str:
    compared = json.dumps({key: facts[key] for key in keys if key in facts}, sort_keys=True)
    return hashlib.sha256(compared.encode()).hexdigest()[:16]


def _describe_station(station: Station) -> dict[str, Any]:
    return {"host": station.host, "interface": station.interface, "cpus": list(station.cpus)}


def _describe_interface(name: str | None, lab: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return driver, MTU and offloads of an interface; a lab's are known, a real one's are read from the system."""
    if lab is not None:
        return {"driver": "veth", "mtu": lab["mtu"], "offloads": lab["offloads"], "speed_mbit_s": None}
    if name is None or not Path(f"/sys/class/net/{name}").exists():
        return None
    driver = Path(f"/sys/class/net/{name}/device/driver")
    speed, mtu = _read(f"/sys/class/net/{name}/speed"), _read(f"/sys/class/net/{name}/mtu")
    return {
        "driver": driver.resolve().name if driver.exists() else None,
        "mtu": None if mtu is None else int(mtu),
        "offloads": None,
        "speed_mbit_s": int(speed) if speed is not None and int(speed) > 0 else None,
    }


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {
        "barewire": __version__,
        "barewire_commit": installed.commit(),
        "python": platform.python_version(),
    }
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return versions


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip() or None
    except OSError:
        return None


def _os_name() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _cpu_field(name: str) -> str | None:
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def _cpu_model() -> str | None:
    return _cpu_field("model name")


def _cpu_flags() -> list[str]:
    return (_cpu_field("flags") or "").split()


def _caches() -> dict[str, int]:
    """Return the bytes of the first core's data caches by level; empty where the system does not report them."""
    caches = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind, level, size = (_read(str(folder / name)) for name in ("type", "level", "size"))
        if kind in ("Data", "Unified") and level is not None and size is not None and size[:-1].isdecimal():
            caches[f"L{level}"] = int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1], 1)
    return caches


def _memory_kib() -> int | None:
    for line in (_read("/proc/meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1])
    return None
