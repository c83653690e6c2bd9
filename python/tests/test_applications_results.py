# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Applications: checks that must fail, figures, inputs by rank count, ratios of times and of rates, busy processes."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from barewire.applications import APPLICATIONS, SITES, Campaign, Plan, Results, Site, rows_of
from barewire.applications.application import (
    NUMBER,
    AgreesWithSerial,
    Application,
    CheckFailed,
    Figure,
    Prints,
    numbers,
)
from barewire.applications.application import Outcome as OutcomeOf
from barewire.applications.busy import busy_cores
from barewire.applications.campaign import Launch
from barewire.applications.generate import GRID_SIDE, PARTS, grid_graph, partition_is_fair
from barewire.applications.inputs import put_inputs
from barewire.applications.results import geometric_means, markdown
from barewire.errors import WrongUse

ROOT = Path(__file__).resolve().parents[2]
TIME = Figure("time", "s", rf"took {NUMBER}")
RATE = Figure("rate", "1/s", rf"rate {NUMBER}", lower_is_better=False)
TIMED = Application("timed", "a program", "none", ("package",), "true", (TIME, RATE), ())


def outcome(text: str, folder: Path = Path()) -> OutcomeOf:
    return OutcomeOf(text, folder, 1.5)


def launches(site: str, ours: list[float], theirs: list[float]) -> list[Launch]:
    found = [Launch(site, "timed", "barewire", 0, 1.0, {"time": 1e9, "rate": 1e9})]
    for fabric, values in (("barewire", ours), ("tcp", theirs)):
        found += [
            Launch(site, "timed", fabric, number, value, {"time": value, "rate": 10 / value})
            for number, value in enumerate(values, 1)
        ]
    return found


def test_numbers_of_c_and_fortran_are_parsed_in_order() -> None:
    assert numbers(rf"e = {NUMBER}", "e = 1.5\ne = -2.5D-01\ne = 3e2\ne = .5") == [1.5, -0.25, 300.0, 0.5]


def test_a_figure_is_the_last_match_or_the_wall_time_and_must_be_positive() -> None:
    assert TIME.read(outcome("took 2\ntook 3.5")) == 3.5
    assert Figure("wall", "s", None).read(outcome("")) == 1.5
    for text in ("nothing", "took 0", "took nan"):
        with pytest.raises(CheckFailed, match="does not report its time"):
            TIME.read(outcome(text))


@pytest.mark.parametrize("text", ["E 1.1", "E 1.0\nE 2.0", "", "E nan"])
def test_differences_from_the_serial_run_fail(text: str) -> None:
    check = AgreesWithSerial("energy", r"^E (\S+)", 1e-3)
    check(outcome("E 1.0005"), outcome("E 1.0"))
    with pytest.raises(CheckFailed, match="energy"):
        check(outcome(text), outcome("E 1.0"))


def test_a_required_verdict_must_be_printed_and_a_forbidden_one_must_not() -> None:
    check = Prints("PASSED", times=2, never="FAILED")
    check(outcome("PASSED PASSED"), None)
    for text in ("PASSED", "PASSED PASSED FAILED"):
        with pytest.raises(CheckFailed):
            check(outcome(text), None)


def test_random_accesses_must_have_no_errors_at_all() -> None:
    [check] = [each for each in APPLICATIONS["hpcc"].checks if isinstance(each, Prints) and "Errors" in each.pattern]
    for text in ("0", "0.0", "0.000\n"):
        check(outcome(f"MPIRandomAccess_ErrorsFraction={text}"), None)
    for text in ("0.00431", "0e", "01"):
        with pytest.raises(CheckFailed):
            check(outcome(f"MPIRandomAccess_ErrorsFraction={text}\n"), None)


def test_a_partition_must_cover_all_vertices_and_be_balanced_with_few_cuts(tmp_path: Path) -> None:
    grid_graph(tmp_path)
    assert (tmp_path / "grid.grf").read_text().splitlines()[1] == f"{GRID_SIDE**2} {4 * GRID_SIDE * (GRID_SIDE - 1)}"
    side = int(PARTS**0.5)

    def write(part_of: list[int]) -> OutcomeOf:
        lines = [f"{vertex} {part}" for vertex, part in enumerate(part_of)]
        (tmp_path / "grid.map").write_text("\n".join([str(len(lines)), *lines]))
        return outcome("", tmp_path)

    squares = [
        vertex // GRID_SIDE * side // GRID_SIDE * side + vertex % GRID_SIDE * side // GRID_SIDE
        for vertex in range(GRID_SIDE**2)
    ]
    partition_is_fair(write(squares))
    for wrong in ([0] * GRID_SIDE**2, squares[:-1], [vertex % PARTS for vertex in range(GRID_SIDE**2)]):
        with pytest.raises(CheckFailed):
            partition_is_fair(write(wrong))


@pytest.mark.parametrize("text", [None, "", "garbage", f"{GRID_SIDE**2}\n0 1\n1"])
def test_a_partition_that_is_missing_or_cut_short_is_a_wrong_result(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "grid.map").write_text(text)
    with pytest.raises(CheckFailed, match="no partition"):
        partition_is_fair(outcome("", tmp_path))


