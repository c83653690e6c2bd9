# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The comparison of two fabrics' outputs and the verdict of a trial: pure parts of `barewire try`."""

import os
import pty
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from barewire.cli import jobs
from barewire.errors import WrongUse
from barewire.measure import trial as measure
from barewire.mpi.placement import parse_hosts
from barewire.report.trial import headlines, trial_page, warnings
from barewire.results.agreement import Agreement, compare_outputs
from barewire.results.job_profile import combine_profiles
from barewire.results.trial import MAIN, WHOLE, Outcome, contest

NOTHING = Agreement(0, 0, 0, ())


def printed(energy: str, seconds: float, steps: int = 100) -> str:
    return f"step {steps} energy {energy}\nLoop time of {seconds} on 2 procs\nrank 0 done\nrank 1 done\n"


def test_times_that_vary_between_launches_are_no_difference() -> None:
    found = compare_outputs([printed("-4.6", 1.1), printed("-4.6", 1.2)], [printed("-4.6", 1.9), printed("-4.6", 2.0)])
    assert found.agree and found.varying == 1 and found.lines == 3


def test_a_result_that_depends_on_the_fabric_is_a_difference() -> None:
    found = compare_outputs([printed("-4.6", 1.1), printed("-4.6", 1.2)], [printed("-4.5", 1.9), printed("-4.5", 2.0)])
    assert [(difference.line, difference.first, difference.second) for difference in found.differences] == [
        ("step # energy [#]", "-4.6", "-4.5")
    ]


def test_a_result_that_varies_between_launches_is_inconclusive() -> None:
    found = compare_outputs([printed("-4.61", 1), printed("-4.62", 1)], [printed("-4.60", 1), printed("-4.60", 1)])
    assert found.agree and found.varying == 1


def test_with_one_launch_of_each_apparent_times_are_ignored() -> None:
    found = compare_outputs(["took 12.5 seconds\n"], ["took 17.5 seconds\n"])
    assert found.agree and found.timings == 1
    assert not compare_outputs(["took 12 iterations\n"], ["took 17 iterations\n"]).agree


def test_the_order_of_ranks_and_the_width_of_columns_do_not_matter() -> None:
    assert compare_outputs(["rank 0:  1.5\nrank 1: 10.5\n"], ["rank 1: 10.5\nrank 0: 1.5\n"]).agree


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [("converged\n", "converged\nNOT converged\n", ("never", "once")), ("a\na\n", "a\n", ("2 times", "once"))],
)
def test_an_additional_line_is_a_difference(first: str, second: str, expected: tuple[str, str]) -> None:
    (difference,) = compare_outputs([first, first], [second, second]).differences
    assert (difference.first, difference.second) == expected


def test_empty_output_is_reported() -> None:
    assert compare_outputs([""], [""]).agree
    with pytest.raises(ValueError, match="at least one launch"):
        compare_outputs([], ["a"])


def test_numbers_after_a_hash_and_without_one_are_compared_separately() -> None:
    tcp, ours = "# 2\n0 1.25\n1 1.31\n", "# 2\n0 1.25\n1 1.32\n"
    assert compare_outputs([tcp, tcp], [tcp, tcp]).agree
    (difference,) = compare_outputs([tcp, tcp], [ours, ours]).differences
    assert difference.line == "# [#]" and (difference.first, difference.second) == ("1.25 1.31", "1.25 1.32")
    # A line like them, but with fewer numbers, after them.
    trailer = "0 1.25\n1 1.31\n# 2\n"
    assert compare_outputs([trailer], [trailer]).agree


def test_numbers_that_stand_together_in_a_line_belong_together() -> None:
    tcp, swapped = "rank 0 sum 10\nrank 1 sum 20\n", "rank 0 sum 20\nrank 1 sum 10\n"
    (difference,) = compare_outputs([tcp, tcp], [swapped, swapped]).differences
    assert difference.line == "rank # sum #"
    assert (difference.first, difference.second) == ("0 10 | 1 20", "0 20 | 1 10")
    # Which rank had which is not compared if it varies over one fabric, nor are columns that vary.
    assert compare_outputs([tcp, swapped], [swapped, swapped]).agree
    with_noise = [f"rank 0 sum 10 on {n}\nrank 1 sum 20 on {n + 1}\n" for n in range(4)]
    assert compare_outputs(with_noise[:2], with_noise[2:]).agree


