# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs of MPI libraries, from records to tables and the page; the programs are tested in tests/test_mpi_command.py."""

import fcntl
import io
import json
import os
import re

import polars as pl
import pytest
from rich.console import Console
from synthetic_mpi import (
    EAGER_BYTES,
    HANDSHAKE_US,
    OVERHEADS,
    sample_record,
    subject,
    synthetic_mpi,
    time_us,
)

from barewire.errors import MeasurementFailed, WrongUse
from barewire.measure.mpi_records import read_mpi_records
from barewire.measure.records import records_in
from barewire.measure.recover import recover_run
from barewire.models.causes import Limit
from barewire.models.wire import Link
from barewire.report import words
from barewire.report.run_page import render
from barewire.report.terminal import print_run, versus_tables
from barewire.report.versus import compare_in_run, compare_variants
from barewire.results.derived import COMPUTATION, derived_samples
from barewire.results.laws import laws_of
from barewire.results.run import Run, Series
from barewire.results.series import series_from_samples
from barewire.results.store import read_run, samples, write_run


def write(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def find(run: Run, **coordinates) -> Series:
    (series,) = [
        series for series in run.series if all(getattr(series, name) == value for name, value in coordinates.items())
    ]
    return series


def start(test: str, ranks: int = 2) -> dict:
    return {"record": "start", "schema": "barewire-mpi/1", "test": test, "ranks": ranks}


@pytest.mark.parametrize(
    ("test", "quantity", "unit", "value"),
    [
        ("pingpong", "half_round_trip", "us", 2.0),
        ("stream", "arrival_interval", "Mbit/s", 4000.0),
        ("bandwidth", "send_interval", "Mbit/s", 4000.0),
        ("rate", "send_interval", "messages/s", 500_000.0),
        ("halo", "halo", "us", 2.0),
        ("collective", "time", "us", 2.0),
        ("onesided", "time", "us", 2.0),
        ("incast", "arrival_interval", "messages/s", 500_000.0),
        ("startup", "first_barrier", "ms", 0.002),
        ("fft", "total", "ms", 0.002),
        ("fft", "error", "of mean size", 2000.0),
    ],
)
def test_times_become_values_in_units_of_results(tmp_path, test, quantity, unit, value):
    recorded = sample_record("one", quantity, 1000, 0, [2000.0])
    recorded["unit"] = unit if unit == "of mean size" else "ns"
    read = read_mpi_records(write(tmp_path / "a", start(test), recorded), 7, "openmpi/tcp")
    (row,) = read.samples.to_dicts()
    assert (row["value"], row["unit"], row["launch"], row["ranks"]) == (pytest.approx(value), unit, 7, 2)


def test_concurrent_values_of_ranks_share_a_number_and_coordinates_are_kept(tmp_path):
    records = [
        sample_record("a", "halo", 8, 0, [1, 2], phase="warmup"),
        sample_record("a", "halo", 8, 0, [3, 4], inner=9),
        sample_record("a", "halo", 8, 0, [5]),
        sample_record("a", "halo", 8, 1, [6, 7, 8], order=16.0),
    ]
    frame = read_mpi_records(write(tmp_path / "a", start("halo"), *records), 0, "openmpi/tcp").samples
    assert frame["block"].to_list() == [0, 1, 0, 1, 2, 0, 1, 2]
    assert frame["inner"].to_list() == [1, 1, 9, 9, 1, 1, 1, 1]
    assert frame["parameter"].to_list() == [""] * 5 + ["order"] * 3
    assert frame["parameter_value"].to_list() == [None] * 5 + [16.0] * 3


def test_a_record_ends_only_at_a_line_feed(tmp_path):
    """JSON may have these as they are in its strings, such as a file's name in an error; Python ends a line there."""
    error = "no file a\u2028b\x85c"
    path = tmp_path / "records"
    path.write_text(json.dumps({"record": "end", "error": error}, ensure_ascii=False) + '\n{"record": "more"}\n{"rec')
    assert list(records_in(path)) == [{"record": "end", "error": error}, {"record": "more"}]


def test_records_of_another_schema_are_rejected_and_a_truncated_line_is_omitted(tmp_path):
    with pytest.raises(MeasurementFailed, match="barewire-mpi/1"):
        read_mpi_records(write(tmp_path / "a", start("halo") | {"schema": "barewire-mpi/2"}), 0, "x/tcp")
    whole = write(tmp_path / "b", start("halo"), sample_record("a", "halo", 8, 0, [3, 4]))
    whole.write_text(whole.read_text()[:-10])
    assert read_mpi_records(whole, 0, "x/tcp").samples.is_empty()


def test_ranks_variants_and_sizes_are_separate_series_and_the_slowest_rank_counts(tmp_path):
    run = synthetic_mpi(tmp_path / "run", "pingpong", "alltoall", ranks=(2, 4))
    coordinates = {"test": "alltoall", "subject": "openmpi/tcp"}
    for ranks in (2, 4):
        expected = time_us("tcp", 64) * ranks + ranks - 1
        assert find(run, **coordinates, ranks=ranks).median == pytest.approx(expected)
    standard = find(
        run, test="pingpong", subject="mpich-5/barewire", variant="blocking-standard", ranks=2, message_bytes=8
    )
    assert standard.median == pytest.approx(time_us("barewire", 8), rel=0.02)
    assert standard.launches == 6 and standard.samples == 120, "warm-up counts nowhere"
    assert len(run.launches) == 2 * 4 * 2 * 6
    assert read_run(tmp_path / "run") == run


def test_rates_of_several_pairs_are_summed_and_latencies_stay_separate(tmp_path):
    records = [sample_record("a", "arrival_interval", 1000, rank, [1000.0, 2000.0], pairs=2) for rank in (2, 3)]
    records += [sample_record("b", "half_round_trip", 8, rank, [1000.0 * (rank + 1)], pairs=2) for rank in (0, 1)]
    stream = read_mpi_records(write(tmp_path / "a", start("stream", 4), *records[:2]), 0, "openmpi/tcp").samples
    (series,) = series_from_samples(stream)
    assert (series.max, series.min, series.samples, series.pairs) == (16000.0, 8000.0, 2, 2)
    pingpong = read_mpi_records(write(tmp_path / "b", start("pingpong", 4), *records[2:]), 0, "openmpi/tcp").samples
    (series,) = series_from_samples(pingpong)
    assert (series.min, series.max, series.samples) == (1.0, 2.0, 2)


def test_rates_of_several_pairs_are_limited_by_as_many_links(tmp_path):
    """Four hosts, two pairs of 0.9 Gb/s each over links of 1 Gb/s; with fewer or unknown hosts nothing is known."""
    size = 65536
    records = [sample_record("a", "arrival_interval", size, rank, [size * 8 / 0.9] * 6, pairs=2) for rank in (2, 3)]
    frame = read_mpi_records(write(tmp_path / "a", start("stream", 4), *records), 0, "openmpi/tcp").samples
    (series,) = series_from_samples(frame, Link(1e9), hosts=4)
    assert series.median == pytest.approx(1800) and series.limit == pytest.approx(2 * 941.5, rel=1e-3)
    assert series.limit_kind == "wire" and series.verdict != "impossible"
    for hosts in (2, None):
        (series,) = series_from_samples(frame, Link(1e9), hosts=hosts)
        assert series.limit is None and series.verdict == "no limit known"


def test_the_wire_limits_only_jobs_with_a_host_for_each_rank(tmp_path):
    run = synthetic_mpi(tmp_path, "pingpong", ranks=(2, 4), link=Link(1e9))
    coordinates = {"subject": "openmpi/barewire", "variant": "blocking-standard", "message_bytes": 1048576}
    two, four = find(run, **coordinates, ranks=2), find(run, **coordinates, ranks=4)
    assert two.limit_kind == "wire" and two.verdict == "impossible", "1 MiB in 240 µs is more than 1 Gb/s"
    assert four.limit is None and four.verdict == "no limit known"
    tcp = find(run, **(coordinates | {"subject": "openmpi/tcp"}), ranks=2)
    assert tcp.limit > two.limit, "TCP's headers are part of its limit"


def test_derived_values_of_each_launch_become_separate_series(tmp_path):
    run = synthetic_mpi(tmp_path, "logp", "overlap")
    coordinates = {"test": "logp", "subject": "openmpi/tcp", "message_bytes": 65536}
    eel = time_us("tcp", 65536)
    expected = {"eel": eel, "os": 0.6 * OVERHEADS * eel, "or": 0.4 * OVERHEADS * eel, "gap": eel}
    for quantity, value in expected.items():
        found = find(run, **coordinates, quantity=quantity)
        assert found.median == pytest.approx(value, rel=0.02) and found.launches == 6 and found.unit == "us"
    opportunity = find(run, **coordinates, quantity="opportunity")
    assert opportunity.median == pytest.approx((2 - OVERHEADS) * eel, rel=0.02) and not opportunity.lower_is_better
    share = find(run, test="overlap", subject="openmpi/tcp", quantity="hidden_share", message_bytes=8)
    assert share.median == pytest.approx(100 * (1 - OVERHEADS), rel=0.02) and share.unit == "%"
    assert not any(series.parameter for series in run.series), "the curves' own points are samples, and no series"
    assert (samples(tmp_path)["parameter"] == "computation_ns").any()


def test_a_curve_that_cannot_be_fitted_is_a_warning_of_the_run(tmp_path):
    flat = [sample_record("pingpong", "time", 8, 0, [100.0], computation_ns=float(n)) for n in range(10)]
    frame = read_mpi_records(write(tmp_path / "a", start("overlap"), *flat), 0, "openmpi/tcp").samples
    found, problems = derived_samples(pl.concat([frame, frame.with_columns(pl.lit(1, pl.UInt32).alias("launch"))]))
    assert found.is_empty() and len(problems) == 1
    assert "overlap openmpi/tcp × 2" in problems[0] and "--reach" in problems[0] and "2 launches" in problems[0]


def test_eager_limits_show_as_breaks_of_the_law_in_run_terminal_and_page(tmp_path):
    sizes = tuple(sorted({*(1 << n for n in range(3, 21)), EAGER_BYTES + 1}))
    with_eager = subject("openmpi", "tcp", eager=EAGER_BYTES)
    assert with_eager.name == f"openmpi/tcp+eager={EAGER_BYTES}"
    run = synthetic_mpi(tmp_path, "pingpong", subjects=(with_eager,), sizes=sizes)
    law = next(law for law in laws_of(run) if law.variant == "blocking-standard")
    (found,) = law.fit.breaks
    assert Limit("", EAGER_BYTES).explains(found) and found.jump == pytest.approx(HANDSHAKE_US, rel=0.1)
    assert "the configured eager limit" in printed(run) and "Law of the latency" in printed(run)
    page = render(run, samples(tmp_path))
    assert 'id="laws"' in page and "the configured eager limit" in page


def test_each_library_is_compared_with_itself_over_the_baseline_fabric(tmp_path):
    run = synthetic_mpi(tmp_path, "pingpong")
    found = compare_in_run(run, "tcp")
    assert {(comparison.a.subject, comparison.b.subject) for comparison in found} == {
        ("openmpi/barewire", "openmpi/tcp"),
        ("mpich-5/barewire", "mpich-5/tcp"),
    }
    assert all(
        comparison.result.verdict == "A faster" and comparison.a.variant == comparison.b.variant for comparison in found
    )
    one_base = compare_in_run(run, "openmpi/tcp")
    assert {comparison.b.subject for comparison in one_base} == {"openmpi/tcp"} and len(
        {comparison.a.subject for comparison in one_base}
    ) == 3
    with pytest.raises(WrongUse, match="no subject 'udp'"):
        compare_in_run(run, "udp")
    text = printed(run, 140)
    assert "ratio to the same library over TCP" in text and "blocking-synchronous" in text


def test_variants_are_compared_within_a_subject_for_any_message_size_of_a_kernel(tmp_path):
    run = synthetic_mpi(tmp_path, "fft", ranks=(2,))
    found = [comparison for comparison in compare_variants(run, "original") if comparison.a.quantity == "total"]
    assert {
        (comparison.a.variant, comparison.b.variant, comparison.a.subject == comparison.b.subject)
        for comparison in found
    } == {("non-blocking", "original", True)}
    assert all(comparison.result.verdict == "A faster" for comparison in found)
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(*versus_tables(found))
    assert "non-blocking / original" in console.export_text()
    with pytest.raises(WrongUse, match="no variant 'nosuch'"):
        compare_variants(run, "nosuch")


def test_a_kernels_phases_are_means_over_ranks_and_its_total_the_slowest_ranks(tmp_path):
    run = synthetic_mpi(tmp_path, "fft", ranks=(2,))
    coordinates = {"subject": "openmpi/tcp", "variant": "original"}
    total, rows = find(run, **coordinates, quantity="total"), find(run, **coordinates, quantity="rows")
    assert total.unit == rows.unit == "ms" and total.parameter_value == 16
    assert rows.median == pytest.approx(1.0 * 1.05) and total.median == pytest.approx((1 + 0.6) * 1.1)
    assert "Where the time goes" in printed(run, 160) and "order 16" in printed(run, 160)
    page = render(run, samples(tmp_path))
    assert "Where the time goes" in page and '"name":"rows"' in page


def test_the_choice_of_a_variant_is_reported_with_its_reason(tmp_path):
    run = synthetic_mpi(tmp_path, "radix", ranks=(2,), subjects=(subject("openmpi", "tcp"),))
    expected = "openmpi/tcp, 16 KiB: auto chose x in 6 of 6 launches; first launch: fastest by the median of its trials"
    text = " ".join(printed(run, 200).split())
    assert expected in text and expected in render(run, samples(tmp_path))
    assert "keys 524288, 16 KiB" in text


def test_the_page_has_a_section_for_every_measurement(tmp_path):
    run = synthetic_mpi(tmp_path, "pingpong", "alltoall", "logp", "overlap", "fft", ranks=(4,))
    page = render(run, samples(tmp_path))
    for test in ("pingpong", "alltoall", "fft"):
        assert re.search(rf'<section id="{test}-1-1-4', page), test
    for test in ("logp", "overlap"):
        assert f'<section id="{test}-4-parameters"' in page
    assert "Os + Or ≤ 2·EEL" in page and "kept" in page
    too_short_for_curves = samples(tmp_path).filter(pl.col("parameter") != COMPUTATION)
    assert '<section id="overlap-4-parameters"' in render(run, too_short_for_curves)
    assert "mpich-5/barewire takes 1.2" in page, "the headline tells of ours"
    for series in run.series:
        if series.test in ("pingpong", "alltoall"):
            assert words.number(series.median, 4) in page


def test_a_failed_launch_keeps_the_others_and_marks_the_run(tmp_path):
    with pytest.raises(MeasurementFailed, match="rank 1"):
        synthetic_mpi(tmp_path, "pingpong", failing={5: MeasurementFailed("launch 5: rank 1 died")})
    run = read_run(tmp_path)
    assert not run.complete and run.stopped_by == "launch 5: rank 1 died"
    assert [launch.complete for launch in run.launches] == [True] * 5 + [False]
    assert run.launches[5].error == "launch 5: rank 1 died"
    assert run.series and all(series.stop == "incomplete" for series in run.series)
    assert not (tmp_path / "launches").exists()


def test_wrong_use_in_the_first_round_is_wrong_use_even_after_other_launches(tmp_path):
    """The launches of the first round all differ, so one of them that is invalid was never valid."""
    with pytest.raises(WrongUse):
        synthetic_mpi(tmp_path / "a", "pingpong", failing={3: WrongUse("needs an even number of ranks")})
    with pytest.raises(MeasurementFailed):
        synthetic_mpi(tmp_path / "b", "pingpong", failing={4: WrongUse("was right a round before")})


def test_a_run_that_was_killed_is_recovered_from_its_launches(tmp_path):
    done = synthetic_mpi(tmp_path / "done", "pingpong")
    killed = tmp_path / "killed"
    (killed / "launches").mkdir(parents=True)
    data = done.to_json() | {"complete": False, "launches": [], "series": []}
    (killed / "run.json").write_text(json.dumps(data))
    name = "0003-pingpong-mpich-5+tcp~eager=65536.jsonl"
    recorded = sample_record("blocking-standard", "half_round_trip", 8, 0, [3000.0])
    write(killed / "launches" / name, start("pingpong"), recorded)
    run = recover_run(killed)
    assert [(series.subject, series.ranks, series.median) for series in run.series] == [
        ("mpich-5/tcp+eager=65536", 2, 3.0)
    ]
    assert run.launches[0].index == 3 and not run.complete


def test_a_run_that_is_read_while_it_is_measured_is_whole_in_the_end(tmp_path):
    """What a reader takes for a run that was killed may go on, and be killed later."""
    done = synthetic_mpi(tmp_path / "done", "pingpong")
    running = tmp_path / "running"
    (running / "launches").mkdir(parents=True)
    (running / "run.json").write_text(json.dumps(done.to_json() | {"complete": False, "launches": [], "series": []}))
    for number in range(3):
        name = f"{number:04}-pingpong-mpich-5+tcp.jsonl"
        recorded = sample_record("blocking-standard", "half_round_trip", 8, 0, [3000.0 + number])
        write(running / "launches" / name, start("pingpong"), recorded)
        (series,) = recover_run(running).series
        assert series.launch_medians == tuple(3.0 + each / 1000 for each in range(number + 1))
    assert len(samples(running)) == 3 and recover_run(running) == read_run(running)


def test_nobody_recovers_a_run_that_is_being_finished(tmp_path, monkeypatch):
    """Otherwise a reader would write what it has read of a run that is whole meanwhile."""
    held = []

    def checked(directory, run, frame=None):
        if frame is not None:
            descriptor = os.open(directory, os.O_RDONLY)
            with pytest.raises(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(descriptor)
            held.append(True)
        write_run(directory, run, frame)

    monkeypatch.setattr("barewire.measure.session.write_run", checked)
    synthetic_mpi(tmp_path, "pingpong", launches=2)
    assert held and not recover_run(tmp_path).stopped_by


def test_runs_without_mpi_fields_are_still_read(tmp_path):
    run = synthetic_mpi(tmp_path, "pingpong")
    new = ("ranks", "variant", "quantity", "parameter", "parameter_value")
    data = json.loads((tmp_path / "run.json").read_text())
    for entry in data["series"]:
        for name in new:
            del entry[name]
    (tmp_path / "run.json").write_text(json.dumps(data))
    old = samples(tmp_path).drop("ranks", "rank", "variant", "quantity", "parameter", "parameter_value", "inner")
    old.write_parquet(tmp_path / "samples.parquet")
    read = read_run(tmp_path)
    assert len(read.series) == len(run.series)
    assert {(series.ranks, series.variant, series.parameter_value) for series in read.series} == {(0, "", None)}
    assert samples(tmp_path)["ranks"].unique().to_list() == [0]


def printed(run: Run, width: int = 120) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    print_run(console, run)
    return console.export_text()
