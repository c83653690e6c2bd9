# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A host's records become samples, the samples a document, the document the reference of another run and a page."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest
from rich.console import Console
from synthetic_host import synthetic_host

from barewire.cli import host as cli_host
from barewire.errors import MachineCannot, MeasurementFailed, WrongUse
from barewire.measure.host import HostCampaign, HostPlan
from barewire.measure.host_records import read_host_records
from barewire.report.host import bar_figure, chosen_for_bars, print_host, tables_of
from barewire.report.host_page import render_host
from barewire.results.confidence import at_confidence
from barewire.results.host import STORED_REFERENCE, host_crossovers, host_document, host_measures, read_reference


def test_a_stretch_becomes_a_rate_or_the_time_of_one_operation(tmp_path):
    run, _ = synthetic_host(tmp_path)
    found = {(measure.name, measure.block_bytes): measure for measure in host_measures(run)}
    read = found["memory/read", 8192]
    assert read.unit == "MB/s" and read.median == pytest.approx(10_000, rel=0.01) and read.launches == 6
    assert read.interval is not None and read.interval[0] <= read.median <= read.interval[1]
    hop = found["wakeup/pipe/same", None]
    assert hop.unit == "ns" and hop.median == pytest.approx(1000, rel=0.01) and hop.samples == 30
    # A hop of 1000 less 300 for the same byte in one process.
    assert found["switch/process", None].median == pytest.approx(700, rel=0.01)
    # A hop in a ring less the same work in one process; a launch that ended early lacks the ring of 16.
    switches = {(name, size): one.median for (name, size), one in found.items() if name.startswith("switch/processes")}
    expected = {(f"switch/processes-{n}", size): ns for n, ns in ((2, 900), (8, 1200)) for size in (None, 16384)}
    assert switches == pytest.approx(expected, rel=0.01)


def test_every_measure_is_in_a_table_of_text(tmp_path):
    measures = host_measures(synthetic_host(tmp_path)[0])
    tables = {table.title: table for table in tables_of(measures)}
    switch = tables["Context switch, ns"]
    assert switch.headings == ("block", "processes-2", "processes-8") and [row[0] for row in switch.rows] == ["16 KiB"]
    assert all(len(row) == len(table.headings) for table in tables.values() for row in table.rows)
    cells = [cell for table in tables.values() for row in table.rows for cell in row[1:] if cell != "–"]
    sized = [one for one in measures if one.block_bytes is not None]
    assert len(cells) == len(sized) + 3 * (len(measures) - len(sized)), "median, minimum and p99 without a size"


def test_the_crossover_is_found_with_its_interval(tmp_path):
    (crossover,) = host_crossovers(synthetic_host(tmp_path)[1])
    assert (crossover.name, crossover.first, crossover.second, crossover.launches) == (
        "copy crossover",
        "copied",
        "gathered",
        6,
    )
    assert crossover.bytes == pytest.approx(5000, rel=0.02)
    assert crossover.interval is not None and crossover.interval[0] <= crossover.bytes <= crossover.interval[1]
    (few,) = host_crossovers(synthetic_host(tmp_path, launches=2)[1])
    assert few.interval is None


def test_a_document_is_a_reference_for_another_run_and_shorter_times_are_better(tmp_path):
    run, frame = synthetic_host(tmp_path)
    path = tmp_path / "document.json"
    path.write_text(json.dumps(host_document(run, frame), allow_nan=False))
    reference = read_reference(path)
    slower, _ = synthetic_host(tmp_path, slowdown=2.0)
    for measure in host_measures(slower, reference):
        assert measure.times_reference == pytest.approx(0.5, rel=0.01), measure
    assert all(measure.times_reference == pytest.approx(1) for measure in host_measures(run, reference))
    chosen = chosen_for_bars(host_measures(slower, reference))
    assert {measure.block_bytes for measure in chosen if measure.name == "send/copied"} == {64, 8192}
    (trace,) = bar_figure(chosen)["data"]
    assert all(x == pytest.approx(-0.30103, abs=0.005) for x in trace["x"]) and len(trace["x"]) == len(chosen)


