# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A profile's numbers follow from the ranks' files: sizes, waiting, imbalance, times; and bad files are rejected."""

from html import escape
from pathlib import Path

import pytest
from synthetic_profile import BARRIER, LOADED, MS, RECEIVE, SEND, SEND_C, Made

from barewire.errors import MeasurementFailed
from barewire.mpi import Family, Job, Library
from barewire.mpi.profiler import FOLDER, with_profiler
from barewire.report.profile import calls_table, cost_sentence, headlines, percent, seconds, size_class
from barewire.report.profile_figures import calls_bars, over_time, stacked
from barewire.report.profile_page import profile_page
from barewire.results.job_profile import JobProfile, combine_profiles
from barewire.results.profile import read_profile, read_profiles

FACTS = {
    "created": "2026-01-01T00:00:00+00:00",
    "command": ["./solve<b>"],
    "fabric": "tcp",
    "shares": [["h1", 2]],
    "exit_code": 0,
    "environment": {"cpu": "some"},
}


def job(*made: Made) -> JobProfile:
    return combine_profiles([read_profile(process.data(), "file") for process in made], len(made))


def uneven() -> JobProfile:
    """Rank 0 computes 900 ms and is 100 ms in a barrier; rank 1 computes 400 ms and waits for it 600 ms."""
    rows = [(1, 100), (2, 600)]
    return job(
        *(
            Made(rank, [(BARRIER, 0, count, 0, ms * MS, ms * MS // count, ms * MS // count)])
            for rank, (count, ms) in enumerate(rows)
        )
    )


def test_a_file_is_read_as_laid_out(tmp_path: Path) -> None:
    made = Made(1, [(RECEIVE, 14, 4, 16384, 8 * MS, MS, 3 * MS)], [(RECEIVE, 14, 3 * MS, LOADED + 25 * MS, 4096, 7)])
    made.leave_in(tmp_path)
    (profile,) = read_profiles(tmp_path)
    assert (profile.rank, profile.size, profile.host, profile.state, profile.library) == (
        1,
        2,
        "h1",
        "finalised",
        "Some MPI 1.0",
    )
    assert profile.main_s == pytest.approx(1.0) and profile.cost_per_call_s == pytest.approx(80e-9)
    (row,) = profile.calls
    assert (row.call, row.kind, row.bytes_from, row.bytes_below, row.calls) == ("MPI_Recv", "receive", 4096, 8192, 4)
    (wait,) = profile.longest
    assert (wait.call, wait.bytes, wait.peer) == ("MPI_Recv", 4096, 7) and wait.at_s == pytest.approx(0.020)


@pytest.mark.parametrize("data", [b"", b"bwprof1\0" + bytes(2000), b"{}" * 2000])
def test_invalid_profiles_are_rejected(data: bytes) -> None:
    with pytest.raises(ValueError, match="is not a profile of this version"):
        read_profile(data, "x.rank")


@pytest.mark.parametrize("data", [b"bwprof1\0" + bytes(2000), Made(0).data()[:1200]])
def test_an_invalid_profile_in_a_folder_is_a_failure_with_a_message(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "h1.78.1.rank").write_bytes(data)
    with pytest.raises(MeasurementFailed, match=r"profile in .* is damaged: .*LD_PRELOAD"):
        read_profiles(tmp_path)


def test_a_process_that_died_before_its_header_was_written_has_no_profile(tmp_path: Path) -> None:
    Made(0).leave_in(tmp_path)
    (tmp_path / "h1.78.1.rank").write_bytes(bytes(5000))
    assert [profile.rank for profile in read_profiles(tmp_path)] == [0]


def test_threads_and_large_counts_are_summed() -> None:
    entries = [(SEND, 4, 2, 16, 2 * MS, MS, MS), (SEND_C, 4, 1, 8, 5 * MS, 5 * MS, 5 * MS)]
    profile = read_profile(Made(entries=entries, blocks=2).data(), "file")
    (row,) = profile.calls
    assert (row.call, row.calls, row.bytes) == ("MPI_Send", 6, 48) and profile.threads == 2
    assert row.time_s == pytest.approx(0.014) and row.shortest_s == pytest.approx(0.001)
    assert row.longest_s == pytest.approx(0.005)


def test_waiting_is_the_time_beyond_the_shortest_call_of_any_rank() -> None:
    profile = uneven()
    # The shortest barrier is rank 0's, 100 ms: rank 1's two take 600 ms, of which 400 are waiting.
    assert [rank.parts.waiting_s for rank in profile.ranks] == pytest.approx([0.0, 0.4])
    assert [rank.parts.moving_s for rank in profile.ranks] == pytest.approx([0.1, 0.2])
    assert [rank.parts.outside_s for rank in profile.ranks] == pytest.approx([0.9, 0.4])
    assert [rank.peers_late_s for rank in profile.ranks] == pytest.approx([0.0, 0.5])
    assert profile.mpi_share == pytest.approx(0.35) and profile.late_s == pytest.approx(0.25)


def test_more_threads_are_no_imbalance() -> None:
    """Each of three threads is 100 ms in a barrier; the second and third are there for 200 ms."""
    rows = [(BARRIER, 0, 1, 0, 100 * MS, 100 * MS, 100 * MS)]
    profile = job(Made(0, rows, blocks=3, others_ms=200), Made(1, rows))
    assert [rank.peers_late_s for rank in profile.ranks] == [0.0, 0.0]
    assert [rank.parts.outside_s for rank in profile.ranks] == pytest.approx([0.9 + 2 * 0.1, 0.9])
    assert "busiest" not in " ".join(headlines(profile, "solve"))


def test_imbalance_is_described_in_words() -> None:
    text = " ".join(headlines(uneven(), "solve"))
    assert "solve is in MPI for 35 % of its time" in text and "20 % waiting" in text and "MPI_Barrier" in text
    assert "a rank waits 250 ms (25 %) for the busiest, over any network" in text
    assert "busiest" not in " ".join(headlines(job(Made(0), Made(1)), "solve"))


def test_an_empty_profile_is_described_and_drawn_as_empty() -> None:
    assert headlines(combine_profiles([], 2), "solve") == ["solve left no profile."]
    empty = combine_profiles([], 2)
    assert empty.mpi_share == 0 and empty.main_s == 0 and over_time(empty)["data"][0]["x"] == []
    assert "left no profile" in profile_page(empty, FACTS, "barewire profile", ["note"])


def test_a_rank_that_died_names_its_call() -> None:
    profile = job(Made(finalised=False, inside=(RECEIVE, LOADED + 105 * MS)))
    (rank,) = profile.unfinished
    assert [(call.call, call.at_s) for call in rank.inside] == [("MPI_Recv", pytest.approx(0.1))]
    assert rank.main_s == pytest.approx(0.09), "up to the begin of its last call"


def test_the_page_contains_the_numbers_and_escapes_names() -> None:
    page = profile_page(uneven(), FACTS, "barewire profile", ["Rank 1 <i>"])
    assert "solve&lt;b&gt; over tcp" in page and "Rank 1 &lt;i&gt;" in page and "MPI_Barrier" in page
    assert escape(cost_sentence(uneven())) in page


def test_figures_have_a_bar_per_part_and_a_share_per_time_bin() -> None:
    profile = uneven()
    bars = stacked({str(rank.rank): rank.parts for rank in profile.ranks})["data"]
    assert sum(bar["x"][1] for bar in bars) == pytest.approx(1.0)
    assert calls_bars({"tcp": profile}, {"tcp": "#0072B2"})["data"][0]["x"] == [pytest.approx(0.35)]
    # Bins of different width in two ranks: 2^20 ns of which half, and 2^21 ns of which a quarter is in MPI.
    made = Made(0, bins=[1 << 19, 1 << 19]), Made(1, bins=[1 << 19], bin_shift=21)
    most, mean, least = (trace["y"] for trace in over_time(job(*made))["data"])
    assert (most, mean, least) == ([50.0], [37.5], [25.0])


def test_tables_contain_text() -> None:
    (row,) = calls_table(uneven()).rows
    assert row[0] == "MPI_Barrier" and row[1] == "–" and row[2] == "3" and row[3] == "350 ms" and row[4] == "35 %"
    assert [seconds(value) for value in (None, 0, 2e-7, 0.0015, 12.0)] == ["–", "0 s", "0.200 µs", "1.50 ms", "12.0 s"]
    assert seconds(0.25, (0.2, 0.3)) == "250 ms [200, 300]"
    assert [percent(value) for value in (0, 0.0001, 0.004, 0.5)] == ["0 %", "<0.1 %", "0.4 %", "50 %"]
    assert size_class(4096, 8192) == "4–8 KiB" and size_class(512, 1024) == "512 B–1 KiB" and size_class(0, 1) == "0 B"


def test_ranks_find_their_folder_from_wherever_they_are() -> None:
    """Programs change their directory before MPI_Init."""
    library = Library("some", Family.OPEN_MPI, "4.1.4", Path("/usr/lib/libmpi.so"))
    job = with_profiler(Job(library, (("a", 1),), (), ("prog",)), Path("/p.so"), Path("runs/x"))
    assert {setting.name: setting.value for setting in job.settings}[FOLDER] == str(Path.cwd() / "runs" / "x")
