"""An estimate as Markdown, for a document or an issue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from llmcap.analyses.device_memory import device_memory
from llmcap.analyses.result import Estimate
from llmcap.errors import printable
from llmcap.report import words
from llmcap.report.tables import markdown_text
from llmcap.report.words import seconds
from llmcap.units import format_bytes


def estimate_markdown(answer: Estimate) -> str:
    """The page of an estimate: headline, phases, memory, tiers, assumptions and sources."""
    setting = answer.setting
    parts = [
        f"## {unmarked(setting.model.name)} on {unmarked(setting.machine.server.name)}",
        f"{unmarked(words.question(answer))}; {unmarked(words.layout(answer))}.",
        "\n".join(f"**{unmarked(line)}**" for line in words.headline(answer)),
    ]
    if answer.serving:
        from llmcap.report import serving_words

        parts.append(_listed(f"{what}: {unmarked(much)}" for what, much in serving_words.facts(answer)))
    if answer.fits:
        parts += [f"{words.time_title(answer)}:"] if answer.serving else []
        phases = [{"phase": p["name"], "time": seconds(p["time_s"])} for p in answer.phases]
        phases.append({"phase": "end to end", "time": seconds(answer.results["e2el_s"])})
        parts += [markdown_text(phases), _listed(f"{what}: {much}" for what, much in words.decode_facts(answer))]
    memory = [{"one device": r["part"], "bytes": format_bytes(r["bytes"])} for r in device_memory(answer)]
    parts.append(markdown_text(memory))
    parts.append(markdown_text([_tier(t) for t in answer.tiers]))
    if answer.fits and (sentence := words.break_even_sentence(answer)):
        parts.append(sentence)
    parts += [_listed(f"Note: {unmarked(note)}" for note in noted)] if (noted := words.notes(answer)) else []
    parts.append(_listed(f"{unmarked(name)}: {unmarked(text)}" for name, text in words.assumption_lines(answer)))
    parts.append(f"{unmarked(words.provenance_line(answer))}")
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _tier(tier: Mapping[str, Any]) -> dict[str, str]:
    return {
        "tier": str(tier["tier"]),
        "capacity": format_bytes(tier["capacity_bytes"]),
        "users held": f"{tier['users_held']:,}",
        "effective read": words.rate(tier),
        "reload": seconds(tier["reload_s"]),
        "first token": seconds(tier["ttft_reload_s"]),
        "recompute": seconds(tier["recompute_s"]),
        "speedup": words.speedup(tier),
        "winner": str(tier["winner"] or words.NONE),
        "wins from": words.break_even(tier),
    }


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def unmarked(text: str) -> str:
    """Text from documents and arguments, with what Markdown would read as markup escaped."""
    return printable(text, 2000).translate({ord(c): "\\" + c for c in "\\`*_[]<>|#"})