def test_terminal_and_page_show_every_measure(tmp_path):
    run, frame = synthetic_host(tmp_path)
    path = tmp_path / "document.json"
    path.write_text(json.dumps(host_document(run, frame)))
    reference = read_reference(path)
    console = Console(width=100, record=True, file=(tmp_path / "out").open("w"))
    print_host(console, run, host_measures(run, reference), host_crossovers(frame), reference)
    text = console.export_text()
    for expected in ("copied is cheaper up to", "64 MiB", "switch/process", "Against the reference"):
        assert expected in text
    page = render_host(run, frame, reference)
    for expected in ("Against the reference", "memory/read", "switch/process", "Copy crossover", "<svg"):
        assert expected in page
    assert "Against the reference" not in render_host(run, frame, None)


def test_intervals_have_the_runs_confidence_and_are_called_so(tmp_path):
    run, frame = synthetic_host(tmp_path)
    narrow = at_confidence(run, frame, 0.5)
    (usual,), (half,) = host_crossovers(frame), host_crossovers(frame, 0.5)
    assert usual.interval[0] <= half.interval[0] <= half.interval[1] <= usual.interval[1]
    assert usual.interval != half.interval
    assert {"ci50"} == {key for each in host_document(narrow, frame)["crossovers"] for key in each if "ci" in key}
    console = Console(width=100, record=True, file=(tmp_path / "out").open("w"))
    print_host(console, narrow, host_measures(narrow), [half], None)
    for text in (console.export_text(), render_host(narrow, frame, None)):
        assert "50 % interval" in text and "95 %" not in text


def test_invalid_references_and_records_are_rejected(tmp_path):
    path = tmp_path / "x.json"
    with pytest.raises(WrongUse, match="cannot read"):
        read_reference(path)
    for text, expected in (
        ("{", "not JSON"),
        ("[]", "is not a barewire-host/1"),
        ('{"schema": "barewire-host/1"}', "damaged"),
    ):
        path.write_text(text)
        with pytest.raises(WrongUse, match=expected):
            read_reference(path)
    path.write_text('{"record": "start", "schema": "barewire-probe/1"}\n')
    with pytest.raises(MeasurementFailed, match="barewire-probe/1"):
        read_host_records(path, 0)


def test_without_a_lab_send_is_left_out_with_a_warning(monkeypatch, capsys):
    def refuse(*_):
        raise MachineCannot("user namespaces are off")

    monkeypatch.setattr(cli_host.Lab, "up", refuse)
    with ExitStack() as stack:
        lab, warnings = cli_host._lab(stack, HostPlan(("syscall", "send"), 6, 0.03, 1))
        assert lab is None and "the copy crossover were not measured: user namespaces are off" in warnings[0]
        assert warnings[0] in capsys.readouterr().err
        with pytest.raises(MachineCannot):
            cli_host._lab(stack, HostPlan(("send",), 6, 0.03, 1))
    campaign = HostCampaign(HostPlan(("syscall", "file", "send"), 3, 0.03, 1), Path(), None, (0,))
    orders = [order for orders in campaign.rounds() for order in orders]
    assert [order.test for order in orders].count("syscall") == 3 and "send" not in {order.test for order in orders}
    assert [order.number for order in orders] == list(range(6))


def test_the_stored_reference_is_complete():
    reference = read_reference(STORED_REFERENCE)
    assert reference.environment["cpu"] and len(reference.medians) > 100
    assert all(median > 0 for median in reference.medians.values())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"tests": ("nosuch",)}, "nosuch"),
        ({"tests": ()}, "choose from"),
        ({"launches": 0}, "--launches"),
        ({"seconds": 0.0}, "--seconds"),
        ({"seconds": float("nan")}, "--seconds"),
    ],
)
def test_invalid_plans_are_rejected(arguments, expected):
    with pytest.raises(WrongUse, match=expected):
        HostPlan(**{"tests": ("memory",), "launches": 6, "seconds": 0.03, "seed": 1, **arguments})
