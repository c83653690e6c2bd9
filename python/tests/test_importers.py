# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Importers: every printed number arrives, in the right unit and place; files that are not whole are refused.

tests/test_import.py imports what the tools themselves print.
"""

import json
import os
import re
from pathlib import Path

import foreign_outputs as foreign
import pytest
from foreign_outputs import TIMES_US
from typer.testing import CliRunner

from barewire.cli.commands import app
from barewire.errors import WrongUse
from barewire.importers.output import FILE_BYTES_MAX, Hints
from barewire.importers.runs import ImportPlan, import_outputs
from barewire.importers.tools import TOOLS
from barewire.models.wire import Link
from barewire.report.run_page import render
from barewire.report.versus import compare_in_run, compare_runs
from barewire.results.functions import functions_of
from barewire.results.held_out import check
from barewire.results.model import model_of
from barewire.results.published import read_table
from barewire.results.run import Run
from barewire.results.store import read_run, samples


def imported(tmp_path: Path, *texts: str, name: str = "out", hints: Hints | None = None, **settings: object) -> Run:
    tmp_path.mkdir(exist_ok=True)
    files = []
    for number, text in enumerate(texts):
        files.append(tmp_path / f"{name}-{number}.txt")
        files[-1].write_text(text)
    plan = ImportPlan(tuple(files), hints=hints or Hints(), **settings)  # type: ignore[arg-type]
    return import_outputs(plan, tmp_path / "run", command=["barewire", "import"])


def values(run: Run, test: str, variant: str = "", quantity: str = "") -> dict[int, float]:
    return {
        series.message_bytes: series.median
        for series in run.series
        if (series.test, series.variant, series.quantity) == (test, variant, quantity)
    }


def refused(tmp_path: Path, text: str, reason: str, **settings: object) -> None:
    with pytest.raises(WrongUse, match=reason):
        imported(tmp_path, text, **settings)
    assert not (tmp_path / "run").exists(), "nothing is written"


STANDARD = ("pingpong", "blocking-standard", "half_round_trip")


def test_osu_latency_is_half_a_round_trip_of_two_ranks(tmp_path):
    run = imported(tmp_path, foreign.osu_latency())
    assert values(run, *STANDARD) == TIMES_US
    assert {(series.ranks, series.unit, series.subject) for series in run.series} == {(2, "us", "osu")}
    assert run.parameters["files"][0]["version"] == "7.4"


def test_osu_bandwidths_are_million_bytes_and_come_as_mbit(tmp_path):
    one = foreign.osu("Bandwidth", ("Size", "Bandwidth (MB/s)"), [(1024, 250.5)], version="5.8")
    both = foreign.osu("Bi-Directional Bandwidth", ("Size", "Bandwidth (MB/s)"), [(1024, "400.00")])
    run = imported(tmp_path, one, both)
    assert values(run, "bandwidth", "window", "send_interval") == {1024: 2004.0}
    assert values(run, "bidirectional", "window", "exchange") == {1024: 3200.0}


def test_osu_message_rates_know_their_pairs(tmp_path):
    text = foreign.osu("Multiple Bandwidth / Message Rate", ("Size", "MB/s", "Messages/s"), [(8, 16.0, 2e6)])
    text = text.replace("# Datatype", "# [ pairs: 2 ] [ window size: 64 ]\n# Datatype")
    run = imported(tmp_path, text)
    assert values(run, "rate", "window-64", "send_interval") == {8: 2e6}
    assert values(run, "bandwidth", "window-64", "send_interval") == {8: 128.0}
    assert {(series.pairs, series.ranks) for series in run.series} == {(2, 4)}


def test_osu_collectives_keep_mean_fastest_and_slowest_apart(tmp_path):
    headings = ("Size", "Avg Latency(us)", "Min Latency(us)", "Max Latency(us)", "Iterations")
    text = foreign.osu("Allreduce Latency", headings, [(4, 12.45, 11.5, 14.25, 1000)])
    run = imported(tmp_path, text, hints=Hints(ranks=8))
    assert values(run, "collective", "allreduce", "time_mean") == {4: 12.45}
    assert values(run, "collective", "allreduce", "time") == {4: 14.25}
    assert values(run, "collective", "allreduce", "time_min") == {4: 11.5}
    assert {series.ranks for series in run.series} == {8}
    assert set(samples(tmp_path / "run")["inner"]) == {1000}


@pytest.mark.parametrize(
    ("title", "test", "variant"),
    [
        ("All-to-All Personalized Exchange Latency", "collective", "alltoall"),
        ("All-to-Allv Personalized Exchange Persistent Latency", "collective", "alltoallv-persistent"),
        ("Broadcast Latency", "collective", "bcast"),
        ("Reduce_scatter_block Latency", "collective", "reduce-scatter-block"),
        ("Neighborhood Allgather Latency", "collective", "neighbourhood-allgather"),
    ],
)
def test_titles_of_osu_collectives(tmp_path, title, test, variant):
    run = imported(tmp_path, foreign.osu(title, ("Size", "Avg Latency(us)"), [(4, 2.5)]))
    assert values(run, test, variant, "time_mean") == {4: 2.5}
    assert any("--ranks" in warning for warning in run.warnings)


def test_osu_barrier_has_no_size(tmp_path):
    run = imported(tmp_path, "# OSU MPI Barrier Latency Test v5.8\n# Avg Latency(us)\n             12.57\n")
    assert values(run, "collective", "barrier", "time_mean") == {0: 12.57}


def test_osu_overlap_follows_from_its_times(tmp_path):
    headings = ("Size", "Overall(us)", "Compute(us)", "Pure Comm.(us)", "Overlap(%)")
    text = foreign.osu("Non-blocking Allreduce Latency", headings, [(1024, 130.0, 100.0, 100.0, 70.0)])
    text = text.replace("# Datatype", "# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait\n\n# Datatype")
    run = imported(tmp_path, text, hints=Hints(ranks=4))
    assert values(run, "nonblocking", "allreduce", "beside") == {1024: 130.0}
    assert values(run, "nonblocking", "allreduce", "hidden_share") == {1024: pytest.approx(70.0)}


def test_osu_one_sided_and_start_up(tmp_path):
    put = "# OSU MPI_Put Latency Test v5.9\n# Window creation: MPI_Win_allocate\n# Synchronization: MPI_Win_flush\n"
    put += "# Size          Latency (us)\n8                       2.25\n"
    init = "# OSU MPI Init Test v5.6.2\nnprocs: 4, min: 67 ms, max: 70 ms, avg: 68 ms\n"
    run = imported(tmp_path, put, init)
    assert values(run, "onesided", "put-flush", "time") == {8: 2.25}
    assert values(run, "startup", "", "init") == {0: 70.0}


def test_osu_data_types_are_no_launches_of_each_other(tmp_path):
    first = foreign.osu_latency({8: 1.25})
    second = "".join(foreign.osu_latency({8: 1.5}).splitlines(keepends=True)[2:]).replace("MPI_CHAR", "MPI_INT")
    run = imported(tmp_path, first + second)
    assert values(run, "pingpong", "blocking-standard-char", "half_round_trip") == {8: 1.25}
    assert values(run, "pingpong", "blocking-standard-int", "half_round_trip") == {8: 1.5}
    assert len(run.launches) == 1


def test_osu_3_is_read(tmp_path):
    both = "# OSU MPI Bi-Directional Bandwidth Test v3.1.1\n# Size     Bi-Bandwidth (MB/s)\n1024          400.00\n"
    put = "# OSU One Sided MPI_Put latency Test v3.1.1\n# Size            Latency (us)\n8                 2.25\n"
    passive = put.replace("Put latency", "Put Passive latency").replace("2.25", "3.25")
    run = imported(tmp_path, both, put, passive)
    assert values(run, "bidirectional", "window", "exchange") == {1024: 3200.0}
    assert values(run, "onesided", "put", "time") == {8: 2.25}
    assert values(run, "onesided", "put-passive", "time") == {8: 3.25}


@pytest.mark.parametrize(
    ("title", "heading"),
    [
        ("OSU One Sided MPI_Put Bi-directional Bandwidth Test v3.1.1", "Bi-Bandwidth (MB/s)"),
        ("OSU MPI_Put Bi-directional Bandwidth Test v5.9", "Bandwidth (MB/s)"),
    ],
)
def test_osu_puts_in_both_directions_are_no_puts_in_one(tmp_path, title, heading):
    run = imported(tmp_path, f"# {title}\n# Size      {heading}\n1024           250.50\n")
    assert values(run, "onesided", "put-both", "bandwidth") == {1024: 2004.0}


def test_osu_validation_that_failed_is_refused(tmp_path):
    headings = ("Size", "Avg Latency(us)", "Validation")
    assert values(imported(tmp_path / "a", foreign.osu("Latency", headings, [(8, 1.5, "Pass")])), *STANDARD) == {8: 1.5}
    refused(tmp_path, foreign.osu("Latency", headings, [(8, 1.5, "Fail")]), "line 5: .*wrong contents")


def test_imb_point_to_point_and_collectives(tmp_path):
    times = ("#bytes", "#repetitions", "t_min[usec]", "t_max[usec]", "t_avg[usec]")
    text = foreign.imb(
        (
            "PingPong",
            2,
            ("#bytes", "#repetitions", "t[usec]", "Mbytes/sec"),
            [(0, 1000, "1.66", "0.00"), (8, 1000, "1.75", "4.57")],
        ),
        ("Sendrecv", 4, (*times, "Mbytes/sec"), [(8, 500, "2.00", "2.50", "2.25", "6.40")]),
        ("Allreduce", 4, times, [(8, 1000, "4.50", "18.59", "11.69")]),
        ("Barrier", 4, ("#repetitions", "t_min[usec]", "t_max[usec]", "t_avg[usec]"), [(1000, "3.00", "3.50", "3.25")]),
        ("Window", 4, times, [(8, 1000, "1.00", "1.00", "1.00")]),
    )
    run = imported(tmp_path, text)
    assert values(run, *STANDARD) == {0: 1.66, 8: 1.75}
    assert values(run, "exchange", "sendrecv-chain", "exchange") == {8: 2.5}
    assert values(run, "exchange", "sendrecv-chain", "exchange_mean") == {8: 2.25}
    assert values(run, "collective", "allreduce", "time") == {8: 18.59}
    assert values(run, "collective", "allreduce", "time_mean") == {8: 11.69}
    assert values(run, "collective", "barrier", "time_min") == {0: 3.0}
    assert any("Window: no counterpart" in warning for warning in run.warnings)
    assert run.environment["machine"] == "x86_64"


def test_models_and_checks_use_the_slowest_ranks_exchange(tmp_path):
    """Imported are also the mean over the ranks and the fastest rank's time."""
    headings = ("#bytes", "#repetitions", "t_min[usec]", "t_max[usec]", "t_avg[usec]")
    sizes = (8, 1024, 65536)
    rows = [(size, 500, f"{1.0 * size:.2f}", f"{3.0 * size:.2f}", f"{2.0 * size:.2f}") for size in sizes]
    pingpong = ("PingPong", 2, ("#bytes", "#repetitions", "t[usec]"), [(size, 500, f"{size:.2f}") for size in sizes])
    run = imported(tmp_path, foreign.imb(pingpong, ("Sendrecv", 2, headings, rows), ("Bcast", 2, headings, rows)))
    assert functions_of(run, "imb")["exchanged"].times.values.tolist() == [[3.0 * size for size in sizes]]
    checked, unsaid = check(model_of([run]), run, ["exchange", "bcast"], None, None, 8)
    assert not unsaid and [(each.measured_as, each.measured_us.value) for each in checked] == [
        (name, 3.0 * size) for name in ("collective bcast", "exchange sendrecv") for size in sizes
    ]


