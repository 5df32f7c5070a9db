"""Models and servers as lists and data sheets: what the documents say, and what follows without a question."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llmcap.analyses.machine import compose
from llmcap.analyses.options import DTYPES, KV_POLICIES, Options, count
from llmcap.analyses.setting import model_and_digest
from llmcap.arch.dtypes import NARROW
from llmcap.arch.parameters import (
    WeightDtypes,
    parameters_active,
    parameters_by_class,
    parameters_total,
    weight_bytes,
)
from llmcap.arch.parts import StateTerm
from llmcap.arch.state import (
    bytes_by_kind,
    bytes_per_token,
    constant_bytes,
    reserved_bytes,
    slot_bytes,
    state_bytes,
    state_terms,
)
from llmcap.arch.structure import Parallelism, Structure, structure_of
from llmcap.errors import OptionError, did_you_mean, printable
from llmcap.specs.base import Document
from llmcap.specs.engine import Engine
from llmcap.specs.hardware import Device, Drive, Server
from llmcap.specs.model import Model
from llmcap.specs.registry import list_ids, load_as
from llmcap.specs.transfers import Transfers

Row = dict[str, Any]
_KEPT_WIDE = ("embedding", "lm_head", "norm", "router")


def model_rows() -> list[Row]:
    """One row per shipped model (and those of $LLMCAP_PATH), in the order of their ids."""
    return [_model_row(load_as(Model, "model", name).document) for name in list_ids("model")]


def _model_row(model: Model) -> Row:
    structure = structure_of(model)
    kv_dtype = default_kv_dtype(model)
    return {
        "id": model.id,
        "name": model.name,
        "parameters_total": parameters_total(structure),
        "parameters_active": parameters_active(structure),
        "layers": structure.layers,
        "state": ", ".join(dict.fromkeys(term.kind for term, _ in state_terms(structure))),
        "weight_dtype": model.weight_dtype,
        "kv_dtype": kv_dtype,
        "kv_bytes_per_token": whole(float(bytes_per_token(structure, float(model.max_context), kv_dtype))),
        "max_context": model.max_context,
        "huggingface": list(model.huggingface),
    }


def model_sheet(
    name: str, *, context: int | str | None = None, kv_dtype: str | None = None, tp: int | str = 1,
    kv_policy: str = "hybrid", engine: str = "vllm",
) -> Row:  # fmt: skip
    """Everything about a model that does not depend on hardware.

    Parameters
    ----------
    name : str
        Id, Hugging Face id, YAML document, config.json or its folder.
    context : int or str, optional
        Tokens of one sequence; the model's limit when left out. [tokens]
    kv_dtype : str, optional
        As `estimate` chooses when left out.
    tp : int or str
        Devices the reserved bytes are spread over, copies counted.
    kv_policy : {"hybrid", "all-full"}
    engine : str
        Whose block size rounds the reserved bytes.

    Returns
    -------
    dict
        id, name, parameters, weights, and under `kv` the bytes of one sequence in all and per layer kind, each with the
        formula that gives it.
    """
    model, used = model_and_digest(name)
    structure = structure_of(model)
    tokens = count("context", model.max_context if context is None else context)
    dtype = _choice("--kv-dtype", kv_dtype, DTYPES) if kv_dtype else default_kv_dtype(model)
    policy = _choice("--kv-policy", kv_policy, KV_POLICIES)
    p = Parallelism(tp=count("tp", tp))
    if structure.query_heads % p.tp:
        raise OptionError("--tp", f"tp {p.tp} does not divide the {structure.query_heads} query heads of the model",
                          "choose a divisor of them")  # fmt: skip
    block = load_as(Engine, "engine", engine).document.kv_block
    kinds = bytes_by_kind(structure, tokens, dtype, p, policy=policy, block=block)
    per_kind = [
        {
            "kind": kind.kind,
            "layers": kind.layers,
            "bytes": whole(kind.bytes),
            "bytes_reserved": whole(kind.bytes_reserved),
            "constant": kind.constant,
            "formula": "; ".join(_formulas(structure, dtype, kind.kind, kind.constant)),
        }
        for kind in kinds
    ]
    dtypes = WeightDtypes(model.weight_dtype, tuple(sorted(_stored(model).items())), model.int4_group)
    return {
        "id": model.id,
        "name": model.name,
        "family": model.family,
        "huggingface": list(model.huggingface),
        "max_context": model.max_context,
        "layers": structure.layers,
        "parameters_total": parameters_total(structure),
        "parameters_active": parameters_active(structure),
        "parameters_by_class": parameters_by_class(structure),
        "weight_dtype": model.weight_dtype,
        "weight_bytes": whole(weight_bytes(structure, dtypes)),
        "context_tokens": tokens,
        "kv_dtype": dtype,
        "kv_policy": policy,
        "tp": p.tp,
        "kv": {
            "bytes_total": whole(float(state_bytes(structure, tokens, dtype))),
            "bytes_reserved": whole(float(reserved_bytes(structure, tokens, dtype, p, policy=policy, block=block))),
            "bytes_constant": whole(constant_bytes(structure, dtype)),
            "bytes_per_token": whole(float(bytes_per_token(structure, tokens, dtype))),
            "per_kind": per_kind,
        },
        "sources": source_rows(model),
        "notes": model.notes,
        "sha256": used.sha256,
    }


def default_kv_dtype(model: Model) -> str:
    """fp8 when the weights take 8 bits or fewer, else bf16."""
    return "fp8" if model.weight_dtype in NARROW else "bf16"


def _stored(model: Model) -> dict[str, str]:
    """Weight classes that are stored otherwise than the bulk: quantised checkpoints keep the ends and routers wide."""
    wide = dict.fromkeys(_KEPT_WIDE, "bf16") if model.weight_dtype in NARROW else {}
    return wide | {str(part): str(dtype) for part, dtype in model.weight_dtypes.items()}


def _formulas(structure: Structure, kv_dtype: str, kind: str, constant: bool) -> Iterator[str]:
    for term, layers in state_terms(structure):
        if (term.kind, term.constant) == (kind, constant):
            yield f"{layers:,} layers x {_slots(term)}{slot_bytes(term, kv_dtype, structure):,.10g} B"


def _slots(term: StateTerm) -> str:
    if term.constant:
        return ""
    kept = "T" if term.cap is None else f"min(T, {term.cap:,})"
    return f"{kept} x " if term.stride == 1 else f"floor({kept} / {term.stride:,}) x "


def source_rows(document: Document) -> list[Row]:
    """Where a document's numbers come from."""
    return [
        {"covers": list(s.covers), "kind": s.kind, "ref": s.ref, "note": s.note, "alternatives": list(s.alternatives)}
        for s in document.sources
    ]


