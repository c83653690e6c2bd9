# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`barewire export`: CSV and Markdown have every number, SVGs every point where it belongs."""

import csv
import io
import json
import re
from itertools import accumulate
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest
from synthetic import SUBJECTS, synthetic_run
from synthetic_mpi import synthetic_mpi
from typer.testing import CliRunner

import barewire
from barewire.cli.commands import app
from barewire.errors import WrongUse
from barewire.models.wire import Link
from barewire.report import words
from barewire.report.figures import bars, layout_of, plain_axis
from barewire.report.markdown import frame_markdown
from barewire.report.svg import svg

SIZES = (1, 64, 1400, 65536)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("run")
    synthetic_run(path, launches=6, samples_per_launch=20, sizes=SIZES)
    return path


def exported(directory: Path, *arguments: str) -> str:
    return CliRunner().invoke(app, ["export", str(directory), *arguments], catch_exceptions=False).output


def test_csv_has_every_series_with_its_unit(directory):
    rows = list(csv.DictReader(io.StringIO(exported(directory))))
    series = barewire.load(directory).record.series
    assert len(rows) == len(series)
    for row, expected in zip(rows, series, strict=True):
        assert float(row["median"]) == expected.median
        assert (row["unit"], int(row["message_bytes"])) == (expected.unit, expected.message_bytes)
        assert [float(value) for value in row["launch_medians"].split()] == list(expected.launch_medians)


@pytest.mark.parametrize("table", ["samples", "comparisons", "fit"])
def test_csv_of_the_other_tables_is_the_same_as_in_python(directory, table):
    run = barewire.load(directory)
    frame = {"samples": run.samples, "comparisons": run.compare(), "fit": run.fit()}[table]
    read = pl.read_csv(io.StringIO(exported(directory, "--table", table)), infer_schema_length=None)
    assert (read.height, read.columns) == (frame.height, frame.columns)
    if table == "samples":
        assert read["value"].to_list() == frame["value"].to_list()


def test_markdown_has_every_median_and_the_warnings(tmp_path):
    synthetic_run(tmp_path, launches=3, samples_per_launch=10, sizes=(64, 1400), link=Link(1e9))
    text = exported(tmp_path, "--format", "markdown")
    for series in barewire.load(tmp_path).record.series:
        assert words.number(series.median, 4) in text
    assert "### Latency, one way" in text and "Impossible, better than the limit" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count(" | ") for line in tables} == {7}, "every row has the columns of its heading"
    assert exported(tmp_path, "--format", "markdown", "--table", "fit").startswith("| subject | variant |")


def test_markdown_escapes_what_would_end_a_cell():
    text = frame_markdown(pl.DataFrame({"a|b": ["c|d\ne"], "n": [1]}))
    assert text == "| a\\|b | n |\n| --- | ---: |\n| c\\|d e | 1 |\n"


def test_markdown_of_an_mpi_run_has_its_laws_and_whole_rows(tmp_path):
    synthetic_mpi(tmp_path, "pingpong", launches=6)
    text = exported(tmp_path, "--format", "markdown")
    assert "### Laws of latency" in text or "α" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows and all(line.endswith("|") for line in rows)


def test_svg_draws_every_point_at_its_place(directory, tmp_path):
    printed = exported(directory, "--format", "svg", "-o", str(tmp_path)).split()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "pingpong-1-1-ratio.svg",
        "pingpong-1-1.svg",
        "stream-1-1-ratio.svg",
        "stream-1-1.svg",
    ]
    assert sorted(printed) == sorted(str(path) for path in tmp_path.iterdir())
    with_table = ["export", str(directory), "--format", "svg", "--table", "fit", "-o", str(tmp_path)]
    refused = CliRunner().invoke(app, with_table)
    assert isinstance(refused.exception, WrongUse) and "omit --table" in str(refused.exception)
    document = ElementTree.parse(tmp_path / "pingpong-1-1.svg").getroot()
    assert document.find(f"{SVG}title").text == "Latency, one way"
    labels = [text.text for text in document.iter(f"{SVG}text")]
    assert {"TCP", "UDP", "raw Ethernet", "64 KiB", "message size", "median time, µs"} <= set(labels)
    x, y = points(document)["#0072B2"]  # raw Ethernet's
    assert len(x) == len(SIZES)
    assert x == sorted(x), "longer messages are further right"
    medians = barewire.load(directory).series(test="pingpong", subject="raw")["median"].to_list()
    by_height = [median for _, median in sorted(zip(y, medians, strict=True), reverse=True)]
    assert by_height == sorted(medians), "longer times are further up"


