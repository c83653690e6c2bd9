# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A check of a cluster as one self-contained HTML file."""

from typing import Any

from barewire.cluster.check import Checked
from barewire.cluster.measured import HostState
from barewire.cluster.words import percent
from barewire.report.answer import Answer
from barewire.report.cluster import LEGEND, Cell, cells, verdict
from barewire.report.html import page


def render_check(checked: Checked, *, created: str, command: str) -> str:
    """The page of a check."""
    measured = checked.measured
    return page(
        "cluster.html.j2",
        answer=Answer("Is every path of this cluster sound?", verdict(checked)),
        warnings=(),
        findings=checked.findings,
        unconfirmed=checked.unconfirmed,
        remarks=checked.remarks,
        hosts=list(measured.hosts),
        cells={f"{sender} {receiver}": _cell(cell) for (sender, receiver), cell in cells(measured).items()},
        states=[_state(name, host) for name, host in measured.hosts.items()],
        legend=LEGEND,
        created=created,
        command=command,
    )


def _cell(cell: Cell) -> dict[str, Any]:
    share = 0.0 if cell.share is None or cell.mark == "×" else min(1.0, cell.share)
    # From red over yellow to green; full colour for a fault.
    return {"text": cell.text, "tooltip": cell.tooltip, "hue": round(120 * share), "is_bad": bool(cell.mark)}


def _state(name: str, host: HostState) -> dict[str, str]:
    return {
        "name": name,
        "interface": host.interface,
        "speed": "unknown" if host.speed_mbit_s is None else f"{host.speed_mbit_s} Mbit/s",
        "duplex": host.duplex or "unknown",
        "mtu": str(host.mtu),
        "carrier": host.carrier,
        "core": "" if host.core_share is None else percent(host.core_share),
        "work": "" if host.work_ns is None else f"{host.work_ns / 1e3:.1f} µs",
        "errors": ", ".join(f"{count} {error}" for error, count in host.errors.items()) or "none",
        "doctor": "; ".join(f"{what}: {text}" for what, text in host.doctor.items()),
    }
