# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire bench` as its user runs it: the whole path from the command line to the files."""

import json
import os
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from conftest import BAREWIRE, barewire, bench_json, eventually, stand_up

from barewire.results.store import read_run, samples

pytestmark = pytest.mark.usefixtures("nothing_left")

SHORT = ("--launches", "2", "--samples", "100", "--warmup", "10", "--blocks", "3", "--seconds", "0.2")
SERIES_FIELDS = {
    "test", "subject", "message_bytes", "unit", "median", "ci95", "min", "p99", "launches", "samples", "limit",
    "fraction_of_limit",
}  # fmt: skip


def test_the_main_job_prints_one_document_with_every_field(tmp_path):
    document = bench_json(
        "pingpong", "--transport", "tcp,udp,raw", "--sizes", "64,1400", "--lab", "pair", "--samples", "200",
        "--launches", "6..6", "-o", str(tmp_path / "run"),
    )  # fmt: skip
    assert document["complete"] and document["stopped_by"] is None
    series = {(one["subject"], one["message_bytes"]): one for one in document["series"]}
    assert set(series) == {(subject, size) for subject in ("tcp", "udp", "raw", "floor") for size in (64, 1400)}
    for one in series.values():
        assert set(one) >= SERIES_FIELDS
        # All, if the machine is not so busy that a launch's time is over before.
        assert one["unit"] == "us" and one["launches"] == 6 and 600 < one["samples"] <= 1200
        assert one["ci95"][0] <= one["median"] <= one["ci95"][1]
        assert 0 < one["min"] <= one["median"] <= one["p99"]
        assert one["limit"] == series["floor", one["message_bytes"]]["median"]
        assert one["fraction_of_limit"] == pytest.approx(one["limit"] / one["median"])
    # A launch is a start of both sides, in an order that the seed decides.
    order = [launch["subject"] for launch in document["launches"]]
    assert sorted(order) == sorted(["tcp", "udp", "raw", "floor"] * 6)
    assert order != sorted(order)
    assert len({launch["start"].get("session") for launch in document["launches"]}) > 6


def test_frames_of_every_transport_cross_a_router_in_datagrams(tmp_path: Path) -> None:
    """Every payload is checked. The wire is the limit, since the floor's frames do not get there."""
    transports = ("raw", "llc1", "llc2", "llc3", "endpoint", "messages")
    document = bench_json(
        "pingpong", "--transport", ",".join(transports), "--link", "udp", "--lab", "routed:2", "--rate", "1gbit",
        "--sizes", "8,20000", "--launches", "1", "--samples", "50", "--warmup", "5", "-o", str(tmp_path / "run"),
    )  # fmt: skip
    series = {(one["subject"], one["message_bytes"]): one for one in document["series"]}
    assert set(series) == {(f"{name}+udp", size) for name in transports for size in (8, 20000)}
    assert all(one["samples"] and one["limit_kind"] == "wire" for one in series.values())


@pytest.mark.matrix
@pytest.mark.parametrize(("launches", "samples", "within"), [("4..4", "100", 512), ("4..8", "500", 64)])
def test_refined_sizes_locate_the_second_frame(tmp_path: Path, launches: str, samples: str, within: int) -> None:
    """Raw frames carry 12 bytes of header: a message above 1488 bytes needs a second frame, also of the floor.

    An interval's middle is always measured; how near the sizes come on a busy machine is chance.
    """
    document = bench_json(
        "pingpong", "--transport", "raw", "--sizes", "512..8KiB", "--refine", "0.1", "--refine-smallest", "64",
        "--launches", launches, "--samples", samples, "--warmup", "50", "-o", str(tmp_path / "run"),
    )  # fmt: skip
    sizes = {
        subject: {one["message_bytes"] for one in document["series"] if one["subject"] == subject}
        for subject in ("raw", "floor")
    }
    assert sizes["raw"] == sizes["floor"]
    low, high = next((low, high) for low, high in pairwise(sorted(sizes["raw"])) if low <= 1488 < high)
    assert high - low <= within
    assert all(one["stop"] == "budget" or one["launches_to_converge"] for one in document["series"])


def test_mtus_and_eager_limits_are_factors_of_one_run(tmp_path: Path) -> None:
    """Every combination in each round, on links of its own: both sides report their MTU."""
    document = bench_json(
        "pingpong", "--transport", "tcp,messages", "--mtu", "1500,9000", "--tuned", "eager_bytes=4096,65536",
        "--sizes", "8000", "--launches", "1", "--samples", "50", "--warmup", "10", "-o", str(tmp_path / "run"),
    )  # fmt: skip
    expected = {
        f"{base}+mtu={mtu}"
        for base in ("tcp", "floor", "messages+eager_bytes=4096", "messages+eager_bytes=65536")
        for mtu in (1500, 9000)
    }
    assert (
        {one["subject"] for one in document["launches"]} == expected == {one["subject"] for one in document["series"]}
    )
    assert all(one["subject"].endswith(f"+mtu={one['start']['mtu']}") for one in document["launches"])
    assert len(document["launches"]) == len(expected) and document["lab"]["mtu"] == [1500, 9000]


