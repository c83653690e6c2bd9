# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What figures of a report show, and that their captions and the answer above them say just that."""

import errno
import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import polars as pl
import pytest
import typer
from synthetic import run_of, series_of, synthetic_run
from synthetic_mpi import OVERHEADS, subject, synthetic_mpi, time_us
from typer.testing import CliRunner

import barewire
from barewire.cli.commands import app
from barewire.cli.report import report, write_gallery
from barewire.errors import WrongUse
from barewire.models.wire import Link
from barewire.report.captions import distribution_caption, ratio_caption, size_caption, variants_caption
from barewire.report.figure_data import figure_data
from barewire.report.figures import (
    DISTRIBUTIONS_MAX,
    against_size,
    chosen,
    distinct,
    distributions,
    ratio_rows,
    style_of,
)
from barewire.report.model_figures import laws_figure, logp_figures, prediction_figure, speedup_figures
from barewire.report.mpi import law_tables
from barewire.report.mpi_figures import against_computation, by_variant
from barewire.report.run_page import answer_of, compared, render
from barewire.report.svg import svg
from barewire.results.derived import curves
from barewire.results.held_out import check, errors
from barewire.results.laws import laws_of
from barewire.results.model import model_of
from barewire.results.run import Run
from barewire.results.schema import sample_frame
from barewire.results.series import series_from_samples
from barewire.results.store import samples, write_atomically, write_run

LAUNCHES = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0]


@pytest.fixture(scope="module")
def mpi(tmp_path_factory) -> tuple[Path, Run]:
    directory = tmp_path_factory.mktemp("mpi")
    subjects = subject("openmpi", "barewire"), subject("openmpi", "tcp")
    return directory, synthetic_mpi(
        directory, "pingpong", "logp", "overlap", "fft", "radix", ranks=(2, 4), subjects=subjects
    )


def answered(times: dict[int, tuple[float, float]], unit: str = "us", launches: int = 6) -> str:
    """The answer of a run in which raw frames and TCP take these times by size."""
    series = []
    for size, both in times.items():
        for name, value in zip(("raw", "tcp"), both, strict=True):
            medians = [value * factor for factor in LAUNCHES[:launches]]
            series.append(series_of(medians, subject=name, message_bytes=size, unit=unit))
    run = run_of("x", series)
    return answer_of(run, compared(run, "tcp")).sentence.replace("\u00a0", " ")


# The answer


def test_the_answer_has_value_ratio_interval_certainty_and_the_other_sizes():
    sentence = answered({64: (1.0, 2.0), 4096: (3.0, 4.0), 65536: (20.0, 20.0)})
    assert sentence.startswith("Raw Ethernet takes 1.00 µs one way at 64 B, 0.500 × TCP’s 2.00 µs (95 % interval 0.4")
    assert "p < 0.0" in sentence or "p = 0.0" in sentence
    assert "6 launches each): faster; of all 3 sizes, 64 B to 64 KiB, faster at 2, " in sentence


@pytest.mark.parametrize(
    ("times", "launches", "said"),
    [
        ((2.0, 1.0), 6, ": slower."),
        ((1.0, 1.0), 6, ": undecided."),
        ((1.0, 2.0), 3, "3 launches each: too few for an interval, which needs 6"),
    ],
)
def test_the_answer_says_how_sure_it_is(times, launches, said):
    assert said in answered({64: times}, launches=launches)


def test_messages_without_a_byte_have_no_place_on_the_axis_of_sizes_and_are_not_counted_there():
    series = [
        series_of([value * f for f in LAUNCHES], subject=name, message_bytes=size)
        for size in (0, 64, 4096)
        for name, value in (("raw", 1.0), ("tcp", 2.0))
    ]
    run = run_of("x", series)
    answer = answer_of(run, compared(run, "tcp"))
    assert "of all 3 sizes" in answer.sentence or "at all 3 sizes" in answer.sentence
    assert "Of 2 points: 2 faster" in answer.caption
    assert [trace["x"] for trace in answer.figure["data"]] == [[64, 4096]]


