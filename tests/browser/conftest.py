"""A headless Chromium for the tests of pages; where there is none they are skipped with the reason."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Without these Chromium looks for its maker's servers, which a test must not depend on.
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    chromedriver = shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("no Chromium and ChromeDriver here (Debian: apt-get install chromium chromium-driver)")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install -e '.[dev]'")
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    # On a busy machine a first start can fail where the next succeeds; each has a profile of its own.
    driver, reason = None, ""
    for _ in range(3):
        options = Options()
        options.binary_location = chromium
        for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        try:
            driver = webdriver.Chrome(service=Service(chromedriver), options=options)
            break
        except WebDriverException as error:
            reason = str(error).splitlines()[0]
    if driver is None:
        pytest.skip(f"Chromium does not start here: {reason}")
    driver.set_script_timeout(120)
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, as its Python package carries it."""
    package = pytest.importorskip("axe_core_python", reason="axe-core-python is not installed")
    (file,) = Path(package.__file__).parent.rglob("axe.min.js")
    return file.read_text(encoding="utf-8")