@pytest.mark.parametrize("test", ["stream", pytest.param("bidirectional", marks=pytest.mark.matrix)])
def test_rates_are_in_mbit_s_and_every_sample_is_on_disk(test, tmp_path):
    document = bench_json(test, "--sizes", "1400", *SHORT, "-o", str(tmp_path / "run"))
    frame = samples(tmp_path / "run")
    for one in document["series"]:
        blocks = frame.filter((pl.col("subject") == one["subject"]) & (pl.col("phase") == "measure"))
        # A block that lost a message has no rate, and on a busy machine that is every block without flow control.
        rates = blocks.filter(pl.col("lost") == 0).height
        assert one["unit"] == "Mbit/s" and one["samples"] == rates and (rates or one["subject"] != "tcp")
        assert blocks.height
    assert set(frame["phase"].unique()) == {"warmup", "measure"} or test == "stream"
    medians = (
        frame.filter((pl.col("phase") == "measure") & (pl.col("subject") == "tcp") & (pl.col("lost") == 0))
        .group_by("launch")
        .agg(pl.col("value").median())
    )
    tcp = next(one for one in document["series"] if one["subject"] == "tcp")
    assert medians["value"].median() == pytest.approx(tcp["median"])
    assert not (tmp_path / "run" / "launches").exists()


def streams_fill_but_never_exceed(folder, *shaped):
    """Loose below, because this machine is noisy; tight above, because nothing may beat a wire.

    A receiver that lost its core finds a backlog and seems to, the more the shorter the run is: one run of three
    must be right, each four times as long as the one before.
    """
    for number in range(3):
        longer = ("--seconds", str(0.1 * 4**number))
        series = bench_json("stream", *shaped, *SHORT, *longer, "-o", str(folder / f"run-{number}"))["series"]
        assert {one["limit_kind"] for one in series} == {"wire"}
        fractions = {one["subject"]: one["fraction_of_limit"] for one in series}
        print(fractions)
        if all(0.3 < fraction < 1.005 for fraction in fractions.values()):
            return {one["subject"]: one for one in series}
    pytest.fail(f"of the wire, three times: {fractions}")


@pytest.mark.matrix
def test_a_shaped_link_is_filled_and_not_exceeded(tmp_path):
    shaped = ("--transport", "tcp,raw", "--rate", "10mbit", "--sizes", "1400")
    series = streams_fill_but_never_exceed(tmp_path, *shaped)
    assert series["raw"]["limit"] == pytest.approx(10 * 1400 / 1438)


def test_latency_on_a_shaped_link_is_judged_by_the_wire(tmp_path):
    """Where the kernel can only limit the rate, half the wire's time, which is marked impossible."""
    document = bench_json(
        "pingpong", "--transport", "raw", "--rate", "1mbit", "--sizes", "1400", *SHORT, "-o", str(tmp_path / "run")
    )
    (raw,) = document["series"]
    assert raw["limit"] == pytest.approx(11504)
    means = read_run(tmp_path / "run").lab["wire"]
    assert raw["verdict"] == {"clock": "ok", "netem": "ok", "tbf": "impossible"}[means]
    assert means == "tbf" or raw["min"] > 11504


@pytest.mark.matrix
@pytest.mark.parametrize("mtu", ["1500", "9000"])
def test_the_three_types_of_llc_carry_short_and_long_messages(mtu, tmp_path):
    """Above 1500 bytes of LLC data frames go under EtherType 0x8870."""
    document = bench_json(
        "pingpong,stream,bidirectional", "--transport", "llc1,llc2,llc3", "--sizes", "1,64,1500,100000", "--mtu", mtu,
        *SHORT, "-o", str(tmp_path / "run"),
    )  # fmt: skip
    found = {(one["test"], one["subject"], one["message_bytes"]) for one in document["series"] if one["median"]}
    tests = ("pingpong", "stream", "bidirectional")
    assert found >= {(t, s, m) for t in tests for s in ("llc1", "llc2", "llc3") for m in (1, 64, 1500, 100000)}
    assert all(one["lost"] == 0 for one in document["series"] if one["subject"] in ("llc2", "llc3"))