def test_equal_subjects_are_no_difference_in_the_answer():
    run = run_of("x", [series_of([1.0] * 8, subject=name) for name in ("raw", "tcp")])
    assert "no difference of more than 2 %" in answer_of(run, compared(run, "tcp")).sentence


def test_what_the_answer_does_not_tell_is_told_below_it():
    pingpong, alone = (series_of(LAUNCHES, subject=name) for name in ("raw", "udp"))
    rates = [
        series_of([1e3 * f for f in LAUNCHES], subject=name, test="stream", unit="Mbit/s") for name in ("raw", "tcp")
    ]
    run = run_of("x", [pingpong, alone, *rates])
    answer = answer_of(run, compared(run, "tcp"))
    assert "carries 1000 Mbit/s in one direction at 64 B" in answer.sentence.replace("\u00a0", " ")
    (more,) = answer.more
    assert "takes 1.00 µs one way" in more.replace("\u00a0", " ")


def test_without_a_baseline_the_answer_is_the_time_and_without_series_there_is_none(tmp_path):
    run = synthetic_run(tmp_path, launches=6, samples_per_launch=10, subjects=("raw",))
    answer = answer_of(run, [])
    assert answer.question == "How long does a message take?" and "Raw Ethernet takes" in answer.sentence
    assert answer.figure is not None and answer.caption == "Medians of 6 launches. Bands: 95 % intervals."
    nothing = answer_of(replace(run, series=()), [])
    assert nothing.sentence == "This run has no result." and nothing.figure is None


def test_a_quantity_without_sizes_has_an_answer_without_a_figure():
    startup = series_of(LAUNCHES, test="startup", message_bytes=0, unit="ms")
    startup = replace(startup, ranks=2, quantity="first_barrier")
    answer = answer_of(run_of("x", [startup]), [])
    assert answer.figure is None and answer.question.endswith("how long?") and "1.00" in answer.sentence


def test_an_impossible_time_is_called_so_in_the_answer(tmp_path):
    run = synthetic_run(tmp_path, launches=6, samples_per_launch=10, sizes=(1400,), link=Link(1e9))
    assert "impossible" in answer_of(run, compared(run, "tcp")).sentence


# Captions


def test_captions_mention_limits_intervals_and_tails_only_where_there_are_some(tmp_path):
    wire = synthetic_run(tmp_path, launches=3, samples_per_launch=60, tests=("pingpong",), link=Link(1e9))
    assert (
        size_caption(wire.series)
        == "Medians of 3 launches. No intervals: fewer than 6 launches. Dashed: the wire’s limit."
    )
    tail = distribution_caption(wire.series)
    assert "whose slowest percent takes more than" in tail and "floor at 1 B" in tail
    even = [series_of(LAUNCHES)]
    assert "No tail: the slowest percent takes less than 2 times" in distribution_caption(even)
    assert size_caption(even) == "Medians of 6 launches. No intervals: fewer than 6 launches."
    compared_runs = compared(wire, "tcp")
    count = len(compared_runs)
    few = f"no intervals: fewer than 6 launches; grey: ±2 %. Of {count} points: {count} undecided."
    assert ratio_caption(compared_runs, "TCP").endswith(few)


def test_a_figure_without_data_is_left_out(tmp_path):
    run = synthetic_run(tmp_path, launches=6, samples_per_launch=10, sizes=(64,), tests=("pingpong",))
    page = render(run, samples(tmp_path))
    assert "Against message size" not in page and "Laws of latency" not in page and "speed-up" not in page
    assert "Compared with TCP" in page and "Distribution" in page


# Figures