def test_what_varies_over_one_fabric_only_is_named() -> None:
    steady, once = ["norm 3.14\n"] * 5, ["norm 3.14\n"] * 4 + ["norm 3.90\n"]
    found = compare_outputs(once, steady)
    assert found.agree and found.varying == 1
    (difference,) = found.unsteady
    assert (difference.line, difference.first, difference.second) == ("norm #", "3.14 (4×) or 3.90 (1×)", "3.14 (5×)")
    (warning, *_) = warnings(outcome(around(1.0), around(1.5), agreement=found), [])
    assert "“norm #”: 3.14 (4×) or 3.90 (1×) over barewire, 3.14 (5×) over tcp" in warning
    assert "[#]" not in warning
    (missing,) = compare_outputs(["done\n"] * 4 + [""], ["done\n"] * 5).unsteady
    assert (missing.first, missing.second) == ("once (4×) or never (1×)", "once (5×)")
    # Of several numbers in a line, the one that varies is marked.
    found = compare_outputs(["force 0:0.5 1:0.7\n"] * 3, ["force 0:0.5 1:0.7\n"] * 2 + ["force 0:0.5 0:0.7\n"])
    (marked,) = found.unsteady
    assert (marked.line, marked.second) == ("force # : # [#] : #", "1 (2×) or 0 (1×)")
    assert "(# is a number, [#] the one meant)" in warnings(outcome(around(1.0), around(1.5), agreement=found), [])[0]
    # Not if it varies over both, is a time, or if there are too few launches.
    for first, second in [(once, once), (["took 1 s\n"] * 4 + ["took 2 s\n"], ["took 1 s\n"] * 5), (once, steady[:2])]:
        assert not compare_outputs(first, second).unsteady


def outcome(first: list[float], second: list[float], *, inner: bool = True, agreement: Agreement = NOTHING) -> Outcome:
    contests = [contest(WHOLE, first, second, seed=1)]
    if inner:
        contests.append(contest(MAIN, [value / 4 for value in first], [value / 4 for value in second], seed=1))
    profiles = {name: combine_profiles([], 2) for name in ("barewire", "tcp")}
    return Outcome("solve", ("barewire", "tcp"), tuple(contests), agreement, profiles)


def around(value: float, count: int = 8) -> list[float]:
    return [value * (1 + 0.002 * at) for at in range(count)]


def test_the_faster_fabric_is_reported_with_ratio_and_interval() -> None:
    first, start_up = headlines(outcome(around(1.0), around(1.5)))
    assert (
        first.startswith("Barewire is faster: solve takes 1.50 times as long over TCP") and "8 launches each" in first
    )
    assert "ratio 0.667 [0.6" in first and "Much of a launch is start-up and shutdown" in start_up
    assert headlines(outcome(around(1.5), around(1.0)))[0].startswith("TCP is faster: solve takes 1.50 times as long")


def test_no_difference_and_undecided_are_verdicts() -> None:
    assert "No difference" in headlines(outcome(around(1.0), around(1.001)))[0]
    few = outcome(around(1.0, 3), [1.0, 1.4, 0.9])
    assert "Undecided" in headlines(few)[0] and "too few for an interval" in warnings(few, [])[0]


def test_the_page_shows_a_difference_of_results_first() -> None:
    differs = compare_outputs(["energy -5\n"], ["energy -4 <b>\n"])
    facts = {"created": "now", "timed_launches": 16, "seed": 1, "environment": {}, "library": "MPI", "lab": None}
    facts |= {"command": ["./solve"], "shares": [], "limit_s": None}
    page = trial_page(outcome(around(1.0), around(1.5), agreement=differs), facts, "barewire try", ["busy"])
    assert "THE OUTPUT DIFFERS" in page and "energy # &lt;b&gt;" in page and "solve: Barewire or TCP?" in page


# What a child of the test does with its own standard input.
_SAY = """
import pathlib, sys
from barewire.cli import trial
given = trial._has_input()
if given:
    trial._keep_input(pathlib.Path(sys.argv[1]))
print(given, sys.stdin.buffer.read() if given else b"")
"""


def say_input(tmp_path: Path, stdin: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _SAY, str(tmp_path / "kept")]
    environment = dict(os.environ) | {"PYTHONPATH": str(Path(measure.__file__).parents[2])}
    return subprocess.run(
        command, stdin=stdin, capture_output=True, text=True, check=False, timeout=60, env=environment
    )


