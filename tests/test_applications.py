# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire mpi applications` with real programs: launches over both fabrics, checks that fail, hangs, wrong use."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT
from mpi_libraries import library, needs

from barewire.applications import APPLICATIONS, SITES, Campaign, Plan, find_programs, rows_of
from barewire.applications.application import Application, Prints


def applications(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "barewire", "mpi", "applications", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=dict(os.environ) | {"PYTHONPATH": str(ROOT / "python")} | environment,
    )


def short_lammps() -> Application:
    """The catalogue's LAMMPS, with 256 atoms and 1000 steps; or a loud skip."""
    needs("barewire")
    library("openmpi")
    lammps = APPLICATIONS["lammps"]
    _, skipped = find_programs([lammps])
    if skipped:
        pytest.skip(skipped[0].reason)
    return replace(lammps, command="lmp -in lj.in -v n 4 -v steps 1000 -log none")


@pytest.mark.matrix
@pytest.mark.usefixtures("lab_allowed")
def test_a_program_is_launched_over_both_fabrics_and_its_result_agrees_with_one_rank(tmp_path: Path) -> None:
    lammps = short_lammps()
    campaign = Campaign(Plan((lammps,), (SITES["pair"],), launches=1), tmp_path)
    launches = campaign.run()
    assert [one.error for one in launches] == [None] * 4
    assert sorted((one.fabric, one.round) for one in launches) == [
        (fabric, number) for fabric in ("barewire", "tcp") for number in (0, 1)
    ]
    (row,) = rows_of([lammps], SITES["pair"], launches)
    assert row.figure == "loop time" and row.ratio == row.medians[0] / row.medians[1] > 0


@pytest.mark.matrix
@pytest.mark.usefixtures("lab_allowed")
def test_a_wrong_result_and_a_hang_are_failures_and_end_a_programs_launches(tmp_path: Path) -> None:
    """A check that no run can pass; a limit that none can keep. No row is made of either."""
    wrong = replace(short_lammps(), name="lammps", checks=(Prints("what no program says"),))
    launches = Campaign(Plan((wrong,), (SITES["pair"],), launches=5), tmp_path / "wrong").run()
    assert len(launches) == 2 and all(one.error and "WRONG RESULT" in one.error for one in launches)
    assert rows_of([wrong], SITES["pair"], launches) == []
    slow = replace(wrong, command="lmp -in lj.in -v steps 10000000 -log none")
    launches = Campaign(Plan((slow,), (SITES["pair"],), launches=5, limit_s=0.5), tmp_path / "slow").run()
    assert len(launches) == 2 and all(one.error and "hangs: no end after 0.5 s" in one.error for one in launches)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lamps"], "unknown application 'lamps'; there are: lammps"),
        (["--testbeds", "triple"], "unknown testbed 'triple'; there are: pair"),
    ],
)
def test_wrong_use_is_told_before_anything_is_launched(arguments: list[str], said: str) -> None:
    done = applications(*arguments)
    assert done.returncode == 2 and said in done.stderr, done.stderr


def test_programs_that_are_not_installed_are_skipped_loudly(tmp_path: Path) -> None:
    done = applications("lammps", PATH=str(tmp_path))
    assert done.returncode == 3, done.stderr
    assert "SKIPPED lammps: no lmp: apt install lammps" in done.stderr
    listed = applications("--list", "--json", "lammps", PATH=str(tmp_path))
    assert json.loads(listed.stdout)["applications"][0]["missing"] == "no lmp: apt install lammps"
