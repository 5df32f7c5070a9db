"""Exchange with the KV cache benchmark of MLPerf Storage: its results as a tier, a model as its configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import llmcap
from llmcap.analyses.offload.mlperf_storage import benchmark_config, read_results
from llmcap.analyses.offload.tier_table import tier_table
from llmcap.analyses.options import Options
from llmcap.analyses.setting import resolve
from llmcap.cli.app import run
from llmcap.errors import DocumentError

# Figures of a published run from files alone (mlcommons/storage, kv_cache_benchmark, January 2026): 98.67 GB in 5,474
# reads. The run's length is not part of the excerpt; 60 s stands for it.
PUBLISHED = {
    "total_read_bytes": 98666545152,
    "total_write_bytes": 7917535232,
    "total_read_gb": 91.890380859375,
    "read_iops": 5474,
    "nvme_read_device_p50_ms": 35.97741150588263,
}


def results(tmp_path: Path, stats: dict[str, Any], **summary: Any) -> Path:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"summary": {"cache_stats": stats, **summary}}), encoding="utf-8")
    return path


def test_bandwidth_is_in_gibibytes(tmp_path: Path) -> None:
    """The benchmark divides by 1024^3 and calls it gbps."""
    path = results(tmp_path, {"tier_storage_read_bandwidth_gbps": 10.0, "tier_storage_write_bandwidth_gbps": 2.0})
    assert read_results(path) == {"read": 10 * 2**30, "write": 2 * 2**30}


def test_older_results_give_bytes_of_the_run(tmp_path: Path) -> None:
    """98.67 GB in 60 s are 1.644 GB/s; an entry of 18.0 MB takes 11.0 of the 36.0 ms of a median read."""
    found = read_results(results(tmp_path, PUBLISHED, elapsed_time=60.0))
    assert found["read"] == pytest.approx(1.6444e9, rel=1e-4)
    assert found["write"] == pytest.approx(7917535232 / 60)
    assert found["latency"] == pytest.approx(0.03598 - 98666545152 / 5474 / 1.6444e9, abs=1e-5)
    assert PUBLISHED["total_read_bytes"] / 2**30 == pytest.approx(PUBLISHED["total_read_gb"])


def test_results_as_a_tier(tmp_path: Path) -> None:
    path = results(tmp_path, {"tier_storage_read_bandwidth_gbps": 10.0, "tier_storage_write_bandwidth_gbps": 2.0})
    answer = llmcap.estimate(context="1M", tiers=(f"nvme:30 TB:{path}",))
    nvme = answer.tiers[2]
    assert (nvme["tier"], nvme["capacity_bytes"], nvme["read_bytes_per_s"]) == ("nvme", 30e12, 10 * 2**30)
    assert any(spec["id"] == "results.json" for spec in answer.provenance["specs"])
    assert "store_s" in tier_table(context="1M", tiers=(f"nvme:30 TB:{path}",)).rows[2]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"summary": 3}', '{"summary": {"cache_stats": {}}}', '{"summary": {"cache_stats": {"a": 1}}}',
     '{"summary": {"elapsed_time": 0, "cache_stats": {"total_read_bytes": 5}}}', "[" * 100_000,
     '{"summary": {"cache_stats": {"tier_storage_read_bandwidth_gbps": NaN}}}',
     '{"summary": {"cache_stats": {"tier_storage_read_bandwidth_gbps": -1}}}'],
)  # fmt: skip
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DocumentError, match=r"r\.json"):
        read_results(path)
    with pytest.raises(DocumentError):
        read_results(tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("options", "per_token", "element"),
    [
        ({}, 2 * 8 * 128 * 12, 1),  # Maverick in fp8: the 12 global layers
        ({"model": "llama-3.1-70b"}, 2 * 8 * 128 * 80 * 2, 2),
        ({"model": "deepseek-v3", "hardware": "dgx-b200"}, 576 * 61, 1),
    ],
)
def test_the_configuration_gives_the_models_bytes(options: dict[str, Any], per_token: int, element: int) -> None:
    """The benchmark's own formula for a latent: layers x (kv_lora_rank + qk_rope_head_dim) x bytes of the dtype."""
    text = benchmark_config(resolve(Options(**options)), 8)
    config = next(iter(yaml.safe_load(text)["model_configs"].values()))
    sizes = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}
    assert sizes[config["dtype"]] == element
    rank = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    assert config["num_layers"] * rank * element == per_token
    assert "--num-users 8" in text


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kv.yaml"
    assert run(["tiers", "--context", "1k", "--users", "1,16", "--mlperf-config", str(path)]) == 0
    assert "configuration in" in capsys.readouterr().err
    assert "--num-users 16" in path.read_text(encoding="utf-8")
