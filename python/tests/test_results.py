# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs on disk and series from samples: nothing is dropped silently, no partial file is left."""

import errno
import json
import math
import os
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from synthetic import synthetic_run

from barewire.classroom.exercises import EXERCISES
from barewire.cluster.hosts import read_cluster_file
from barewire.errors import MeasurementFailed, WrongUse
from barewire.measure.records import records_in
from barewire.measure.scoreboard_plan import BoardPlan
from barewire.models.wire import Link
from barewire.results.host import read_reference
from barewire.results.model import read_model
from barewire.results.schema import SAMPLE_SCHEMA, sample_frame
from barewire.results.series import series_from_samples
from barewire.results.store import read_run, samples, write_atomically, write_run
from barewire.results.tuning import write_tuning
from barewire.sdn.classify.policy import parse_policy
from barewire.sdn.classify.tenants import parse_tenants
from barewire.study.plan import read_plan
from barewire.study.steps import document_of, read_record
from barewire.topology import load

COLLISIONS = next(exercise for exercise in EXERCISES if exercise.name == "collisions")


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    synthetic_run(directory, launches=6, samples_per_launch=20, sizes=(64, 1400))
    return directory


def test_a_run_survives_writing_and_reading(run_directory, tmp_path):
    run = read_run(run_directory)
    write_run(tmp_path, run, samples(run_directory))
    assert read_run(tmp_path) == run
    assert samples(tmp_path).equals(samples(run_directory))
    assert run.launches[0].details == {"pairs": 1}
    assert (tmp_path / "run.json").stat().st_mode & 0o777 == 0o666 & ~_umask()


def test_run_json_is_plain_json_with_the_documented_fields(run_directory):
    data = json.loads((run_directory / "run.json").read_text())
    assert data["schema"] == "barewire-run/1"
    needed = {"test", "subject", "message_bytes", "unit", "median", "ci95", "min", "p99", "launches", "samples"}
    needed |= {"limit", "fraction_of_limit"}
    assert all(needed <= set(entry) for entry in data["series"])


def test_series_can_be_recomputed_from_the_stored_samples(run_directory):
    assert tuple(series_from_samples(samples(run_directory), Link(None))) == read_run(run_directory).series


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no run.json"),
        ("{", "not JSON"),
        ("[]", "no JSON object"),
        ("{}", "not a Barewire run"),
        ('{"schema": "other/1"}', "not a Barewire run"),
        ('{"schema": "barewire-run/2"}', "newer"),
        ('{"schema": "barewire-run/1"}', "lacks 'id'"),
    ],
)
def test_invalid_runs_are_rejected_with_the_reason(tmp_path, content, message):
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(WrongUse, match=message):
        read_run(tmp_path)


def test_damaged_fields_of_a_run_are_wrong_use_not_a_traceback(run_directory, tmp_path):
    data = json.loads((run_directory / "run.json").read_text())
    for key, value in {"launches": 3, "series": [{"test": "x"}], "parameters": 1, "command": None}.items():
        (tmp_path / "run.json").write_text(json.dumps({**data, key: value}))
        with pytest.raises(WrongUse):
            read_run(tmp_path)


@pytest.mark.parametrize(
    ("part", "field", "value", "message"),
    [
        ("series", "launch_medians", [1.0, "x"], "series 1, launch_medians: Expected `float`, got `str`"),
        ("series", "launch_medians", [1.0, None], "series 1, launch_medians"),
        ("series", "launch_medians", [1.0, float("nan")], "NaN is no number"),
        ("series", "launch_numbers", [1], "series 1, launch_numbers: not one for each"),
        ("series", "ci95", 5, "series 1, ci95: Expected `array | null`"),
        ("series", "message_bytes", "64", "series 1, message_bytes"),
        ("launches", "index", "first", "launches 1, index"),
        ("", "seed", "abc", "damaged: seed: Expected `int`"),
        ("", "warnings", [3], "damaged: warnings"),
        ("", "lab", [], "damaged: lab"),
    ],
)
def test_fields_of_another_type_are_named(run_directory, tmp_path, part, field, value, message):
    data = json.loads((run_directory / "run.json").read_text())
    (data[part][1] if part else data)[field] = value
    (tmp_path / "run.json").write_text(json.dumps(data))
    with pytest.raises(WrongUse, match=message):
        read_run(tmp_path)