def test_a_connection_fills_a_shaped_link(tmp_path):
    streams_fill_but_never_exceed(tmp_path, "--transport", "llc2", "--rate", "10mbit", "--sizes", "16KiB")


@pytest.mark.parametrize(
    "wait", ["block", *(pytest.param(wait, marks=pytest.mark.matrix) for wait in ("adaptive", "busypoll"))]
)
def test_waiting_in_the_kernel_works_for_all_transports(wait, tmp_path):
    transports = ("tcp", "udp", "raw", "llc1", "llc2", "llc3")
    document = bench_json(
        "pingpong", "--transport", ",".join(transports), "--wait", wait, "--sizes", "64", *SHORT, "-o",
        str(tmp_path / "run"),
    )  # fmt: skip
    expected = {f"{transport}/{wait}" for transport in (("tcp", "udp") if wait == "busypoll" else transports)}
    assert {one["subject"] for one in document["series"]} == expected | {"floor"}


@pytest.mark.matrix
def test_several_pairs_perturbed_sizes_and_a_cold_cache(tmp_path):
    document = bench_json(
        "stream", "--pairs", "3", "--sizes", "512..1024", "--perturbation", "3", "--cache", "off", "--walk-bytes",
        "4000000", *SHORT, "-o", str(tmp_path / "run"),
    )  # fmt: skip
    assert {one["message_bytes"] for one in document["series"]} == {509, 512, 515, 1021, 1024, 1027}
    assert all(one["pairs"] == 3 and one["limit"] is None for one in document["series"])
    assert samples(tmp_path / "run")["pair"].n_unique() == 3
    assert all(launch["start"]["give_way"] for launch in document["launches"])
    assert document["parameters"]["walk_bytes"] == 4000000


