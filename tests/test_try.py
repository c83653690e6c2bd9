# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire try` says who is faster, and notices every way in which a program does not behave the same over both."""

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import barewire, jobs_left_over
from mpi_libraries import library, needs, program

pytestmark = pytest.mark.usefixtures("lab_allowed", "nothing_left")

ONCE = ("--launches", "1", "--json")
MORE = [pytest.param(name, marks=pytest.mark.matrix) for name in ("openmpi", "openmpi-5")]


def tried(folder: Path, *arguments: str) -> tuple[Any, dict[str, Any]]:
    needs("barewire")
    done = barewire("try", "-o", str(folder / "try"), *ONCE, "--", *arguments)
    assert done.stdout, done.stderr
    return done, json.loads(done.stdout)


@pytest.mark.parametrize("name", ["mpich-5", *MORE])
def test_a_program_is_compared_and_profiled_over_both_fabrics(name: str, tmp_path: Path) -> None:
    done, document = tried(tmp_path, program(name, "profiled"), "requests")
    assert done.returncode == 0, done.stderr
    phases = [(one["phase"], one["fabric"]) for one in document["launches"]]
    assert sorted(phases) == sorted(
        (phase, fabric) for phase in ("warm-up", "timed", "profiled") for fabric in ("barewire", "tcp")
    )
    whole, main = document["contests"]
    assert whole["what"] == "whole launch" and main["what"] == "MPI_Init to MPI_Finalize"
    assert all(0.1 < inner < outer for inner, outer in zip(main["medians"], whole["medians"], strict=True))
    assert whole["verdict"] == "undecided" and "Undecided" in document["says"][0], "one launch of each proves nothing"
    assert document["output"]["agree"] and document["output"]["timings"] + document["output"]["varying"] == 1
    for profile in document["profiles"].values():
        assert {row["call"] for row in profile["calls"]} >= {"MPI_Send", "MPI_Recv", "MPI_Waitall"}
        assert len(profile["ranks"]) == 2
    page = (tmp_path / "try" / "report.html").read_text()
    assert ": Barewire or TCP?" in page and "Longest waits" in page
    kept = sorted(file.name for file in (tmp_path / "try" / "output").iterdir())
    assert len(kept) == 12 and not [file for file in (tmp_path / "try").iterdir() if file.name.startswith(".")]


@pytest.mark.parametrize("name", ["mpich-5", *MORE])
def test_results_that_differ_are_shown_and_both_outputs_are_kept(name: str, tmp_path: Path) -> None:
    done, document = tried(tmp_path, program(name, "profiled"), "differs")
    assert done.returncode == 1 and "THE OUTPUT DIFFERS" in done.stderr
    assert document["output"]["differences"] == [{"line": "energy #", "first": "-5.25", "second": "-4.25"}]
    for fabric, energy in (("barewire", "-5.25"), ("tcp", "-4.25")):
        kept = list((tmp_path / "try" / "output").glob(f"*-{fabric}-*.out"))
        assert kept and all(f"energy {energy}" in file.read_text() for file in kept)


@pytest.mark.parametrize("name", ["mpich-5", *MORE])
def test_a_launch_that_fails_over_one_fabric_only_is_said_with_its_output(name: str, tmp_path: Path) -> None:
    done, document = tried(tmp_path, program(name, "profiled"), "fails-over-barewire")
    assert done.returncode == 1, done.stderr
    assert "the program fails over barewire, and not over tcp" in done.stderr
    assert "ended with exit code 4" in done.stderr and "a check of the program failed" in done.stderr
    assert {one["fabric"]: one["code"] for one in document["launches"]} == {"barewire": 4, "tcp": 0}


def test_a_program_that_fails_over_both_ends_with_its_own_code(tmp_path: Path) -> None:
    done, _ = tried(tmp_path, program("mpich-5", "profiled"), "leaves")
    assert done.returncode == 7 and "the program fails over both fabrics" in done.stderr, done.stderr


def test_a_program_that_never_ends_is_ended(tmp_path: Path) -> None:
    needs("barewire")
    built = program("mpich-5", "profiled")
    done = barewire("try", "-o", str(tmp_path / "try"), "--limit", "2", *ONCE, "--", built, "hangs")
    assert done.returncode == 1 and "had not ended after 2 s (--limit)" in done.stderr, done.stderr
    assert jobs_left_over() == set()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--baseline", "barewire", "--", "true"), "compared with itself"),
        (("--launches", "0", "--library", "mpich", "--", "true"), "--launches takes"),
        (("--limit", "-1", "--library", "mpich", "--", "true"), "above 0"),
        (("--library", "mpich", "--baseline", "token-ring", "--", "true"), "unknown fabric"),
    ],
)
def test_bad_input_says_what_to_do(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    library("mpich")
    done = barewire("try", "-o", str(tmp_path / "try"), *arguments)
    assert done.returncode == 2 and said in " ".join(done.stderr.split()), done.stderr
    assert not (tmp_path / "try").exists() or not list((tmp_path / "try").iterdir())
