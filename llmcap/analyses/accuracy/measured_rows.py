"""Tables of measured rows (CSV): reading them, and how each source took its measurements.

One value a row. What a source did (lengths, load, engine) is told by its columns and by the rules here, never by the
value or the notes.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from llmcap.analyses.accuracy.published_setups import layout, requests_in_all, wait_steps
from llmcap.errors import DocumentError, Problem, did_you_mean, printable
from llmcap.records import dataclass
from llmcap.specs.bounded_files import read_bounded

Protocol = Literal["spread", "fixed", "batch", "saturated"]

COLUMNS: Final = (
    "id", "source", "date", "model", "hardware", "devices", "tp", "pp", "dp", "ep", "cp", "engine", "engine_version",
    "weight_dtype", "kv_dtype", "isl", "osl", "cached_tokens", "concurrency", "metric", "value", "notes",
)  # fmt: skip
METRICS: Final = (
    "ttft_s", "tpot_s", "prefill_tok_per_s", "output_tok_per_s", "total_tok_per_s", "output_tok_per_s_per_device",
)  # fmt: skip
#: What a further column `lengths` may say, as the option of `estimate`; isl and osl are means then.
LENGTHS: Final = ("varied", "equal")
#: Size of a file of measured rows at most [bytes], unpacked.
MAX_BYTES: Final = 200_000_000
#: A value outside is a slip of the pen: less than a nanosecond, or more tokens a second than any machine makes.
_LEAST: Final = 1e-9
_MOST: Final = 1e12
_NEEDED: Final = ("model", "hardware", "metric", "value")
_STRUCTURE: Final = ("devices", "tp", "pp", "dp", "ep", "cp")

#: Lengths of the public nightly benchmark in the AIConfigurator collection (its dated rows): drawn between 0.8 and 1.0
#: of the nominal ones, 0.9 on average.
_SPREAD_LENGTHS: Final = {(1024.0, 1024.0), (8192.0, 1024.0), (1024.0, 8192.0)}
_SPREAD_MEAN: Final = 0.9
#: Sources (by the beginning of their name) that ran one batch from start to end.
_BATCHES: Final = (
    "mutinifni/splitwise-sim ", "nvidia/tensorrt-llm docs/source/performance.md ",
    "nvidia/tensorrt-llm docs/source/blogs/h200launch.md ",
    "nvidia/tensorrt-llm docs/source/blogs/falcon180b-h200.md ", "argonne-lcf/llm-inference-bench ",
    "pytorch-labs/gpt-fast ", "semianalysisai/inferencex experimental/single_node_decodeonly/",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One measured value and what it was measured on; lengths are means."""

    cells: dict[str, str]
    model: str
    hardware: str
    structure: tuple[tuple[str, str], ...]
    engine: str
    """Id of the engine profile."""
    weight_dtype: str
    kv_dtype: str
    isl: float
    osl: float
    cached: float
    concurrency: float
    """NaN when saturated."""
    protocol: Protocol
    metric: str
    value: float
    """NaN when empty."""
    wait_steps: float = 0.0
    """Decode steps that a prompt waits by a launch option, see `published_setups`."""
    requests: float = math.inf
    """Requests that a run at saturation is fed in all."""

    @property
    def setting(self) -> tuple[object, ...]:
        """Rows of equal settings are predicted together."""
        return (self.model, self.hardware, self.structure, self.engine, self.weight_dtype, self.kv_dtype)

    @property
    def configuration(self) -> str:
        """Model, machine, engine, parallelism and dtype: rows of one configuration are never split."""
        c = self.cells
        return "|".join(c.get(n, "") for n in ("model", "hardware", *_STRUCTURE, "weight_dtype", "engine"))


