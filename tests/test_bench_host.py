# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire bench host` as its user runs it: plausible numbers, whole blocks, files that stay."""

import json
import math
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from conftest import BAREWIRE, ROOT, barewire

from barewire.results.store import read_run, samples

pytestmark = pytest.mark.usefixtures("nothing_left")

HOST = str(ROOT / "target" / "release" / "barewire-host")
# 64 MiB are beyond the second-level cache of any core.
SHORT = ("--launches", "2", "--seconds", "0.002", "--largest-block", str(64 << 20))


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """One short run of everything, as `--json` prints it."""
    directory = tmp_path_factory.mktemp("host") / "run"
    done = barewire("bench", "host", *SHORT, "--seed", "7", "--json", "-o", str(directory))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def medians(document):
    return {(one["name"], one["block_bytes"]): one["median"] for one in document["measures"]}


def test_every_number_is_positive_finite_and_in_order(document):
    assert document["schema"] == "barewire-host/1" and document["complete"]
    assert len(document["measures"]) > 50
    for one in document["measures"]:
        assert set(one) >= {"name", "block_bytes", "unit", "median", "ci95", "min", "p99", "launches", "samples"}
        assert one["unit"] == ("MB/s" if one["name"].startswith(("memory/", "file/", "transfer/")) else "ns"), one
        for key in ("median", "min", "p99"):
            assert math.isfinite(one[key]) and one[key] > 0, one
        assert one["min"] <= one["median"] and one["min"] <= one["p99"] and one["launches"] == 2, one
        assert one["ci95"] is None, "two launches give no interval"


def test_the_numbers_are_plausible(document):
    found = medians(document)
    for way in ("read", "write", "copy", "memcpy"):
        # Nothing is faster than the first-level cache; a machine of one size of cache may be as fast.
        assert found[f"memory/{way}", 8192] > 0.9 * found[f"memory/{way}", 64 << 20], way
    assert found["syscall/clock", None] < found["syscall/write", None] * 2
    # Another process takes more than the same byte alone, and entering the kernel twice more than once.
    assert found["wakeup/pipe/same", None] > found["wakeup/pipe/self", None] > found["syscall/getppid", None]
    assert 0 < found["switch/process", None] < found["wakeup/pipe/same", None]
    if len(os.sched_getaffinity(0)) > 1:
        # Handing over a line takes no system call; waking another process takes several.
        assert 0 < found["distance/line/across", None] < found["wakeup/futex/across", None]
        assert found["wakeup/tcp/across", None] > 0 and found["transfer/tcp/across", 1 << 20] > 0
    # A dependent load costs what the cache's distance does; random order at least what strides do.
    assert found["load/random", 8192] < found["load/random", 64 << 20]
    assert found["load/stride-128", 64 << 20] < 1.5 * found["load/random", 64 << 20]
    # Each does what the one before does, and more.
    assert found["process/fork", None] < found["process/exec", None] < found["process/shell", None]
    assert found["context/alone", 65536] < found["context/processes-16", 65536]
    assert found["switch/processes-2", None] > 0
    assert found["transfer/pipe/same", 65536] > 10, "MB/s"
    for size in (None, 1024, 4096, 10240):
        assert found["filesystem/create", size] > 0 and found["filesystem/delete", size] > 0
    # What is mapped already has no system call to make.
    assert found["file/mapped", 4096] > found["file/read", 4096]
    assert found["file/mapped", 4096] > found["file/map", 4096]


def test_blocks_are_complete_and_every_stretch_respects_the_clock(document):
    run, frame = read_run(Path(document["directory"])), samples(Path(document["directory"]))
    assert run.complete and len(run.launches) == 2 * (10 + any(one.test == "send" for one in run.launches))
    sizes = {(one["name"], one["block_bytes"]) for one in document["measures"] if one["name"].startswith("memory/")}
    assert {size for name, size in sizes if name == "memory/read"} == {8192 * 4**n for n in range(7)} | {64 << 20}
    assert {size for name, size in sizes if name == "memory/copy"} == {8192 * 4**n for n in range(7)} | {64 << 20}
    assert set(frame["phase"].unique()) == {"warmup", "measure"}
    for launch in run.launches:
        start = launch.details["start"]
        assert start["stretch_ns"] >= 100 * max(start["clock_step_ns"], start["clock_read_ns"])
        assert launch.complete and launch.details["end"]["complete"]


def test_the_copy_crossover_lies_in_the_sizes_that_were_measured(document):
    found = {one["name"]: one for one in document["crossovers"]}
    assert "read against map" in found
    if "copy crossover" not in found:
        pytest.skip(f"no lab on this machine, so nothing was sent: {document['warnings']}")
    one = found["copy crossover"]
    assert one["smallest_bytes"] <= one["bytes"] <= one["largest_bytes"] and one["launches"] == 2
    assert ("send/copied", 64) in medians(document) and ("send/gathered", 64) in medians(document)