def test_a_program_without_inputs_is_launched_at_no_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second site finds the folder of the first, which has as many ranks, and nothing to compare results with."""
    monkeypatch.setattr(Campaign, "_execute", lambda *_: outcome("took 1"))
    application = replace(TIMED, checks=(AgreesWithSerial("time", rf"took {NUMBER}", 0.1),), prepare=("exit 7",))
    sites = tuple(Site(name, name, 2, rival="shm") for name in ("first", "second"))
    launched = Campaign(Plan((application,), sites, launches=1), tmp_path).run()
    assert [(launch.site, launch.fabric) for launch in launched] == [("first", "one rank"), ("second", "one rank")]
    assert all("ended with code 7" in str(launch.error) for launch in launched)


def test_templates_follow_the_number_of_ranks(tmp_path: Path) -> None:
    put_inputs(APPLICATIONS["gerris"], tmp_path / "eight", ranks=8, processes=8)
    text = (tmp_path / "eight" / "cavity.gfs").read_text()
    assert text.count("pid =") == 8 and "pid = 7" in text and "8 7 GfsSimulation" in text
    put_inputs(APPLICATIONS["gerris"], tmp_path / "eight", ranks=8, processes=1)
    assert (tmp_path / "eight" / "cavity.gfs").read_text().count("pid = 0") == 8
    put_inputs(APPLICATIONS["hpcc"], tmp_path / "hpcc", ranks=8, processes=8)
    assert (tmp_path / "hpcc" / "hpccinf.txt").read_text().splitlines()[10:12] == ["2            Ps", "4            Qs"]
    put_inputs(APPLICATIONS["openfoam"], tmp_path / "openfoam", ranks=8, processes=8)
    assert "(4 2 1)" in (tmp_path / "openfoam" / "system" / "decomposeParDict").read_text()
    assert (tmp_path / "openfoam" / "0" / "U").is_file()


def test_a_ratio_below_one_means_that_barewire_is_faster_for_times_and_rates() -> None:
    rows = rows_of([TIMED], SITES["pair"], launches("pair", [1, 2, 3], [4, 4, 4]))
    assert [(row.figure, row.ratio) for row in rows] == [("time", 0.5), ("rate", 0.5)]
    assert rows[0].medians == (2, 4) and rows[1].medians == (5, 2.5)
    assert rows[0].ratio_interval is None
    assert geometric_means(rows) == {"pair": pytest.approx(0.5)}


def test_six_launches_give_intervals_and_a_verdict() -> None:
    many = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06]
    rows = rows_of([TIMED], SITES["pair"], launches("pair", many, [2 * value for value in many]))
    for row in rows:
        assert row.verdict == "Barewire faster"
        assert row.ratio_interval is not None and 0.45 < row.ratio_interval[0] < 0.5 < row.ratio_interval[1] < 0.55


def test_the_table_is_sorted_by_ratio_and_lists_failures() -> None:
    plan = Plan((TIMED,), (SITES["pair"], SITES["star4"]), launches=1)
    found = launches("pair", [1], [2]) + launches("star4", [3], [2])
    found.append(Launch("pair", "timed", "tcp", 2, 1.0, error="ended with code 1"))
    lines = markdown(Results(plan, {}, tuple(found), (), {})).splitlines()
    assert lines[2] == "| timed: time | a program | four hosts at 1 Gb/s | 2 s | 3 s | 1.50 |"
    assert "timed over tcp (pair)" in lines[-1] and "two hosts 0.50" in lines[-3]


@pytest.mark.parametrize("wrong", [{"launches": 0}, {"busy": -1}, {"limit_s": 0.0}])
def test_invalid_plans_are_rejected(wrong: dict[str, int]) -> None:
    with pytest.raises(WrongUse):
        Plan((), (), **wrong)


def test_each_application_has_inputs_a_package_in_the_list_and_a_check(tmp_path: Path) -> None:
    listed = (ROOT / "setup" / "apt-applications.txt").read_text().split()
    assert len(APPLICATIONS) >= 10
    for name, application in APPLICATIONS.items():
        assert set(application.packages) <= set(listed), name
        assert application.checks and application.figures, name
        put_inputs(application, tmp_path / name, ranks=2, processes=2)
        assert any((tmp_path / name).iterdir()) or name == "dolfinx"


def test_there_is_one_busy_process_per_core_until_the_block_ends() -> None:
    def children() -> list[str]:
        child_pids = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
        return [pid for pid in child_pids if b"busy.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    cores = os.sched_getaffinity(0)
    with busy_cores(1):
        deadline = time.monotonic() + 10
        while {*map(tuple, (os.sched_getaffinity(int(pid)) for pid in children()))} != {(core,) for core in cores}:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert len(children()) == len(cores)
    assert children() == []


def test_a_busy_process_does_not_outlive_its_parent() -> None:
    lines = ["import time", "from barewire.applications.busy import busy_cores", "with busy_cores(1):"]
    script = "\n".join([*lines, "    print('up', flush=True)", "    time.sleep(60)"])
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT / "python")}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == b"up\n"
        spinning = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        assert spinning
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + 10
    while any(_is_alive(pid) for pid in spinning):
        assert time.monotonic() < deadline, "a busy process outlives its parent"
        time.sleep(0.02)


def _is_alive(pid: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