def test_directories_without_a_run_are_distinguished(tmp_path):
    with pytest.raises(WrongUse, match="no directory"):
        read_run(tmp_path / "absent")
    (tmp_path / "file").touch()
    with pytest.raises(WrongUse, match="is a file"):
        read_run(tmp_path / "file")
    (tmp_path / "launches").mkdir()
    (tmp_path / "launches" / "0.jsonl").touch()
    with pytest.raises(WrongUse, match="ended before"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("run.json", read_run),
        ("model.json", lambda folder: read_model(folder / "model.json")),
        ("reference.json", lambda folder: read_reference(folder / "reference.json")),
        ("plan.json", BoardPlan.read),
        ("study.json", read_record),
        ("step.json", lambda folder: document_of(folder, "step")),
        ("exercise.json", lambda folder: COLLISIONS.read(folder / "exercise.json")),
        ("launch.jsonl", lambda folder: list(records_in(folder / "launch.jsonl"))),
    ],
)
def test_json_that_is_nested_too_deeply_is_an_error_with_the_files_name(name, read, tmp_path):
    (tmp_path / name).write_text("[" * 100_000 + "]" * 100_000 + "\n{}\n")
    with pytest.raises((WrongUse, MeasurementFailed), match=f"{name}.*recursion"):
        read(tmp_path)


@pytest.mark.parametrize("value", ["[" * 100_000, "9" * 5000], ids=["nested", "digits"])
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("topology.toml", load),
        ("cluster.toml", read_cluster_file),
        ("plan.toml", lambda file: read_plan(str(file))),
        ("policy.toml", lambda file: parse_policy(file.read_text(), str(file))),
        ("tenants.toml", lambda file: parse_tenants(file.read_text(), str(file), (), file.parent)),
        ("tuning.toml", lambda file: write_tuning({}, measured=(), source="a test", path=file)),
    ],
)
def test_toml_beyond_what_python_reads_is_an_error_with_the_files_name(name, read, value, tmp_path):
    (tmp_path / name).write_text(f"window = {value}\n")
    with pytest.raises(WrongUse, match=name):
        read(tmp_path / name)


def test_damaged_samples_are_wrong_use(tmp_path):
    (tmp_path / "samples.parquet").write_bytes(b"no parquet")
    with pytest.raises(WrongUse, match="damaged"):
        samples(tmp_path)
    pl.DataFrame({"launch": [1]}).write_parquet(tmp_path / "samples.parquet")
    with pytest.raises(WrongUse, match="lack the columns"):
        samples(tmp_path)


def test_a_directory_with_brackets_is_no_pattern(run_directory, tmp_path):
    run, frame = read_run(run_directory), samples(run_directory)
    write_run(tmp_path / "a1", run, frame.head(3))
    write_run(tmp_path / "a[1]", run, frame)
    assert samples(tmp_path / "a[1]").equals(frame)


def test_what_is_no_text_is_kept_and_a_run_that_json_cannot_hold_leaves_nothing(run_directory, tmp_path):
    run, frame = read_run(run_directory), samples(run_directory)
    name = {"name": "\udcff"}
    write_run(tmp_path / "named", replace(run, parameters=name), frame)
    assert read_run(tmp_path / "named").parameters == name
    with pytest.raises(ValueError, match="JSON"):
        write_run(tmp_path / "not", replace(run, parameters={"name": math.nan}), frame)
    assert not (tmp_path / "not").exists()


