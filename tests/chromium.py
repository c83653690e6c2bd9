# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Chromium under its driver, for tests of pages; what both kinds of pages are asked."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
AXE = ROOT / "target" / "tools" / "axe" / "axe_playwright_python" / "axe.min.js"
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
needs_chromium = pytest.mark.skipif(
    not (CHROMIUM.exists() and DRIVER.exists()),
    reason="needs Chromium and its driver: apt-get install chromium chromium-driver",
)


@contextmanager
def chromium(*flags: str) -> Iterator[Any]:
    """A browser with a profile of its own."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: make setup")
    service = pytest.importorskip("selenium.webdriver.chrome.service")
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for flag in (*FLAGS, *flags, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=service.Service(executable_path=str(DRIVER)))
        try:
            yield driver
        finally:
            driver.quit()


@contextmanager
def emulated(browser: Any, *, scheme: str = "light", media: str = "") -> Iterator[None]:
    def set_media(scheme: str, media: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})

    set_media(scheme, media)
    try:
        yield
    finally:
        set_media("light", "")


def fits(browser: Any) -> bool:
    """Whether the page does not scroll sideways."""
    return bool(browser.execute_script("return document.documentElement.scrollWidth <= innerWidth"))


def axe(browser: Any) -> list[tuple[str, str, list[str]]]:
    """Rule, impact and places of everything serious or critical."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: setup/setup.sh test")
    browser.execute_script(AXE.read_text())
    result = browser.execute_async_script(
        "const done = arguments[0]; axe.run({resultTypes: ['violations']}).then(done, e => done(String(e)))"
    )
    assert isinstance(result, dict), result
    return [
        (found["id"], found["impact"], [str(node["target"]) for node in found["nodes"]][:5])
        for found in result["violations"]
        if found["impact"] in ("serious", "critical")
    ]