@pytest.mark.parametrize(
    ("title", "version"),
    [("Intel (R) MPI Benchmark Suite V3.2, MPI-1 part", "3.2"), ("Intel(R) MPI Benchmarks 2018, MPI-1 part", "2018")],
)
def test_imb_versions(tmp_path, title, version):
    text = foreign.imb_pingpong().replace("Intel(R) MPI Benchmarks 2021.7, MPI-1 part", title)
    assert imported(tmp_path, text).parameters["files"][0]["version"] == version


def test_imb_nonblocking_and_windows(tmp_path):
    overlap = ("#bytes", "#repetitions", "t_ovrl[usec]", "t_pure[usec]", "t_CPU[usec]", "overlap[%]")
    rate = ("#bytes", "#repetitions", "Mbytes/sec", "Msg/sec")
    text = foreign.imb(
        ("Ibcast", 4, overlap, [(1024, 1000, "13.00", "10.00", "10.00", "70.00")]),
        ("Uniband", 4, rate, [(0, 1000, "0.00", 1000000), (1024, 1000, "256.00", 250000)]),
    )
    run = imported(tmp_path, text)
    assert values(run, "nonblocking", "bcast", "hidden_share") == {1024: pytest.approx(70.0)}
    assert values(run, "bandwidth", "window", "send_interval") == {1024: 2048.0}
    assert values(run, "rate", "window", "send_interval") == {0: 1e6}


