# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Speed-up and efficiency of kernels: numbers, intervals, the base, and what has none."""

from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_mpi import subject, synthetic_mpi

from barewire.report.mpi import speedup_tables
from barewire.results.run import Run
from barewire.results.speedups import Speedup, speedups

SUBJECTS = (subject("openmpi", "barewire"),)


def run_of(folder: Path, kernel: str, ranks: tuple[int, ...]) -> Run:
    return synthetic_mpi(folder, kernel, subjects=SUBJECTS, ranks=ranks)


def of(found: tuple[Speedup, ...], variant: str) -> dict[int, Speedup]:
    return {each.ranks: each for each in found if each.variant == variant}


def test_a_problem_of_all_ranks_is_sped_up(tmp_path: Path) -> None:
    """40 µs of computation, and 20 µs of messages as soon as there are two ranks."""
    found = speedups(run_of(tmp_path, "krylov", (1, 2, 4)))
    blocking = of(found, "blocking")
    assert [each.speedup for each in blocking.values()] == pytest.approx([1, 40 / 40, 40 / 30], rel=0.01)
    assert [each.efficiency for each in blocking.values()] == pytest.approx([1, 0.5, 1 / 3], rel=0.01)
    four = blocking[4]
    assert not four.weak and four.base_ranks == 1 and four.ideal == 4 and four.message_bytes is None
    assert four.speedup_interval is not None and four.speedup_interval[0] < four.speedup < four.speedup_interval[1]
    assert four.efficiency_interval == pytest.approx([end / 4 for end in four.speedup_interval])
    assert blocking[1].ratio_interval == (1.0, 1.0)
    assert four.to_json()["efficiency"] == four.efficiency


def test_a_sort_has_its_keys_on_each_rank_so_equal_times_are_perfect(tmp_path: Path) -> None:
    found = of(speedups(run_of(tmp_path, "radix", (2, 8))), "original")
    assert found[8].weak and found[8].base_ranks == 2
    assert found[8].efficiency == pytest.approx(1, rel=0.02) and found[8].speedup == pytest.approx(4, rel=0.02)


def test_the_table_names_the_base_and_the_kind_of_scaling(tmp_path: Path) -> None:
    strong, weak = run_of(tmp_path / "s", "krylov", (1, 2, 4)), run_of(tmp_path / "w", "radix", (2, 4))
    (table,) = speedup_tables(strong)
    assert table.notes == ("Relative to 1 rank; one problem for all ranks. [95 %]",)
    assert [row[0] for row in table.rows] == ["2: speed-up", "efficiency", "4: speed-up", "efficiency"]
    assert table.title == "Speed-up: Conjugate gradients, side 2d 128" and len(table.headings) == 3
    (table,) = speedup_tables(weak)
    assert table.notes == ("Relative to 2 ranks, the fewest of this run; the problem grows with the ranks. [95 %]",)


def test_few_launches_have_no_interval_and_one_number_of_ranks_no_speedup(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a", "krylov", (1, 2))
    few = replace(run, series=tuple(replace(each, launch_medians=each.launch_medians[:5]) for each in run.series))
    assert speedups(few)[1].speedup_interval is None
    assert speedups(run_of(tmp_path / "b", "krylov", (4,))) == ()
    assert list(speedup_tables(synthetic_mpi(tmp_path / "c", "pingpong", subjects=SUBJECTS))) == []
