"""Devices that lack a dtype's path still answer: what is stored in 16 bits is computed in what there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmcap import estimate

DEVICE = """
schema: llmcap.device/1
id: plain-gpu
name: Plain
vendor: ACME
family: plain
peaks: {PEAKS}
compute_units: 30
memory: {capacity: 24 GB, marketing: 24 GB, bandwidth: 346 GB/s}
host_link: 16 GB/s
calibration: generic
sources:
  - {covers: [peaks, compute_units, memory, host_link], kind: assumed, ref: a device for a test}
"""
SERVER = """
schema: llmcap.server/1
id: plain-box
name: Plain box
vendor: ACME
device: plain-gpu
devices: 2
scale_up: {kind: pcie, bandwidth: 12 GB/s, all_to_all: false}
host: {cpu: any, sockets: 1, dram: {capacity: 256 GB, bandwidth: 100 GB/s}}
sources:
  - {covers: [devices, host, scale_up], kind: assumed, ref: a server for a test}
"""


@pytest.mark.parametrize("model", ["llama-3.2-1b", "gpt-oss-20b", "gpt2"])
@pytest.mark.parametrize("assumptions", ["calibrated", "ideal"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_one_peak_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, assumptions: str, model: str
) -> None:
    for folder, name, text in (("devices", "plain-gpu", DEVICE), ("servers", "plain-box", SERVER)):
        (tmp_path / "hardware" / folder).mkdir(parents=True, exist_ok=True)
        content = text.replace("{PEAKS}", f"{{{dtype}: 11.8 TFLOP/s}}")
        (tmp_path / "hardware" / folder / f"{name}.yaml").write_text(content, encoding="utf-8")
    monkeypatch.setenv("LLMCAP_PATH", str(tmp_path))
    answer = estimate(model=model, hardware="plain-box", context=1000, output_tokens=2, assumptions=assumptions)
    assert answer.fits
    machine = answer.setting.machine
    assert {machine.peak(d) for d in ("fp32", "bf16", "fp16", "fp8")} == {11.8e12}
    # 2 FLOP per parameter met and token cannot take less time than both devices need at their one peak.
    gemms = sum(2.0 * g.k * g.n * g.layers for g in answer.setting.operators.gemms)
    assert answer.results["ttft_s"] > 1000 * gemms / 11.8e12
    assert 0.0 < answer.results["mfu"] <= 1.0
