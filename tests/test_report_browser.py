# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Pages in a real browser, from files, without a network: no error, all numbers, figures that fit, and for everybody.

axe-core looks for what keeps people out: https://github.com/dequelabs/axe-core.
"""

import csv
import io
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from chromium import axe, chromium, emulated, fits, needs_chromium
from conftest import ROOT
from synthetic import synthetic_run
from synthetic_cluster import healthy
from synthetic_host import synthetic_host
from synthetic_mpi import subject, synthetic_mpi
from synthetic_sdn import synthetic_sdn
from test_budget_page import budget_run
from test_profile_results import FACTS, uneven
from test_scoreboard import campaign, measured
from test_trial import around, outcome

from barewire.account import account
from barewire.cli.report import REFERENCE_FILE, write_gallery, write_report
from barewire.cluster.check import Checked
from barewire.measure.scoreboard_runs import read_board
from barewire.models.wire import Link
from barewire.report import words
from barewire.report.account_page import render_account
from barewire.report.cluster_page import render_check
from barewire.report.profile_page import profile_page
from barewire.report.scoreboard_page import render_board
from barewire.report.trial import trial_page
from barewire.results.host import host_document
from barewire.results.sdn import STAR, WIDE
from barewire.results.store import write_run
from barewire.sdn.bench.outcome import concluded
from barewire.study.claims import judge
from barewire.study.page import render_study
from barewire.study.plan import read_plan
from barewire.study.shown import shown
from barewire.study.steps import Done, Record

WIDTHS = {"desktop": 1280, "phone": 390}
SIZE_MAX = 1_500_000
# With margins of 12 mm, at 96 px per inch.
A4_LANDSCAPE = {"width": 1032, "height": 703, "deviceScaleFactor": 1, "mobile": False}

pytestmark = needs_chromium
both_devices = pytest.mark.parametrize("device", ["desktop", pytest.param("phone", marks=pytest.mark.matrix)])


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as driver:
        yield driver


# Pages

# Few, because axe-core and the browser take their time for each row of a table, and rows are alike.
SIZES = (1, 64, 1400, 65536)


def floor_report(directory: Path) -> Path:
    """A clean run on an unshaped link."""
    subjects = ("tcp", "tcp/block", "udp", "raw", "raw/block", "floor")
    synthetic_run(directory, launches=6, samples_per_launch=20, subjects=subjects, sizes=SIZES)
    return write_report(directory)


def wire_report(directory: Path) -> Path:
    """A run on a shaped link that was interrupted, lost messages and is impossible."""
    subjects = ("tcp", "tcp/block", "udp", "raw", "raw/block")
    link = Link(1e9)
    synthetic_run(
        directory, launches=4, samples_per_launch=20, subjects=subjects, sizes=SIZES, link=link, complete=False
    )
    return write_report(directory)


def host_report(directory: Path) -> Path:
    """The reference is twice as fast, so that all bars go left from 1."""
    run, frame = synthetic_host(directory, slowdown=2.0)
    write_run(directory, run, frame)
    (directory / REFERENCE_FILE).write_text(json.dumps(host_document(*synthetic_host(directory))))
    return write_report(directory)


def mpi_report(directory: Path) -> Path:
    """Patterns, parameters with their curves, a kernel on two numbers of ranks, and a prediction from another run."""
    (directory / "run").mkdir()
    (directory / "model").mkdir()
    subjects = subject("openmpi", "barewire"), subject("openmpi", "tcp")
    synthetic_mpi(directory / "run", "pingpong", "logp", "overlap", "fft", ranks=(2, 4), subjects=subjects)
    synthetic_mpi(directory / "model", "pingpong", subjects=subjects)
    return write_report(directory / "run", model=[directory / "model"])


def sdn_report(directory: Path) -> Path:
    run, frame, plan = synthetic_sdn({STAR: 16, WIDE: 19, "stp": 39, "isolated": 19}, blocks=6)
    write_run(directory, concluded(run, frame, plan), frame)
    return write_report(directory)


def budget_report(directory: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        budget_run(directory, patch, link=Link(1e9), leave_out=("floor",))
    return write_report(directory)


def written(directory: Path, page: str) -> Path:
    path = directory / "report.html"
    path.write_text(page)
    return path


def profile_report(directory: Path) -> Path:
    return written(directory, profile_page(uneven(), FACTS, "barewire profile", []))


def trial_report(directory: Path) -> Path:
    facts = {"created": "now", "timed_launches": 16, "seed": 1, "environment": {}, "library": "MPI", "lab": None}
    facts |= {"command": ["./solve"], "shares": [], "limit_s": None}
    return written(directory, trial_page(outcome(around(1.0), around(1.5)), facts, "barewire try", []))


def cluster_report(directory: Path) -> Path:
    checked = Checked(healthy(4), (), (), ())
    return written(directory, render_check(checked, created="now", command="barewire cluster check"))


def scoreboard_report(directory: Path) -> Path:
    measured(directory / "board", campaign())
    return written(directory, render_board(read_board(directory / "board")))


STUDY = """
title = "A study"
question = "Is LLC faster than TCP?"
source = "Somebody 1999"
confidence = 95

