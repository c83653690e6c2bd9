# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Terminal tables and the HTML page, from synthetic runs; tests/test_report_browser.py tests it in a browser."""

import base64
import io
import json
import re
import zlib
from dataclasses import replace
from pathlib import Path

import plotly.graph_objects as go
import pytest
import typer
from rich.console import Console
from synthetic import synthetic_run
from typer.testing import CliRunner

from barewire.cli.report import report
from barewire.errors import WrongUse
from barewire.models.wire import Link
from barewire.report import words
from barewire.report.figures import DARK, against_size, distributions, ratios
from barewire.report.findings import headlines, warnings
from barewire.report.run_page import render
from barewire.report.terminal import print_run
from barewire.report.versus import compare_in_run
from barewire.results.run import Launch, Run
from barewire.results.store import samples


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("run")
    synthetic_run(path, launches=6, samples_per_launch=20, tests=("pingpong", "stream", "bidirectional"))
    return path


@pytest.fixture(scope="module")
def run(directory) -> Run:
    return synthetic_run(directory, launches=6, samples_per_launch=20, tests=("pingpong", "stream", "bidirectional"))


@pytest.fixture(scope="module")
def page(run, directory) -> str:
    return render(run, samples(directory))


@pytest.mark.parametrize("width", [80, 120])
def test_terminal_tables_fit_and_name_every_subject_size_and_median(run, width):
    text = _printed(run, width)
    assert max(len(line) for line in text.splitlines()) <= width
    for series in run.series:
        assert words.number(series.median) in text
        assert words.message_size(series.message_bytes) in text
        assert words.subject_name(series.subject) in text
    assert "ratio to TCP" in text and "faster" in text


def test_terminal_marks_impossible_and_incomplete_series(tmp_path):
    text = _printed(synthetic_run(tmp_path, launches=3, sizes=(1400,), link=Link(1e9), complete=False), 100)
    assert "✗ impossible" in text
    assert "… incomplete" in text
    assert "stopped by interrupt" in text
    assert "fewer than 6 launches" in text


def test_terminal_without_the_baseline_has_no_ratios(tmp_path):
    assert "ratio" not in _printed(synthetic_run(tmp_path, launches=6, subjects=("raw",), sizes=(64,)), 80)