def test_imb_points_without_memory_or_time_are_left_out_with_the_reason(tmp_path):
    text = foreign.imb(
        (
            "Alltoall",
            4,
            ("#bytes", "#repetitions", "t_min[usec]", "t_max[usec]", "t_avg[usec]"),
            [(8, 10, 1.0, 1.5, 1.25)],
        )
    )
    text = text.replace("1.25\n", '1.25\n      4194304 out-of-mem.; needed X=   4.001 GB; use flag "-mem X"\n')
    run = imported(tmp_path, text)
    assert values(run, "collective", "alltoall", "time") == {8: 1.5}
    assert any("Alltoall, 4194304 B: IMB reports out-of-mem" in warning for warning in run.warnings)


@pytest.mark.parametrize("form", ["printed", "np.out", "np.out of 5", "printed by 5"])
def test_netpipe_times_whatever_its_megabits_are(tmp_path, form):
    text = {
        "printed": foreign.netpipe(),
        "np.out": foreign.netpipe_file(),
        "np.out of 5": foreign.netpipe_file(columns=5),
        "printed by 5": foreign.netpipe_5(TIMES_US),
    }[form]
    run = imported(tmp_path, text)
    assert values(run, "pingpong") == pytest.approx(TIMES_US)
    assert {(series.ranks, series.unit) for series in run.series} == {(0, "us")}


def test_netpipe_over_mpi_is_an_mpi_pingpong(tmp_path):
    run = imported(tmp_path, foreign.netpipe(), hints=Hints(subject="openmpi/tcp"))
    assert values(run, *STANDARD) == pytest.approx(TIMES_US)


def test_netpipe_in_both_directions_counts_both(tmp_path):
    both = foreign.netpipe_file({2 * size: time for size, time in TIMES_US.items()})
    run = imported(tmp_path, both, hints=Hints(test="bidirectional"))
    assert values(run, "bidirectional")[1024] == pytest.approx(2 * 1024 * 8 / TIMES_US[1024])


def test_netpipe_with_wrong_contents_is_refused(tmp_path):
    refused(tmp_path, foreign.netpipe_5(TIMES_US).replace("usecs", "usecs   3 failures", 1), "line 1: .*wrong contents")