[[step]]
name = "many"
what = "ping-pongs of many sizes"
command = ["mpi", "pingpong"]

[[step]]
name = "few"
what = "ping-pongs of few sizes"
command = ["mpi", "pingpong"]

[[step]]
name = "machine"
what = "this machine"
command = ["bench", "host"]

[[claim]]
text = "LLC takes less time at each of many sizes."
kind = "faster"
a = {step = "many", subject = "openmpi/barewire", variant = "blocking-standard"}
b = {step = "many", subject = "openmpi/tcp", variant = "blocking-standard"}
published = "watter2006_netpipe_time.csv"
rows = "message_bytes"
columns = ["llc_mean_s", "tcp_mean_s"]

[[claim]]
text = "It takes more at each of few."
kind = "faster"
a = {step = "few", subject = "openmpi/tcp", variant = "blocking-standard"}
b = {step = "few", subject = "openmpi/barewire", variant = "blocking-standard"}

[[claim]]
text = "A round trip of 1400 B takes 11 µs on Ethernet of 1 Gb/s."
kind = "impossible"
message_bytes = 1400
protocol = "raw"
rate_bit_s = 1e9
published = "paz2010_pingpong.csv"
columns = ["round_trip_us"]
only = {program = "raw_socket"}
"""


def study_report(directory: Path) -> Path:
    """Claims of many and of few rows, beside published values and without, and all that a machine was measured for."""
    (directory / "mine.toml").write_text(STUDY)
    plan = read_plan(str(directory / "mine.toml"))
    for name, sizes in (("many", tuple(2**exponent for exponent in range(12))), ("few", SIZES)):
        (directory / name).mkdir()
        subjects = subject("openmpi", "barewire"), subject("openmpi", "tcp")
        synthetic_mpi(directory / name, "pingpong", subjects=subjects, sizes=sizes)
    (directory / "machine").mkdir()
    write_run(directory / "machine", *synthetic_host(directory / "machine"))
    steps = {step.name: Done("done", step.command, 61.0) for step in plan.steps}
    record = Record(plan.name, plan.digest, "quick", None, "2026-01-01", steps)
    findings, tables = judge(plan, directory, record), shown(plan, directory, record)
    return written(directory, render_study(plan, findings, record, tables))


def account_report(directory: Path) -> Path:
    if shutil.which("tshark") is None:
        pytest.skip("tshark is missing: apt-get install tshark")
    accounts = account(ROOT / "python" / "tests" / "captures" / "frames.pcapng")
    return written(directory, render_account(accounts, "barewire account"))


def gallery(directory: Path) -> Path:
    for name, make in (("a", wire_report), ("b", host_report)):
        (directory / name).mkdir()
        make(directory / name)
    (directory / "damaged").mkdir()
    (directory / "damaged" / "run.json").write_text("{}")
    path, unread = write_gallery([directory])
    assert len(unread) == 1
    return path


PAGES: dict[str, Callable[[Path], Path]] = {
    "floor": floor_report,
    "wire": wire_report,
    "mpi": mpi_report,
    "host": host_report,
    "sdn": sdn_report,
    "budget": budget_report,
    "profile": profile_report,
    "trial": trial_report,
    "cluster": cluster_report,
    "scoreboard": scoreboard_report,
    "study": study_report,
    "account": account_report,
    "gallery": gallery,
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> Callable[[str], Path]:
    """Make a page by its name, once."""
    made: dict[str, Path] = {}

    def page(name: str) -> Path:
        if name not in made:
            made[name] = PAGES[name](tmp_path_factory.mktemp(name))
        return made[name]

    return page


@pytest.fixture(scope="module", params=["floor", "wire"])
def report(request, pages) -> Path:
    return pages(request.param)


@pytest.fixture(scope="module", params=["desktop", pytest.param("phone", marks=pytest.mark.matrix)])
def page(request, browser, report):
    """The browser showing the report at one width, its log emptied before; the tests of one page share it."""
    show(browser, report, request.param)
    return browser


def show(browser, report: Path, device: str) -> None:
    browser.get_log("browser")
    width = WIDTHS[device]
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": device == "phone"}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get(report.as_uri())
    assert browser.execute_script("return innerWidth") == width


FIGURES = r"""
    const shown = (svg) => getComputedStyle(svg).display !== "none";
    const boxes = (svg) => [...svg.querySelectorAll("text")].filter((t) => t.textContent.trim())
      .map((t) => [t.textContent, t.getBoundingClientRect()]);
    const before = (a, b) => a.right <= b.left + 1 || a.bottom <= b.top + 3;
    const apart = (a, b) => before(a, b) || before(b, a);
    const done = arguments[0];
    (async () => { const figures = []; for (const card of document.querySelectorAll("[data-figure]")) {
      const select = card.querySelector("select"), plot = card.querySelector(".plot"), drawings = [];
      const data = JSON.parse(card.querySelector("script").textContent);
      for (let n = 0; n < data.choices.length; n++) {
        if (select) {
          select.value = n;
          select.dispatchEvent(new Event("change"));
          while (card.dataset.shown !== String(n)) await new Promise((next) => setTimeout(next, 1));
        }
        const svgs = [...plot.querySelectorAll(":scope > :not([hidden]) > svg")].filter(shown);
        const svg = svgs[0], texts = boxes(svg), outer = svg.getBoundingClientRect(), overlaps = [];
        texts.forEach(([a, one], i) => texts.slice(i + 1).forEach(([b, other]) => {
          if (!apart(one, other)) overlaps.push([a, b]);
        }));
        drawings.push({
          svgs: svgs.length, overlaps, marks: svg.querySelectorAll(".t").length,
          series: data.choices[n].series.length,
          cut: texts.filter(([, t]) => t.left < outer.left - 2 || t.right > outer.right + 2).map(([text]) => text),
          inside: outer.right <= card.getBoundingClientRect().right + 1, fontPx: texts[0][1].height,
        });
      }
      figures.push({ name: card.dataset.figure, drawings });
    } return figures; })().then(done, (error) => done(String(error)));