def test_a_file_on_standard_input_is_kept_and_its_position_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "si.scf"
    file.write_text("&control\n")
    with file.open("rb") as given:
        assert say_input(tmp_path, given).stdout == "True b'&control\\n'\n"
    assert (tmp_path / "kept").read_text() == "&control\n"


def test_input_is_not_made_of_scripts_terminals_empty_files_and_open_pipes(tmp_path: Path) -> None:
    """A shell that reads its script from standard input is beyond its start; a scheduler's pipe never ends."""
    script, empty = tmp_path / "script.sh", tmp_path / "empty"
    script.write_text("barewire try -- true\necho done\n")
    empty.touch()
    reader, writer = os.pipe()
    _, terminal = pty.openpty()
    try:
        with script.open("rb") as of_shell, empty.open("rb") as nothing:
            os.lseek(of_shell.fileno(), 21, os.SEEK_SET)
            for stdin in (of_shell, nothing, reader, terminal, subprocess.DEVNULL):
                assert say_input(tmp_path, stdin).stdout == "False b''\n"
        os.write(writer, b"&control\n")
        refused = say_input(tmp_path, reader)
        assert "WrongUse: each launch needs the input again" in refused.stderr and not (tmp_path / "kept").exists()
    finally:
        for descriptor in (reader, writer):
            os.close(descriptor)


def test_every_launch_gets_the_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def launched(*_: Any, stdin: IO[bytes], **__: Any) -> int:
        given.append(stdin.read())
        return 0

    monkeypatch.setattr(measure, "run_limited", launched)
    (tmp_path / "input").write_bytes(b"&control\n")
    plan = measure.TrialPlan(2, 2, 0.02, 60, None, 1)
    both: Any = dict.fromkeys(("barewire", "tcp"), SimpleNamespace(ranks=2))
    notes: list[str] = []
    measure.Trial(both, None, None, tmp_path, plan, lambda *_: None, notes.append, tmp_path / "input").run()
    assert given == [b"&control\n"] * 6 and not notes


def test_an_interrupted_launch_leaves_no_records_of_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could read them, and each is as long as 128 threads need."""

    def interrupted(job: Any, *_: Any, **__: Any) -> int:
        (Path(job.folder) / "host.1.2.rank").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "run_limited", interrupted)
    monkeypatch.setattr(measure, "with_profiler", lambda _job, _file, folder, **_: SimpleNamespace(folder=folder))
    plan = measure.TrialPlan(2, 2, 0.02, 60, None, 1)
    both: Any = dict.fromkeys(("barewire", "tcp"), SimpleNamespace(ranks=2))
    with pytest.raises(KeyboardInterrupt):
        measure.Trial(both, None, tmp_path / "profiler", tmp_path, plan, lambda *_: None, lambda _: None).run()
    assert [path.name for path in tmp_path.iterdir()] == ["output"]


def test_hosts_without_slots_get_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "library_of_program", lambda *_: (None, ""))

    def shares(hosts: str, ranks: int | None = None) -> tuple[tuple[str, int], ...]:
        return jobs.parse_request(["x"], None, jobs.JobHosts(tuple(parse_hosts(hosts)), None), ranks).shares

    assert shares("a,b") == (("a", 1), ("b", 1))
    assert shares("a:0,b:4") == (("b", 4),) and shares("a:0,b:4", 2) == (("b", 2),)
    with pytest.raises(WrongUse, match="the hosts take 0"):
        shares("a:0")


def test_a_line_of_many_numbers_takes_no_longer_than_many_lines() -> None:
    """The time grew with the square of a line's length: more than a minute for 100,000 numbers."""
    numbers = [str(number) for number in range(30_000)]
    line = " ".join(numbers)
    began = time.process_time()
    assert compare_outputs([line, line], [line, line]).agree
    numbers[5], numbers[20_000] = "6.5", "-1"
    found = compare_outputs([line, line], [" ".join(numbers)] * 2)
    assert time.process_time() - began < 5
    near, far = found.differences
    assert near.line.startswith("# # # # # [#] # #") and (near.first, near.second) == ("5", "6.5")
    assert len(far.line) <= 161 and (far.first, far.second) == ("20000", "-1")
