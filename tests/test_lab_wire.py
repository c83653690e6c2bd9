# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A frame takes its time on a lab's link with a rate, for every transport; tests/debian_kernel has other kernels."""

from pathlib import Path
from typing import Any

import pytest
from conftest import barewire, bench_json, stand_up

from barewire.errors import MachineCannot
from barewire.lab import Lab, LinkSpec
from barewire.lab.state import Wire

SHORT = ("--launches", "2", "--samples", "200", "--warmup", "10", "--seconds", "0.3")
ATTEMPTS = 3
RATE_MBIT_S = 100
# What the wire's limit counts of each transport's frame with 1400 bytes; its own headers come on top.
FRAMES = {"raw": 1438, "udp": 1466, "tcp": 1490, "llc2": 1438, "endpoint": 1438}


def series_of(folder: Path, *arguments: str) -> dict[str, Any]:
    """The series of a ping-pong of 1400 bytes by transport."""
    document = bench_json("pingpong", "--sizes", "1400", *SHORT, *arguments, "-o", str(folder))
    return {one["subject"]: one for one in document["series"]}


def test_a_ping_pong_takes_the_wires_time_and_the_software_s(tmp_path: Path) -> None:
    with stand_up("pair", LinkSpec(RATE_MBIT_S * 10**6)) as lab:
        if lab.wire != Wire.CLOCK:
            pytest.skip(f"links are not held by the clock on this machine: {'; '.join(lab.notes)}")
    transports = ("--transport", ",".join(FRAMES))
    late: dict[str, tuple[float, float]] = {}
    for attempt in range(ATTEMPTS):
        unshaped = series_of(tmp_path / f"unshaped-{attempt}", *transports)
        shaped = series_of(tmp_path / f"shaped-{attempt}", *transports, "--rate", f"{RATE_MBIT_S}mbit")
        late.clear()
        for transport, frame_bytes in FRAMES.items():
            wire_us = 8 * frame_bytes / RATE_MBIT_S
            assert shaped[transport]["verdict"] == "ok"
            least_us, most_us = shaped[transport]["min"], 1.03 * (wire_us + unshaped[transport]["median"])
            assert wire_us <= least_us
            if least_us > most_us:
                late[transport] = (least_us, most_us)
        # Other work on the machine makes frames later, never earlier.
        if not late:
            break
    assert not late


@pytest.mark.parametrize("topology", [pytest.param("star:2", marks=pytest.mark.matrix), "routed:2"])
def test_two_links_take_two_frames_time(topology: str, tmp_path: Path) -> None:
    with stand_up(topology, LinkSpec(RATE_MBIT_S * 10**6)) as lab:
        if lab.wire != Wire.CLOCK:
            pytest.skip(f"links are not held by the clock on this machine: {'; '.join(lab.notes)}")
    series = series_of(tmp_path / "run", "--transport", "udp", "--rate", f"{RATE_MBIT_S}mbit", "--lab", topology)
    wire_us = 2 * 8 * FRAMES["udp"] / RATE_MBIT_S
    assert wire_us <= series["udp"]["min"] <= 1.03 * (wire_us + 10)


def test_a_delay_needs_netem_and_says_so() -> None:
    link = LinkSpec(10**9, delay_us=500)
    try:
        lab = Lab.up("pair", link)
    except MachineCannot as error:
        if "namespaces" in str(error):
            pytest.skip(f"no lab on this machine: {error}")
        assert "modprobe sch_netem" in str(error) and "omit --delay" in str(error)
        refused = barewire("lab", "up", "--rate", "1gbit", "--delay", "500us")
        assert refused.returncode == 3 and "sch_netem" in refused.stderr
    else:
        with lab:
            assert lab.wire == Wire.EMULATOR


def test_lab_up_names_the_means(nothing_left: None, lab_allowed: None) -> None:
    up = barewire("lab", "up", "--rate", "1gbit")
    try:
        assert up.returncode == 0 and any(f"({wire})" in up.stdout for wire in Wire), up.stderr
    finally:
        barewire("lab", "down", "--all")