def test_a_run_has_a_report_and_compares_with_another(document):
    directory = Path(document["directory"])
    assert barewire("report", str(directory)).returncode == 0
    page = (directory / "report.html").read_text()
    assert "Against the reference" in page and "memory/read" in page
    done = barewire("compare", str(directory), str(directory), "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["comparisons"]) > 50


def test_an_own_document_is_a_reference(document, tmp_path):
    reference = tmp_path / "reference.json"
    reference.write_text(json.dumps(document))
    arguments = ("bench", "host", "syscall", *SHORT, "--reference", str(reference))
    done = barewire(*arguments, "-o", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert "syscall/getppid" in done.stdout and document["run"] in done.stdout
    without = barewire("bench", "host", "syscall", *SHORT, "--reference", "none", "--json",
                       "-o", str(tmp_path / "none"))  # fmt: skip
    answer = json.loads(without.stdout)
    assert answer["reference"] is None and all(one["times_reference"] is None for one in answer["measures"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nosuch",), "memory, load, syscall, process, context, wakeup, distance, transfer, filesystem, file, send"),
        (("--launches", "0"), "1 to"),
        (("--launches", "many"), "not a valid int"),
        (("--seconds", "0"), "above 0"),
        (("--largest-block", "1"), "8192"),
        (("--reference", "nosuch.json"), "nosuch.json"),
        (("--rate", "1gbit"), "--rate"),
    ],
)
def test_wrong_use_is_told_and_nothing_is_made(arguments, said, tmp_path):
    done = barewire("bench", "host", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert said in " ".join(done.stderr.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [("memory", "--seconds", "0"), ("memory", "--seconds", "x"), ("syscall", "--cpu", "100000"),
                  ("wakeup", "--cpu", "0", "--other-cpu", "0"), ("transfer", "--other-cpu", "100000"),
                  ("load", "--largest-block", str(1 << 50)), ("send", "--interface", "nosuch0"), ("nosuch",)]
)  # fmt: skip
def test_the_program_refuses_what_it_cannot_measure(arguments):
    done = subprocess.run([HOST, *arguments], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2 and done.stderr


@pytest.mark.parametrize("command", ["answer futex", "answer udp", "source socket", "member 0"])
def test_an_answering_process_whose_parent_ended_before_it_began_ends(command, tmp_path):
    parent = subprocess.Popen(["true"])
    parent.wait()
    ours, theirs = socket.socketpair()
    with (tmp_path / "input").open("w+b") as file, ours, theirs:
        file.truncate(4096)
        arguments = [HOST, *command.split(), "--cpu", str(min(os.sched_getaffinity(0))), "--parent", str(parent.pid)]
        source = file if "futex" in command else theirs
        done = subprocess.run(arguments, stdin=source, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1 and f"process {parent.pid}, which started this one, has ended" in done.stderr


def test_what_a_killed_process_left_does_not_stop_a_later_one_with_its_number(tmp_path):
    """The shell makes it and then becomes the program, so that the number is the same."""
    script = 'mkdir .barewire-host-$$ && exec "$0" filesystem --seconds 0.001'
    done = subprocess.run(["sh", "-c", script, HOST], cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("delay_s", [1.0, pytest.param(2.5, marks=pytest.mark.matrix)])
def test_an_interrupt_keeps_what_was_measured(delay_s, tmp_path):
    """Interrupts the whole process group, as a terminal does."""
    run = tmp_path / "run"
    command = [BAREWIRE, "bench", "host", "syscall,wakeup,file", "--launches", "500", "--seconds", "0.01",
               "-o", str(run)]  # fmt: skip
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(delay_s)
        os.killpg(process.pid, signal.SIGINT)
        error = process.communicate(timeout=20)[1]
    assert process.returncode in (130, -signal.SIGINT), error
    assert "Traceback" not in error or process.returncode == -signal.SIGINT, error
    if (run / "run.json").exists():
        found = read_run(run)
        assert not found.complete and found.stopped_by == "interrupt"
        assert samples(run).height > 0 or len(found.launches) <= 1
        assert not (run / "launches").exists()
        assert barewire("report", str(run)).returncode == 0


def test_a_killed_run_is_recovered_from_its_launches(tmp_path):
    run = tmp_path / "run"
    command = [
        BAREWIRE,
        "bench",
        "host",
        "--launches",
        "500",
        "--seconds",
        "0.005",
        "syscall",
        "-o",
        str(run),
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        for _ in range(400):
            if len(list(run.glob("launches/*.jsonl"))) > 3:
                break
            time.sleep(0.05)
        process.kill()
    assert barewire("report", str(run)).returncode == 0
    found = read_run(run)
    assert found.stopped_by == "the run was killed" and found.series and not found.complete
