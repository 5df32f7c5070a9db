"""Lists and data sheets of models and servers as plain text, units beside every figure."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from llmcap.errors import printable
from llmcap.report.tables import Row, plain_table
from llmcap.units import format_bytes, format_flop_rate, format_rate


def models_table(rows: Sequence[Row], width: int) -> str:
    """One line a model: size, layer kinds, growth of its state, and limits."""
    shown = [
        {
            "id": row["id"],
            "parameters": _billions(row["parameters_total"]),
            "active": _billions(row["parameters_active"]),
            "layers": row["layers"],
            "weights": row["weight_dtype"],
            "KV/token": f"{format_bytes(row['kv_bytes_per_token'])} {row['kv_dtype']}",
            "context": f"{row['max_context']:,}",
            "state": row["state"],
        }
        for row in rows
    ]
    columns = ["id", "parameters", "active", "layers", "weights", "KV/token", "context", "state"]
    right = ("parameters", "active", "KV/token", "context")
    table = _fitting(shown, columns, ("state", "layers", "weights", "active", "context"), right, width)
    return table + f"{len(rows)} models; 'llmcap models show ID' explains one\n"


def servers_table(rows: Sequence[Row], width: int) -> str:
    """One line a server: devices, their memory and peak, and what can hold caches."""
    shown = [
        {
            "id": row["id"] + ("*" if row["hypothetical"] else ""),
            "devices": f"{row['devices']} x {row['device']}",
            "HBM": format_bytes(row["hbm_bytes"]),
            "HBM read": format_rate(row["hbm_bytes_per_s"], "B/s"),
            "bf16 peak": _flop_rate(row["peak_bf16_flop_per_s"]),
            "DRAM": "-" if row["dram_bytes"] is None else format_bytes(row["dram_bytes"]),
            "NVMe": "-" if row["nvme_bytes"] is None else format_bytes(row["nvme_bytes"]),
            "NVMe read": "-" if row["nvme_bytes"] is None else format_rate(row["nvme_read_bytes_per_s"], "B/s"),
        }
        for row in rows
    ]
    rest = ["HBM", "HBM read", "bf16 peak", "DRAM", "NVMe", "NVMe read"]
    star = "; * is not sold by anyone" if any(row["hypothetical"] for row in rows) else ""
    table = _fitting(shown, ["id", "devices", *rest], ("NVMe read", "HBM read", "bf16 peak", "devices"), rest, width)
    return table + f"{len(rows)} servers{star}; 'llmcap hardware show ID' explains one\n"


def _fitting(
    rows: Sequence[Row], columns: list[str], droppable: Sequence[str], right: Collection[str], width: int
) -> str:
    """A table without as many of the droppable columns, in their order, as make it fit."""
    table = plain_table(rows, columns, right)
    for column in droppable:
        if max(len(line) for line in table.split("\n")) <= width:
            break
        columns = [name for name in columns if name != column]
        table = plain_table(rows, columns, right)
    return table


def model_page(sheet: Mapping[str, Any], width: int) -> str:
    """A model's parameters and the memory of one sequence, each component with its formula and source."""
    kv = sheet["kv"]
    total = sheet["parameters_total"]
    lines = [
        f"{printable(sheet['name'])} ({printable(sheet['id'])})",
        f"{sheet['layers']} layers, context limit {sheet['max_context']:,} tokens",
        "",
        f"Parameters {total:,}, of which a token meets {sheet['parameters_active']:,}",
        *_indented(
            plain_table(
                [
                    {"class": name, "parameters": f"{n:,}", "share": f"{n / total:.1%}"}
                    for name, n in sheet["parameters_by_class"].items()
                    if n
                ],
                right=("parameters", "share"),
            )
        ),
        f"Weights {format_bytes(sheet['weight_bytes'])} as released ({sheet['weight_dtype']})",
        "",
        *_wrapped(
            f"State of one sequence of T = {sheet['context_tokens']:,} tokens in {sheet['kv_dtype']}: "
            f"{format_bytes(kv['bytes_total'])} ({kv['bytes_total']:,} bytes)",
            width,
            "",
            "  ",
        ),
        *_indented(
            plain_table(
                [
                    {
                        "kind": kind["kind"],
                        "bytes": f"{kind['bytes']:,}",
                        "reserved": f"{kind['bytes_reserved']:,}",
                        "formula": kind["formula"],
                    }
                    for kind in kv["per_kind"]
                ],
                right=("bytes", "reserved"),
            )
        ),
        f"One more token: {format_bytes(kv['bytes_per_token'])}. Constant part: {format_bytes(kv['bytes_constant'])}.",
        f"An engine reserves {format_bytes(kv['bytes_reserved'])} with tp {sheet['tp']}, policy {sheet['kv_policy']}.",
    ]
    return _page(lines, sheet, width)


