"""Debian's Chromium for the tests: a fresh one, its screen, what it shows and what it complains about."""

from __future__ import annotations

import base64
import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

OUT = Path(__file__).resolve().parent.parent / "out" / "report"
"""Where pictures are kept for whoever wants to look."""

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-quic", "--hide-scrollbars",
]  # fmt: skip


@contextlib.contextmanager
def open_browser(folder: Path) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        pytest.skip("needs Debian's chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in [*FLAGS, f"--user-data-dir={folder}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    OUT.mkdir(parents=True, exist_ok=True)
    try:
        yield driver
    finally:
        driver.quit()


def set_screen(browser: Any, *, width: int = 1180, height: int = 900, scheme: str = "light", media: str = "screen"):
    device = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", device)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def keep(browser: Any, name: str, *, whole: bool = True) -> bytes:
    """Take a picture and keep it."""
    size = browser.execute_script("const e = document.documentElement; return [e.clientWidth, e.scrollHeight]")
    clip = {"x": 0, "y": 0, "scale": 1, "width": size[0], "height": size[1]}
    options = {"captureBeyondViewport": True, "clip": clip} if whole else {}
    data = base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", options)["data"])
    (OUT / f"{name}.png").write_bytes(data)
    return data


def complaints(browser: Any) -> list[Any]:
    return [entry for entry in browser.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]
