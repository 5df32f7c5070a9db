"""A server whose processor and device share one memory: nothing is counted twice, and nonsense is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import llmcap
from llmcap.analyses.documents.document_checks import check_documents
from llmcap.analyses.offload.mlperf_storage import benchmark_config
from llmcap.analyses.options import Options
from llmcap.analyses.setting import Setting, resolve
from llmcap.errors import DocumentError, OptionError
from llmcap.specs.registry import find

SPARK: dict[str, Any] = {"model": "llama-3.1-8b", "hardware": "dgx-spark", "context": 32_000, "output_tokens": 1000}
GIB = 2.0**30


def setting(hardware: str) -> Setting:
    return resolve(Options(model="llama-3.1-8b", hardware=hardware))


def changed(tmp_path: Path, *changes: tuple[str, str], name: str = "dgx-spark") -> Path:
    text = Path(find("server", name)).read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    file = tmp_path / "server.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_memory_by_hand() -> None:
    """(121.69 - 19.5) GiB for the engine, of which vLLM takes its fixed part, weights and work space first."""
    answer = llmcap.estimate(**SPARK)
    engine = answer.setting.engine
    assert engine.memory_share == pytest.approx((121.69 - 19.5) / 121.69)
    left = (121.69 - 19.5) * GIB - engine.memory_fixed - answer.results["weight_bytes_per_device"]
    # 32 layers x 2 x 8 heads x 128 numbers of 2 bytes: 131,072 bytes a token, in whole blocks of 16; work space 1.21 GB
    assert answer.results["max_users_hbm"] == int((left - 1.21e9) // (131_072 * 33_008)) == 20
    assert [row["tier"] for row in answer.tiers] == ["hbm", "nvme"]
    assert any(statement["name"] == "unified memory" for statement in answer.assumptions)


def test_a_share_below_what_is_left_stays(tmp_path: Path) -> None:
    """A system that keeps little does not raise the engine's own share."""
    file = changed(tmp_path, ("kept: 19.5 GiB", "kept: 1 GiB"))
    assert setting(str(file)).engine.memory_share == setting("gh200").engine.memory_share


@pytest.mark.parametrize("options", [{"dram": "64 GB"}, {"tiers": ("dram:64 GB:100 GB/s",)}])
def test_no_dram_is_added(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="one memory"):
        llmcap.estimate(**SPARK, **options)


def test_no_plan_of_dram() -> None:
    with pytest.raises(OptionError, match=r"--dram-min.*one memory"):
        llmcap.plan("dram-min", **SPARK, sessions=10)


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        ("dgx-spark", "bandwidth: 273 GB/s\n", "bandwidth: 273 GB/s\n    capacity: 8 GB\n", "leave it out"),
        ("dgx-spark", "bandwidth: 273 GB/s\n", "bandwidth: 273 GB/s\n    power: 10 W\n", "leave it out"),
        ("dgx-spark", "power: 240 W", "tiers: [{name: dram, capacity: 8 GB, read: 9 GB/s, latency: 0 s}]", "no DRAM"),
        ("gh200", "    capacity: 480 GB\n", "", "capacity is missing"),
    ],
)
def test_documents_that_contradict_themselves(tmp_path: Path, name: str, old: str, new: str, told: str) -> None:
    file = changed(tmp_path, (old, new), name=name)
    with pytest.raises(DocumentError, match=told):
        llmcap.estimate(**SPARK | {"hardware": str(file)})


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [("kept: 19.5 GiB", "kept: 130 GiB", "leaves nothing"), ("bandwidth: 273 GB/s", "bandwidth: 400 GB/s", "the same")],
)
def test_check_compares_with_the_device(tmp_path: Path, old: str, new: str, told: str) -> None:
    with pytest.raises(DocumentError) as caught:
        check_documents(("server",), [str(changed(tmp_path, (old, new)))])
    assert told in str(caught.value)


def test_benchmark_without_host_memory() -> None:
    assert "--cpu-mem-gb 0 " in benchmark_config(setting("dgx-spark"), 1)
