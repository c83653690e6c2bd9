# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The scoreboard as its user runs it: one pattern at two sizes under a real library; and several measurements in one
launch, as the scoreboard makes them."""

import json
from pathlib import Path

import pytest
from conftest import barewire
from mpi_libraries import launched, library, needs

from barewire.measure.mpi_records import read_mpi_records
from barewire.mpi import suite
from barewire.results.store import samples

pytestmark = pytest.mark.usefixtures("lab_allowed", "nothing_left")

NAME = "mpich-5"


def test_a_small_scoreboard_has_its_rows_page_and_samples(tmp_path: Path) -> None:
    library(NAME)
    needs("barewire")
    directory, page = tmp_path / "board", tmp_path / "scoreboard.md"
    chosen = ("--quick", "--testbeds", "pair", "--patterns", "pingpong", "--library", NAME, "--sizes", "8,4096")
    done = barewire("mpi", "scoreboard", *chosen, "--launches", "1", "-o", str(directory), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {(row["test"], row["message_bytes"], row["library"]) for row in document["rows"]} == {
        ("pingpong", 8, NAME),
        ("pingpong", 4096, NAME),
    }
    assert all(row["best"] in (f"{NAME}/tcp", f"{NAME}/ucx") and row["ratio"] > 0 for row in document["rows"])
    ratios = [row["ratio"] for row in document["rows"]]
    assert ratios == sorted(ratios, reverse=True)
    assert {*samples(directory / "pair")["phase"]} == {"warmup", "measure"}
    again = barewire("mpi", "scoreboard", str(directory), "--markdown", str(page))
    assert again.returncode == 0 and "Worst first" in again.stdout
    assert "pingpong blocking-standard" in page.read_text()
    assert f'data-library="{NAME}"' in (directory / "scoreboard.html").read_text()


def test_several_measurements_in_one_launch_are_each_whole(tmp_path: Path) -> None:
    """A pair of four ranks measures first, then all: groups, options and contents of one are not the next one's."""
    chosen = library("openmpi")
    program = suite.build(chosen, ["several"])["several"]
    records = tmp_path / "records"
    effort = ("--samples", "5", "--seconds", "0.01", "--output", str(records))
    first = ("pingpong", "--variants", "blocking-standard", "--sizes", "8,1000", "--pairs", "1", *effort)
    second = ("alltoall", "--variants", "collective", "--sizes", "64", *effort)
    third = ("exchange", "--variants", "sendrecv", "--pairs", "0", "--sizes", "64", *effort)
    where = ("-n", "4", "--lab", "pair", "--fabric", "tcp", "--library", "openmpi")
    done = launched(*where, "--", program, *first, "+", *second, "+", *third)
    assert done.returncode == 0, done.stderr
    read = read_mpi_records(records, 0, "openmpi/tcp")
    measured = read.samples.select("test", "variant", "message_bytes", "pairs", "ranks").unique().sort("message_bytes")
    assert {*measured.iter_rows()} == {
        ("pingpong", "blocking-standard", 8, 1, 4),
        ("pingpong", "blocking-standard", 1000, 1, 4),
        ("alltoall", "collective", 64, 1, 4),
        ("exchange", "sendrecv", 64, 2, 4),
    }
    assert read.end.get("complete") and read.start["test"] == "pingpong"


def test_an_unknown_measurement_among_several_is_refused_before_mpi_starts() -> None:
    program = suite.build(library("openmpi"), ["several"])["several"]
    done = launched("-n", "2", "--lab", "pair", "--fabric", "tcp", "--library", "openmpi", "--", program, "nosuch")
    assert done.returncode == 2 and "'nosuch' is no measurement; there are: alltoall" in done.stderr
