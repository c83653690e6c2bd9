# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire bench budget` as its user runs it: every layer of one path in one run, and what may be missing."""

import json
import os
from pathlib import Path

import pytest
from conftest import barewire
from mpi_libraries import library
from test_libfabric import needs_libfabric

from barewire.models.budget import PATH
from barewire.results.store import read_run, samples

pytestmark = pytest.mark.usefixtures("nothing_left", "lab_allowed")

SHORT = ("--launches", "2", "--samples", "100", "--warmup", "10", "--seconds", "0.02", "--sizes", "8,16KiB")


@needs_libfabric
def test_every_layer_is_launched_in_every_round_and_the_page_shows_what_each_adds(tmp_path: Path) -> None:
    """With one MPI library over Barewire and over TCP: one document, one page, all from the same samples."""
    library("mpich-5")
    directory = tmp_path / "run"
    done = barewire("bench", "budget", "--library", "mpich-5", *SHORT, "--json", "-o", str(directory))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["complete"]
    short, long = document["budgets"]
    assert (short["message_bytes"], long["message_bytes"]) == (8, 16384)
    for one in (short, long):
        assert [layer["subject"] for layer in one["path"]] == list(PATH)
        assert [layer["subject"] for layer in one["libraries"]] == ["mpich-5/barewire"]
        assert {layer["subject"] for layer in one["yardsticks"]} == {"tcp", "libfabric-tcp", "mpich-5/tcp"}
        top = one["path"][-1]["total"]
        assert sum(layer["added"] for layer in one["path"]) == pytest.approx(top), "the steps add up"
        assert one["libraries"][0]["added"] == pytest.approx(one["libraries"][0]["total"] - top)
        assert all(layer["rounds"] == 2 and layer["added_ci95"] is None for layer in one["path"])
    launches = [launch["subject"] for launch in document["launches"]]
    half = len(launches) // 2
    assert {*launches[:half]} == {*launches[half:]}, "each once in a round"
    report = barewire("report", str(directory))
    assert report.returncode == 0, report.stderr
    page = (directory / "report.html").read_text()
    assert "Latency budget: what each layer adds" in page and "MPICH 5" in page
    assert {*samples(directory)["subject"].unique()} == {*launches}


@needs_libfabric
@pytest.mark.matrix
def test_a_shaped_link_has_its_limit_and_no_floor(tmp_path: Path) -> None:
    done = barewire(
        "bench",
        "budget",
        "--library",
        "none",
        "--rate",
        "1gbit",
        *SHORT,
        "--launches",
        "1",
        "--json",
        "-o",
        str(tmp_path / "run"),
    )
    assert done.returncode == 0, done.stderr
    short, _ = json.loads(done.stdout)["budgets"]
    assert short["limit"] == pytest.approx(0.672)
    assert [layer["subject"] for layer in short["path"]] == [name for name in PATH if name != "floor"]


def test_without_libfabric_the_rest_of_the_path_is_measured_and_the_reason_told(tmp_path: Path) -> None:
    environment = {**os.environ, "BAREWIRE_LIBFABRIC": "/nonexistent/libfabric.so.1"}
    directory = tmp_path / "run"
    done = barewire("bench", "budget", "--library", "none", *SHORT, "-o", str(directory), env=environment)
    assert done.returncode == 0, done.stderr
    assert "libfabric is left out" in done.stderr and "apt install libfabric1" in done.stderr
    assert "+ messages" in done.stdout and "+ libfabric" not in done.stdout
    run = read_run(directory)
    assert any("libfabric-tcp is left out" in warning for warning in run.warnings)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--library", "nosuch"), 2, "unknown MPI library"),
        (("--sizes", "0"), 2, "'0'"),
        (("--launches", "0"), 2, "--launches takes N or N..M with 1 ≤ N ≤ M"),
        (("--hosts", "a"), 2, "two hosts"),
        (("--rate", "fast"), 2, "1gbit"),
        (("--transport", "tcp"), 2, "No such option"),
    ],
)
def test_wrong_use_is_told_and_nothing_is_made(
    arguments: tuple[str, ...], code: int, said: str, tmp_path: Path
) -> None:
    done = barewire("bench", "budget", *arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert said in " ".join(done.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_something_in_it_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    done = barewire("bench", "budget", "--library", "none", *SHORT, "-o", str(tmp_path))
    assert done.returncode == 2 and "not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