def test_svg_coordinates_follow_the_logarithmic_scale(directory):
    figure = barewire.load(directory).figure("size", test="pingpong", subject="raw")
    document = ElementTree.fromstring(svg(figure, "x"))
    x, _ = points(document)["#0072B2"]
    # 1 to 64 B and 1400 B to 64 KiB are 6 and 5.55 doublings.
    assert (x[1] - x[0]) / (x[3] - x[2]) == pytest.approx(6 / 5.5488, rel=1e-2)


def points(document: ElementTree.Element) -> dict[str, tuple[list[float], list[float]]]:
    """The points of each line by its colour, from left to right."""
    found = {}
    for path in document.iter(f"{SVG}path"):
        if path.get("class") == "t":
            numbers = [float(number) for number in re.findall(r"-?[\d.]+", path.get("d"))]
            # Each is relative to the one before.
            found[path.get("stroke")] = [*accumulate(numbers[::2])], [*accumulate(numbers[1::2])]
    return found


def test_svg_fits_its_view_and_names_are_escaped(directory):
    figure = barewire.load(directory).figure("ratio", test="pingpong")
    figure["data"][0]["name"] = "<b>&"
    text = svg(figure, 'a "title" <x>')
    document = ElementTree.fromstring(text)
    width, height = (float(document.get(name)) for name in ("width", "height"))
    for element in document.iter():
        for name, most in (("x", width), ("cx", width), ("y", height), ("cy", height)):
            if element.get(name) is not None:
                assert 0 <= float(element.get(name)) <= most
    assert not re.search(r"\bnan\b|\binf\b", text)


def test_bars_begin_at_one_and_reach_their_value_in_logarithms():
    document = ElementTree.fromstring(svg(bars(["half", "twice"], [0.5, 2.0], ["#000000", "#FFFFFF"], "times"), "x"))
    half, twice = (element for element in document.iter(f"{SVG}rect") if element.get("stroke"))
    middle = float(twice.get("x"))
    assert float(half.get("x")) + float(half.get("width")) == pytest.approx(middle, abs=0.11)
    assert float(half.get("width")) == pytest.approx(float(twice.get("width")), abs=0.11)
    assert float(half.get("y")) < float(twice.get("y")), "the first is on top"


def test_stacked_bars_begin_where_the_last_one_ends_and_grouped_ones_side_by_side():
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "x": [length],
            "y": ["rank 0"],
            "marker": {"color": "#000000"},
        }
        for name, length in (("a", 1.0), ("b", 3.0))
    ]

    def boxes(mode: str) -> list[tuple[float, ...]]:
        layout = layout_of(plain_axis("s"), {**plain_axis(""), "type": "category"}) | {"barmode": mode}
        document = ElementTree.fromstring(svg({"data": traces, "layout": layout, "height_px": 60}, "x"))
        drawn = [element for element in document.iter(f"{SVG}rect") if element.get("stroke")][:2]
        return [tuple(float(box.get(name)) for name in ("x", "y", "width", "height")) for box in drawn]

    a, b = boxes("stack")
    assert b[0] == pytest.approx(a[0] + a[2], abs=0.11) and b[2] == pytest.approx(3 * a[2], rel=0.01)
    assert a[1] == b[1]
    a, b = boxes("group")
    assert a[0] == b[0] and b[1] == pytest.approx(a[1] + a[3], abs=0.11)


def test_every_bar_has_its_label_however_narrow_the_figure():
    names = ["the first of some layers above the wire", "b", "c"]
    figure = bars(names, [0.5, 2.0, 1.0], ["#000000"] * 3, "times")
    document = ElementTree.fromstring(svg(figure, "x", width=240))
    texts = [text.text for text in document.iter(f"{SVG}text")]
    assert " ".join(texts).count(names[0]) == 1 and {"b", "c"} <= set(texts) and names[0] not in texts


def test_traces_of_another_type_are_refused():
    with pytest.raises(ValueError, match="pie"):
        svg({"data": [{"type": "pie"}], "layout": layout_of(plain_axis("x"), plain_axis("y"))}, "x")


def test_svg_needs_a_directory_and_the_document_lists_the_files(directory, tmp_path):
    failed = CliRunner().invoke(app, ["export", str(directory), "--format", "svg"])
    assert isinstance(failed.exception, WrongUse) and "-o" in str(failed.exception)
    document = json.loads(exported(directory, "-o", str(tmp_path / "series.csv"), "--json"))
    assert document["schema"] == "barewire-export/1"
    assert Path(document["files"][0]).read_text().count("\n") == 2 * len(SUBJECTS) * len(SIZES) + 1
