# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Several processes through one interface, as real programs in the lab: what is recorded, and how it ends."""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import polars as pl
import pytest
from conftest import PROBE, barewire, bench_json, eventually, stand_up

from barewire.lab import Lab
from barewire.results.store import samples

pytestmark = pytest.mark.usefixtures("nothing_left")

SHORT = ("--launches", "1", "--samples", "100", "--warmup", "10", "--blocks", "3", "--seconds", "0.05")


def test_processes_measure_at_once_and_each_is_on_record(tmp_path):
    document = bench_json(
        "pingpong,stream", "--transport", "tcp,raw,llc2", "--wait", "adaptive", "--processes", "1,3", "--sizes", "1400",
        *SHORT, "-o", str(tmp_path / "run"),
    )  # fmt: skip
    cells = {
        (test, subject, n) for test in ("pingpong", "stream") for subject in ("tcp", "raw", "llc2") for n in (1, 3)
    }
    found = {
        (one["test"], one["subject"].removesuffix("/adaptive"), one["processes"]): one for one in document["shared"]
    }
    assert set(found) == cells
    for one in found.values():
        if one["median"] is not None:  # where other work holds them up, every block may have a loss or no overlap
            assert len(one["each"]) == one["processes"] and all(one["each"])
            assert one["smallest_share"] <= 1 <= one["largest_share"]
    assert {one["subject"] for one in document["series"]} == {"tcp/adaptive", "raw/adaptive", "llc2/adaptive"}
    frame = samples(tmp_path / "run").filter((pl.col("processes") == 3) & (pl.col("phase") == "measure"))
    assert frame["process"].unique().to_list() == [0, 1, 2] and frame["pair"].unique().to_list() == [0]
    # A block counts for all processes or for none.
    rates = frame.filter((pl.col("test") == "stream") & pl.col("value").is_not_null())
    assert set(rates.group_by("launch", "block").len()["len"]) == {3}
    assert barewire("report", str(tmp_path / "run")).returncode == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert 'id="sharing-stream-1400"' in page and "processes over LLC 2" in page


def test_processes_get_their_sockets_from_brokers_behind_one_hook(tmp_path):
    """And transports that need no broker are measured in the same run; a socket that is alone would end it."""
    document = bench_json(
        "stream", "--transport", "tcp,llc2,endpoint", "--wait", "adaptive", "--processes", "1,3", "--sizes", "1400",
        "--broker", "--launches", "1", "--blocks", "3", "--seconds", "0.1", "-o", str(tmp_path / "run"),
    )  # fmt: skip
    assert document["complete"] and document["lab"]["broker"]
    found = {(one["subject"].removesuffix("/adaptive"), one["processes"]) for one in document["shared"]}
    assert found == {(subject, processes) for subject in ("tcp", "llc2", "endpoint") for processes in (1, 3)}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pingpong", "--processes", "0"), "1 to 111"),
        (("pingpong", "--processes", "a"), "'a'"),
        (("pingpong", "--processes", "1,,2"), "1,2,4"),
        (("pingpong", "--processes", "112"), "service access point"),
        (("pingpong", "--processes", "2", "--pairs", "2"), "--pairs or --processes"),
        (("bidirectional", "--processes", "2"), "pingpong and stream"),
        (("pingpong", "--processes", "2", "--transport", "xdp"), "--link packet"),
        (("pingpong", "--broker", "--hosts", "a,b", "--interface", "eth0"), "omit them with --hosts"),
    ],
)
def test_wrong_use_is_told_and_nothing_is_made(arguments, said, tmp_path):
    done = barewire("bench", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert said in " ".join(done.stderr.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("which", ["h1", pytest.param("h2", marks=pytest.mark.matrix)])
def test_a_process_that_is_killed_ends_the_launch_by_its_number_and_none_stays(which):
    """The second of three on either side; the others end although they are in the middle of a long block."""
    with stand_up("pair") as lab, _serve(lab):
        process = _drive(lab, "stream", "--transport", "llc2", "--wait", "block", "--processes", "3", "--seconds", "60")
        assert eventually(lambda: len(_members(which)) == 3)
        time.sleep(0.5)
        # They are started in the order of their numbers; the passive ones as they are asked for.
        victim = next(pid for pid in _members(which) if _pair_of(pid, which) in (1, None))
        os.kill(victim, signal.SIGKILL)
        output, error = process.communicate(timeout=30)
        assert process.returncode == 1
        assert " of 3: " in error and ("signal: 9" in error or "control channel" in error), error
        if which == "h1":
            assert "process 2 of 3" in error
        assert eventually(lambda: not _members("h1") and not _members("h2"))
        end = json.loads(output.splitlines()[-1])
    assert end["record"] == "end" and not end["complete"] and " of 3: " in end["error"]


def test_a_passive_side_with_threads_refuses_processes():
    with stand_up("pair") as lab, _serve(lab, processes=False):
        process = _drive(lab, "pingpong", "--processes", "2")
        error = process.communicate(timeout=30)[1]
    assert process.returncode == 2 and "--processes" in error


def _serve(lab: Lab, *, processes: bool = True) -> "subprocess.Popen[bytes]":
    options = ["--until-eof", "--no-announce", "--listen", f"unix:{lab.directory / 'control'}", *_place(lab, "h2")]
    command = [PROBE, "serve", *options, *(["--processes"] if processes else [])]
    process = lab.popen("h2", command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None and b"ready" in process.stdout.readline()
    return process


def _drive(lab: Lab, *arguments: str) -> "subprocess.Popen[str]":
    options = [*arguments, "--peer", f"unix:{lab.directory / 'control'}", *_place(lab, "h1")]
    return lab.popen("h1", [PROBE, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _place(lab: Lab, host: str) -> list[str]:
    station = lab.host(host)
    return ["--interface", station.interface, "--address", station.address, "--cpus", str(station.cpus[0])]


def _members(host: str) -> list[int]:
    """The processes of a side: h1 drives, h2 answers; those of this test's labs, which its directory marks."""
    kind, marker = {"h1": "Active", "h2": "Passive"}[host], os.environ["XDG_RUNTIME_DIR"]
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError):
                arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
                ours = marker in (process / "environ").read_bytes().decode(errors="replace")
                if ours and "member" in arguments and f'"{kind}"' in arguments[2]:
                    found.append(int(process.name))
    return sorted(found)


def _pair_of(pid: int, host: str) -> int | None:
    """Which of the active side's processes this is; the passive ones learn that later."""
    if host == "h2":
        return None
    role = json.loads(Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[2])
    pair: int = role["Active"]["session"]["pair"]
    return pair
