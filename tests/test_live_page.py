# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The live page in a real browser, served by the API of a controller whose switches are in memory."""

import asyncio
import contextlib
import os
import pty
import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from chromium import axe, chromium, emulated, fits, needs_chromium
from conftest import BAREWIRE, eventually
from fake_switches import World, acquainted, tcp

from barewire.sdn import ui
from barewire.sdn.api.server import Api
from barewire.sdn.classify.jobs import parse_job
from barewire.sdn.classify.tenants import Tenant, Tenants
from barewire.sdn.controller.outbox import Event
from barewire.sdn.ui import cables
from barewire.sdn.ui.feed import EVENTS_MAX, HISTORY_ROWS_MAX, Feed
from barewire.sdn.ui.server import Ui

TOKEN = "a-token-of-sixteen-characters"
TENANTS_TOKEN = "the-token-of-the-tenant"
RATE_BIT_S = 5_000_000
PERIOD_S = 0.03
WIDTHS = {"desktop": 1280, "phone": 390}
MARKUP = "<img src=x onerror=document.title='owned'>"

pytestmark = needs_chromium


class Observed:
    """What the page's feed needs of a shell: a controller that leads, and its clock."""

    is_leader = True

    def __init__(self, world: World) -> None:
        self.core, self.world = world.controller, world

    @property
    def now(self) -> float:
        return self.world.now

    def turn_soon(self) -> None:
        self.world.turn()


