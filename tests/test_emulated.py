# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The kernel's LLC beside TCP and our own between two emulated machines, as `bench --emulated` measures it."""

import json
from pathlib import Path

import pytest
from conftest import barewire

from barewire.results.store import read_run

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_in_a_lab_the_kernel_has_no_llc_and_the_message_says_where(tmp_path: Path) -> None:
    done = barewire("bench", "pingpong", "--transport", "kernel-llc2", "--lab", "pair", "-o", str(tmp_path / "run"))
    assert done.returncode == 3 and "--emulated" in done.stderr and "modprobe llc2" in done.stderr, done.stderr


@pytest.mark.matrix
def test_the_kernels_llc_is_measured_beside_tcp_and_ours(tmp_path: Path) -> None:
    """Whole messages, larger than a frame too, arrive intact both ways; a run says that its times are emulated."""
    run = tmp_path / "run"
    done = barewire(
        *("bench", "pingpong,stream,bidirectional", "--emulated", "--transport", "kernel-llc2,tcp,llc2"),
        *("--wait", "block", "--sizes", "1,1496,1497,8192", "--launches", "2", "--seconds", "0.02", "--blocks", "2"),
        *("--warmup", "5", "--json", "-o", str(run)),
    )
    if done.returncode == 3:
        pytest.skip(f"no emulated machines: {done.stderr}")
    assert done.returncode == 0, done.stderr
    found = {(one["test"], one["subject"], one["message_bytes"]): one for one in json.loads(done.stdout)["series"]}
    tests = ("pingpong", "stream", "bidirectional")
    subjects = ("kernel-llc2/block", "tcp/block", "llc2/block")
    assert set(found) == {(test, name, size) for test in tests for name in subjects for size in (1, 1496, 1497, 8192)}
    assert all(one["median"] > 0 and not one["lost"] for one in found.values())
    assert any("emulated machines" in warning for warning in read_run(run).warnings)
    for launch in read_run(run).launches:
        start = launch.details["start"]
        assert start["host"]["kernel"] == start["peer"]["kernel"] and start["host"]["kernel"].endswith("-amd64")