def server_page(sheet: Mapping[str, Any], width: int) -> str:
    """A server's parts, links and tiers, with their sources."""
    memory, links = sheet["memory"], sheet["links"]
    peaks = ", ".join(f"{dtype} {format_flop_rate(peak)}" for dtype, peak in sheet["peaks_flop_per_s"].items())
    nic = "none" if links["nic_bytes_per_s"] is None else format_rate(links["nic_bytes_per_s"], "B/s")
    tiers = [
        {
            "tier": tier["tier"],
            "capacity": format_bytes(tier["capacity_bytes"]),
            "path to the devices": " > ".join(
                f"{hop['hop']} {format_rate(hop['read_bytes_per_s'], 'B/s')}" for hop in tier["path"]
            )
            + f" > device links {format_rate(links['host_bytes_per_s'] * sheet['devices'], 'B/s')}",
        }
        for tier in sheet["tiers"]
    ]
    each = "per device and direction"
    facts = {
        "Devices": f"{sheet['devices']} x {sheet['device']}",
        "Dense peaks": f"{peaks} (each)",
        "Memory": f"{format_bytes(memory['capacity_bytes'])} each as the driver reports "
        f"({format_bytes(memory['marketing_bytes'])} on the datasheet), "
        f"{format_rate(memory['read_bytes_per_s'], 'B/s')}",
        "Scale-up": f"{links['scale_up']}, {format_rate(links['scale_up_bytes_per_s'], 'B/s')} {each}",
        "Host link": f"{format_rate(links['host_bytes_per_s'], 'B/s')} {each}",
        "Network": nic if links["nic_bytes_per_s"] is None else f"{nic} {each}",
        "Calibration": sheet["calibration"],
    }
    lines = [
        f"{printable(sheet['name'])} ({printable(sheet['id'])})",
        *(["Not a product of any vendor."] if sheet["hypothetical"] else []),
        "",
        *_facts(facts, width),
        "",
        "Tiers",
        *_indented(plain_table(tiers, right=("capacity",))),
    ]
    return _page(lines, sheet, width)


def _page(lines: list[str], sheet: Mapping[str, Any], width: int) -> str:
    lines += ["", "Sources"]
    for source in sheet["sources"]:
        document = f"{source['document']}: " if "document" in source else ""
        lines += _wrapped(f"{document}{', '.join(source['covers'])} ({source['kind']})", width, "  ", "      ")
        lines += _wrapped(source["ref"], width, "      ") + _wrapped(source["note"], width, "      ")
        lines += [line for other in source["alternatives"] for line in _wrapped(f"or: {other}", width, "      ")]
    if sheet["notes"]:
        lines += ["", "Notes", *_wrapped(sheet["notes"], width, "  ")]
    return "\n".join(lines) + "\n"


def _wrapped(text: str, width: int, indent: str, rest: str | None = None) -> list[str]:
    """Text folded at blanks only, so that addresses can be copied."""
    further = indent if rest is None else rest
    return textwrap.wrap(
        printable(text, 3000), width, initial_indent=indent, subsequent_indent=further, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _facts(facts: Mapping[str, str], width: int) -> list[str]:
    lines = []
    for name, text in facts.items():
        lines += _wrapped(text, width, f"{name:14s}", " " * 14) if text else []
    return lines


def _indented(table: str) -> list[str]:
    return ["  " + line for line in table.rstrip("\n").split("\n")]


def _billions(count: int) -> str:
    return f"{count / 1e9:,.1f}B" if count >= 1e9 else f"{count / 1e6:,.0f}M"


def _flop_rate(value: float | None) -> str:
    return "-" if value is None else format_flop_rate(value)
