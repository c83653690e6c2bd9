# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How processes share an interface, computed from known samples."""

import json
from dataclasses import replace

import polars as pl
import pytest
from rich.console import Console
from synthetic import synthetic_run

from barewire.errors import WrongUse
from barewire.measure.records import read_records
from barewire.measure.runner import Plan
from barewire.measure.subjects import parse_processes, parse_subjects
from barewire.report.run_page import render
from barewire.report.terminal import print_run
from barewire.results.run import Run
from barewire.results.schema import SAMPLE_SCHEMA, sample_frame
from barewire.results.series import series_from_samples
from barewire.results.sharing import shared_from_samples
from barewire.results.store import samples


def _frame(rates: dict[int, list[float]], *, launches: int = 6, blocks: int = 3, lossy: int | None = None):
    """Return samples with the rates of `rates`; in block `lossy` the last process loses a message."""
    rows = [
        {
            "launch": 100 * count + launch, "test": "stream", "subject": "llc2", "pairs": 1, "pair": 0,
            "processes": count, "process": process, "message_bytes": 1400, "phase": "measure", "block": block,
            "value": rate, "unit": "Mbit/s", "lost": int(block == lossy and process == count - 1),
        }
        for count, each in rates.items() for launch in range(launches) for block in range(blocks)
        for process, rate in enumerate(each)
    ]  # fmt: skip
    return sample_frame(pl.DataFrame(rows))


def _shared(frame):
    series = series_from_samples(frame)
    return {shared.processes: shared for shared in shared_from_samples(frame, series)}


def test_totals_shares_and_the_ratio_to_one_process():
    found = _shared(_frame({1: [1000.0], 4: [200.0, 250.0, 250.0, 300.0]}))
    single, four = found[1], found[4]
    assert (single.median, single.ratio_to_one, single.smallest_share, single.largest_share) == (1000, 1, 1, 1)
    assert (four.median, four.ratio_to_one, four.ratio_to_one_interval) == (1000, 1, (1, 1))
    assert (four.smallest_share, four.largest_share) == (pytest.approx(0.8), pytest.approx(1.2))
    assert four.each == (200, 250, 250, 300) and four.each_interval[3] == (300, 300)
    assert four.launches == 6


def test_shares_are_per_launch_so_that_alternating_leaders_do_not_look_fair():
    """The leader differs by launch: the medians of each are equal, but the shares are not."""
    frame = _frame({2: [100.0, 300.0]})
    swapped = pl.when(pl.col("launch") % 2 == 0).then(400 - pl.col("value")).otherwise(pl.col("value")).alias("value")
    (two,) = _shared(frame.with_columns(swapped)).values()
    assert two.each == (200, 200)
    assert (two.smallest_share, two.largest_share) == (0.5, 1.5)


def test_a_block_in_which_one_process_lost_or_did_nothing_does_not_count():
    frame = _frame({2: [100.0, 300.0]}, lossy=1)
    odd = pl.when((pl.col("block") == 1) & (pl.col("process") == 0)).then(9000.0).otherwise(pl.col("value"))
    assert _shared(frame.with_columns(odd.alias("value")))[2].each == (100, 300)
    without = frame.filter((pl.col("block") != 2) | (pl.col("process") == 0))
    assert _shared(without)[2].each == (100, 300)
    (none,) = _shared(frame.filter(pl.col("process") == 0)).values()
    assert (none.median, none.smallest_share, none.each, none.launches) == (None, None, (None, None), 0)


def test_latencies_are_pooled_and_each_process_has_its_own():
    frame = _frame({1: [10.0], 2: [20.0, 30.0]}).with_columns(
        pl.lit("pingpong").cast(SAMPLE_SCHEMA["test"]).alias("test"),
        pl.lit("us").cast(SAMPLE_SCHEMA["unit"]).alias("unit"),
    )
    two = _shared(frame)[2]
    assert (two.median, two.each, two.ratio_to_one) == (25, (20, 30), 2.5)


def test_a_launchs_file_has_the_number_of_processes(tmp_path):
    start = {"record": "start", "schema": "barewire-probe/1", "processes": 2}
    block = {
        "record": "samples",
        "message_bytes": 1000,
        "phase": "measure",
        "block": 3,
        "quantity": "stream",
        "lost": 0,
    }
    lines = [start] + [{**block, "pair": pair, "values": [8000], "messages": 1.5 + pair} for pair in range(2)]
    path = tmp_path / "0000-stream-tcp.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    frame = read_records(path, 0, "stream", "tcp", 1).samples
    assert frame.select("processes", "process", "pair", "value").rows() == [(2, 0, 0, 1500), (2, 1, 0, 2500)]
    # Without an overlap no block has a value, and the series is there all the same.
    vain = [start] + [{**block, "pair": pair, "values": [], "messages": 0.0} for pair in range(2)]
    path.write_text("\n".join(map(json.dumps, vain)))
    (none,) = _shared(read_records(path, 0, "stream", "tcp", 1).samples).values()
    assert (none.processes, none.median, none.each, none.launches) == (2, None, (None, None), 0)


def test_a_run_stores_sharing_and_terminal_and_page_show_it(tmp_path):
    frame = _frame({1: [1000.0], 2: [400.0, 500.0]})
    series = tuple(series_from_samples(frame))
    run = replace(synthetic_run(tmp_path, launches=2), series=series, shared=shared_from_samples(frame, series))
    again = Run.from_json(json.loads(json.dumps(run.to_json(), allow_nan=False)))
    assert again.shared == run.shared
    console = Console(width=100, record=True)
    print_run(console, run)
    text = console.export_text()
    assert "0.900" in text and "0.889, 1.11" in text and "400" in text and "500" in text
    page = render(run, frame)
    assert 'id="sharing-stream-1400"' in page and "89% to 111% of the mean" in page


def test_an_older_run_has_one_process(tmp_path):
    run = synthetic_run(tmp_path, launches=2)
    data = run.to_json()
    del data["shared"]
    for entry in data["series"]:
        del entry["processes"]
    assert Run.from_json(data).series == run.series
    path = tmp_path / "samples.parquet"
    pl.read_parquet(path).drop("processes", "process").write_parquet(path)
    assert samples(tmp_path)["processes"].unique().to_list() == [1]


@pytest.mark.parametrize("text", ["0", "a", "", "1,", "-1", "1.5", "112", "1 2", "9" * 5000])
def test_invalid_numbers_of_processes_are_rejected(text):
    with pytest.raises(WrongUse, match="1 to 111"):
        parse_processes(text)


def test_numbers_of_processes_ascend_and_do_not_repeat():
    assert parse_processes("4, 1,2,4") == (1, 2, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pairs": 2}, "--pairs or --processes"),
        ({"tests": ("pingpong", "bidirectional")}, "pingpong and stream"),
        ({"subjects": parse_subjects("xdp", "spin")}, "--link packet"),
    ],
)
def test_conflicting_options_are_rejected(options, message):
    plan = {"tests": ("stream",), "subjects": parse_subjects("tcp", "spin"), "sizes": (64,), "seed": 1}
    with pytest.raises(WrongUse, match=message):
        Plan(**{**plan, "processes": (1, 2), **options})
