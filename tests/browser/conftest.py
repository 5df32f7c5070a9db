"""A headless Chromium for the tests of pages; where there is none they are skipped with the reason.

One that is there and does not start fails the tests where $CI is set, as `.ci/run` does, and skips them elsewhere.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

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
    driver, reasons = None, []
    for _ in range(3):
        folder = tmp_path_factory.mktemp("chromium")
        options = Options()
        options.binary_location = chromium
        for flag in (*FLAGS, f"--user-data-dir={folder}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        log = folder.with_suffix(".log")
        try:
            driver = webdriver.Chrome(service=Service(chromedriver, log_output=str(log)), options=options)
            break
        except WebDriverException as error:
            last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-3:] if log.exists() else []
            reasons.append(" | ".join([str(error).splitlines()[0], *last]))
    if driver is None:
        _does_not_start(reasons[-1])
    driver.set_script_timeout(120)
    try:
        yield driver
    finally:
        driver.quit()


def _does_not_start(reason: str) -> NoReturn:
    """Where $CI is set a Chromium that does not start is a failure: tests that never run prove nothing."""
    message = f"Chromium is installed but does not start: {reason}"
    if limits := _limits():
        message += f". Limits of this shell that may be why (see ulimit -a): {', '.join(limits)}"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def _limits() -> list[str]:
    """Chromium reserves far more addresses than it uses: with `ulimit -v` set around the tests it dies at once."""
    try:
        import resource
    except ImportError:  # Windows
        return []
    kinds = {"address space": resource.RLIMIT_AS, "data": resource.RLIMIT_DATA, "file size": resource.RLIMIT_FSIZE}
    bounds = {name: resource.getrlimit(kind)[0] for name, kind in kinds.items()}
    return [f"{name} {bound:,} bytes" for name, bound in bounds.items() if bound != resource.RLIM_INFINITY]


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, as its Python package carries it."""
    package = pytest.importorskip("axe_core_python", reason="axe-core-python is not installed")
    (file,) = Path(package.__file__).parent.rglob("axe.min.js")
    return file.read_text(encoding="utf-8")
