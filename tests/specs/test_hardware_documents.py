"""Every shipped hardware document: sound, sourced, and in agreement with the figures its makers publish."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from llmcap.specs.base import Document, dangling, dump_document, load_document, uncovered
from llmcap.specs.calibration import CalibrationDocument
from llmcap.specs.hardware import Device, Drive, Nic, Server, Store
from llmcap.specs.registry import find, list_ids, load_as, shipped_root

TYPES: dict[str, type[Document]] = {
    "device": Device,
    "drive": Drive,
    "nic": Nic,
    "store": Store,
    "server": Server,
}
EVERY = [(kind, name) for kind in TYPES for name in list_ids(kind)]

# Raw rate of one lane and direction [B/s], by PCIe generation (8 to 64 GT/s), and what its line code leaves.
LANE = {3: 1e9, 4: 2e9, 5: 4e9, 6: 8e9}
CODE = {3: 128 / 130, 4: 128 / 130, 5: 128 / 130, 6: 1.0}

# fp8 over bf16 is 2 by design; the exceptions and why.
FP8_OVER_BF16 = {"l40s": 733 / 362.05, "l4": 242.5 / 121, "gaudi3": 1.0}  # rounded twice; one rate for both
# nvfp4 over fp8 is 2 in the first Blackwell parts; Ultra trades for fp4, GeForce halves fp8 with fp32 sums.
NVFP4_OVER_FP8 = {"b300": 3.0, "gb300": 3.0, "rtx-5090": 4.0}

# GPU memory of a whole machine as its maker's page states it [bytes]; a rack's figure is rounded there.
PUBLISHED_MEMORY = {
    "dgx-a100-80gb": 640e9,
    "dgx-h100": 640e9,
    "dgx-h200": 1128e9,
    "dgx-b200": 1440e9,
    "dgx-b300": 2.3e12,
    "gb200-nvl72": 13.4e12,
    "gb300-nvl72": 20e12,
    "mi300x-8x": 1.536e12,
    "mi325x-8x": 2.048e12,
    "mi355x-8x": 2.304e12,
    "gaudi3-8x": 1.024e12,
    "dgx-spark": 128e9,
}
# Dense tensor rate of a whole machine [FLOP/s], half of the figure with sparsity on the product page.
PUBLISHED_FP8 = {
    "dgx-h100": 16e15,
    "dgx-h200": 16e15,
    "dgx-b200": 36e15,
    "dgx-b300": 36e15,
    "gb200-nvl72": 360e15,
    "gb300-nvl72": 360e15,
}
# NVLink of a whole machine, both directions [B/s].
PUBLISHED_NVLINK = {"dgx-h100": 7.2e12, "dgx-b200": 14.4e12, "gb200-nvl72": 130e12, "gb300-nvl72": 130e12}

PROMISED_SERVERS = {
    "dgx-b200",
    "dgx-b200-3.84tb",
    "dgx-b200-gen6",
    "dgx-h100",
    "dgx-h200",
    "dgx-b300",
    "gb200-nvl72",
    "gb300-nvl72",
    "dgx-a100-80gb",
    "gh200",
    "gh200-nvl32",
    "l40s-8x",
    "h20-8x",
    "h800-8x",
    "mi300x-8x",
    "mi325x-8x",
    "mi355x-8x",
    "gaudi3-8x",
}


def server(name: str) -> Server:
    return load_as(Server, "server", name).document


def device(name: str) -> Device:
    return load_as(Device, "device", name).document


def drive(name: str) -> Drive:
    return load_as(Drive, "drive", name).document


def nic(name: str) -> Nic:
    return load_as(Nic, "nic", name).document


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_loads_and_every_number_has_a_source(kind: str, name: str) -> None:
    document = load_as(TYPES[kind], kind, name).document
    assert document.id == name
    assert document.name
    assert uncovered(document) == []
    assert dangling(document) == []


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_survives_writing_and_reading(kind: str, name: str, tmp_path: Path) -> None:
    document = load_as(TYPES[kind], kind, name).document
    path = tmp_path / f"{name}.yaml"
    path.write_text(dump_document(document), encoding="utf-8")
    assert load_document(path, TYPES[kind]) == document


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_sources_are_public_or_openly_assumed(kind: str, name: str) -> None:
    """What a maker says needs an address or a repository; a file of ours is no source."""
    for source in load_as(TYPES[kind], kind, name).document.sources:
        assert not re.search(r"\.csv\b|/work/|localhost", source.ref), source.ref
        if source.kind in ("datasheet", "documentation"):
            assert re.search(r"https://|github\.com/|product brief", source.ref), source.ref


def test_the_promised_servers_are_there() -> None:
    names = list_ids("server")
    assert set(names) >= PROMISED_SERVERS
    assert len(names) >= 25


@pytest.mark.parametrize("name", list_ids("server"))
def test_a_server_names_only_what_exists(name: str) -> None:
    spec = server(name)
    for kind, wanted in (
        ("device", spec.device),
        ("drive", spec.nvme and spec.nvme.drive),
        ("nic", spec.nics and spec.nics.nic),
        ("nic", spec.storage_nics and spec.storage_nics.nic),
        ("store", spec.store),
    ):
        if wanted:
            assert find(kind, wanted).is_file()


@pytest.mark.parametrize("name", list_ids("device"))
def test_a_device_names_a_shipped_calibration(name: str) -> None:
    assert device(name).calibration in list_ids("calibration")


@pytest.mark.parametrize("name", list_ids("device"))
def test_efficiencies_are_shares_of_the_same_datasheet(name: str) -> None:
    """A calibration fitted to this very device must have been fitted against the figures given here."""
    spec = device(name)
    fitted = load_as(CalibrationDocument, "calibration", spec.calibration).document
    if fitted.device == name and fitted.reference is not None:
        assert fitted.reference.memory_bandwidth == pytest.approx(spec.memory.bandwidth, rel=5e-3)
        assert fitted.reference.compute_units == spec.compute_units
        for dtype, peak in fitted.reference.peaks.items():
            assert spec.peaks[dtype] == pytest.approx(peak, rel=5e-3)  # type: ignore[index]


def test_only_the_gen6_server_is_hypothetical() -> None:
    assert [name for name in list_ids("server") if server(name).hypothetical] == ["dgx-b200-gen6"]


@pytest.mark.parametrize("name", list_ids("device"))
def test_ratios_of_peaks(name: str) -> None:
    peaks = device(name).peaks
    assert peaks.get("fp16", peaks["bf16"]) == peaks["bf16"]
    if "fp8" in peaks:
        assert peaks["fp8"] / peaks["bf16"] == pytest.approx(FP8_OVER_BF16.get(name, 2.0), rel=1e-3)
    if "nvfp4" in peaks:
        assert peaks["nvfp4"] / peaks["fp8"] == pytest.approx(NVFP4_OVER_FP8.get(name, 2.0), rel=1e-3)
    if {"nvfp4", "mxfp4"} <= set(peaks):
        assert peaks["mxfp4"] == peaks["nvfp4"]
    if "fp32" in peaks:  # the vector rate, well below any tensor rate: TF32 would be half of bf16
        assert peaks["fp32"] < 0.3 * peaks["bf16"] or name.startswith(("rtx", "l4"))
    if "int8" in peaks and "fp8" in peaks:
        assert peaks["int8"] / peaks["fp8"] in (1.0, pytest.approx(2.0, rel=1e-2))


@pytest.mark.parametrize("name", [n for n in list_ids("device") if device(n).family == "ampere"])
def test_ampere_has_no_fp8(name: str) -> None:
    assert "fp8" not in device(name).peaks


@pytest.mark.parametrize("name", list_ids("device"))
def test_capacity_is_near_the_marketing_figure(name: str) -> None:
    memory = device(name).memory
    assert 0.97 * memory.marketing < memory.capacity < 1.0738 * memory.marketing  # at most GB counted as GiB


@pytest.mark.parametrize(("name", "total"), PUBLISHED_MEMORY.items())
def test_memory_of_the_machine(name: str, total: float) -> None:
    spec = server(name)
    assert spec.devices * device(spec.device).memory.marketing == pytest.approx(total, rel=6e-3)


@pytest.mark.parametrize(("name", "total"), PUBLISHED_FP8.items())
def test_tensor_rate_of_the_machine(name: str, total: float) -> None:
    spec = server(name)
    assert spec.devices * device(spec.device).peaks["fp8"] == pytest.approx(total, rel=0.02)


@pytest.mark.parametrize(("name", "total"), PUBLISHED_NVLINK.items())
def test_nvlink_of_the_machine(name: str, total: float) -> None:
    spec = server(name)
    assert 2 * spec.devices * spec.scale_up.bandwidth == pytest.approx(total, rel=6e-3)


def test_dgx_b200_is_the_machine_of_the_published_analysis() -> None:
    """1.44 TB of HBM sold, 4 TB of DRAM, 8 drives of 14 GB/s and 30.72 TB; 3.84 TB drives as shipped."""
    spec = server("dgx-b200")
    assert spec.nvme is not None
    fitted = drive(spec.nvme.drive)
    assert spec.nvme.count * fitted.capacity == pytest.approx(245.76e12)
    assert spec.nvme.count * fitted.read == pytest.approx(112e9)
    assert spec.host.dram.capacity == 4e12
    assert spec.host.dram.bandwidth == pytest.approx(2 * 8 * 5600e6 * 8)
    assert spec.devices * device("b200").memory.capacity == pytest.approx(1.53e12, rel=0.01)
    assert spec.devices * device("b200").host_link == pytest.approx(512e9)
    assert spec.store is None
    shipped = server("dgx-b200-3.84tb").nvme
    assert shipped is not None
    assert shipped.count * drive(shipped.drive).capacity == pytest.approx(30.72e12)


def test_gen6_differs_in_slots_and_drives_only() -> None:
    real, made_up = server("dgx-b200"), server("dgx-b200-gen6")
    assert made_up.nvme is not None
    assert made_up.nvme.count * drive(made_up.nvme.drive).read == pytest.approx(224e9)
    assert made_up.host_link == 2 * device("b200").host_link
    same = {
        "device",
        "devices",
        "scale_up",
        "host",
        "nics",
        "storage_nics",
        "tiers",
        "power",
        "direct_storage",
    }
    assert real.model_dump(include=same) == made_up.model_dump(include=same)


def test_the_short_drive_id_is_the_large_drive() -> None:
    facts = {"id", "schema_"}
    short, full = drive("micron-9550"), drive("micron-9550-pro-30.72tb")
    assert short.model_dump(exclude=facts) == full.model_dump(exclude=facts)


@pytest.mark.parametrize("name", list_ids("drive"))
def test_a_drive_fits_its_interface(name: str) -> None:
    spec = drive(name)
    match = re.fullmatch(r"PCIe Gen(\d) x(\d+)", spec.interface)
    assert match is not None
    generation, lanes = int(match[1]), int(match[2])
    assert spec.write <= spec.read <= lanes * LANE[generation] * CODE[generation]
    assert spec.random_read is None or spec.random_read * 4096 <= lanes * LANE[generation]
    assert spec.random_write is None or spec.random_write <= (spec.random_read or 0)


@pytest.mark.parametrize("name", list_ids("device"))
def test_host_links_are_nominal_link_rates(name: str) -> None:
    """Sixteen PCIe lanes, NVLink-C2C (whole, or shared by two GPUs), or the memory of a unified machine."""
    spec = device(name)
    nominal = {16 * LANE[4], 16 * LANE[5], 450e9, 225e9}
    assert spec.host_link in (nominal | {273e9} if name == "gb10" else nominal)


def test_cards_are_line_rates() -> None:
    gbit_s = {name: nic(name).bandwidth * 8 / 1e9 for name in list_ids("nic")}
    assert all(rate == pytest.approx(round(rate)) for rate in gbit_s.values())
    assert (gbit_s["connectx-6"], gbit_s["connectx-7"], gbit_s["connectx-8"]) == (200, 400, 800)


@pytest.mark.parametrize("name", list_ids("server"))
def test_dram_bandwidth_is_what_its_channels_give(name: str) -> None:
    """Where the source writes out sockets, channels and transfers, the product must be the stated figure."""
    spec = server(name)
    for source in spec.sources:
        match = re.match(r"(\d+) sockets? x (\d+) channels x ([\d,]+) MT/s x 8 bytes", source.ref)
        if match:
            sockets, channels, mt_s = (int(group.replace(",", "")) for group in match.groups())
            assert sockets == spec.host.sockets
            assert spec.host.dram.bandwidth == pytest.approx(sockets * channels * mt_s * 1e6 * 8)


@pytest.mark.parametrize("name", list_ids("server"))
def test_whole_machine_draws_more_than_its_devices(name: str) -> None:
    spec = server(name)
    watts = device(spec.device).power
    if spec.power is not None and watts is not None:
        assert spec.devices * watts < spec.power < 3.5 * spec.devices * watts + 500


def test_guide_for_a_new_server_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples of the guide load, name each other, and cover their numbers."""
    guide = shipped_root() / "docs" / "add-a-server.md"
    if not guide.exists():
        pytest.skip("an installed package has no docs folder")
    blocks = re.findall(r"```yaml\n(schema: .*?)```", guide.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 2
    monkeypatch.setenv("LLMCAP_PATH", str(tmp_path))
    for block in blocks:
        head = yaml.safe_load(block)
        kind = head["schema"].removeprefix("llmcap.").partition("/")[0]
        folder = tmp_path / "hardware" / f"{kind}s"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{head['id']}.yaml").write_text(block, encoding="utf-8")
    for block in blocks:
        head = yaml.safe_load(block)
        kind = head["schema"].removeprefix("llmcap.").partition("/")[0]
        document = load_as(TYPES[kind], kind, head["id"]).document
        assert uncovered(document) == [] and dangling(document) == []
        if isinstance(document, Server):
            assert find("device", document.device).is_file()
            assert document.nvme is not None and find("drive", document.nvme.drive).is_file()