def server_rows() -> list[Row]:
    """One row per shipped server (and those of $LLMCAP_PATH), in the order of their ids."""
    return [_server_row(load_as(Server, "server", name).document) for name in list_ids("server")]


def _server_row(server: Server) -> Row:
    device = load_as(Device, "device", server.device).document
    drive = load_as(Drive, "drive", server.nvme.drive).document if server.nvme else None
    drives = server.nvme.count if server.nvme else 0
    return {
        "id": server.id,
        "name": server.name,
        "vendor": server.vendor,
        "devices": server.devices,
        "device": device.name,
        "hbm_bytes": whole(device.memory.capacity * server.devices),
        "hbm_bytes_per_s": whole(device.memory.bandwidth * server.devices),
        "peak_bf16_flop_per_s": whole(device.peaks.get("bf16", 0.0) * server.devices) or None,
        "peak_fp8_flop_per_s": whole(device.peaks.get("fp8", 0.0) * server.devices) or None,
        "dram_bytes": whole(server.host.dram.capacity) if server.host.dram.capacity else None,
        "nvme_bytes": whole(drive.capacity * drives) if drive else None,
        "nvme_read_bytes_per_s": whole(drive.read * drives) if drive else None,
        "hypothetical": server.hypothetical,
    }


def server_sheet(name: str, *, engine: str = "vllm") -> Row:
    """A server with its parts, its tiers and the path from each tier to the devices.

    Parameters
    ----------
    name : str
        Id or YAML document.
    engine : str
        Whose reload paths are laid out.

    Returns
    -------
    dict
        Peaks in FLOP/s, capacities in B, bandwidths in B/s, one direction; `sources` of every document that counts.
    """
    loaded = load_as(Server, "server", name)
    server = loaded.document
    transfers = load_as(Transfers, "transfers", "default").document
    machine = compose(Options(hardware=name), load_as(Engine, "engine", engine).document, transfers)
    device = machine.device
    parts: list[Document] = [server, device]
    parts += [load_as(Drive, "drive", server.nvme.drive).document] if server.nvme else []
    return {
        **_server_row(server),
        "peaks_flop_per_s": {dtype: whole(peak) for dtype, peak in device.peaks.items()},
        "memory": {
            "capacity_bytes": whole(device.memory.capacity),
            "marketing_bytes": whole(device.memory.marketing),
            "read_bytes_per_s": whole(device.memory.bandwidth),
        },
        "links": {
            "scale_up": server.scale_up.kind,
            "scale_up_bytes_per_s": whole(server.scale_up.bandwidth),
            "host_bytes_per_s": whole(machine.device_link.bandwidth),
            "nic_bytes_per_s": None if machine.nic_bandwidth is None else whole(machine.nic_bandwidth),
        },
        "calibration": device.calibration,
        "tiers": [
            {
                "tier": tier.name,
                "capacity_bytes": whole(tier.capacity),
                "path": [{"hop": hop.name, "read_bytes_per_s": whole(hop.bandwidth)} for hop in tier.shared],
            }
            for tier in machine.tiers
        ],
        "sources": [{"document": part.id, **row} for part in parts for row in source_rows(part)],
        "notes": server.notes,
        "provenance": [document.row() for document in machine.documents],
    }


def whole(number: float) -> int | float:
    """An integer where nothing is lost."""
    return int(number) if float(number).is_integer() else number


def _choice(option: str, value: str, choices: tuple[str, ...]) -> str:
    plain = value.strip().lower()
    if plain not in choices:
        hint = f"{did_you_mean(plain, choices)} One of {', '.join(choices)}".strip()
        raise OptionError(option, f"'{printable(value, 40)}' is unknown", hint)
    return plain