def test_netpipe_with_units_that_do_not_match_is_refused(tmp_path):
    refused(tmp_path, foreign.netpipe().replace("usec", "msec"), "unknown units")
    in_milliseconds = "".join(f"{size} {size * 8 / us:f} {us / 1e3:f}\n" for size, us in TIMES_US.items())
    refused(tmp_path, in_milliseconds, "line 1: .*other units")
    both_directions = foreign.netpipe_file({2 * size: time for size, time in TIMES_US.items()})
    doubled = re.sub(r"^( *)(\d+)", lambda row: f"{row[1]}{int(row[2]) // 2}", both_directions, flags=re.MULTILINE)
    refused(tmp_path, doubled, "another direction")
    refused(tmp_path, foreign.netpipe_5({2_000_000: 200.0}).replace("2000.000 KB", "  2.000 MB"), "no numbers.*np.out")


def test_hpcc_summary(tmp_path):
    text = foreign.hpcc(
        {
            "AvgPingPongLatency_usec": 1.5,
            "MaxPingPongLatency_usec": 2.5,
            "MinPingPongBandwidth_GBytes": 1.25,
            "RandomlyOrderedRingLatency_usec": 3.5,
            "RandomlyOrderedRingBandwidth_GBytes": 0.5,
            "HPL_Tflops": 0.025,
            "MPIRandomAccess_GUPs": 0.002,
            "PTRANS_GBs": -1,
        }
    )
    run = imported(tmp_path, text)
    assert values(run, "pingpong", "mean-of-pairs", "half_round_trip") == {8: 1.5}
    assert values(run, "pingpong", "worst-pair", "half_round_trip") == {8: 2.5, 2_000_000: pytest.approx(1600.0)}
    assert values(run, "ring", "random", "latency") == {8: 3.5}
    assert values(run, "ring", "random", "bandwidth") == {2_000_000: 4000.0}
    assert values(run, "hpcc", "hpl", "flops") == {0: 25.0}
    assert values(run, "hpcc", "random-access", "updates") == {0: 2.0}
    assert {series.ranks for series in run.series} == {4}
    assert not any(series.lower_is_better for series in run.series if series.test == "hpcc")


def test_hpcc_that_failed_is_refused(tmp_path):
    refused(tmp_path, foreign.hpcc({"HPL_Tflops": 0.025}, success=0), "Success=0")


def test_hpcc_appends_an_execution_to_the_one_before(tmp_path):
    first = foreign.hpcc({"AvgPingPongLatency_usec": 1.5, "HPL_Tflops": 0.025})
    second = foreign.hpcc({"AvgPingPongLatency_usec": 2.5})
    run = imported(tmp_path, first + second)
    by_test = {series.variant: series.launch_medians for series in run.series}
    assert by_test == {"mean-of-pairs": (1.5, 2.5), "hpl": (25.0,)}
    failed = foreign.hpcc({"HPL_Tflops": 0.025}, success=0)
    refused(tmp_path / "failed", failed + second, "Success=0")
    cut = foreign.hpcc({"AvgPingPongLatency_usec": 1.5}, end=False)
    for number, (text, missing) in enumerate(
        ((cut + second, "End"), (second + cut, "End"), (second + second.split("Begin")[0], "Begin"))
    ):
        refused(tmp_path / str(number), text, f"not whole: the line '{missing} of Summary section.' is missing")
        run = imported(tmp_path / f"partial {number}", text, is_partial=True)
        expected = (2.5,) if missing == "Begin" else (1.5, 2.5) if text.startswith(cut) else (2.5, 1.5)
        assert [series.launch_medians for series in run.series] == [expected] and not run.complete


FABTESTS_ROWS = [("64", "1k", 12.9, 4.96), ("1.5k", "1k", 300.0, 5.12), ("1m", "100", 9500.0, 110.38)]


def test_fabtests_tables_need_the_programs_name(tmp_path):
    text = foreign.fabtests(FABTESTS_ROWS)
    refused(tmp_path, text, "--test pingpong or --test stream")
    pingpong = imported(tmp_path, text, name="fi_rdm_pingpong")
    assert values(pingpong, "pingpong") == {64: 4.96, 1536: 5.12, 1 << 20: 110.38}
    stream = imported(tmp_path / "b", text, name="fi_rdm_bw")
    assert values(stream, "stream") == {64: pytest.approx(103.2), 1536: 2400.0, 1 << 20: 76000.0}
    named = imported(tmp_path / "c", foreign.fabtests(FABTESTS_ROWS, name="send_lat"), hints=Hints(test="pingpong"))
    assert values(named, "pingpong") == values(pingpong, "pingpong")


def test_fabtests_in_full_name_their_program(tmp_path):
    run = imported(tmp_path, foreign.fabtests_in_full("/opt/bin/fi_rdm_tagged_pingpong", list(TIMES_US.items())))
    assert values(run, "pingpong") == pytest.approx(TIMES_US)
    run = imported(tmp_path / "b", foreign.fabtests_in_full("fi_rdm_bw", [(1024, 2.0)]))
    assert values(run, "stream") == {1024: pytest.approx(4096.0)}


def test_fabtests_rounded_sizes_are_refused(tmp_path):
    refused(tmp_path, foreign.fabtests([("1.3k", "1k", 1.0, 1.0)]), "rounded: run fabtests with -m", name="pingpong")
    # fi_rdm_pingpong -S 20000: the size is cut down, and only rate by time tells it.
    rows = [("19k", "1k", 1000.0, 20.0)]
    refused(tmp_path, foreign.fabtests(rows), "line 2: '19k' is rounded: run fabtests with -m", name="pingpong")
    run = imported(tmp_path, foreign.fabtests([("19k", "1k", 19456 / 20.0, 20.0)]), name="pingpong")
    assert values(run, "pingpong") == {19456: 20.0}


