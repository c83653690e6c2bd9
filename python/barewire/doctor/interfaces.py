# SPDX-License-Identifier: Apache-2.0 OR MIT
# mypy: disable-error-code="no-untyped-call"
"""Network interfaces: their drivers, and settings that delay small messages."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pyroute2.ethtool.ioctl import EthtoolError, IoctlEthtool

from barewire.doctor.finding import Finding, Status
from barewire.doctor.machine import read
from barewire.lab.network import active_offloads

# Software interfaces of the kernel have no device; these drivers have one, but no wire.
_VIRTUAL_DRIVERS = {"virtio_net", "vmxnet3", "xen-netfront", "vif", "hv_netvsc", "ena", "gve", "e1000"}
_LOOPBACK = "lo"
_INTERFACES = Path("/sys/class/net")
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Interface:
    """One interface's state; None or an empty string if the driver does not report it."""

    name: str
    driver: str
    has_device: bool
    state: str
    mtu: int
    speed_mbit_s: int | None
    offloads: tuple[str, ...]
    rx_coalesce_us: int | None
    adaptive_rx: bool | None
    ring_rx: tuple[int, int] | None  # current, maximum

    @property
    def virtual(self) -> bool:
        """Whether there is no real wire."""
        return not self.has_device or self.driver in _VIRTUAL_DRIVERS


def interface_findings() -> list[Finding]:
    """Examine every interface except the loopback."""
    entries = sorted(_INTERFACES.iterdir()) if _INTERFACES.is_dir() else []
    names = [entry.name for entry in entries if (entry / "ifindex").exists() and entry.name != _LOOPBACK]
    interfaces = [read_interface(name) for name in names]
    findings = [judge(interface) for interface in interfaces]
    if not any(interface.has_device for interface in interfaces):
        fix = "nothing to do for a lab; for two machines, plug in a card and load its driver"
        findings.append(Finding("network", "network card", Status.WARNING, "no interface with a device", fix))
    return findings


def judge(interface: Interface) -> Finding:
    """Judge whether an interface suits small messages."""
    kind = "virtual" if interface.virtual else "card"
    facts = [f"{kind}, driver {interface.driver or 'none'}", interface.state, f"MTU {interface.mtu}"]
    facts.append(f"{interface.speed_mbit_s} Mbit/s" if interface.speed_mbit_s else "speed unknown")
    if interface.rx_coalesce_us is not None:
        adaptive = ", adaptive" if interface.adaptive_rx else ""
        facts.append(f"receive interrupt after {interface.rx_coalesce_us} µs{adaptive}")
    if interface.ring_rx is not None:
        facts.append(f"receive ring {interface.ring_rx[0]} of {interface.ring_rx[1]}")
    facts.append(f"offloads: {', '.join(summarise_offloads(interface.offloads)) or 'none'}")
    facts.append(f"AF_XDP: `barewire doctor --try-xdp {interface.name}` tries it")
    delays = interface.rx_coalesce_us or interface.adaptive_rx
    if delays and not interface.virtual:
        fix = f"ethtool -C {interface.name} adaptive-rx off rx-usecs 0"
        return Finding("network", interface.name, Status.WARNING, "; ".join(facts), fix)
    return Finding("network", interface.name, Status.OK, "; ".join(facts))


def summarise_offloads(features: Iterable[str]) -> list[str]:
    """Return the kinds of offloads among the kernel's many features."""
    active = list(features)
    kinds = {
        "segmentation": ("segmentation", "-gso"),
        "checksum": ("checksum",),
        "scatter-gather": ("scatter-gather",),
        "receive merging": ("-gro", "-lro"),
    }
    return [kind for kind, words in kinds.items() if any(word in name for name in active for word in words)]


def read_interface(name: str) -> Interface:
    """Read an interface's state from /sys and by ethtool's ioctl."""
    folder = _INTERFACES / name
    driver = folder / "device" / "driver"
    speed = read(folder / "speed")
    ethtool = IoctlEthtool(name)
    try:
        coalesce = _or_none(lambda: ethtool.get_coalesce())
        rings = _or_none(lambda: ethtool.get_rings())
    finally:
        ethtool.close()
    return Interface(
        name=name,
        driver=driver.resolve().name if driver.exists() else "",
        has_device=(folder / "device").exists(),
        state=read(folder / "operstate") or "unknown",
        mtu=int(read(folder / "mtu") or 0),
        speed_mbit_s=int(speed) if speed.isdigit() else None,
        offloads=tuple(active_offloads(name)),
        rx_coalesce_us=None if coalesce is None else int(coalesce.rx_coalesce_usecs),
        adaptive_rx=None if coalesce is None else bool(coalesce.use_adaptive_rx_coalesce),
        ring_rx=None if rings is None else (int(rings.rx), int(rings.rx_max)),
    )


def _or_none(query: Callable[[], _Value]) -> _Value | None:
    try:
        return query()
    except (EthtoolError, OSError):
        return None  # most drivers support only some queries