def test_a_lab_carries_one_run_after_another_and_two_at_once(tmp_path: Path) -> None:
    with stand_up("pair") as lab:
        before = sorted(lab.directory.iterdir())

        def command(name: str, *more: str) -> list[str]:
            place = ("--lab", lab.id, "-o", str(tmp_path / name))
            return ["bench", "pingpong", "--sizes", "64", "--launches", "1", "--samples", "100", *place, *more]

        for number in range(2):
            done = barewire(*command(f"brokered-{number}", "--transport", "llc1", "--broker"))
            assert done.returncode == 0, done.stderr
            assert sorted(lab.directory.iterdir()) == before
        at_once = [
            subprocess.Popen(
                [BAREWIRE, *command(name, "--transport", "tcp")],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for name in ("one", "another")
        ]
        for process in at_once:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
        failed = barewire(*command("failed", "--transport", "tcp", "--tuned", "nosuch=1"))
        assert failed.returncode != 0
        assert sorted(lab.directory.iterdir()) == before


def test_a_star_measures_between_its_first_two_hosts(tmp_path):
    document = bench_json(
        "pingpong", "--lab", "star:3", "--sizes", "9000", "--mtu", "9000", *SHORT, "-o", str(tmp_path / "r")
    )
    assert document["lab"]["topology"] == "star:3" and document["lab"]["mtu"] == 9000
    assert all(one["median"] for one in document["series"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nosuch",), "pingpong, stream, bidirectional"),
        (("pingpong", "--transport", "ipx"), "tcp, udp, raw, xdp, llc1, llc2, llc3"),
        (("pingpong", "--wait", "dream"), "spin, adaptive, block, busypoll"),
        (("pingpong", "--transport", "raw", "--wait", "busypoll"), "busy-polled"),
        (("pingpong", "--lab", "ring:4"), "pair, star:N"),
        (("pingpong", "--rate", "fast"), "1gbit"),
        (("pingpong", "--rate", "1bit"), "outside"),
        (("pingpong", "--mtu", "10"), "68 to 65535"),
        (("pingpong", "--sizes", "0"), "1..64KiB"),
        (("pingpong", "--sizes", "x"), "'x'"),
        (("pingpong", "--launches", "many"), "6..12"),
        (("pingpong", "--launches", "5..2"), "5..2"),
        (("pingpong", "--hosts", "a"), "two hosts"),
        (("pingpong", "--pairs", "0"), "pairs"),
        (("pingpong", "--walk-bytes", "4096"), "--cache off"),
        (("pingpong", "--hosts", "localhost,localhost", "--port", "99999"), "--port"),
        (("pingpong", "--refine", "0"), "the threshold must be a share between 0 and 1"),
        (("pingpong", "--refine-smallest", "8"), "add --refine 0.05"),
        (("pingpong", "--refine", "0.05", "--refine-smallest", "9000"), "no interval between the message sizes"),
    ],
)
def test_wrong_use_is_told_and_nothing_is_made(arguments, said, tmp_path):
    done = barewire("bench", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert said in " ".join(done.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_something_in_it_is_not_written_to(tmp_path):
    (tmp_path / "mine").write_text("precious")
    done = barewire("bench", "pingpong", *SHORT, "-o", str(tmp_path))
    assert done.returncode == 2 and "not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("delay_s", [0.1, 0.8, 1.6, pytest.param(2.4, marks=pytest.mark.matrix)])
def test_an_interrupt_at_any_moment_keeps_what_was_measured(delay_s, tmp_path):
    """Interrupts the whole process group, as a terminal does, while starting, raising the lab, and measuring."""
    run = tmp_path / "run"
    command = [BAREWIRE, "bench", "pingpong", "--launches", "50", "--seconds", "0.5", "-o", str(run)]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(delay_s)
        os.killpg(process.pid, signal.SIGINT)
        error = process.communicate(timeout=20)[1]
    # Before Python has started, the signal's default action ends it, or Python by itself, without a line of ours.
    is_early = "Fatal Python error: init_import_site" in error
    assert is_early or process.returncode in (130, -signal.SIGINT), error
    assert "Traceback" not in error or is_early or process.returncode == -signal.SIGINT, error
    if run.exists() and (run / "run.json").exists():
        found = read_run(run)
        assert not found.complete and found.stopped_by == "interrupt"
        assert all(one.stop == "incomplete" for one in found.series)
        kept = samples(run)
        assert kept.height > 0 or len(found.launches) <= 1
        report = barewire("report", str(run))
        assert report.returncode == 0, report.stderr


def test_a_killed_run_is_recovered_from_its_launches(tmp_path):
    run = tmp_path / "run"
    command = [BAREWIRE, "bench", "pingpong", "--launches", "50", "--sizes", "64", "-o", str(run)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        assert eventually(lambda: len(list(run.glob("launches/*.jsonl"))) > 6, 20)
        process.kill()
    found = read_run(run)
    assert not found.complete and not found.series
    # The lab ended with its run; only its record is left.
    assert found.lab is not None and barewire("lab", "down", found.lab["id"]).returncode == 0
    report = barewire("report", str(run))
    assert report.returncode == 0, report.stderr
    recovered = read_run(run)
    assert not recovered.complete and recovered.stopped_by == "the run was killed"
    assert recovered.series and samples(run).height > 1000
    assert "incomplete" in (run / "report.html").read_text()


def test_a_full_disk_is_told_and_what_was_written_stays(tmp_path):
    """A file system of 256 KiB in a mount namespace of its own: the samples of a few launches fill it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    script = """
        mount -t tmpfs -o size=256k none "$1" || exit 99
        "$2" bench pingpong --launches 50 --sizes 64 -o "$1/run"
        code=$?
        cp -r "$1/run" "$3"
        exit $code
    """
    namespaces = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--user", "--map-root-user"]
    saved = tmp_path / "saved"
    command = [*namespaces, "sh", "-c", script, "sh", str(disk), BAREWIRE, str(saved)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    if done.returncode == 99:
        pytest.skip("no tmpfs can be mounted in a namespace here; run as root")
    assert done.returncode == 1, done.stderr
    assert "No space left" in done.stderr or "is full" in done.stderr
    assert "Traceback" not in done.stderr
    assert not read_run(saved).complete
    assert list(saved.glob("launches/*.jsonl"))
    assert barewire("report", str(saved)).returncode == 0
    assert samples(saved).height > 0


def test_two_machines_over_a_remote_shell(tmp_path):
    """The path for real machines, with the two hosts of a lab as machines and `lab exec` as the remote shell."""
    lab = json.loads(barewire("lab", "up", "--json").stdout)
    try:
        shell = tmp_path / "shell"
        enter = f"{BAREWIRE} lab exec --lab {lab['id']}"
        shell.write_text(f'#!/bin/sh\nhost=$1; shift\nPATH="$PROBE_BIN:$PATH"; exec {enter} "$host" -- sh -c "$*"\n')
        shell.chmod(0o755)
        environment = {**os.environ, "PROBE_BIN": str(Path(BAREWIRE).parents[1] / "target" / "release")}
        done = barewire(
            "bench", "pingpong", "--hosts", "h1,h2", "--interface", "eth0", "--remote-shell", str(shell), "--rate",
            "1gbit", "--json", *SHORT, "-o", str(tmp_path / "run"), env=environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert {one["subject"] for one in document["series"]} == {"tcp", "udp", "raw"}
        assert all(one["limit_kind"] == "wire" for one in document["series"])
        assert {launch["start"]["peer"]["name"] for launch in document["launches"]} == {"h2"}
    finally:
        barewire("lab", "down", lab["id"])