def test_fi_pingpong_is_a_pingpong_and_lost_messages_are_left_out(tmp_path):
    text = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n"
    text += "64      10      =10      1.2k        0.03s      0.05    1378.30       0.00\n"
    text += "256     10      +2       5k          0.00s     22.26      11.50       0.09\n"
    run = imported(tmp_path, text)
    assert values(run, "pingpong") == {64: 1378.3}
    assert any("256 B: messages were lost" in warning for warning in run.warnings)


def test_nccl_times_and_bus_bandwidths(tmp_path):
    run = imported(tmp_path, foreign.nccl([(8, 12.5, 12.25), (1 << 20, 100.0, 80.0)]))
    assert values(run, "collective", "allreduce", "time_mean") == {8: 12.5, 1 << 20: 100.0}
    assert values(run, "collective", "allreduce-in-place", "time_mean") == {8: 12.25, 1 << 20: 80.0}
    # 10.48576 GB/s by 1.5, printed with two decimals; of 8 B it is printed as 0.00, which is no measurement.
    assert values(run, "collective", "allreduce", "bus_bandwidth") == {1 << 20: pytest.approx(125840.0)}
    assert {series.ranks for series in run.series} == {4}


def test_nccl_without_a_name_takes_the_files(tmp_path):
    text = foreign.nccl([(8, 12.5, 12.25)], program=None)
    refused(tmp_path, text, "which collective")
    run = imported(tmp_path, text, name="reduce_scatter_perf")
    assert values(run, "collective", "reduce-scatter", "time_mean") == {8: 12.5}


def test_nccl_alltoall_prints_empty_rows_and_checks_only_out_of_place(tmp_path):
    text = foreign.nccl([(0, 1.0, 0.75), (0, 1.25, 0.5), (128, 38.25, 60.5)], program="alltoall_perf")
    text = re.sub(r"0$", "N/A", text, flags=re.MULTILINE)
    run = imported(tmp_path, text)
    assert len(run.launches) == 1
    assert values(run, "collective", "alltoall", "time_mean") == {128: 38.25}
    assert values(run, "collective", "alltoall-in-place", "time_mean") == {128: 60.5}


def test_nccl_data_types_operations_and_roots_are_no_launches_of_each_other(tmp_path):
    kinds = (("float", "sum", -1), ("half", "max", -1))
    both = foreign.nccl([(1 << 20, 100.0, 80.0)], kinds=kinds)
    run = imported(tmp_path, both)
    assert values(run, "collective", "allreduce-float-sum", "time_mean") == {1 << 20: 100.0}
    assert values(run, "collective", "allreduce-half-max", "time_mean") == {1 << 20: 101.0}
    assert values(run, "collective", "allreduce-in-place-half-max", "time_mean") == {1 << 20: 81.0}
    assert len(run.launches) == 1 and {series.launches for series in run.series} == {1}
    roots = (("float", "none", 0), ("float", "none", 1))
    rooted = foreign.nccl([(1 << 20, 100.0, 80.0)], program="broadcast_perf", kinds=roots)
    assert values(imported(tmp_path / "b", rooted), "collective", "bcast-float-root1", "time_mean") == {1 << 20: 101.0}


def test_a_data_type_that_comes_with_another_file_is_no_launch_of_the_first(tmp_path):
    one, other = (foreign.nccl([(1 << 20, 100.0, 80.0)], kinds=((name, "sum", -1),)) for name in ("float", "half"))
    run = imported(tmp_path, one, other)
    assert values(run, "collective", "allreduce-half-sum", "time_mean") == {1 << 20: 100.0}
    # Alone it has no name, also if another one is added later.
    run = imported(tmp_path / "b", one)
    assert values(run, "collective", "allreduce", "time_mean") == {1 << 20: 100.0}
    for number, text in enumerate((other, foreign.nccl([(1 << 20, 90.0, 80.0)]))):
        file = tmp_path / f"added-{number}.txt"
        file.write_text(text)
        run = import_outputs(ImportPlan((file,)), tmp_path / "b" / "run", command=[], add=True)
    assert values(run, "collective", "allreduce", "time_mean") == {1 << 20: 95.0}
    assert values(run, "collective", "allreduce-half-sum", "time_mean") == {1 << 20: 100.0}


def test_nccl_with_wrong_results_is_refused(tmp_path):
    refused(tmp_path, foreign.nccl([(8, 12.5, 12.25)], wrong="3"), "3 results were wrong")
    refused(tmp_path, foreign.nccl([(8, 1.0, 1.0)]).replace("values : 0 OK", "values : 2 FAILED"), "2 results were")
    refused(tmp_path, foreign.nccl([(8, 1.0, 1.0)]).replace("(us)", "(ms)"), "unknown units")


def test_every_file_is_a_launch_and_so_is_every_repetition_in_a_file(tmp_path):
    texts = [foreign.osu_latency({8: 1.0 + number / 10}) for number in range(5)]
    run = imported(tmp_path, texts[0] + texts[1] + texts[2], texts[3], texts[4])
    (series,) = run.series
    assert series.launch_medians == (1.0, 1.1, 1.2, 1.3, 1.4)
    assert [launch.details["file"] for launch in run.launches] == ["out-0.txt"] * 3 + ["out-1.txt", "out-2.txt"]


