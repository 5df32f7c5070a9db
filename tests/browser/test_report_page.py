"""The report in a browser: opens offline without an error, sorts, filters, prints, and is accessible.

Pictures of the page at both widths are left in the folder that $LLMCAP_SCREENSHOTS names, to be looked at.
"""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import Any

import pytest

from llmcap.analyses.sweeps.survey import Survey
from llmcap.report.document import Report, table_of
from llmcap.report.html import report_html
from llmcap.report.scenario_report import scenario_report
from llmcap.specs.registry import load_as
from llmcap.specs.scenario import Scenario

WIDTHS = (1280, 390)
BAD = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>\" onclick=\"window.hacked = 3"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    scenario = load_as(Scenario, "scenario", "million-token-context").document
    made = scenario_report(Survey(scenario), "llmcap report million-token-context -o report.html")
    return _written(report_html(made), tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def small_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same page with fewer rows."""
    scenario = load_as(Scenario, "scenario", "million-token-context").document
    made = scenario_report(Survey(scenario, most_cases=60, listed_cases=8), "llmcap report million-token-context")
    return _written(report_html(made), tmp_path_factory.mktemp("page") / "small.html")


def _written(text: str, file: Path) -> str:
    file.write_text(text, encoding="utf-8")
    return file.as_uri()


def _open(browser: Any, address: str, width: int = 1280, *, dark: bool = False, script: bool = True) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not script})
    browser.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    browser.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    browser.get_log("browser")
    browser.get(address)


def _column(browser: Any, table: str, head: str) -> list[str]:
    return list(
        browser.execute_script(
            """
            const table = document.querySelector(`[data-table="${arguments[0]}"] table`);
            const heads = Array.from(table.tHead.rows[0].cells, (cell) => cell.textContent.trim());
            const column = heads.indexOf(arguments[1]);
            return Array.from(table.tBodies[0].rows).filter((row) => !row.hidden)
              .map((row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim());
            """,
            table,
            head,
        )
    )


def _press(browser: Any, table: str, head: str, key: str | None = None) -> str | None:
    from selenium.webdriver.common.by import By

    path = f"//div[@data-table='{table}']//th[normalize-space()='{head}']"
    button = browser.find_element(By.XPATH, f"{path}/button")
    if key is None:
        browser.execute_script("arguments[0].click()", button)
    else:
        button.send_keys(key)
    found = browser.find_element(By.XPATH, path).get_attribute("aria-sort")
    return None if found is None else str(found)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_opens_offline_without_a_word_and_loads_nothing(browser: Any, page: str, width: int, dark: bool) -> None:
    _open(browser, page, width, dark=dark)
    assert browser.title == "The million-token table"
    assert browser.get_log("browser") == []
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []
    background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") is not dark


def test_columns_sort_by_number_up_and_down_with_the_mouse_and_the_keyboard(browser: Any, page: str) -> None:
    _open(browser, page)
    before = [float(v) for v in _column(browser, "cases", "time to first token")]
    assert _press(browser, "cases", "time to first token") == "ascending"
    assert [float(v) for v in _column(browser, "cases", "time to first token")] == sorted(before)
    assert _press(browser, "cases", "time to first token", "\ue007") == "descending"  # the key Enter
    assert [float(v) for v in _column(browser, "cases", "time to first token")] == sorted(before, reverse=True)
    assert _press(browser, "cases", "limit") == "ascending"
    words = _column(browser, "cases", "limit")
    assert words == sorted(words)
    script = "return document.querySelectorAll('[data-table=cases] th[aria-sort]').length"
    assert browser.execute_script(script) == 1


def test_rows_without_a_value_stay_last(browser: Any, page: str) -> None:
    _open(browser, page)
    for _ in range(2):
        _press(browser, "cases", "TTFT, low")
        shown = _column(browser, "cases", "TTFT, low")
        numbers = [v for v in shown if v != "-"]
        assert 0 < len(numbers) < len(shown)
        assert shown == [*numbers, *["-"] * (len(shown) - len(numbers))]


def test_words_and_choices_filter_the_rows_and_the_count_is_told(browser: Any, page: str) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select

    _open(browser, page)
    block = browser.find_element(By.XPATH, "//div[@data-table='cases']")
    count = block.find_element(By.TAG_NAME, "output")
    everything = len(_column(browser, "cases", "users"))
    assert count.text == f"{everything} rows"
    assert count.get_attribute("aria-live") == "polite"
    block.find_element(By.CSS_SELECTOR, "input[type=search]").send_keys("gen6 Calibrated")
    assert set(_column(browser, "cases", "override")) == {"gen6"}
    assert set(_column(browser, "cases", "assumptions")) == {"calibrated"}
    some = len(_column(browser, "cases", "users"))
    assert count.text == f"{some} of {everything} rows"
    labels = block.find_elements(By.TAG_NAME, "label")
    (limit,) = [label for label in labels if label.text.startswith("limit")]
    Select(limit.find_element(By.TAG_NAME, "select")).select_by_visible_text("compute")
    assert set(_column(browser, "cases", "limit")) == {"compute"}
    assert len(_column(browser, "cases", "users")) < some
    # The other tables keep their rows.
    assert len(_column(browser, "claims", "id")) == 12


def test_every_figure_says_what_it_shows(browser: Any, page: str) -> None:
    _open(browser, page)
    figures = browser.execute_script(
        """
        return Array.from(document.querySelectorAll("figure"), (figure) => {
          const picture = figure.querySelector("[role=img]"), svg = figure.querySelector("svg");
          const box = svg.getBoundingClientRect();
          return [picture.getAttribute("aria-label"), figure.querySelector("figcaption").textContent.trim(),
            svg.getAttribute("aria-hidden"), box.width, box.height];
        });
        """
    )
    assert len(figures) >= 3
    for label, caption, hidden, width, height in figures:
        assert len(label) > 60 and len(caption) > 10
        assert hidden == "true"
        assert width > 300 and height > 150


def test_without_scripts_the_page_reads_and_has_no_dead_controls(browser: Any, page: str) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    _open(browser, page, script=False)
    try:
        # Without scripts the driver does not wait for the page: poll until its rows are there.
        rows = WebDriverWait(browser, 60).until(
            lambda b: (found := b.find_elements(By.CSS_SELECTOR, "tbody tr")) and len(found) > 50 and found
        )
        assert len(rows) > 50
        assert not browser.find_elements(By.CSS_SELECTOR, "button, input, select")
        assert "Reproduce" in browser.find_element(By.TAG_NAME, "main").text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)], ids=["light-1280", "dark-390"])
def test_axe_has_no_serious_finding(browser: Any, small_page: str, axe: str, width: int, dark: bool) -> None:
    _open(browser, small_page, width, dark=dark)
    browser.execute_script(axe)
    # What is inside the drawings is hidden from assistive technology, and looking at every letter takes minutes.
    found = browser.execute_async_script(
        """
        const done = arguments[arguments.length - 1];
        axe.run({ exclude: [["svg"]] }, { preload: false, resultTypes: ["violations"] })
          .then((result) => done(result.violations), (error) => done([{ id: String(error), impact: "critical" }]));
        """
    )
    grave = [
        (f["id"], f.get("help"), [node["target"] for node in f.get("nodes", [])][:3])
        for f in found if f["impact"] in ("serious", "critical")
    ]  # fmt: skip
    assert grave == []


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_overlaps_and_nothing_is_cut_off(browser: Any, page: str, width: int) -> None:
    _open(browser, page, width)
    _keep_picture(browser, width)
    whole, visible = browser.execute_script(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert whole <= visible, "the page scrolls sideways"
    wide = browser.execute_script(
        """
        const limit = document.documentElement.clientWidth + 1;
        return Array.from(document.querySelectorAll("body *"))
          .filter((e) => !e.closest(".scroll") && !e.closest("svg") && e.getBoundingClientRect().right > limit)
          .map((e) => e.outerHTML.slice(0, 80));
        """
    )
    assert wide == []
    overlapping = browser.execute_script(
        """
        const picked = "h1, h2, h3, figure, .scroll, .tools, .answer p, dt, dd, pre, .note";
        const boxes = Array.from(document.querySelectorAll(picked), (e) => [e, e.getBoundingClientRect()]);
        const found = [];
        const apart = (p, q) => p.right <= q.left + 1 || q.right <= p.left + 1 ||
          p.bottom <= q.top + 1 || q.bottom <= p.top + 1;
        for (const [i, [a, p]] of boxes.entries()) for (const [b, q] of boxes.slice(i + 1)) {
          if (apart(p, q) || a.contains(b) || b.contains(a)) continue;
          found.push([a.outerHTML.slice(0, 60), b.outerHTML.slice(0, 60)]);
        }
        return found;
        """
    )
    assert overlapping == []
    clipped = browser.execute_script(
        """
        return Array.from(document.querySelectorAll("td, th, h1, h2, h3, p, dd, figcaption"))
          .filter((e) => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline")
          .map((e) => e.outerHTML.slice(0, 100));
        """
    )
    assert clipped == []


def _keep_picture(browser: Any, width: int) -> None:
    folder = os.environ.get("LLMCAP_SCREENSHOTS")
    if not folder:
        return
    height = browser.execute_script("return document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / f"report-{width}.png").write_bytes(base64.b64decode(shot["data"]))


def test_it_prints(browser: Any, page: str) -> None:
    _open(browser, page)
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
    content = base64.b64decode(printed["data"])
    assert content.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", content)) > 3


def test_hostile_text_stays_text(browser: Any, tmp_path: Path) -> None:
    rows = [{"model": BAD, "ttft_s": 1.0}, {"model": "b", "ttft_s": 2.0}]
    made = Report(
        title=BAD, question=BAD, answer=[BAD], pictures=[], tables=[table_of("t", BAD, rows, ("model", "ttft_s"))],
        command=BAD, notes=[BAD], documents=[(BAD, BAD, BAD)], version=BAD,
    )  # fmt: skip
    _open(browser, _written(report_html(made), tmp_path / "bad.html"))
    _press(browser, "t", "model")
    assert browser.execute_script("return window.hacked") is None
    assert browser.title.startswith("<script>")
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
