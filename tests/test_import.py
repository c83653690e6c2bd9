# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What the tools themselves print today is imported: every number that they printed, and no other."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import barewire
from mpi_libraries import launched, library
from test_mpi import HPCC_VALUES

ON_THIS_HOST = ("--hosts", "localhost", "--fabric", "shm", "--library", "openmpi", "-n", "2")


def imported(directory: Path, *arguments: str) -> dict[str, Any]:
    done = barewire("import", *arguments, "-o", str(directory / "run"), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_netpipe_as_printed_and_as_its_file(tmp_path: Path) -> None:
    program = shutil.which("NPopenmpi")
    if program is None:
        pytest.skip("NetPIPE is not installed: apt install netpipe-openmpi")
    library("openmpi")
    file = tmp_path / "np.out"
    done = launched(*ON_THIS_HOST, "--", program, "-n", "20", "-u", "2048", "-o", str(file), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "printed.txt").write_text(done.stderr + done.stdout)
    printed = re.findall(r"(\d+) bytes .* in +([\d.]+) usec", done.stderr + done.stdout)
    assert len(printed) > 20

    document = imported(tmp_path / "a", str(tmp_path / "printed.txt"), "--subject", "openmpi/shm")
    found = {series["message_bytes"]: series["median"] for series in document["series"]}
    assert found == {int(size): float(time) for size, time in printed}
    assert {series["quantity"] for series in document["series"]} == {"half_round_trip"}

    document = imported(tmp_path / "b", str(file), "--subject", "openmpi/shm")
    exact = {series["message_bytes"]: series["median"] for series in document["series"]}
    # np.out has 10 ns, what is printed has them rounded likewise.
    assert exact == pytest.approx(found, abs=0.0101)
    compared = barewire("compare", str(tmp_path / "a/run"), str(tmp_path / "b/run"), "--across-environments", "--json")
    ratios = [each["ratio"] for each in json.loads(compared.stdout)["comparisons"]]
    assert len(ratios) == len(found) and ratios == pytest.approx([1.0] * len(ratios), abs=0.01)


def test_hpc_challenges_summary(tmp_path: Path) -> None:
    program = shutil.which("hpcc")
    if program is None:
        pytest.skip("HPC Challenge is not installed: apt install hpcc")
    library("openmpi")
    (tmp_path / "hpccinf.txt").write_text(HPCC_VALUES.replace(" ", "\n"))
    done = launched(*ON_THIS_HOST, "--", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    output = tmp_path / "hpccoutf.txt"
    summary = dict(re.findall(r"^(\w+)=(\S+)$", output.read_text(), re.MULTILINE))

    document = imported(tmp_path, str(output), "--subject", "openmpi/shm")
    found = {(s["test"], s["variant"], s["quantity"], s["message_bytes"]): s["median"] for s in document["series"]}
    assert found["pingpong", "mean-of-pairs", "half_round_trip", 8] == float(summary["AvgPingPongLatency_usec"])
    ring = float(summary["RandomlyOrderedRingBandwidth_GBytes"])
    assert found["ring", "random", "bandwidth", 2_000_000] == pytest.approx(ring * 8e3)
    assert found["hpcc", "hpl", "flops", 0] == pytest.approx(float(summary["HPL_Tflops"]) * 1e3)
    assert {series["ranks"] for series in document["series"]} == {2}