def test_subjects_added_to_a_run_compare_like_measured_ones(tmp_path):
    run = imported(tmp_path, *(foreign.osu_latency({8: 3.0 + n / 100}) for n in range(6)), hints=Hints("openmpi/tcp"))
    files = []
    for number in range(6):
        files.append(tmp_path / f"b{number}")
        files[-1].write_text(foreign.osu_latency({8: 1.0 + number / 100}))
    plan = ImportPlan(tuple(files), hints=Hints("openmpi/barewire"))
    run = import_outputs(plan, tmp_path / "run", command=["x"], add=True)
    (versus,) = compare_in_run(read_run(tmp_path / "run"))
    assert (versus.a.subject, versus.result.verdict) == ("openmpi/barewire", "A faster")
    assert versus.result.ratio == pytest.approx(1.025 / 3.025)
    assert len(run.launches) == 12 and len(run.parameters["files"]) == 12
    with pytest.raises(WrongUse, match=r"imported before.*rename"):
        import_outputs(plan, tmp_path / "run", command=["x"], add=True)
    page = render(read_run(tmp_path / "run"), samples(tmp_path / "run"))
    assert "openmpi/barewire" in page and "one number for each point" in page
    assert "12 launches (executions of the tool whose outputs were imported)" in page
    for wrong in ("the probe", "interleaved", "Seed", "after warm-up, all kept", "the budget of time"):
        assert wrong not in page, wrong


def test_the_page_of_an_import_says_how_laws_were_fitted_if_there_are_any(tmp_path):
    sizes = {1 << power: 1.0 + (1 << power) / 100 for power in range(10)}
    for name, texts in (("many", [foreign.osu_latency(sizes)]), ("few", [foreign.osu_latency()])):
        run = imported(tmp_path / name, *texts)
        page = render(run, samples(tmp_path / name / "run"))
        assert ("2·ln(sizes / 0.002)" in page) == (name == "many") and "Schwarz" not in page


def test_imports_of_one_environment_compare_without_a_warning(tmp_path):
    texts = [foreign.osu_latency({8: 10.0 + number / 100}) for number in range(6)]
    old = imported(tmp_path / "a", *texts, environment="cluster A")
    new = imported(tmp_path / "b", *texts, environment="cluster A")
    assert compare_runs(old, new)[0].result.verdict == "no difference"
    with pytest.raises(WrongUse, match="different environments"):
        compare_runs(old, imported(tmp_path / "c", *texts))


def test_a_rate_gives_the_wires_limit(tmp_path):
    run = imported(tmp_path, foreign.netpipe({1400: 11.0}), hints=Hints("tcp"), link=Link(1e9, 1500))
    (series,) = run.series
    assert series.verdict == "impossible", "1400 B at 1 Gb/s take 11.8 µs at least"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (foreign.without_last(foreign.osu_latency(), 5), "line 8 has 1 of 2 columns"),
        (foreign.without_last(foreign.osu_latency(), 1), "line 8 has no end"),
        (foreign.imb_pingpong(end=False), "MPI_Finalize' is missing"),
        (foreign.without_last(foreign.netpipe(), 10), "not whole: line 5"),
        (foreign.without_last(foreign.netpipe_file(), 1), "line 4 has no end"),
        (foreign.hpcc({"HPL_Tflops": 0.5}, end=False), "End of Summary section.' is missing"),
        (foreign.nccl([(8, 1.0, 1.0)]).split("# Out of")[0], "Avg bus bandwidth' is missing"),
        (foreign.without_last(foreign.fabtests_in_full("fi_rdm_bw", [(8, 1.0), (64, 1.0)]), 9), "line 4 is cut short"),
    ],
)
def test_outputs_that_are_cut_short_are_refused_unless_part_is_wanted(tmp_path, text, reason):
    refused(tmp_path, text, reason)
    run = imported(tmp_path, text, is_partial=True)
    assert not run.complete and run.stopped_by == "an imported output is not whole"
    assert any(series.median for series in run.series)


@pytest.mark.parametrize(
    "line",
    [
        "mpirun noticed that process rank 1 with PID 12 on node a exited on signal 9 (Killed).",
        "Abort(271159951) on node 1 (rank 1 in comm 0): Fatal error in PMPI_Send",
        "[node:12] *** An error occurred in MPI_Recv",
        "fi_getinfo(): common/shared.c:1456, ret=-61 (No data available)",
        "srun: error: node7: task 3: Killed",
    ],
)
def test_outputs_of_failed_launches_are_refused(tmp_path, line):
    refused(tmp_path, foreign.osu_latency() + line + "\n", "line 9 reports a failure")