def test_lines_that_differ_in_colour_only_get_another_marker():
    named = ["openmpi/barewire", "openmpi/barewire+eager=1", "openmpi/barewire+eager=2", "mpich/barewire"]
    looks = [
        (trace["marker"]["symbol"], trace["line"]["dash"]) for trace in distinct([style_of(name) for name in named])
    ]
    assert len(set(looks)) == 4 and looks[0] == ("circle", "solid")
    points = [{**style_of(name), "mode": "markers"} for name in ("openmpi/barewire", "mpich/barewire")]
    assert len({trace["marker"]["symbol"] for trace in distinct(points)}) == 2, "points have no dash"


def test_points_have_their_interval_launches_and_samples(tmp_path):
    run = synthetic_run(tmp_path, launches=6, samples_per_launch=10, tests=("pingpong",))
    data = figure_data(against_size(run.series, "median time"))
    assert (data["x"], data["y"], data["sizes"]) == ("message size", "median time, µs", True)
    by_name = {series["name"]: series for series in data["choices"][0]["series"]}
    raw = [s for s in run.series if s.subject == "raw"]
    assert by_name["raw Ethernet"]["x"] == [s.message_bytes for s in raw]
    for s, (low, high, launches, count) in zip(raw, by_name["raw Ethernet"]["c"], strict=True):
        assert (low, high) == pytest.approx(s.interval, rel=1e-4) and (launches, count) == (6, s.samples)


def test_of_many_rows_a_few_have_a_distribution_among_them_the_first_64_bytes_and_the_last(tmp_path):
    sizes = (*range(10, 200, 9), 4096)
    run = synthetic_run(tmp_path, launches=2, samples_per_launch=10, tests=("pingpong",), sizes=sizes)
    figure = distributions(samples(tmp_path), run.series)
    labels = [choice["label"] for choice in figure["choices"]]
    assert len(labels) == DISTRIBUTIONS_MAX and {labels[0], labels[-1]} == {"10 B", "4 KiB"} and "64 B" in labels
    assert labels[figure["chosen"]] == "64 B"
    assert f"{DISTRIBUTIONS_MAX} of {len(sizes)} rows" in distribution_caption(run.series)


