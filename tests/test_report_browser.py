# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The report in a real browser, from a file, without a network: no error, all numbers, nothing wider than the page."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from synthetic import synthetic_run
from synthetic_host import synthetic_host
from synthetic_mpi import synthetic_mpi
from synthetic_sdn import synthetic_sdn

from barewire.cli.report import REFERENCE_FILE, write_report
from barewire.models.wire import Link
from barewire.report import words
from barewire.results import write_run
from barewire.results.host import host_document
from barewire.results.sdn import STAR, WIDE
from barewire.sdn.bench.outcome import concluded

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDTHS = {"desktop": 1400, "phone": 390}
# Of a plot `p`, in the browser: whether it stays in its card.
IS_INSIDE = "p.querySelector('svg').getBoundingClientRect().right <= p.parentElement.getBoundingClientRect().right"

pytestmark = pytest.mark.skipif(
    not (CHROMIUM.exists() and DRIVER.exists()),
    reason="needs Chromium and its driver: apt-get install chromium chromium-driver",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: make setup")
    service = pytest.importorskip("selenium.webdriver.chrome.service")
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=service.Service(executable_path=str(DRIVER)))
        try:
            yield driver
        finally:
            driver.quit()


@pytest.fixture(scope="module", params=["floor", "wire"])
def report(request, tmp_path_factory) -> Path:
    """One clean run on an unshaped link; one on a shaped link that was interrupted, lost messages and is impossible."""
    directory = tmp_path_factory.mktemp("run")
    subjects = ("tcp", "tcp/block", "udp", "raw", "raw/block")
    if request.param == "floor":
        synthetic_run(directory, launches=6, samples_per_launch=20, subjects=(*subjects, "floor"))
    else:
        synthetic_run(directory, launches=4, samples_per_launch=20, subjects=subjects, link=Link(1e9), complete=False)
    return write_report(directory)


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


def fits(browser) -> bool:
    """Whether the page does not scroll sideways."""
    return browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")


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


def test_every_plot_is_drawn_with_its_traces_inside_its_card(page):
    plots = page.execute_script(
        "return [...document.querySelectorAll('.plot')].map(p => ({"
        "drawn: p.querySelectorAll('.scatterlayer .trace').length, traces: p.data.length,"
        f"inside: {IS_INSIDE},"
        "labels: p.querySelectorAll('.xtick').length}))"
    )
    assert len(plots) == 6, "per test: against size, ratio, distribution"
    assert all(one["drawn"] == one["traces"] > 2 for one in plots)
    assert all(one["inside"] and one["labels"] >= 2 for one in plots)


def test_labels_of_the_axes_do_not_overlap(page):
    overlaps = page.execute_script(
        "return [...document.querySelectorAll('.plot')].flatMap(p => {"
        "const boxes = [...p.querySelectorAll('.xtick text')].map(t => t.getBoundingClientRect());"
        "return boxes.slice(1).filter((box, i) => box.left < boxes[i].right); }).length"
    )
    assert overlaps == 0


def test_another_message_size_shows_its_own_distribution(page):
    before, after = page.execute_script(
        "const card = document.querySelector('.card select').closest('.card'), plot = card.querySelector('.plot');"
        "const first = plot.data[0].x[50]; const select = card.querySelector('select');"
        "select.value = select.options.length - 1; select.dispatchEvent(new Event('change'));"
        "return [first, plot.data[0].x[50]]"
    )
    assert after > before