@pytest.mark.parametrize("word", ["nan", "inf", "-1.50", "1.5.0"])
def test_numbers_that_are_none_are_refused(tmp_path, word):
    text = foreign.osu_latency({8: 1.25}).replace("1.25", word)
    refused(tmp_path, text, f"line 5: ({word} is not a valid|'{word}' is not a number)")


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (foreign.osu_latency({8: 1.25, 64: 1.5}), "1.25", "1,25"),
        (foreign.osu_latency({8: 1.25, 64: 1.5}), "1.25", "1.25x"),
        (foreign.osu_latency({8: 1.25, 64: 1.5}), "8 ", "8x"),
        (foreign.osu("Latency", ("Size", "Avg Latency(us)", "Validation"), [(8, "1.25", "Pass")]), "1.25", "1,25"),
        ("# OSU MPI Barrier Latency Test v5.8\n# Avg Latency(us)\n   12.57\n", "12.57", "12,57"),
        (foreign.imb_pingpong({8: 1.25, 64: 1.5}), "1.25", "1,25"),
        (foreign.imb_pingpong({8: 1.25, 64: 1.5}), "1000", "1OOO"),
        (foreign.nccl([(8, 12.5, 12.25), (64, 13.5, 13.25)]), "12.50", "12,50"),
        (foreign.nccl([(8, 12.5, 12.25), (64, 13.5, 13.25)]), "12.25", "12.2x"),
        (foreign.fabtests([("64", "1k", 12.9, 4.96), ("128", "1k", 13.5, 5.5)], name="pingpong"), "4.96", "4,96"),
        (foreign.fabtests([("64", "1k", 12.9, 4.96), ("128", "1k", 13.5, 5.5)]), "12.90", "12.9x"),
    ],
)
def test_rows_with_a_damaged_number_are_refused_not_passed_over(tmp_path, text, old, new):
    hints = Hints(test="pingpong") if "usec/xfer" in text else None
    assert imported(tmp_path / "whole", text, hints=hints).series
    line = text[: text.index(old)].count("\n") + 1
    refused(tmp_path, text.replace(old, new, 1), f"line {line}: '.*' is not a number", hints=hints)


def test_a_row_with_a_byte_of_no_text_is_refused(tmp_path):
    file = tmp_path / "out.txt"
    file.write_bytes(foreign.osu_latency({8: 1.25}).encode().replace(b"1.25", b"1.\xff5"))
    with pytest.raises(WrongUse, match=r"line 5: '1\.\ufffd5' is not a number"):
        import_outputs(ImportPlan((file,)), tmp_path / "run", command=[])


@pytest.mark.parametrize("size", [str(2**63), "9" * 5000])
def test_sizes_that_nothing_holds_are_refused(tmp_path, size):
    refused(tmp_path, foreign.osu_latency({8: 1.25}).replace("8 ", f"{size} "), "line 5: .* not a (message size|valid)")
    in_full = foreign.fabtests_in_full("fi_rdm_bw", [(64, 1.0)]).replace("xfer_size: 64", f"xfer_size: {size}")
    refused(tmp_path, in_full, "line 3: .* not a (message size|valid)")


@pytest.mark.parametrize(
    ("size", "reason"),
    [("1.2.3", "is not a number"), ("9" * 400, "is not a valid"), ("9" * 20, "not a message size|other units")],
)
def test_sizes_that_are_none_are_refused_in_netpipe_and_fabtests(tmp_path, size, reason):
    refused(tmp_path, foreign.netpipe({8: 1.25}).replace(" 8 bytes", f" {size} bytes"), f"line 2: .*({reason})")
    rows = foreign.fabtests([(f"{size} ", "1k", 12.9, 4.96)])
    refused(tmp_path, rows, f"line 2: .*({reason})", hints=Hints(test="pingpong"))


@pytest.mark.parametrize("count", ["9" * 12, "9" * 18])
def test_counts_that_samples_cannot_hold_are_refused(tmp_path, count):
    refused(tmp_path, foreign.imb_pingpong().replace("#processes = 2", f"#processes = {count}"), "counts 9+ ranks")
    refused(tmp_path, foreign.netpipe().replace(" 1000 times", f" {count} times"), "counts 9+ ranks")
    refused(
        tmp_path, foreign.osu_latency(), "--ranks is the job's number of ranks, not 9+", hints=Hints(ranks=int(count))
    )


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    file = tmp_path / "out.txt"
    file.write_text(foreign.osu_latency({8: 1.25}).lstrip(), encoding="utf-8-sig")
    assert values(import_outputs(ImportPlan((file,)), tmp_path / "run", command=[]), *STANDARD) == {8: 1.25}
    table = tmp_path / "table.csv"
    table.write_text("message_bytes,time_us\n8,1.25\n", encoding="utf-8-sig")
    assert read_table(table)[""].by_size() == [[1.25]]


@pytest.mark.parametrize("subject", ["", "a\nb", "\x1b[31m", "x" * 2000])
def test_subjects_that_break_tables_are_refused(tmp_path, subject):
    refused(tmp_path, foreign.osu_latency(), "--subject is a name", hints=Hints(subject))


def test_what_launchers_print_among_the_rows_is_no_row(tmp_path):
    text = foreign.osu_latency({8: 1.25, 64: 1.5})
    for line in ("10:45:03 started", "node7 ready", "WARNING", "2 ranks started late", ""):
        text = text.replace("64 ", f"{line}\n64 ", 1)
    assert values(imported(tmp_path, text), *STANDARD) == {8: 1.25, 64: 1.5}


def test_zero_is_left_out_and_said(tmp_path):
    run = imported(tmp_path, foreign.osu_latency({1: 0.0, 8: 1.25}))
    assert values(run, *STANDARD) == {8: 1.25}
    assert any("1 B: printed as 0" in warning for warning in run.warnings)