def of_two_pairs(directory: Path) -> tuple[Run, pl.DataFrame]:
    """A stream of two pairs, each with 1000 Mbit/s in 10 blocks of each of 6 launches."""
    count = 6 * 10 * 2
    columns = {
        "launch": [number // 20 for number in range(count)],
        "block": [number // 2 % 10 for number in range(count)],
        "pair": [number % 2 for number in range(count)],
        "message_bytes": [64] * count,
        "value": [1000.0 + number // 20 for number in range(count)],
    }
    constants = {"test": "stream", "subject": "raw", "pairs": 2, "phase": "measure", "unit": "Mbit/s"}
    frame = sample_frame(columns, **constants)
    run = run_of("pairs", series_from_samples(frame))
    write_run(directory, run, frame)
    return run, frame


def test_a_distribution_is_of_the_values_that_the_medians_are_made_of(tmp_path):
    run, frame = of_two_pairs(tmp_path)
    (series,) = run.series
    for figure in (chosen(distributions(frame, run.series)), barewire.load(tmp_path).figure("distribution")):
        (trace,) = figure["data"]
        assert (min(trace["x"]), max(trace["x"])) == (series.min, series.max) == (2000.0, 2010.0)
        assert trace["customdata"][0][2:] == [6, series.samples] == [6, 60]
    assert "60 for each subject and row" in distribution_caption(run.series)


def growing(values: Sequence[float], peers: int) -> pl.DataFrame:
    """The growth of memory for each of so many peers, one value for each launch."""
    constants = {"test": "footprint", "subject": "openmpi/tcp", "ranks": 4, "variant": "exchange", "unit": "KiB"}
    constants |= {"quantity": "growth", "parameter": "peers", "parameter_value": float(peers), "phase": "measure"}
    columns = {"launch": list(range(len(values))), "message_bytes": [64] * len(values), "value": list(values)}
    return sample_frame(columns, block=0, **constants)


def test_values_of_0_and_less_are_drawn_on_no_logarithmic_axis_and_counted(tmp_path):
    spread = [-4.0, -4.0, 8.0, 8.0, 8.0, 8.0, 8.0]
    frame = pl.concat([growing([-8.0] * 7, 1), growing(spread, 2), growing([16.0] * 7, 3)])
    series = series_from_samples(frame)
    variants = [replace(s, variant=f"{s.parameter_value:g} peers", parameter_value=1.0) for s in series]
    sizes = [replace(s, message_bytes=64 << number) for number, s in enumerate(series)]
    for caption, figure in (
        (size_caption(sizes), against_size(sizes, "growth")),
        (variants_caption(variants), by_variant(variants, "growth")),
    ):
        text = svg(figure, "growth")
        assert "nan" not in text and "1 value of 0 or less has no place on this axis." in caption
        assert "that reach 0 are cut off." in caption
        assert len(figure_data(figure)["choices"][0]["series"][0]["x"]) == 2
    for below in (sizes[:1], variants[:1]):
        assert "no place" not in size_caption(below) and "no place" not in variants_caption(below)
    assert figure_data(against_size(sizes[:1], "growth"))["choices"][0]["series"][0]["y"] == [-8.0]
    svg(by_variant(variants[:1], "growth"), "growth")
    # The samples below 0 count in the shares, so that the median is where it belongs.
    (trace,) = (choice["data"][0] for choice in distributions(frame, series[1:2])["choices"])
    assert trace["x"][len(trace["x"]) // 2] == series[1].median and trace["x"][0] == -4.0
    assert "Samples of 0 or less count, but have no place" in distribution_caption(series[1:2])
    run = run_of("footprint", series)
    write_run(tmp_path, run, frame)
    assert "no place on this axis" in render(run, frame)
    assert CliRunner().invoke(app, ["export", str(tmp_path), "--format", "svg", "-o", str(tmp_path)]).exit_code == 0


def test_ratios_without_sizes_have_a_row_each():
    series = [
        series_of([value * f for f in LAUNCHES], subject=name)
        for name, value in (("raw", 1.0), ("udp", 3.0), ("tcp", 2.0))
    ]
    figure = ratio_rows(compared(run_of("x", series), "tcp"), "TCP", ["a", "a"])
    assert {trace["name"]: trace["x"] for trace in figure["data"]} == {"raw Ethernet": [0.5], "UDP": [1.5]}
    assert all(trace["y"] == ["a"] for trace in figure["data"])


def test_the_law_of_latency_shows_pieces_and_the_numbered_break(mpi):
    _, run = mpi
    laws = [law for law in laws_of(run) if law.place.ranks == 2]
    figure = laws_figure(run, laws)["figure"]
    assert figure["choices"][0]["label"] == "openmpi/barewire, blocking-standard, 2 ranks"
    choice = figure["choices"][0]
    names = [trace.get("name") for trace in choice["data"]]
    assert names.count("fitted pieces") == 2 and names.count("breaks") == 1
    assert (
        "Breaks, with bands for their intervals: 1 above 64 KiB" in choice["caption"]
        and "in 2 pieces, off by " in choice["caption"]
        and "% (root mean square)" in choice["caption"]
        and all(table.title.endswith("% (root mean square)") for table in law_tables(run, laws))
    )
    (marker,) = (trace for trace in choice["data"] if trace.get("name") == "breaks")
    assert 65536 < marker["x"][0] < 131072


def test_logp_has_its_four_functions(mpi):
    ((ranks, card), *_) = logp_figures(mpi[1])
    assert ranks == 2
    choice = card["figure"]["choices"][0]
    lines = {trace["name"]: trace["y"] for trace in choice["data"] if "markers" in trace["mode"]}
    assert list(lines) == ["EEL, end to end", "g, gap", "Os, sending", "Or, receiving"]
    assert lines["EEL, end to end"][0] == pytest.approx(time_us("barewire", 8), rel=0.02)
    assert lines["Os, sending"][0] == pytest.approx(0.6 * OVERHEADS * time_us("barewire", 8), rel=0.05)
    assert len({(t["marker"]["symbol"], t["line"]["dash"]) for t in choice["data"] if "markers" in t["mode"]}) == 4


def test_the_flat_part_of_an_overlap_ends_where_computation_is_no_longer_hidden(mpi):
    directory, _ = mpi
    figure = against_computation(curves(samples(directory), "overlap", 2))
    choice = next(choice for choice in figure["choices"] if choice["label"] == "pingpong, 8 B")
    flat = [trace for trace in choice["data"] if trace["line"]["width"] == 6]
    assert len(flat) == 2
    whole = 2 * time_us("barewire", 8)
    (barewire,) = (trace for trace in flat if "barewire" in trace["name"])
    assert barewire["x"] == [0, pytest.approx((1 - OVERHEADS) * whole, rel=0.05)]
    assert barewire["y"] == [pytest.approx(whole, rel=0.02)] * 2
    assert "the flat part, in which the computation is hidden, up to openmpi/" in choice["caption"]


def test_speed_up_is_relative_to_the_fewest_ranks_and_to_the_task(mpi):
    of_tests = dict(speedup_figures(mpi[1]))
    assert list(of_tests) == ["fft", "radix"]
    totals = {
        (s.ranks, s.subject): s.median
        for s in mpi[1].series
        if (s.test, s.variant, s.quantity) == ("fft", "original", "total")
    }
    speedup, efficiency = (card["figure"] for card in of_tests["fft"])
    choice = next(n for n, choice in enumerate(speedup["choices"]) if choice["label"].startswith("original"))
    expected = totals[2, "openmpi/tcp"] / totals[4, "openmpi/tcp"]
    for figure, value in ((speedup, expected), (efficiency, expected / 2)):
        (line,) = (trace for trace in figure["choices"][choice]["data"] if trace.get("name") == "openmpi/tcp")
        assert line["x"] == [2, 4] and line["y"] == [1.0, pytest.approx(value, rel=1e-3)]
    assert "the same task at every number" in speedup["choices"][choice]["caption"]
    # A sort has as many keys on each rank: equal times are ideal.
    _, efficiency = (card["figure"] for card in of_tests["radix"])
    assert "a task of the same size for each rank" in efficiency["choices"][0]["caption"]
    (line,) = (trace for trace in efficiency["choices"][0]["data"] if trace.get("name") == "openmpi/tcp")
    assert line["y"][1] == pytest.approx(1.0, abs=0.03)


def test_predictions_are_drawn_beside_measurements(mpi, tmp_path):
    model = synthetic_mpi(tmp_path, "pingpong", subjects=(subject("openmpi", "barewire"),))
    checked, _ = check(model_of([model]), mpi[1], ("pingpong",), None, None, None)
    assert len(checked) == 16, "eight sizes, on two numbers of ranks"
    card = prediction_figure(checked, errors(checked))
    points = [trace for trace in card["figure"]["data"] if trace["mode"] == "markers"]
    assert len(points) == 1 and len(points[0]["x"]) == 16
    assert points[0]["y"] == pytest.approx(points[0]["x"], rel=0.1)
    assert card["figure"]["caption"].startswith("Pingpong: mean error")


def test_derived_values_that_are_not_positive_are_told_and_not_drawn(mpi):
    directory, run = mpi
    logp = [s for s in series_from_samples(samples(directory)) if s.test == "logp" and s.ranks == 2]
    negative = [replace(s, median=-0.1) if s.quantity == "or" and s.message_bytes == 8 else s for s in logp]
    ((_, card), *_) = logp_figures(replace(run, series=tuple(negative)))
    assert "1 value of 0 or less has no place" in card["figure"]["choices"][0]["caption"]


# The command


def invoke(*arguments: str):
    app = typer.Typer()
    app.command()(report)
    return CliRunner().invoke(app, list(arguments))


def test_a_gallery_has_every_run_and_links_to_its_report(tmp_path):
    for number, launches in enumerate((6, 3)):
        synthetic_run(
            tmp_path / f"run{number}" / "deep", seed=number, launches=launches, samples_per_launch=10, sizes=(64, 512)
        )
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text("{}")
    done = invoke(str(tmp_path), "--gallery", "--json")
    document = json.loads(done.stdout)
    assert document["report"] == str(tmp_path / "index.html") and len(document["unread"]) == 1
    page = (tmp_path / "index.html").read_text()
    for number in range(2):
        link = f"run{number}/deep/report.html"
        assert f'href="{link}"' in page and (tmp_path / link).exists()
    assert page.count("<article") == 2 and "damaged" in page and "too few for an interval" in page
    again = (tmp_path / "run0/deep/report.html").stat().st_mtime_ns
    write_gallery([tmp_path / "run0" / "deep", tmp_path / "run1"], tmp_path / "other" / "page.html")
    assert 'href="../run0/deep/report.html"' in (tmp_path / "other" / "page.html").read_text()
    assert (tmp_path / "run0/deep/report.html").stat().st_mtime_ns == again, "a report that is up to date is kept"


def test_a_gallerys_links_lead_to_folders_with_any_name(tmp_path):
    """A browser takes # and ? for the end of the file's name, and a colon for that of a scheme."""
    synthetic_run(tmp_path / "a: run #1?" / "50 %", launches=1, samples_per_launch=2, sizes=(64,))
    assert invoke(str(tmp_path), "--gallery").exit_code == 0
    (link,) = re.findall('<a href="(.*?)">', (tmp_path / "index.html").read_text())
    assert urlsplit(link).path == link and (tmp_path / unquote(link)).is_file()


def test_a_gallery_leaves_out_the_runs_whose_report_cannot_be_made(tmp_path, monkeypatch):
    """One is in a directory of somebody else, and one was killed and its launch is damaged."""
    for name in ("mine", "theirs"):
        synthetic_run(tmp_path / name, launches=6, samples_per_launch=5, sizes=(64,))
    run = synthetic_mpi(tmp_path / "killed", "pingpong", subjects=(subject("mpich-5", "tcp"),))
    (tmp_path / "killed" / "launches").mkdir(exist_ok=True)
    for number in range(len(run.launches) + 1):
        (tmp_path / "killed" / "launches" / f"{number:04}-pingpong-mpich-5+tcp.jsonl").write_text("x\n{}\n")
    write_run(tmp_path / "killed", replace(run, complete=False))

    def write(path, content):
        if path.parent.name == "theirs":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        write_atomically(path, content)

    monkeypatch.setattr("barewire.results.store.write_atomically", write)
    done = invoke(str(tmp_path), "--gallery", "--json")
    assert done.exit_code == 0, done.exception
    unread = " ".join(json.loads(done.stdout)["unread"])
    assert f"cannot write {tmp_path / 'theirs' / 'report.html'}: Permission denied" in unread
    assert "0000-pingpong-mpich-5+tcp.jsonl, line 1 is damaged" in unread
    assert (tmp_path / "index.html").read_text().count("<article") == 1


def test_wrong_uses_of_report_say_what_to_do(mpi, tmp_path):
    directory, _ = mpi
    assert "--gallery" in str(invoke(str(directory), str(directory)).exception)
    assert "-o" in str(invoke(str(directory), "--gallery").exception)
    assert isinstance(invoke(str(tmp_path), "--gallery").exception, WrongUse)
    assert "no directory" in str(invoke(str(tmp_path / "nowhere"), "--gallery").exception)
    assert "predict it from other runs" in str(invoke(str(directory), "--predict-from", str(directory)).exception)
    assert "--gallery" in str(invoke(str(tmp_path), "--gallery", "--predict-from", str(directory)).exception)
    other = synthetic_mpi(tmp_path / "other", "pingpong", subjects=(subject("mpich-5", "tcp"),))
    failed = invoke(str(directory), "--predict-from", str(tmp_path / "other"))
    assert "can be predicted" in str(failed.exception) and other.complete