class Site:
    """A controller's API in a thread, at one port, which can end and come back."""

    def __init__(self) -> None:
        self.port = free_port()
        self.world = busy()
        self.feed: Feed | None = None
        self.failures: list[Event] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/ui"

    def start(self, viewers_max: int = 16) -> None:
        self.call(self._start, viewers_max)

    def _start(self, viewers_max: int) -> None:
        shell: Any = Observed(self.world)
        self.feed = Feed(shell, self.failures.append, PERIOD_S)
        self._ui = Ui(self.feed, viewers_max)
        self._api = Api(shell, f"127.0.0.1:{self.port}", TOKEN, self._ui)
        self._opening = self._loop.create_task(self._api.open())
        self._running = self._loop.create_task(self.feed.run())

    def end(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)

    async def _end(self) -> None:
        # What is closed while it opens stays open.
        await self._opening
        await self._api.close()
        await self._running

    def close(self) -> None:
        self.end()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def call(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in the controller's thread."""

        async def called() -> Any:
            return act(*arguments)

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(10)

    @property
    def viewers(self) -> int:
        return self.feed.viewers


def free_port() -> int:
    """A port that stays free while a controller restarts: below those that the system gives to connections."""
    for port in random.sample(range(15_000, 32_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("none of 100 ports is free")


def busy() -> World:
    """A fat-tree with known rates, 40 flows, two jobs, a tenant and loads."""
    tenant = Tenant("physics", frozenset({"h1", "h2"}), 0.5, token=TENANTS_TOKEN)
    tenants = Tenants((tenant,), {host: tenant for host in tenant.hosts})
    world = acquainted(link_rate_bit_s=RATE_BIT_S, tenants=tenants)
    controller = world.controller
    ring = [{"from": f"h{n}", "to": f"h{n % 8 + 1}", "bytes": 1000} for n in range(1, 9)]
    announcement = {"profile": "mpi", "hosts": [f"h{n}" for n in range(1, 9)], "patterns": [ring] * 3, "lease_s": 3600}
    job = controller.jobs.add(parse_job({**announcement, "name": "ring"}, controller.hosts.by_name.keys()), world.now)
    controller.jobs.add(parse_job({**announcement, "name": MARKUP}, controller.hosts.by_name.keys()), world.now)
    controller.jobs.step(job.id, None, world.now)
    controller.jobs_changed(world.now)
    for number in range(1, 9):
        world.send(f"h{number}", tcp(f"h{number}", f"h{17 - number}", 2000 + number, 5000))
        world.send(f"h{number}", tcp(f"h{number}", f"h{number % 8 + 1}", 3000 + number, 6000))
    world.settle()
    set_loads(world)
    return world


def set_loads(world: World, factor: float = 1.0) -> None:
    for at, port in enumerate(sorted(world.network.peers)):
        if port.node in world.switches:
            load = factor * RATE_BIT_S / 8 * (at * 37 % 100) / 100
            world.controller.rates.load_byte_s[port] = world.controller.rates.received_byte_s[port] = load


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium("--enable-precise-memory-info") as driver:
        yield driver


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()
    assert made.failures == []


def show(browser: Any, site: Site, device: str = "desktop") -> None:
    """Open the page as the link that the controller prints does, and wait for the network."""
    screen = {"width": WIDTHS[device], "height": 900, "deviceScaleFactor": 1, "mobile": device == "phone"}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get("about:blank")
    # An earlier page asks its controller again, which has ended.
    browser.get_log("browser")
    browser.get(f"{site.url}#token={TOKEN}")
    assert eventually(lambda: count(browser, "#tree .cable") == 48), browser.get_log("browser")


def count(browser: Any, selector: str) -> int:
    return int(browser.execute_script("return document.querySelectorAll(arguments[0]).length", selector))


def text(browser: Any, selector: str) -> str:
    return str(browser.execute_script("return document.querySelector(arguments[0]).innerText", selector))


def page_keys() -> Any:
    return pytest.importorskip("selenium.webdriver.common.keys").Keys


def choose(browser: Any, site: Site, port: str) -> None:
    """Click on the cable at a switch port."""
    browser.execute_script(
        "[...document.querySelectorAll('#tree .cable')].find(c => c.getAttribute('aria-label').includes(arguments[0]))"
        ".querySelector('.hit').dispatchEvent(new MouseEvent('click', {bubbles: true}))",
        port,
    )


def test_the_page_shows_the_network_its_flows_and_its_jobs(browser: Any, site: Site) -> None:
    show(browser, site)
    assert browser.execute_script("return [location.hash, document.title]") == ["", "Barewire: the network now"]
    assert eventually(lambda: "20 of 20 switches, 16 hosts, 32 links" in text(browser, "#counts"))
    assert count(browser, "#tree .node.switch") == 20 and count(browser, "#tree .node.host") == 16
    assert text(browser, "#headline").startswith("The busiest link is ") and "99 % of 5.00 Mb/s. No fault" in text(
        browser, "#headline"
    )
    assert "2 of 3, 8 flows" in text(browser, "#jobs")
    groups = {row.split("\t")[0]: row.split("\t") for row in text(browser, "#groups").splitlines()}
    assert groups["mpi"][2] == "announced" and int(groups["mpi"][3]) >= 8
    assert text(browser, "#tenants").split("\t")[:4] == ["physics", "h1, h2", "50 %", "100 %"]
    assert browser.get_log("browser") == []


def test_a_link_by_pointer_and_by_keyboard_says_who_is_on_it_and_why(browser: Any, site: Site) -> None:
    keys = page_keys()
    show(browser, site)
    choose(browser, site, "h1 to s13")
    assert text(browser, "#link-title") == "Link h1 – s13"
    on = text(browser, "#on-link")
    crossing = [
        route for route in site.world.controller.router.routes if "h1" in (route.key.source, route.key.destination)
    ]
    assert on.count("\n") + 1 == len(crossing) > 3, on
    assert "tcp h1:2001 → h16:5000" in on and f"mpi, of job {MARKUP}" in on
    assert all(f"stp: {route.why}, for " in on for route in crossing)
    active = browser.switch_to.active_element
    assert active.get_attribute("aria-pressed") == "true"
    active.send_keys(keys.ARROW_RIGHT)
    browser.switch_to.active_element.send_keys(keys.ENTER)
    assert text(browser, "#link-title") != "Link h1 – s13" and count(browser, "#tree [aria-pressed=true]") == 1
    assert count(browser, "#tree [tabindex='0']") == 1, "one stop of the tabulator for the whole network"
    browser.switch_to.active_element.send_keys(keys.ESCAPE)
    assert text(browser, "#link-title") == "A link"
    browser.execute_script("document.querySelector('#busiest button').focus()")
    browser.switch_to.active_element.send_keys(keys.ENTER)
    assert text(browser, "#link-title").startswith("Link ")
    assert browser.get_log("browser") == []


def test_what_comes_from_the_network_is_text(browser: Any, site: Site) -> None:
    site.call(site.feed.note, Event("host", MARKUP))
    show(browser, site)
    assert eventually(lambda: MARKUP in text(browser, "#events"))
    choose(browser, site, "h1 to s13")
    assert MARKUP in text(browser, "#jobs")
    assert count(browser, "img") == 0 and browser.title == "Barewire: the network now"


def test_the_token_is_asked_for_and_a_wrong_one_is_refused(browser: Any, site: Site) -> None:
    keys = page_keys()
    browser.get("about:blank")
    browser.get(site.url)
    assert text(browser, "#headline") == "The controller’s token is needed"
    for wrong, said in (
        ("short", "16 to 1024 printable"),
        ("wrong" * 5, "refused this token: send the header"),
        (TENANTS_TOKEN, "needs the operator's token"),
    ):
        browser.find_element("id", "token").send_keys(wrong + keys.ENTER)
        assert eventually(lambda said=said: said in text(browser, "#refused"))
    assert site.viewers == 0 and count(browser, "#tree .cable") == 0
    browser.find_element("id", "token").send_keys(TOKEN + keys.ENTER)
    assert eventually(lambda: count(browser, "#tree .cable") == 48)
    kept = browser.execute_script(
        "return [location.href, document.cookie, localStorage.length + sessionStorage.length,"
        "document.documentElement.outerHTML.includes(arguments[0]),"
        "performance.getEntriesByType('resource').map(e => e.name).filter(n => n.includes('token'))]",
        TOKEN,
    )
    assert kept == [site.url, "", 0, False, []]


def test_a_failed_link_is_named_and_a_controller_that_restarts_is_found_again(browser: Any, site: Site) -> None:
    show(browser, site)
    port = site.world.network.ports["s1"][0]
    site.call(site.world.set_link, port, False)
    site.call(site.world.settle)
    assert eventually(lambda: "Faults: 1 fault" in text(browser, "#headline"))
    assert f"{port} – {site.world.network.peers[port]}" in text(browser, "#faults")
    assert count(browser, "#tree .way.down") == 2
    site.end()
    assert eventually(lambda: text(browser, "#connection").startswith("Not connected since"))
    site.start()
    assert eventually(lambda: text(browser, "#connection") == "Connected.", 15)
    assert eventually(lambda: site.viewers == 1)


def test_a_connection_that_was_good_is_tried_again_soon_when_it_is_lost(browser: Any) -> None:
    """After five failures, and again after a connection that ends by an error; chance and waiting are left out."""
    browser.get("about:blank")
    waits = browser.execute_async_script(
        files(ui).joinpath("assets/stream.js").read_text()
        + """
        const done = arguments[0], waits = [], later = setTimeout;
        let asked = 0;
        Math.random = () => 0.5;
        window.setTimeout = (act, ms) => {
          if (ms === SILENCE_MS) return 0;
          if (waits.push(ms) === 7) done(waits);
          else later(act, 0);
        };
        window.fetch = async () => {
          if (++asked !== 6) throw new Error("nobody answers");
          return { ok: true, body: new ReadableStream({ start: (one) => one.error(new Error("it was reset")) }) };
        };
        follow("ui/events", "token", () => 0, () => 0);
        """
    )
    assert waits == [500, 1000, 2000, 5000, 10000, 500, 1000]


def test_of_too_many_links_it_is_said_that_they_are_not_drawn(
    browser: Any, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is below the number of links between switches, so some of these are missing too."""
    monkeypatch.setattr(cables, "CABLES_MAX", 30)
    site.end()
    site.start()
    browser.get("about:blank")
    browser.get(f"{site.url}#token={TOKEN}")
    said = "18 more links are not drawn; those to hosts are left out first."
    assert eventually(lambda: text(browser, "#left-out") == said), text(browser, "#left-out")


def test_states_that_arrive_one_by_one_are_all_shown(browser: Any, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow way the network, which is long, is there some frames before the load."""
    write = Ui._write

    async def one_by_one(ui: Ui, response: Any, data: bytes) -> None:
        for event in data.split(b"\n\n")[:-1]:
            await write(ui, response, event + b"\n\n")
            await asyncio.sleep(0.1)

    monkeypatch.setattr(Ui, "_write", one_by_one)
    browser.get("about:blank")
    browser.get(f"{site.url}#token={TOKEN}")
    assert eventually(lambda: count(browser, "#tree .cable") == 48)


def test_one_viewer_too_many_is_told_why(browser: Any, site: Site) -> None:
    site.end()
    site.start(viewers_max=0)
    browser.get("about:blank")
    browser.get(f"{site.url}#token={TOKEN}")
    assert eventually(lambda: "there may be 0: close one" in text(browser, "#connection"))


def test_progress_of_an_experiment_is_shown(browser: Any, site: Site) -> None:
    site.call(site.feed.set_experiment, {"text": "rings, planned", "done": 3, "total": 54})
    show(browser, site)
    assert eventually(lambda: text(browser, "#experiment-text") == "Experiment: rings, planned, 3 of 54 done")
    site.call(site.feed.set_experiment, None)
    assert eventually(lambda: browser.execute_script("return document.getElementById('experiment').hidden"))


@pytest.mark.parametrize("updates", [60, pytest.param(2000, marks=pytest.mark.matrix)])
def test_a_page_that_stays_open_does_not_grow(browser: Any, site: Site, updates: int) -> None:
    """Days are short here: the history is full, and loads, events and progress change with every update."""
    row = '{"at_s":1,"generation":0,"loads":[]}'
    site.call(lambda: [site.feed._remember(row) for _ in range(2 * HISTORY_ROWS_MAX)])
    show(browser, site)
    choose(browser, site, "h1 to s13")
    for step in range(EVENTS_MAX):
        site.call(site.feed.note, Event("test", f"event {step}"))

    def live() -> tuple[int, int, float]:
        """Let time pass; return the numbers of elements and of points, and the bytes of the heap."""
        until = site.feed.number + 3 * updates
        step = 0
        while site.feed.number < until:
            step += 1
            site.call(set_loads, site.world, (step % 7) / 7)
            site.call(site.feed.note, Event("test", f"event {step}"))
            site.call(site.feed.set_experiment, {"text": "x", "done": step % 9, "total": 9})
            time.sleep(PERIOD_S)
        browser.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        heap = browser.execute_cdp_cmd("Runtime.getHeapUsage", {})["usedSize"]
        points = browser.execute_script("return document.querySelector('#history polyline').points.length")
        return count(browser, "*"), points, heap

    # What the browser compiles meanwhile makes the heap grow once or twice, a leak each time.
    seen = [live(), live()]
    while seen[-1][2] >= 1.1 * seen[-2][2] and len(seen) < 5:
        seen.append(live())
    assert len({one[:2] for one in seen}) == 1 and seen[0][1] == HISTORY_ROWS_MAX
    assert seen[-1][2] < 1.1 * seen[-2][2], seen
    assert sum(map(len, site.feed._history)) == site.feed._history_bytes
    assert browser.get_log("browser") == []


LOOKS = [("desktop", "light"), ("phone", "dark"), ("phone", "light"), ("desktop", "dark")]


@pytest.mark.parametrize(
    ("device", "scheme"),
    [pytest.param(*look, marks=[] if at < 2 else pytest.mark.matrix) for at, look in enumerate(LOOKS)],
)
def test_axe_finds_nothing_serious_and_the_page_fits(browser: Any, site: Site, device: str, scheme: str) -> None:
    with emulated(browser, scheme=scheme):
        show(browser, site, device)
        assert fits(browser)
        choose(browser, site, "s5 to s1")
        assert fits(browser) and axe(browser) == []
        labels = browser.execute_script(
            "const texts = [...document.querySelectorAll('#tree text')];"
            "const boxes = texts.map(t => [t.textContent, t.getBoundingClientRect()]);"
            "const before = (a, b) => a.right <= b.left + 1 || a.bottom <= b.top + 1;"
            "return boxes.flatMap(([a, one], i) => boxes.slice(i + 1)"
            ".filter(([, other]) => !before(one, other) && !before(other, one)).map(([b]) => [a, b]))"
        )
        assert labels == []


def test_light_and_dark_differ(browser: Any, site: Site) -> None:
    show(browser, site)
    look = (
        "const style = (s) => getComputedStyle(document.querySelector(s));"
        "return [style('#tree .way.l4').stroke, style('#tree text').fill, style('body').backgroundColor]"
    )
    light = browser.execute_script(look)
    with emulated(browser, scheme="dark"):
        dark = browser.execute_script(look)
    assert all(one != other for one, other in zip(light, dark, strict=True))


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_link_with_the_token_is_printed_on_a_terminal_and_never_into_a_log(
    tmp_path: Path, is_terminal: bool
) -> None:
    """The command as an operator starts it; its page answers, and it ends at once with the page's stream open."""
    place = f"127.0.0.1:{free_port()}"
    reader, writer = pty.openpty() if is_terminal else os.pipe()
    command = [BAREWIRE, "sdn", "start", "--listen", f"unix:{tmp_path}/switches", "--api", place, "--ui"]
    process = subprocess.Popen([*command, "--token", str(tmp_path / "token")], stdout=writer)
    os.close(writer)
    said = ""
    try:
        while "ready: " not in said:
            said += os.read(reader, 4096).decode()
        token = (tmp_path / "token").read_text().strip()
        assert f"page: http://{place}/ui asks for the token in {tmp_path}/token" in said
        assert (f"open http://{place}/ui#token={token}" in said) is (token in said) is is_terminal
        request = Request(f"http://{place}/ui/events", headers={"Authorization": f"Bearer {token}"})
        with urlopen(request, timeout=10) as events:
            assert events.readline() == b"event: history\n"
            process.terminate()
            assert process.wait(5) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reader)