def test_the_page_is_self_contained(page):
    assert not re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?(?:https?:|//)", page)
    assert "default-src 'none'" in page


def test_the_page_contains_every_median_its_interval_the_seed_and_the_command(page, run):
    for series in run.series:
        assert words.number(series.median, 4) in page
        assert words.interval(series.interval, 4) in page
    assert f"Seed {run.seed}" in page
    assert "barewire bench pingpong" in page


def test_names_from_the_machine_are_escaped_in_the_page(page):
    assert "Example CPU &lt;1&gt;" in page
    assert "Example CPU <1>" not in page


def test_names_that_are_no_text_have_escapes_in_the_page(run, directory):
    own = render(replace(run, parameters={**run.parameters, "file": "\udcff.txt"}), samples(directory))
    assert own.encode() and "\\udcff.txt" in own


def test_json_inside_the_page_cannot_end_its_script_element(run, directory):
    hostile = tuple(
        replace(series, subject="</script><b>x") if series.subject == "udp" else series for series in run.series
    )
    own = render(replace(run, series=hostile), samples(directory))
    assert "</script><b>" not in own
    assert "<b>" not in own


@pytest.mark.parametrize("complete", [True, False])
def test_a_run_without_any_series_still_gives_a_page(run, directory, complete):
    empty = replace(run, series=(), complete=complete, stopped_by=None if complete else "interrupt")
    page = render(empty, samples(directory))
    assert "no result" in page
    assert ("incomplete" in page.split("<main>")[1].split("<section")[0]) is not complete


def test_every_figure_is_valid_plotly_with_colours_of_the_dark_theme(run, directory):
    series = [series for series in run.series if series.test == "pingpong"]
    frame = samples(directory).filter(samples(directory)["test"] == "pingpong")
    comparisons = [versus for versus in compare_in_run(run) if versus.a.test == "pingpong"]
    spread = distributions(frame, series)
    figures = [
        against_size(series, "x"),
        ratios(comparisons, "TCP"),
        {"data": spread["choices"][0]["data"], "layout": {"xaxis": spread["choices"][0]["xaxis"]}},
    ]
    for figure in figures:
        assert go.Figure(data=figure["data"], layout=figure["layout"]).data
        colours = re.findall(r"#[0-9A-Fa-f]{6}", json.dumps(figure))
        assert set(colours) <= set(DARK)
    assert [choice["label"] for choice in spread["choices"]] == [
        words.message_size(size) for size in (1, 64, 512, 1400)
    ] + [
        "4 KiB",
        "16 KiB",
        "64 KiB",
    ]


def test_the_wire_limit_is_a_dashed_line_per_protocol(tmp_path):
    run = synthetic_run(tmp_path, launches=2, tests=("pingpong",), subjects=("tcp", "tcp/block", "raw"), link=Link(1e9))
    dashed = [trace["name"] for trace in against_size(run.series, "x")["data"] if trace["line"].get("dash") == "dash"]
    assert dashed == ["wire limit, TCP", "wire limit, raw Ethernet"]


def test_the_headline_contains_the_runs_numbers(run):
    sentences = headlines(run, compare_in_run(run))
    raw = next(
        series
        for series in run.series
        if (series.test, series.subject, series.message_bytes) == ("pingpong", "raw", 64)
    )
    assert sentences[0].replace("\u00a0", " ").startswith(f"Raw Ethernet takes {words.number(raw.median)} µs one way")
    assert "× TCP’s" in sentences[0]
    assert "the machine’s own floor" in sentences[0]
    assert "Gbit/s in one direction" in sentences[1]


def test_the_headline_marks_an_impossible_value(tmp_path):
    run = synthetic_run(tmp_path, launches=6, sizes=(1400,), link=Link(1e9))
    assert "impossible" in headlines(run, compare_in_run(run))[0]


def test_warnings_name_every_limitation_of_the_numbers(tmp_path):
    run = synthetic_run(tmp_path, launches=2, sizes=(1400,), link=Link(1e9), complete=False)
    failed = Launch(9, "udp", "stream", complete=False, error="host b is down")
    text = " ".join(warnings(replace(run, launches=(*run.launches, failed), warnings=("Cores are oversubscribed.",))))
    for message in (
        "interrupt",
        "host b is down",
        "Impossible",
        "emulated",
        "lost",
        "the least has 2",
        "oversubscribed",
    ):
        assert message in text


def test_a_clean_run_has_no_warnings(tmp_path):
    assert warnings(synthetic_run(tmp_path, launches=6, tests=("pingpong",), sizes=(64,))) == []


def test_numbers_keep_their_digits_and_sizes_are_exact():
    assert [words.number(x) for x in (1.168, 11.504, 941.48, 41015.2, 0.3349, 0.8, 0, None)] == [
        "1.17",
        "11.5",
        "941",
        "41015",
        "0.335",
        "0.800",
        "0",
        "–",
    ]
    assert [words.message_size(n) for n in (0, 64, 1400, 4096, 1 << 20, (1 << 20) + 1)] == [
        "0 B",
        "64 B",
        "1400 B",
        "4 KiB",
        "1 MiB",
        "1048577 B",
    ]


def test_report_writes_the_page_into_the_run_and_prints_where(directory, tmp_path):
    done = _invoke(str(directory))
    assert done.exit_code == 0 and done.stdout.strip() == str(directory / "report.html")
    elsewhere = tmp_path / "deep" / "page.html"
    document = json.loads(_invoke(str(directory), "-o", str(elsewhere), "--json").stdout)
    assert document["report"] == str(elsewhere)
    assert 100_000 < document["bytes"] == elsewhere.stat().st_size < 1_500_000


def test_the_rows_of_a_long_table_are_packed_and_none_is_lost(tmp_path):
    """Unpacked, the rest of the table has every other series; a row of the size of the one above begins no group."""
    sizes = tuple(range(8, 8 * 41, 8))
    measured = {"tests": ("pingpong",), "subjects": ("tcp", "udp"), "sizes": sizes}
    run = synthetic_run(tmp_path, launches=2, samples_per_launch=3, **measured)
    text = render(run, samples(tmp_path))
    (packed,) = re.findall(r'<script type="text/plain" data-rows>(.*?)</script>', text, re.DOTALL)
    rest = json.loads(zlib.decompress(base64.b64decode(packed)))
    table = re.search(r'<table class="series">.*?</table>', text, re.DOTALL)[0]
    assert (
        table.count('<tr class="first">') == 30 and rest.count("<tr") == 20 and rest.count('<tr class="first">') == 10
    )
    assert f">{words.message_size(sizes[-1])}</th>" in rest and f">{words.message_size(sizes[-1])}</th>" not in table
    for one in run.series:
        assert f">{words.number(one.median, 4)}<" in table + rest
    assert "20 more rows are packed" in text
    assert len(text) < 1_500_000


def test_report_of_no_run_and_into_an_unwritable_directory_is_wrong_use(directory, tmp_path):
    assert isinstance(_invoke(str(tmp_path)).exception, WrongUse)
    (tmp_path / "file").touch()
    failed = _invoke(str(directory), "-o", str(tmp_path / "file" / "page.html"))
    assert isinstance(failed.exception, WrongUse)


def _printed(run: Run, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    print_run(console, run)
    return console.file.getvalue()


def _invoke(*arguments: str):
    app = typer.Typer()
    app.command()(report)
    return CliRunner().invoke(app, list(arguments))