def test_a_full_disk_keeps_previous_files_and_leaves_no_partial_one(run_directory, tmp_path, monkeypatch):
    run, frame = read_run(run_directory), samples(run_directory)
    write_run(tmp_path, run, frame)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MeasurementFailed, match="full"):
        write_run(tmp_path, run, frame.head(1))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_link_and_a_pipe_are_written_to_and_not_replaced(tmp_path):
    """As root, `--markdown /dev/stdout` or `-o /dev/null` would make a file of the device."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "file")
    for content in (b"made", b"replaced"):
        write_atomically(tmp_path / "link", content)
        assert (tmp_path / "link").is_symlink() and (tmp_path / "elsewhere" / "file").read_bytes() == content
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically(pipe, b"said")
        assert os.read(reader, 100) == b"said" and pipe.is_fifo()
    finally:
        os.close(reader)
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path / "elsewhere", b"")


def test_an_unwritable_directory_is_named(run_directory, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(MeasurementFailed, match="cannot write"):
        write_run(tmp_path / "file" / "run", read_run(run_directory))


def test_the_median_is_that_of_launch_medians_without_warm_up():
    launches = {0: [1.0, 2.0, 30.0], 1: [4.0, 4.0, 4.0], 2: [9.0, 9.0, 1.0]}
    rows = [_row(launch, n, value) for launch, values in launches.items() for n, value in enumerate(values)]
    rows += [{**_row(0, 9, 1000.0), "phase": "warmup"}]
    (series,) = series_from_samples(_frame(rows))
    assert series.launch_medians == (2.0, 4.0, 9.0)
    assert series.median == 4.0
    assert series.mean == pytest.approx((11 + 4 + 19 / 3) / 3)
    assert (series.min, series.max, series.samples, series.launches) == (1.0, 30.0, 9, 3)
    assert (series.interval, series.verdict, series.stop) == (None, "no limit known", "budget")


def test_lossy_samples_are_counted_but_not_used_in_rates():
    rows = [_row(n, 0, 100.0, test="stream", unit="Mbit/s") for n in range(3)]
    rows += [{**_row(n, 1, 900.0, test="stream", unit="Mbit/s"), "lost": 5} for n in range(3)]
    (series,) = series_from_samples(_frame(rows))
    assert (series.median, series.max) == (100.0, 100.0)
    assert (series.samples, series.samples_measured, series.lossy_samples, series.lost) == (3, 6, 3, 15)


def test_a_rate_without_any_loss_free_sample_is_none_with_a_verdict():
    rows = [{**_row(n, 0, 900.0, test="stream", unit="Mbit/s"), "lost": 1} for n in range(3)]
    (series,) = series_from_samples(_frame(rows), Link(1e9))
    assert (series.median, series.limit, series.verdict) == (None, None, "no loss-free sample")
    assert json.loads(json.dumps(series.to_json(), allow_nan=False))["median"] is None


def test_lost_datagrams_of_a_ping_pong_are_counted_without_times():
    rows = [_row(0, 0, 3.0), {**_row(0, 1, float("nan")), "lost": 1}]
    (series,) = series_from_samples(_frame(rows))
    assert (series.samples, series.samples_measured, series.lost, series.lossy_samples) == (1, 2, 1, 1)


def test_the_goodput_of_several_pairs_is_their_sum_per_block():
    rows = [
        {**_row(launch, block, 100.0 + 50 * pair, test="stream", unit="Mbit/s"), "pairs": 2, "pair": pair}
        for launch in range(2)
        for block in range(3)
        for pair in range(2)
    ]
    (series,) = series_from_samples(_frame(rows))
    assert (series.median, series.pairs, series.samples) == (250.0, 2, 6)
    # A block that only one pair finished is not half as fast: it does not count.
    (series,) = series_from_samples(_frame(rows[:-1]))
    assert (series.median, series.min, series.samples, series.samples_measured) == (250.0, 250.0, 5, 6)


def test_the_limit_is_the_wire_on_shaped_links_and_the_floor_on_unshaped_ones(tmp_path):
    shaped = synthetic_run(tmp_path / "a", launches=6, sizes=(1400,), link=Link(1e9))
    raw = _one(shaped, "pingpong", "raw")
    assert (raw.limit, raw.limit_kind, raw.verdict) == (pytest.approx(11.504), "wire", "impossible")
    unshaped = synthetic_run(tmp_path / "b", launches=6, sizes=(1400,))
    raw, floor = _one(unshaped, "pingpong", "raw"), _one(unshaped, "pingpong", "floor")
    assert (raw.limit, raw.limit_kind, raw.verdict) == (floor.median, "floor", "ok")
    assert raw.fraction_of_limit == floor.median / raw.median
    assert floor.fraction_of_limit == 1


def test_raw_frames_clearly_faster_than_their_floor_are_impossible():
    def rows(subject: str, value: float) -> list[dict]:
        return [{**_row(n, 0, value + 0.001 * n), "subject": subject} for n in range(6)]

    found = series_from_samples(_frame(rows("raw", 0.5) + rows("floor", 1.0) + rows("tcp", 0.6)))
    assert [(series.subject, series.verdict) for series in found] == [
        ("tcp", "faster than floor"),
        ("raw", "impossible"),
        ("floor", "ok"),
    ]


def test_a_series_has_converged_if_its_launches_are_precise():
    frame = _frame([_row(n, 0, 3.0 + 0.001 * n) for n in range(6)])
    assert series_from_samples(frame)[0].stop == "converged"
    assert series_from_samples(frame[:5])[0].stop == "budget"


def test_no_samples_yield_no_series_and_mixed_units_are_rejected():
    assert series_from_samples(_frame([])) == []
    with pytest.raises(ValueError, match="units"):
        series_from_samples(_frame([_row(0, 0, 1.0), _row(0, 1, 1.0, unit="ms")]))


def _one(run, test, subject):
    return next(series for series in run.series if (series.test, series.subject) == (test, subject))


def _row(launch: int, block: int, value: float, *, test: str = "pingpong", unit: str = "us") -> dict:
    place = {
        "launch": launch,
        "test": test,
        "subject": "raw",
        "pairs": 1,
        "pair": 0,
        "processes": 1,
        "process": 0,
        "message_bytes": 64,
    }
    return {**place, "phase": "measure", "block": block, "value": value, "unit": unit, "lost": 0}


def _frame(rows: list[dict]) -> pl.DataFrame:
    return sample_frame(pl.DataFrame(rows, schema=SAMPLE_SCHEMA if not rows else None))


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current
