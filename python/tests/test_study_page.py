# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What a study shows beside its claims: published values, tables of its steps, contradictions in print."""

import html
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from study_plans import CLAIM, COMMAND, CROSSOVER, HOST_STEP, NOTHING, STEP, judged, record_of, times, written
from synthetic import run_of, series_of
from synthetic_host import synthetic_host

from barewire.account.frame import Layers
from barewire.errors import WrongUse
from barewire.results.run import Series
from barewire.results.store import write_run
from barewire.study import tables
from barewire.study.flaws import CHECKS, published_flaws
from barewire.study.page import render_study
from barewire.study.plan import read_plan, shipped
from barewire.study.report import document, headline, markdown, print_findings, table_of
from barewire.study.shown import shown
from barewire.study.steps import Done
from barewire.study.tables import read_table


def test_what_was_measured_of_a_machine_is_shown_in_full(tmp_path: Path) -> None:
    plan = written(tmp_path, HOST_STEP + CROSSOVER)
    run, frame = synthetic_host(tmp_path)
    write_run(tmp_path / "study" / "messages", run, frame)
    record = record_of(plan)
    (host,) = shown(plan, tmp_path / "study", record)
    assert host.step == "messages" and len(host.measures) == len(run.series)
    text, page = markdown(plan, [], record, [host]), render_study(plan, [], record, [host])
    for what in ("This machine", "Context switch, ns", "16 KiB", "processes-8"):
        assert what in text and what in page, what
    less_sure = replace(plan, confidence=0.5)
    (narrower,) = shown(less_sure, tmp_path / "study", record)
    widths = [
        [measure.interval[1] - measure.interval[0] for measure in each.measures if measure.interval is not None]
        for each in (host, narrower)
    ]
    assert len(widths[0]) == len(widths[1]) and sum(widths[1]) < sum(widths[0])
    assert "with its 50 % interval" in render_study(less_sure, [], record, [narrower])
    found = document(plan, [], record, [host])
    assert found["tables"] == []
    assert json.loads(json.dumps(found["hosts"]["messages"], allow_nan=False))[0]["name"].startswith("memory/")