"""


def figures_of(browser) -> list[dict[str, Any]]:
    """Every figure with all of its choices, as drawn."""
    return browser.execute_async_script(FIGURES)


# Content


def test_every_median_of_run_json_stands_in_the_text(page, report):
    text = page.execute_script("return document.body.innerText")
    for one in json.loads((report.parent / "run.json").read_text())["series"]:
        assert words.number(one["median"], 4) in text
    assert page.title == "Barewire: run synthetic-1"


def test_the_page_does_not_scroll_sideways_and_its_tables_do(page):
    assert fits(page)
    boxes = page.execute_script(
        "return [...document.querySelectorAll('.scroll')].map(b => [b.scrollWidth, b.clientWidth])"
    )
    assert boxes and all(inner > outer for inner, outer in boxes)


def test_the_first_screen_has_the_question_the_answer_and_its_figure(page):
    question, answer, top, bottom = page.execute_script(
        "const box = (selector) => document.querySelector(selector).getBoundingClientRect();"
        "return [document.querySelector('.question').innerText, document.querySelector('.headline').innerText,"
        "box('header [data-figure]').top + scrollY, box('header .plot').bottom + scrollY]"
    )
    assert question == "Is raw Ethernet faster than TCP?"
    assert (
        answer.count("× TCP’s") == 1
        and "launches each" in answer
        and ("): faster" in answer or "too few for an interval" in answer)
    )
    assert top < 900 and (bottom < 900 or page.execute_script("return innerWidth") < 1000)


def test_nothing_was_fetched(page):
    assert (
        page.execute_script("return performance.getEntriesByType('resource').filter(e => !/^data:/.test(e.name))") == []
    )


def test_the_browser_has_nothing_to_complain_about(page):
    assert page.get_log("browser") == []


def test_the_check_for_complaints_sees_an_error(browser, tmp_path):
    (tmp_path / "bad.html").write_text("<title>bad</title><link rel=icon href='data:,'><script>absent()</script>")
    browser.get((tmp_path / "bad.html").as_uri())
    assert any(entry["level"] == "SEVERE" for entry in browser.get_log("browser"))


EXPECTED = {
    "floor": (7, ("Against message size", "Compared with TCP", "Distribution")),
    "mpi": (
        20,
        (
            *("Variants", "Against the computation", "Phases", "LogP by size", "Time in pieces", "efficiency"),
            *("Predicted and measured", "Laws of latency", "Where the time goes", "the same library over TCP"),
        ),
    ),
    "host": (3, ("switch/process", "Copy crossover", "Against the reference")),
    "sdn": (7, ("best is isolated, 1.00", "0.50 (0.50–0.50)", "67.99")),
    "budget": (6, ("From the wire up", "Close up", "the wire’s limit")),
    "profile": (4, ("Where the time goes", "Most time")),
    "trial": (3, ("Is solve faster over Barewire than over TCP?", "Who is faster")),
    "scoreboard": (1, ("Means by testbed", "Map of all ratios")),
    "study": (
        2,
        (
            *(
                "Is LLC faster than TCP?",
                "Of 3 claims 1 held, 2 did not hold.",
                "published: llc_mean, µs",
                "this machine",
            ),
            *("It takes more at each of few.", "A round trip of 1400 B takes 11 µs", "Context switch, ns"),
        ),
    ),
    "account": (1, ("Where did the bytes go?", "Payload: 4000 B", "Bytes by phase and layer", "message header")),
    "gallery": (2, ("Is raw Ethernet faster than TCP?", "cannot be read")),
}


@both_devices
@pytest.mark.parametrize("name", EXPECTED)
def test_every_figure_is_drawn_within_its_card_and_no_label_overlaps_another(browser, pages, name, device):
    show(browser, pages(name), device)
    assert fits(browser)
    text = browser.execute_script("return document.body.innerText").lower()
    drawn = figures_of(browser)
    assert browser.get_log("browser") == []
    count, said = EXPECTED[name]
    assert len(drawn) >= count and all(sentence.lower() in text for sentence in said), text
    for figure in drawn:
        for drawing in figure["drawings"]:
            where = name, figure["name"], drawing
            assert drawing["svgs"] == 1 and drawing["inside"], where
            assert drawing["series"] == drawing["marks"] > 0, where
            assert drawing["overlaps"] == [] and drawing["cut"] == [], where
            assert drawing["fontPx"] > 11, where


# Pointer, keyboard, files


def test_another_message_size_shows_its_own_distribution_and_caption(browser, pages):
    show(browser, pages("mpi"), "desktop")
    captions = browser.execute_async_script(
        "const done = arguments[0]; (async () => {"
        "const card = [...document.querySelectorAll('.card[data-figure]')].find(c => /in pieces/.test(c.innerText));"
        "const select = card.querySelector('select'), seen = [];"
        "for (let n = 0; n < select.options.length; n++) {"
        "  select.value = n; select.dispatchEvent(new Event('change'));"
        "  while (card.dataset.shown !== String(n)) await new Promise(next => setTimeout(next, 1));"
        "  seen.push([...card.querySelectorAll('.caption:not([hidden])')].map(c => c.innerText).join('')"
        "    + select.options[n].text + card.querySelectorAll('.plot > :not([hidden])').length); }"
        "return seen; })().then(done, error => done(String(error)))"
    )
    assert len({*captions}) == len(captions) > 4 and all(caption.endswith("1") for caption in captions)
    assert all("Breaks, with bands for their intervals: 1 above 64 KiB" in caption for caption in captions)


def test_keyboard_and_pointer_show_value_interval_and_counts(browser, pages):
    show(browser, pages("floor"), "desktop")
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    chains = pytest.importorskip("selenium.webdriver.common.action_chains").ActionChains
    plot = browser.find_element("css selector", "section .plot")

    def tip() -> str:
        return browser.execute_script("const t = document.getElementById('tip'); return t.hidden ? '' : t.innerText")

    plot.send_keys(keys.ARROW_RIGHT)
    first = tip()
    assert re.search(
        r"TCP\nmessage size: 1 B\nmedian time, µs: [\d.]+\n95 % interval: [\d.]+ to [\d.]+\n6 launches, 108 ", first
    )
    plot.send_keys(keys.ARROW_RIGHT)
    assert "message size: 64 B" in tip()
    plot.send_keys(keys.ARROW_DOWN)
    assert tip().startswith("TCP, blocking\nmessage size: 64 B")
    plot.send_keys(keys.ESCAPE)
    assert tip() == ""
    at = browser.execute_script(
        "const svg = arguments[0].querySelector('svg.wide'), path = svg.querySelector('.t');"
        "const [x, y] = path.getAttribute('d').match(/[\\d.]+/g).map(Number);"
        "const box = arguments[0].getBoundingClientRect();"
        "const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;"
        "return [x * scale - box.width / 2, y * scale - box.height / 2]",
        plot,
    )
    chains(browser).move_to_element_with_offset(plot, round(at[0]), round(at[1])).perform()
    assert tip() == first


def test_every_figure_is_saved_as_svg_and_its_data_as_csv(browser, pages):
    show(browser, pages("floor"), "desktop")
    saved = browser.execute_script(
        "return [...document.querySelectorAll('[data-figure]')].map(card => {"
        "const files = ['svg', 'csv'].map(kind => {"
        "  const link = card.querySelector(`[data-save=${kind}]`);"
        "  link.addEventListener('click', event => event.preventDefault(), { once: true });"
        "  link.click(); return [link.download, link.href]; });"
        "return [card.dataset.figure, files, JSON.parse(card.querySelector('script').textContent)]; })"
    )
    assert len(saved) == 7 and browser.get_log("browser") == []
    for name, ((svg_name, svg), (csv_name, table)), data in saved:
        assert (svg_name, csv_name) == (f"{name}.svg", f"{name}.csv")
        drawing = ElementTree.fromstring(unquote(svg.partition(",")[2]))
        assert drawing.tag.endswith("svg") and len(list(drawing.iter("{http://www.w3.org/2000/svg}text"))) > 5
        rows = list(csv.DictReader(io.StringIO(unquote(table.partition(",")[2]))))
        assert len(rows) == sum(len(series["x"]) for choice in data["choices"] for series in choice["series"])
        assert all(float(row["launches"]) == 6 for row in rows)
    _, (_, (_, table)), _ = saved[1]
    rows = list(csv.DictReader(io.StringIO(unquote(table.partition(",")[2]))))
    run = json.loads((pages("floor").parent / "run.json").read_text())
    medians = {
        (words.subject_name(s["subject"]), s["message_bytes"]): (s["median"], *s["ci95"])
        for s in run["series"]
        if s["test"] == "pingpong"
    }
    found = {
        (row["series"], int(row["message size, B"])): tuple(float(row[c]) for c in ("median time, µs", "low", "high"))
        for row in rows
    }
    assert found == {key: pytest.approx(values, rel=1e-4) for key, values in medians.items()}


def test_the_data_of_a_figure_is_a_table_too(browser, pages):
    show(browser, pages("floor"), "desktop")
    head, rows = browser.execute_async_script(
        "const done = arguments[0], details = document.querySelector('section details');"
        "details.addEventListener('toggle', () => setTimeout(() => done(["
        "  [...details.querySelectorAll('th')].map(c => c.innerText), details.querySelectorAll('tbody tr').length])));"
        "details.open = true;"
    )
    assert head == ["series", "message size, B", "median time, µs", "low", "high", "launches", "samples"]
    assert rows == 6 * len(SIZES)


# Light, dark, paper, everybody


def test_a_dark_desktop_gets_dark_figures_and_paper_never(browser, pages):
    show(browser, pages("floor"), "desktop")

    def look() -> tuple[str, str, str]:
        return tuple(
            browser.execute_script(
                "const style = (s, name) => getComputedStyle(document.querySelector(s))[name];"
                "return [style('.plot text', 'fill'), style('.plot .t', 'stroke'), style('body', 'backgroundColor')]"
            )
        )

    light = look()
    with emulated(browser, scheme="dark"):
        dark = look()
    assert all(one != other for one, other in zip(light, dark, strict=True))
    with emulated(browser, scheme="dark", media="print"):
        assert look()[:2] == light[:2]


def test_on_paper_tables_are_whole_and_controls_are_left_out(browser, pages):
    show(browser, pages("floor"), "desktop")
    with emulated(browser, media="print"):
        hidden, cut = browser.execute_script(
            "return [[...document.querySelectorAll('nav, .choice, .save, details')].every(e => !e.offsetParent),"
            "[...document.querySelectorAll('.scroll')].filter(b => b.scrollHeight > b.clientHeight + 1).length]"
        )
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", A4_LANDSCAPE)
        assert fits(browser)
    assert hidden and cut == 0


LOOKS = [("desktop", "light"), ("phone", "dark"), ("desktop", "dark"), ("phone", "light")]
# `make test` looks at each page in one way, half of them light and half dark.
PAGES_AND_LOOKS = [
    pytest.param(name, *look, marks=[] if at == number % 2 else pytest.mark.matrix)
    for number, name in enumerate(PAGES)
    for at, look in enumerate(LOOKS)
]


@pytest.mark.parametrize(("name", "device", "scheme"), PAGES_AND_LOOKS)
def test_axe_finds_nothing_serious(browser, pages, name, device, scheme):
    with emulated(browser, scheme=scheme):
        show(browser, pages(name), device)
        findings = axe(browser)
    assert findings == []


def test_axe_sees_what_is_wrong(browser, tmp_path):
    page = (
        "<!DOCTYPE html><html lang=en><title>x</title><p style='color:#ccc;background:#fff'>faint</p><img src=data:,>"
    )
    (tmp_path / "bad.html").write_text(page)
    browser.get((tmp_path / "bad.html").as_uri())
    assert {finding[0] for finding in axe(browser)} == {"color-contrast", "image-alt"}


# Size and time


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_small(pages, name):
    assert pages(name).stat().st_size < SIZE_MAX


def test_the_rows_of_a_long_table_are_all_there(browser, tmp_path):
    sizes = tuple(range(8, 8 * 41, 8))
    synthetic_run(tmp_path, launches=2, samples_per_launch=3, tests=("pingpong",), subjects=("tcp", "udp"), sizes=sizes)
    show(browser, write_report(tmp_path), "desktop")
    rows = "return document.querySelectorAll('table.series tbody tr').length"
    deadline = time.monotonic() + 10
    while browser.execute_script(rows) < 80 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert browser.execute_script(rows) == 80 and browser.get_log("browser") == []
    last = browser.execute_script("return [...document.querySelectorAll('table.series tbody tr')].at(-1).innerText")
    assert last.startswith(words.message_size(sizes[-1]))


@pytest.mark.matrix
def test_a_hundred_series_and_a_million_samples_are_a_page_in_ten_seconds_that_opens_in_two(browser, tmp_path):
    sizes = tuple(2**exponent for exponent in range(10))
    synthetic_run(
        tmp_path,
        launches=10,
        samples_per_launch=1000,
        subjects=("tcp", "udp", "raw", "raw/block", "floor"),
        sizes=sizes,
    )
    run = json.loads((tmp_path / "run.json").read_text())
    assert len(run["series"]) == 100
    begun = time.monotonic()
    path = write_report(tmp_path)
    built_s = time.monotonic() - begun
    begun = time.monotonic()
    show(browser, path, "desktop")
    opened_s = time.monotonic() - begun
    assert len(figures_of(browser)) == 8 and browser.get_log("browser") == []
    assert (built_s < 10, opened_s < 2, path.stat().st_size < SIZE_MAX) == (True, True, True), (built_s, opened_s)