def engine_profile(engine: str, version: str = "") -> str:
    """The profile that a source's name of an engine stands for.

    The rule, first match: vLLM of 2023 (Splitwise) `vllm-2023`; names with vllm `vllm`; with sglang `sglang`; TensorRT
    and trtllm by version, 0.x `tensorrt-llm-0`, otherwise `tensorrt-llm`; without a version TensorRT-LLM is taken for
    0.x, as in the collections of its years, and trtllm for 1.x; anything else the default profile `vllm`.

    Examples
    --------
    >>> engine_profile("vLLM (2023, Splitwise paper)"), engine_profile("SGLang PD-disagg + DeepEP")
    ('vllm-2023', 'sglang')
    >>> engine_profile("TensorRT-LLM", "0.17"), engine_profile("trtllm", "1.2.0rc2"), engine_profile("Meta")
    ('tensorrt-llm-0', 'tensorrt-llm', 'vllm')
    """
    name, version = engine.lower(), version.strip().lower().removeprefix("v")
    if "vllm" in name:
        return "vllm-2023" if "2023" in name else "vllm"
    if "sglang" in name:
        return "sglang"
    if "trtllm" in name or "tensorrt" in name or "gpt-fast" in name:
        old = version.startswith("0.") or (not version and "trtllm" not in name)
        return "tensorrt-llm-0" if old or "gpt-fast" in name else "tensorrt-llm"
    return "vllm"


def has_profile(engine: str) -> bool:
    """Whether a source's name of an engine stands for a profile of that engine, and not for the default one."""
    return not engine or any(part in engine.lower() for part in ("vllm", "sglang", "trtllm", "tensorrt", "gpt-fast"))


def read_rows(path: Path) -> tuple[list[MeasuredRow], dict[str, int], list[dict[str, str]]]:
    """Rows that can be predicted, the reasons and counts of those that cannot, and all rows as they stand.

    Raises
    ------
    DocumentError
        No such file, missing columns, or a cell that is no number where one is due.
    """
    shown = printable(str(path), 300)
    content = read_bounded(path, MAX_BYTES, "check the path")
    try:
        table = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        missing = [c for c in _NEEDED if c not in (table.fieldnames or ())]
        if missing:
            raise DocumentError([_missing(shown, missing, table.fieldnames or ())])
        cells = [{k: (v or "").strip() for k, v in row.items() if isinstance(k, str)} for row in table]
    except (UnicodeDecodeError, csv.Error) as error:
        text = f"is not a CSV file in UTF-8: {printable(error, 100)}"
        raise DocumentError([Problem(shown, None, "", text, "save it as CSV, UTF-8")]) from None
    if not cells:
        raise DocumentError([Problem(shown, 1, "", "holds no rows", "one measured value per line after the header")])
    return _sorted_out(shown, cells)


def _missing(file: str, missing: list[str], found: Iterable[str]) -> Problem:
    hint = (
        did_you_mean(missing[0], list(found))
        or f"the header is: {','.join(COLUMNS)}; lengths (varied or equal) may follow"
    )
    return Problem(file, 1, "", f"has no column '{missing[0]}'", hint)


def _sorted_out(
    file: str, cells: list[dict[str, str]]
) -> tuple[list[MeasuredRow], dict[str, int], list[dict[str, str]]]:
    rows: list[MeasuredRow] = []
    skipped: dict[str, int] = {}
    problems: list[Problem] = []
    for line, row in enumerate(cells, start=2):
        try:
            reason = unusable(row)
            if reason is None:
                rows.append(measured_row(row))
        except ValueError as error:
            problems.append(Problem(file, line, "", str(error), "write a plain number, or leave the cell empty"))
            continue
        if reason is not None:
            skipped[reason] = skipped.get(reason, 0) + 1
    if problems:
        raise DocumentError(problems)
    return rows, skipped, cells