def test_a_dark_desktop_gets_dark_plots(page):
    def ink() -> str:
        return page.execute_script("return document.querySelector('.plot').layout.font.color")

    def prefer(scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    wait = pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait(page, 10)
    try:
        for scheme, colour in (("light", "#1B2430"), ("dark", "#E4E9F0")):
            prefer(scheme)
            # The page is told of the change after the command returns.
            wait.until(lambda _, colour=colour: ink() == colour)
    finally:
        prefer("light")


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


@pytest.mark.parametrize("device", ["desktop", pytest.param("phone", marks=pytest.mark.matrix)])
def test_the_page_of_a_host_is_drawn_at_every_width(browser, tmp_path, device):
    """The reference is twice as fast, so that all bars go left from 1."""
    run, frame = synthetic_host(tmp_path, slowdown=2.0)
    write_run(tmp_path, run, frame)
    (tmp_path / REFERENCE_FILE).write_text(json.dumps(host_document(*synthetic_host(tmp_path))))
    show(browser, write_report(tmp_path), device)
    assert browser.get_log("browser") == []
    assert fits(browser)
    plots = browser.execute_script(
        "return [...document.querySelectorAll('.plot')].map(p => ({"
        "lines: p.querySelectorAll('.scatterlayer .trace').length, bars: p.querySelectorAll('.bars .point').length,"
        f"inside: {IS_INSIDE},"
        "height: p.clientHeight, labels: p.querySelectorAll('.ytick text').length}))"
    )
    bars, *lines = plots
    assert bars["bars"] == bars["labels"] == 9 and bars["lines"] == 0, (
        "each of memory, send with its smallest and largest"
    )
    assert [one["lines"] for one in lines] == [2, 4], "a band and a line for each subject of memory and send"
    assert all(one["inside"] and one["height"] > 200 for one in plots)
    text = browser.execute_script("return document.body.innerText")
    for said in ("switch/process", "Copy crossover", "Against the reference"):
        assert said.lower() in text.lower()


@pytest.fixture(scope="module")
def report_of_libraries(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("mpi")
    synthetic_mpi(directory, "pingpong", "overlap", "fft", ranks=(2,))
    return write_report(directory)


@pytest.mark.parametrize("device", ["desktop", pytest.param("phone", marks=pytest.mark.matrix)])
def test_the_page_of_mpi_libraries_is_drawn_at_every_width(browser, report_of_libraries, device):
    """Patterns, parameters with their curves, a kernel with its phases; every choice of every figure is drawn."""
    show(browser, report_of_libraries, device)
    assert fits(browser)
    drawn = browser.execute_script(
        "return [...document.querySelectorAll('.card[data-figure]')].map(card => {"
        "const select = card.querySelector('select'), plot = card.querySelector('.plot'), counts = [];"
        "for (let n = 0; n < (select ? select.options.length : 1); n++) {"
        "  if (select) { select.value = n; select.dispatchEvent(new Event('change')); }"
        "  counts.push(plot.querySelectorAll('.scatterlayer .trace, .bars').length); }"
        "return {title: card.querySelector('h3').innerText, counts}; })"
    )
    assert browser.get_log("browser") == []
    titles = [one["title"] for one in drawn]
    assert {"Variants", "Against message size", "Against the computation", "Phases", "Distribution"} <= {*titles}
    assert all(count >= 2 for one in drawn for count in one["counts"]), drawn
    text = browser.execute_script("return document.body.innerText")
    for said in ("Laws of latency", "Where the time goes", "the same library over TCP"):
        assert said.lower() in text.lower()


@pytest.mark.parametrize("device", ["desktop", pytest.param("phone", marks=pytest.mark.matrix)])
def test_the_page_of_switches_is_drawn_at_every_width(browser, tmp_path, device):
    """A bar with its interval for each strategy and reference, in every figure; numbers beside the published ones."""
    run, frame, plan = synthetic_sdn({STAR: 16, WIDE: 19, "stp": 39, "isolated": 19}, blocks=6)
    write_run(tmp_path, concluded(run, frame, plan), frame)
    show(browser, write_report(tmp_path), device)
    assert fits(browser)
    drawn = browser.execute_script(
        "return [...document.querySelectorAll('.plot')].map(p => ({"
        "bars: p.querySelectorAll('.bars .point').length, intervals: p.querySelectorAll('.errorbar').length,"
        f"inside: {IS_INSIDE},"
        "height: p.clientHeight}))"
    )
    assert browser.get_log("browser") == []
    assert [one["bars"] for one in drawn] == [4, 2, 4] * 2, "each order of rings: MB/s, fraction of wide, load"
    assert all(one["intervals"] == one["bars"] and one["inside"] and one["height"] > 200 for one in drawn)
    text = browser.execute_script("return document.body.innerText")
    for said in ("best is isolated, 1.00", "0.50 (0.50–0.50)", "67.99"):
        assert said in text