def test_other_units_and_columns_are_refused(tmp_path):
    refused(tmp_path, foreign.osu_latency().replace("(us)", "(ms)"), r"unknown column or unit 'Avg Latency\(ms\)'")
    refused(tmp_path, foreign.imb_pingpong().replace("t[usec]", "t[msec]"), "unknown column or unit")
    refused(tmp_path, foreign.osu("Latency", ("Size", "Avg Latency(us)"), [(8, 1.5, 2.5)]), "3 columns under 2")
    refused(tmp_path, foreign.osu_latency().replace("Latency Test", "Origami Test"), "'Origami' test cannot")


def test_files_that_are_no_outputs_are_refused(tmp_path):
    refused(
        tmp_path, "PING 10.0.0.1: 56 data bytes\n64 bytes from 10.0.0.1: time=0.1 ms\n", "known tool. Recognised by"
    )
    refused(tmp_path, "\n\n", "is empty")
    refused(tmp_path, "\0\1\2", "is not text")
    refused(tmp_path, foreign.osu_latency() + foreign.imb_pingpong(), "has output of OSU micro-benchmarks and of Intel")
    refused(tmp_path, foreign.osu_latency(), "not the output of Intel MPI benchmarks: it looks like OSU", format="imb")
    refused(tmp_path, foreign.osu_latency(), "unknown --format", format="iperf")
    with pytest.raises(WrongUse, match=r"cannot read .*: No such file"):
        import_outputs(ImportPlan((tmp_path / "none",)), tmp_path / "run", command=["x"])
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(2 * FILE_BYTES_MAX)
    with pytest.raises(WrongUse, match="128 MiB"):
        import_outputs(ImportPlan((huge,)), tmp_path / "run", command=["x"])


def test_a_name_that_is_no_text_is_kept_as_escapes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = os.fsdecode(b"osu-\xff.txt")
    Path(file).write_text(foreign.osu_latency({0: 0.0, 8: 1.25}))
    monkeypatch.setattr("sys.argv", ["barewire", "import", file])
    done = CliRunner().invoke(app, ["import", file, "-o", "run"], catch_exceptions=False)
    assert done.exit_code == 0
    run = read_run(Path("run"))
    assert run.command[-1] == run.launches[0].details["file"] == r"osu-\udcff.txt"
    assert r"osu-\udcff.txt" in render(run, samples(Path("run"))).encode().decode()


def test_the_same_file_twice_is_no_second_launch(tmp_path):
    file, link = tmp_path / "latency.txt", tmp_path / "link.txt"
    file.write_text(foreign.osu_latency())
    link.symlink_to(file)
    for other in (file, link):
        with pytest.raises(WrongUse, match="the same file"):
            import_outputs(ImportPlan((file, other)), tmp_path / "run", command=["x"])
    assert not (tmp_path / "run").exists()


def test_launches_that_print_the_same_are_launches_of_their_own_with_a_warning(tmp_path):
    """OSU's barrier prints one number with two decimals: left-out repetitions would bias the spread."""
    barrier = [foreign.osu("Barrier", ("Avg Latency(us)",), [(time,)]) for time in ("1.25", "1.26", "1.25", "1.25")]
    run = imported(tmp_path, *barrier)
    (series,) = run.series
    assert series.launch_medians == (1.25, 1.26, 1.25, 1.25) and len(run.parameters["files"]) == 4
    (warning,) = [each for each in run.warnings if "same content" in each]
    assert "3 files" in warning and "out-0.txt, out-2.txt, out-3.txt" in warning
    assert not any("same content" in each for each in imported(tmp_path / "b", *barrier[:2]).warnings)


def test_the_last_of_several_executions_must_have_ended(tmp_path):
    refused(tmp_path, foreign.imb_pingpong() + foreign.imb_pingpong(end=False), "is missing at its end")


def test_options_that_would_have_no_effect_are_refused(tmp_path):
    refused(tmp_path, foreign.osu_latency(), "omit --test", hints=Hints(test="pingpong"))
    file = tmp_path / "latency.txt"
    file.write_text(foreign.osu_latency())
    for option in (("--rate", "1gbit"), ("--environment", "x"), ()):
        failed = CliRunner().invoke(app, ["import", str(file), "--add", *option, *(("-o", "x") if option else ())])
        assert isinstance(failed.exception, WrongUse) and "--add" in str(failed.exception)


def test_files_of_several_tools_are_refused(tmp_path):
    with pytest.raises(WrongUse, match="of several tools"):
        imported(tmp_path, foreign.osu_latency(), foreign.imb_pingpong())


def test_the_command_prints_the_run(tmp_path):
    file = tmp_path / "latency.txt"
    file.write_text(foreign.osu_latency())
    arguments = ["import", str(file), "-o", str(tmp_path / "run"), "--subject", "openmpi/tcp", "--json"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    document = json.loads(done.output)
    assert document["schema"] == "barewire-run/1" and len(document["series"]) == len(TIMES_US)
    again = CliRunner().invoke(app, arguments)
    assert isinstance(again.exception, WrongUse) and "not empty" in str(again.exception)


def test_every_tool_has_a_mark_and_an_importer():
    assert set(TOOLS) == {"osu", "imb", "netpipe", "hpcc", "fabtests", "nccl-tests"}