def unusable(row: dict[str, str]) -> str | None:
    """Why a row is left out, or None."""
    if row.get("quality", "").upper() == "C":
        return "quality C: excluded, the reason stands in its notes"
    metric = row.get("metric", "")
    if metric not in METRICS:
        meant = did_you_mean(metric, METRICS) or f"one of {', '.join(METRICS)}"
        return f"unknown metric '{printable(metric, 40)}': {meant}"
    load = row.get("concurrency", "").lower()
    throughput = metric.endswith(("_per_s", "_per_device"))
    if load not in ("", "max") and not _is_number(load):
        return f"load '{printable(load, 30)}' is not a number of clients"
    if _lengths(row) not in ("", *LENGTHS):
        return f"lengths '{printable(row['lengths'], 30)}' are neither {' nor '.join(LENGTHS)}"
    if not row.get("isl"):
        return "no input length"
    if metric != "ttft_s" and metric != "prefill_tok_per_s" and not row.get("osl"):
        return "no output length"
    if not load and metric != "prefill_tok_per_s":
        return "no number of clients"
    if load == "max" and not throughput:
        return "a latency at saturation depends on how long requests queued"
    return None


def measured_row(row: dict[str, str]) -> MeasuredRow:
    """A usable row with its numbers read and its source's rules applied.

    Raises
    ------
    ValueError
        A cell that is no number.
    """
    isl, osl = _number(row, "isl", 1.0), _number(row, "osl", 1.0)
    concurrency = math.nan if row.get("concurrency", "").lower() in ("", "max") else _number(row, "concurrency", 1.0)
    protocol = _protocol(row, isl, osl, concurrency)
    mean = _SPREAD_MEAN if protocol == "spread" and not _lengths(row) else 1.0
    laid_out = row | layout(row)
    return MeasuredRow(
        cells=row,
        model=row["model"],
        hardware=row["hardware"],
        structure=tuple((n, laid_out[n]) for n in (*_STRUCTURE, "chunk_tokens") if laid_out.get(n)),
        engine=engine_profile(row.get("engine", ""), row.get("engine_version", "")),
        weight_dtype=row.get("weight_dtype", ""),
        kv_dtype=row.get("kv_dtype", ""),
        isl=max(isl * mean, 1.0),
        osl=max(osl * mean, 1.0),
        cached=_number(row, "cached_tokens", 0.0),
        concurrency=concurrency,
        protocol=protocol,
        metric=row["metric"],
        value=_value(row),
        wait_steps=wait_steps(row),
        requests=requests_in_all(row),
    )


def _protocol(row: dict[str, str], isl: float, osl: float, concurrency: float) -> Protocol:
    source = row.get("source", "").lower()
    if math.isnan(concurrency):
        return "saturated"
    if source.startswith(_BATCHES) or osl <= 1.0:
        return "batch"
    if _lengths(row):
        return "spread" if _lengths(row) == "varied" else "fixed"
    if "silicon_sample" in source and row.get("date") and (isl, osl) in _SPREAD_LENGTHS:
        return "spread"
    return "fixed"


def lengths_unsaid(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether several clients are among some rows, and no row says how their lengths vary: they are taken as equal."""
    loads = [(str(row.get("concurrency") or ""), row.get("lengths")) for row in rows]
    return any(_is_number(load) and float(load) > 1 for load, _ in loads) and not any(said for _, said in loads)


def _lengths(row: dict[str, str]) -> str:
    """How lengths vary between the requests of a closed loop; equal where nothing is said."""
    return row.get("lengths", "").lower()


def _value(row: dict[str, str]) -> float:
    """What was measured; empty and zero are no measurement."""
    value = _number(row, "value", math.nan)
    if value > 0 and not _LEAST <= value <= _MOST:
        raise ValueError(f"value: {printable(row['value'], 40)} is no time in seconds and no rate of tokens")
    return value


def _number(row: dict[str, str], column: str, default: float) -> float:
    text = row.get(column, "")
    if not text:
        return default
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        raise ValueError(f"{column}: '{printable(text, 40)}' is not a number") from None
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{column}: {printable(text, 40)} is not a quantity")
    return number


def _is_number(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False