PARAMETERS = """
[[table]]
kind = "parameters"
a = {step = "messages", subject = "openmpi/tcp"}
published = "watter2006_netpipe_time.csv"
rows = "message_bytes"
columns = {"openmpi/tcp" = "tcp_mean_s"}
note = "As printed."
"""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('kind = "parameters"', 'kind = "hockney"'), "kind is one of parameters, speed-ups, account, not 'hockney'"),
        (('a = {step = "messages", subject = "openmpi/tcp"}', ""), "a table needs 'a', with the step that it shows"),
        (('a = {step = "messages", ', "a = {"), "need the step that measures them"),
        (('step = "messages"', 'step = "message"'), "unknown step 'message'; there are: messages"),
        (('subject = "openmpi/tcp"}', 'subjects = "openmpi/tcp"}'), "unknown field of series 'subjects'"),
        (('note = "As printed."', "note = 3"), "note must be a text"),
        (('note = "As printed."', "title = 3"), "unknown entry 'title'"),
        (('kind = "parameters"', 'kind = "account"'), "an account has no series and no published table"),
        (('rows = "message_bytes"', ""), "a published table needs 'published', 'rows' and 'columns'"),
        (('rows = "message_bytes"', 'rows = "size"'), "watter2006_netpipe_time.csv has no column size; it has"),
        (('"tcp_mean_s"', '"udp_mean_s"'), "watter2006_netpipe_time.csv has no column udp_mean_s; it has"),
        (('"tcp_mean_s"', "3"), "columns has the name of a column for each subject, not 3 for 'openmpi/tcp'"),
        (('{"openmpi/tcp" = "tcp_mean_s"}', '["tcp_mean_s"]'), "columns is a table such as"),
        (('note = "As printed."', "only = {message_bytes = 5}"), "has no row with {'message_bytes': 5}"),
        (
            (
                'watter2006_netpipe_time.csv"\nrows = "message_bytes"\ncolumns = {"openmpi/tcp" = "tcp_mean_s"}',
                'stival2006_fft.csv"\nrows = "processes"\ncolumns = {"openmpi/tcp" = "total_ms"}',
            ),
            "stival2006_fft.csv has several rows of the same processes",
        ),
        (("[[table]]", "[table]"), "needs tables [[table]], at least one"),
    ],
)
def test_a_mistake_in_a_table_is_named(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    assert change[0] in PARAMETERS
    with pytest.raises(WrongUse) as raised:
        written(tmp_path, STEP + CLAIM + PARAMETERS.replace(*change))
    assert says in str(raised.value)
    assert ", table 1" in str(raised.value) or change[1] == "[table]"


def test_a_table_shows_steps_of_its_kind_only(tmp_path: Path) -> None:
    account = '[[table]]\nkind = "account"\na = {step = "messages"}\n'
    with pytest.raises(WrongUse, match="a table of kind 'account' is about a step of account, not 'messages'"):
        written(tmp_path, STEP + CLAIM + account)


def on_disk(study: Path, series: Sequence[Series]) -> None:
    """Write the run of the step 'messages'."""
    write_run(study / "messages", run_of("messages", series))


def test_parameters_of_today_stand_beside_the_line_through_published_times(tmp_path: Path) -> None:
    """10 µs and 1 µs for each 100 B, with a step of 30 µs above 4096 B; published are about 77 µs and 64 Mbit/s."""
    generator = np.random.default_rng(5)

    def series(subject: str, step_us: float) -> list[Series]:
        times = {size: 10 + size / 100 + step_us * (size > 4096) for size in (2**power for power in range(4, 18))}
        return [
            replace(
                series_of(list(time * generator.normal(1, 0.003, 10)), subject=subject, message_bytes=size),
                launch_numbers=tuple(range(10)),
            )
            for size, time in times.items()
        ]

    plan = written(tmp_path, STEP + CLAIM + PARAMETERS)
    study, record = tmp_path / "study", record_of(plan)
    on_disk(study, [*series("openmpi/tcp", 30.0), *series("openmpi/barewire", 0.0)])
    (each,) = shown(plan, study, record)
    hockney, pieces = each.tables
    assert [row[0] for row in hockney.rows] == ["openmpi/tcp", "published: tcp_mean, µs"], "the one that 'a' selects"
    today, published = ([float(cell.split()[0]) for cell in row[1:3]] for row in hockney.rows)
    assert published == pytest.approx([76.5, 64.0], rel=0.02) and today[1] == pytest.approx(800, rel=0.1)
    assert "[" in hockney.rows[0][1] and "[" not in hockney.rows[1][1], "printed means have no interval"
    assert pieces.rows[0][4].startswith("4 KiB [") and each.explanation.startswith("As printed. Published: Watter")
    text, page = markdown(plan, [], record, [each]), render_study(plan, [], record, [each])
    for what in ("Parameters: ping-pongs", "published: tcp_mean, µs", "break above"):
        assert what in text and what in page, what
    (found,) = document(plan, [], record, [each])["tables"]
    assert found["kind"] == "parameters" and json.loads(json.dumps(found))["tables"][0]["rows"][0][0] == "openmpi/tcp"

    few = PARAMETERS.replace("watter2006_netpipe_time", "paz2010_pingpong").replace("tcp_mean_s", "round_trip_us")
    plan = written(tmp_path, STEP + CLAIM + few.replace("note =", 'only = {program = "mpi_tcp"}\nnote ='))
    hockney = shown(plan, study, record)[0].tables[0]
    assert hockney.headings[-1] == "µs at 1400 B" and hockney.rows[1][-1] == "87.00"
    line = today[0] + 1400 * 8 / today[1]
    assert float(hockney.rows[0][-1]) == pytest.approx(line, rel=0.01)

    other = written(tmp_path, STEP + CLAIM + PARAMETERS.replace('"openmpi/tcp" =', '"mpich/tcp" ='))
    assert "Not measured: mpich/tcp." in shown(other, study, record)[0].explanation
    whole = written(tmp_path, STEP + CLAIM + PARAMETERS.replace("openmpi/tcp", "openmpi/barewire"))
    assert "Without a break: openmpi/barewire." in shown(whole, study, record)[0].explanation
    none = written(tmp_path, STEP + CLAIM + PARAMETERS.replace("openmpi/tcp", "raw"))
    assert not shown(none, study, record)[0].tables and "There are none: " in shown(none, study, record)[0].explanation
    left = replace(record, steps={"messages": Done("failed", (), 1.0)})
    assert shown(plan, study, left) == []


@pytest.mark.parametrize(
    ("test", "table", "columns", "published"),
    [
        ("fft", "watter2006_fft.csv", "llc_mean", 910.68 / 503.64),
        ("radix", "watter2006_radix.csv", "llc_mean_s", 12.20 / 12.26 * 4),
    ],
)
def test_speed_ups_of_today_stand_beside_the_published(
    tmp_path: Path, test: str, table: str, columns: str, published: float
) -> None:
    """Of one problem for all ranks, and of keys on each rank, whose equal times are perfect."""
    claim = (
        f'[[table]]\nkind = "speed-ups"\na = {{step = "messages"}}\npublished = "{table}"\nrows = "processes"\n'
        f'columns = {{"openmpi/barewire" = "{columns}"}}\n'
    )
    plan = written(tmp_path, STEP + CLAIM + claim)
    times = {2: 40.0, 8: 20.0, 32: 10.0}
    on_disk(
        tmp_path / "study",
        [
            replace(
                series_of([time] * 10, subject="openmpi/barewire", test=test, unit="ms"),
                **{"ranks": ranks, "quantity": "total", "parameter": "keys", "parameter_value": 16.0},
            )
            for ranks, time in times.items()
        ],
    )
    (each,) = shown(plan, tmp_path / "study", record_of(plan))
    (found,) = each.tables
    assert found.headings[2] == f"published: {columns}"
    weak = 4 if test == "radix" else 1
    assert [row[0] for row in found.rows] == ["8: speed-up", "efficiency", "32: speed-up", "efficiency"]
    assert found.rows[0][1].startswith(f"{2 * weak:.2f}") and float(found.rows[0][2]) == pytest.approx(published, 0.01)
    assert float(found.rows[1][2]) == pytest.approx(published / 4, 0.01)
    assert found.rows[2][2] == "–" == found.rows[3][2], "nothing was published of 32"
    assert each.explanation.startswith("Published: Watter 2006")


def test_an_account_is_shown_by_layer_and_phase(tmp_path: Path) -> None:
    table = '[[table]]\nkind = "account"\na = {step = "messages"}\n'
    account = STEP.replace(COMMAND, '"account", "a.pcapng"')
    plan = written(tmp_path, account + NOTHING + table)

    def total(frames: int, **layers: int) -> dict[str, object]:
        sizes = dict.fromkeys(Layers._fields, 0) | layers
        return {"frames": frames, "wire_bytes": sum(sizes.values()), "efficiency": 0.5, "layers_bytes": sizes}

    phases = {"launch": total(21, ip=420, launcher=4159), "data": total(87, ip=1740, payload=65596)}
    everything = total(108, ip=2160, launcher=4159, payload=65596)
    (tmp_path / "messages.json").write_text(json.dumps({"phases": phases, "total": everything}))
    ((found,),) = [each.tables for each in shown(plan, tmp_path, record_of(plan))]
    assert found.headings == ("layer", "launch", "data", "total")
    assert found.rows == (
        ("IP", "420", "1740", "2160"),
        ("payload", "0", "65596", "65596"),
        ("launcher", "4159", "0", "4159"),
        ("on the wire", "4579", "67336", "71915"),
        ("frames", "21", "87", "108"),
        ("efficiency", "50.0%", "50.0%", "50.0%"),
    )
    (tmp_path / "messages.json").write_text('{"phases": {}}')
    with pytest.raises(WrongUse, match=r"messages\.json is damaged: it is no account"):
        shown(plan, tmp_path, record_of(plan))


def test_published_values_stand_beside_todays_everywhere(tmp_path: Path) -> None:
    columns = (
        'published = "watter2006_netpipe_time.csv"\nrows = "message_bytes"\ncolumns = ["llc_mean_s", "tcp_mean_s"]'
    )
    finding = judged(tmp_path, CLAIM + columns, times(0.8))
    assert finding.rows[0].published == pytest.approx((64.164, 74.256)), "in µs, as today's"
    assert finding.rows[0].published_ratio == pytest.approx(0.8641, abs=1e-4)
    assert "published 0.859 to 0.953" in finding.why
    plan = written(tmp_path, STEP + CLAIM + columns)
    record = record_of(plan)
    table = table_of(finding)
    assert table.headings[1:4] == ("published: llc_mean, µs", "published: tcp_mean, µs", "published ratio")
    assert all(len(row) == len(table.headings) for row in table.rows)
    text, page = markdown(plan, [finding], record, []), render_study(plan, [finding], record, [])
    for what in ("Of 1 claim 1 held.", "The first is faster.", "0.864"):
        assert what in text and what in page, what
    found = document(plan, [finding], record, [])
    assert found["claims"][0]["verdict"] == "held" and len(found["claims"][0]["rows"]) == 4
    json.dumps(found, allow_nan=False)
    assert headline([finding]) == "Of 1 claim 1 held."


def test_published_values_without_a_key_stand_in_every_row(tmp_path: Path) -> None:
    """Also those of two rows of one table, one for each side; printed round trips are halved."""
    published = 'published = "paz2010_pingpong.csv"\ncolumns = ["round_trip_us", "round_trip_us"]\n'
    published += 'only = [{program = "raw_socket"}, {program = "mpi_tcp"}]\n'
    finding = judged(tmp_path, CLAIM + published, times(0.8))
    assert [row.published for row in finding.rows] == [(5.5, 87.0)] * 4
    assert finding.rows[0].published_ratio == pytest.approx(11 / 174)
    assert table_of(finding).headings[1:3] == (
        "published: raw_socket, half of round_trip, µs",
        "published: mpi_tcp, half of round_trip, µs",
    )
    keyed = judged(tmp_path, CLAIM + published + 'rows = "message_bytes"\n', {**times(0.8), "x": {}})
    assert [row.published for row in keyed.rows] == [(None, None)] * 4, "of 1400 B"
    side = 'a = {step = "messages", subject = "openmpi/tcp", message_bytes = 8}'
    claim = (
        f'[[claim]]\ntext = "x"\nkind = "within"\n{side}\nlow = 15\nhigh = 25\npublished = "stival2006_overlap.csv"\n'
        'columns = ["value_ms"]\nonly = {test = "overlap-pingpong"}\n'
    )
    within = judged(tmp_path, claim, {"openmpi/tcp": {8: 20.0}})
    assert within.rows[0].published == (960.0,) and table_of(within).headings[1] == "published: value, µs"


@pytest.mark.parametrize(("unit", "published"), [("us", 12.2e6), ("ms", 12200.0), ("Mbit/s", 12.2)])
def test_published_times_are_shown_in_the_unit_of_today_s(tmp_path: Path, unit: str, published: float) -> None:
    columns = (
        'published = "watter2006_radix.csv"\nrows = "processes"\ncolumns = ["llc_mean_s", "tcp_mean_s"]\n'
        'interval = ["ci99_low_s", "ci99_high_s"]\np = "p_value"\n'
    )
    claim = CLAIM.replace('kind = "faster"', 'kind = "faster"\nkey = ["ranks"]') + columns
    more = [
        replace(series_of([time] * 10, subject=subject, unit=unit), ranks=ranks)
        for subject, time in (("openmpi/barewire", 10.0), ("openmpi/tcp", 20.0))
        for ranks in (2, 32)
    ]
    rows = judged(tmp_path, claim, {}, more=more).rows
    factor = published / 12.2
    assert rows[0].published == pytest.approx((published, 12.16 * factor))
    assert rows[0].published_difference == pytest.approx(0.04 * factor)
    assert rows[0].published_interval == pytest.approx((-0.1636501 * factor, 0.2436501 * factor))
    assert rows[0].published_p == "0.607"
    assert rows[1].published_difference is None and rows[1].published_interval is None and rows[1].published_p is None
    table = table_of(judged(tmp_path, claim, {}, more=more))
    assert table.headings[4:6] == ("published difference", "published p") and table.rows[1][1:6] == ("–",) * 5
    assert table.rows[0][5] == "0.607" and all(len(row) == len(table.headings) for row in table.rows)


def test_what_does_not_add_up_in_a_published_table_is_listed() -> None:
    """Of the shipped plans; on the page, in Markdown, in JSON and on the terminal."""
    flaws = {name: found for name in shipped() if (found := published_flaws(read_plan(name)))}
    assert flaws == {
        "stival2006": [
            "Stival 2006, Tables 4.9 and 4.10, side send, library mpich2_tcp: 1.2124 − 0.9462 is 0.2662, not 0.662."
        ],
        "watter2006": [
            "Watter 2006, Table A.1, message bytes 8192: the upper end 4.657016e-05 lacks its minus sign: "
            "the middle must be 0.0008625420 − 9.095682e-04 = -4.70262e-05.",
            "Watter 2006, Table A.3 and Table 5.1, processes 4: 793.42 is 3.32 % less than 820.64, not 3.29 %.",
        ],
    }
    for name in ("watter2006", "paz2010"):
        plan = read_plan(name)
        record = record_of(plan)
        console = Console(record=True, width=300, file=io.StringIO())
        print_findings(console, plan, [], record)
        texts = [
            markdown(plan, [], record, []),
            html.unescape(render_study(plan, [], record, [])),
            console.export_text(),
        ]
        for text in texts:
            assert all(flaw in text for flaw in flaws.get(name, []))
        for text in texts[:2]:
            assert ("does not add up" in text) == (name in flaws)
        assert document(plan, [], record, [])["published_flaws"] == flaws.get(name, [])


def test_every_published_interval_p_and_gain_is_checked() -> None:
    """A column with such a name in a table that no check uses would never be pointed out."""
    for path in sorted((Path(tables.__file__).parent / "published").glob("*.csv")):
        table = read_table(path.name)
        checked = {column for check in CHECKS.get(path.name, ()) for column in check.columns}
        assert checked <= set(table.columns), path.name
        unchecked = {
            column
            for column in table.columns
            if column.startswith(("ci", "p_value", "published_gain")) or "_printed" in column
        } - checked
        # Table A.1 with the sign that it lacks.
        assert unchecked <= {"ci99_high_s"}, path.name


def test_published_tables_are_whole() -> None:
    table = read_table("watter2006_radix.csv")
    assert table.value("llc_mean_s", "processes", 8) == 12.26 and table.value("llc_mean_s", "processes", 3) is None
    assert table.source.startswith("Watter 2006, Table A.4")
    with pytest.raises(WrongUse, match="unknown published table"):
        read_table("watter2006_radix")
