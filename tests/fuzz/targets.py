"""What bytes of any kind may be thrown at: each target takes bytes and lets nothing but a clear refusal pass.

A target returns True where the input was accepted, False where it was refused with the clear error. Anything else
(another exception, a number that is none, an error nobody can read) fails the run.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from llmcap.analyses.accuracy.measured import predict
from llmcap.analyses.accuracy.measured_rows import read_rows
from llmcap.analyses.cases import evaluate_cases, read_cases
from llmcap.analyses.replays.traces import read_trace
from llmcap.analyses.sweeps.conditions import parse_condition
from llmcap.analyses.sweeps.grid import Grid
from llmcap.analyses.sweeps.scenarios import adjusted
from llmcap.cli.app import COMMANDS, command, run
from llmcap.errors import LlmcapError
from llmcap.specs import registry
from llmcap.specs.base import load_document
from llmcap.specs.huggingface import import_config, model_types
from llmcap.specs.loader import load_yaml
from llmcap.specs.scenario import Scenario, parse_range
from llmcap.units import DIMENSIONS, parse_count, parse_quantity

_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
FOLDER: Final = Path(tempfile.mkdtemp(prefix="llmcap-fuzz-", dir=_MEMORY))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
KINDS: Final = sorted(registry.KINDS)
#: A command's longest line of error text, and what a terminal must never receive.
LONGEST: Final = 2400


def check_error(error: BaseException) -> None:
    """The text of a refusal: something, not too much, and nothing that moves a cursor."""
    text = str(error)
    assert 0 < len(text) < LONGEST, len(text)
    assert text.replace("\n", "").isprintable(), ascii(text)


def check_number(value: float, name: str = "") -> None:
    """No NaN, no infinity, no negative time or size."""
    assert math.isfinite(value), (name, value)
    assert value >= 0, (name, value)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def yaml(data: bytes) -> bool:
    """The YAML loader, then a document of the kind that the first byte chooses."""
    kind = KINDS[data[0] % len(KINDS)] if data else KINDS[0]
    path = FOLDER / "document.yaml"
    path.write_bytes(data[1:])
    try:
        load_yaml(path)
        load_document(path, registry.document_type_of(kind))
    except LlmcapError as error:
        check_error(error)
        return False
    return True


def units(data: bytes) -> bool:
    """Quantities of each dimension, and counts."""
    text, read = _text(data), False
    for dimension in DIMENSIONS:
        try:
            check_number(parse_quantity(text, dimension))
            read = True
        except ValueError as error:
            check_error(error)
    try:
        assert 0 <= parse_count(text) <= 10**15
        return True
    except ValueError as error:
        check_error(error)
    return read


_TYPES: Final = model_types()
_SHAPE: Final[dict[str, Any]] = {
    "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
    "intermediate_size": 1024, "vocab_size": 1000, "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
    "num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8, "num_experts_per_tok": 2, "kv_lora_rank": 64,
    "moe_intermediate_size": 128, "q_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "sliding_window": 128, "quantization_config": None,
    "tie_word_embeddings": True, "text_config": None, "layer_types": None, "n_head": 8, "n_layer": 4, "n_embd": 512,
}  # fmt: skip
_KEYS: Final = tuple(_SHAPE)
_DENSE: Final = {k: _SHAPE[k] for k in _KEYS[:10] if k != "head_dim"}
_EXPERTS: Final = {k: _SHAPE[k] for k in ("num_experts", "num_experts_per_tok", "moe_intermediate_size")}


def config(data: bytes) -> bool:
    """A config.json: raw JSON, or a sound one of a type (first byte) with lines `key number=JSON` laid over it."""
    if data[:1] == b"{":
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            return False
        if not isinstance(found, dict):
            return False
    else:
        kind = _TYPES[data[0] % len(_TYPES)] if data else "llama"
        found = {"model_type": kind} | _DENSE | (_EXPERTS if "moe" in kind or "mixtral" in kind else {})
        for line in data[1:].split(b"\n"):
            key, _, value = line[:1], line[1:2], line[2:]
            name = _KEYS[key[0] % len(_KEYS)] if key else "hidden_size"
            try:
                found[name] = json.loads(value)
            except (ValueError, RecursionError):
                found.pop(name, None)
    try:
        model = import_config(found)
    except LlmcapError as error:
        check_error(error)
        return False
    assert model.layer_count > 0
    return True


def cases(data: bytes) -> bool:
    """A CSV table of cases; short ones are evaluated."""
    path = FOLDER / "cases.csv"
    path.write_bytes(data)
    try:
        rows = read_cases(path)
        if len(rows) > 4 or b"/" in data:
            return True
        for row in evaluate_cases(rows, file="cases.csv"):
            for name, value in row.items():
                # NaN: an empty cell; free memory below zero: what is lacking.
                if isinstance(value, float) and not math.isnan(value) and name != "hbm_free_bytes":
                    check_number(value, name)
    except LlmcapError as error:
        check_error(error)
        return False
    return True


def measured(data: bytes) -> bool:
    """A CSV table of measured rows; short ones are predicted."""
    path = FOLDER / "measured.csv"
    path.write_bytes(data)
    try:
        rows, skipped, _ = read_rows(path)
        assert all(count > 0 for count in skipped.values())
        if len(rows) > 2 or b"/" in data:
            return True
        predictions = predict(rows)[0]
    except LlmcapError as error:
        check_error(error)
        return False
    for prediction in predictions:
        check_number(prediction.predicted)
    return True


def trace(data: bytes) -> bool:
    """A request trace: JSON lines or CSV, plain or gzipped."""
    path = FOLDER / "trace.jsonl"
    path.write_bytes(data)
    try:
        found = read_trace(path, max_bad_lines="50%")
    except LlmcapError as error:
        check_error(error)
        return False
    assert all(map(math.isfinite, found.times.tolist()))
    assert (found.input_tokens > 0).all()
    return True


_NAMES: Final = ("tp", "kv_heads", "users", "context_tokens", "cached_tokens", "model", "devices")
_BASE: Final = Scenario(schema="llmcap.scenario/1", id="x", name="x", question="x", axes={"users": (1, 2)})


def scenario(data: bytes) -> bool:
    """Ranges, conditions and `--set NAME=VALUES`; what is accepted becomes a grid and is counted."""
    text, read = _text(data), False
    with contextlib.suppress(ValueError):
        assert all(0 <= n <= 10**15 for n in parse_range(text))
        read = True
    try:
        parse_condition(text, "scenario.yaml", _NAMES)
        read = True
    except LlmcapError as error:
        check_error(error)
    try:
        changed = adjusted(_BASE, text.split(";"), None)
        if "/" not in text:  # no documents of the machine that runs this
            grid = Grid(changed)
            if grid.points <= 10_000:
                grid.count_cases()
        read = True
    except LlmcapError as error:
        check_error(error)
    return read


def _command(words: list[str], folder: Path) -> tuple[int, str]:
    """Run a command line in `folder`: its status and what it wrote to stdout."""
    before, streams = os.getcwd(), (sys.stdout, sys.stderr)
    text, error = io.TextIOWrapper(io.BytesIO(), "utf-8", newline=""), io.StringIO()
    os.chdir(folder)
    try:
        sys.stdout, sys.stderr = text, error
        try:
            status = run(words)
        except SystemExit as leave:
            status = int(leave.code or 0)
        text.flush()
    finally:
        sys.stdout, sys.stderr = streams
        os.chdir(before)
    told = error.getvalue()
    assert status in (0, 2, 3, 4), (status, words, told)
    assert "Traceback" not in told and "bug in llmcap" not in told, (words, told)
    assert told.replace("\n", "").replace("\r", "").isprintable(), ascii(told)
    assert status == 0 or told.count("Error: ") == 1 or told.startswith("Usage: "), (words, told)
    answer = text.buffer.getvalue().decode()  # type: ignore[attr-defined]
    for word in ("NaN", "Infinity", " nan ", " inf "):
        assert word not in answer, (words, word)
    return status, answer


# Commands with a target of their own, and options that start processes or need a network.
_SLOW: Final = ("report", "calibrate", "validate")
_COMMANDS: Final = [n for n in COMMANDS if n not in _SLOW]
_UNWANTED: Final = ("--workers", "--scheduler", "--plot", "--debug")


def argv(data: bytes) -> bool:
    """A command line: the first byte chooses the command, newlines separate the words."""
    words = [_COMMANDS[data[0] % len(_COMMANDS)] if data else "estimate", *_text(data[1:]).split("\n")]
    words = [w for w in words[:12] if not w.startswith(_UNWANTED) and "/" not in w and "~" not in w and "\0" not in w]
    if words[0] == "sweep":
        words += ["--dry-run"]
    return _command(words, FOLDER)[0] == 0


_FILES: Final[dict[str, bytes]] = {
    "trace.jsonl": b'{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}\n'
    b'{"timestamp": 90000, "input_length": 1100, "output_length": 2, "hash_ids": [1, 2, 3]}\n',
    "azure.csv": b"TIMESTAMP,ContextTokens,GeneratedTokens\n1.5,10,1\n9,200,3\n",
    "measured.csv": b"model,hardware,metric,value,isl,osl,concurrency,devices\nllama-3.1-8b,dgx-h100,ttft_s,0.2,1000,"
    b"100,1,1\nllama-3.1-8b,dgx-h100,tpot_s,0.006,1000,100,8,1\n",
    "small.yaml": b"schema: llmcap.scenario/1\nid: small\nname: Small\nquestion: How long?\nbase: {model: "
    b"llama-3.1-8b, hardware: dgx-h100}\naxes: {users: [1, 8], context: [1k, 8k]}\noverrides: {long: {context: 32k}}\n",
    "tiers.csv": b"tier,context_tokens,reload_s\ndram,1000,0.1\nnvme,1000,0.2\n",
    "answer.json": b'{"schema": "llmcap.estimate/1", "inputs": {}, "results": {}}',
}
#: Addresses on this machine where nobody listens, and none at all: a search must not call others.
_ADDRESSES: Final = ("tcp://127.0.0.1:1", "127.0.0.1:1", "tcp://", "host", "[::1]:1", "x:y", "", "tls://127.0.0.1:1")
_WHOLE: Final = ("report", "calibrate", "validate", "replay", "plan", "compare", "explain", "sweep")


def answers(data: bytes) -> bool:
    """A command that reads files and writes some, in a folder with sound ones; nothing half-written is left there."""
    return _answered([_WHOLE[data[0] % len(_WHOLE)] if data else "explain", *_text(data[1:]).split("\n")])


#: Values that are wrong for most options, right for some, or at an edge.
VALUES: Final = (
    "0", "1", "2", "-1", "8", "1.5", "1e9", "1e15", "1e400", "1e-9", "nan", "inf", "", " ", "50%", "150%", "1k",
    "8k,32k", "1,", "2 TB", "0 B", "10 GB/s", "1ns", "60s", "1e300s", "fp8", "nvfp4", "int3", "llama-3.1-8b",
    "gpt2", "dgx-h200", "l4-4x", "none", "auto", "kv", "tier:nvme", "csv", "json", "parquet", "md", "html", "=",
    "a=b", "users=1,2", "x.csv", "x.parquet", "x.html", "x.json", "small.yaml", "trace.jsonl", "measured.csv",
    "answer.json", ".", "..", "ideal", "vllm", "hyperscaler-2026-04", "zipf:2", "fcfs", "reload", "cost=c.pdf",
    "cxl:2 TB:100 GB/s", "users=2,turns=2", "\u202e", "\x1b[31m", "\uff11", "tcp://127.0.0.1:1", "ms",
)  # fmt: skip


def options(data: bytes) -> bool:
    """A sound command (first byte) with options of its own and values laid over it, two bytes each."""
    seed = SEEDS["answers"][data[0] % len(SEEDS["answers"])] if data else SEEDS["answers"][0]
    words = [_WHOLE[seed[0] % len(_WHOLE)], *_text(seed[1:]).split("\n")]
    known = [name for p in command(words[0]).params for name in p.opts if name.startswith("--")]
    for option, value in zip(data[1:9:2], data[2:9:2], strict=False):
        words += [known[option % len(known)], VALUES[value % len(VALUES)]]
    return _answered(words, most=24)


def _answered(words: list[str], most: int = 12) -> bool:
    words = [w for w in words[:most] if "/" not in w and "~" not in w and "\0" not in w and not w.startswith("--debug")]
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if len(name) > 4 and "--scheduler".startswith(name):
            place, value = (i, value) if equals else (i + 1, words[i + 1] if i + 1 < len(words) else "")
            words[i : place + 1] = [f"--scheduler={_ADDRESSES[sum(value.encode()) % len(_ADDRESSES)]}"]
    if words[0] == "sweep" and not any(w.startswith("--fr") for w in words):
        words += ["--limit", "20"]
    folder = Path(tempfile.mkdtemp(dir=FOLDER))
    try:
        for name, content in _FILES.items():
            (folder / name).write_bytes(content)
        status, _ = _command(words, folder)
        for file in folder.rglob("*"):
            assert not file.name.startswith("."), (words, file.name)
            content = file.read_bytes() if file.is_file() and file.name not in _FILES else b""
            if content:
                assert content.endswith((b"\n", b"PAR1")) or file.suffix.lower() in (".png", ".pdf", ".gz"), file.name
        return status == 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


TARGETS: Final[dict[str, Callable[[bytes], bool]]] = {
    f.__name__: f for f in (yaml, units, config, cases, measured, trace, scenario, argv, answers, options)
}

_LATENT: Final = (
    "n_routed_experts", "num_experts_per_tok", "kv_lora_rank", "moe_intermediate_size", "q_lora_rank",
    "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "n_shared_experts", "first_k_dense_replace",
)  # fmt: skip
_CONFIGS: Final[tuple[dict[str, Any], ...]] = (
    {"model_type": "llama"} | _DENSE,
    {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2} | _DENSE,
    {"model_type": "deepseek_v3", "moe_layer_freq": 1} | _DENSE | {k: _SHAPE[k] for k in _LATENT},
    {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "sliding_window": 128} | _DENSE},
    {"model_type": "gpt2", "n_head": 8, "n_layer": 4, "n_embd": 512, "vocab_size": 1000, "n_positions": 1024},
    {"model_type": "llama", "quantization_config": {"quant_method": "fp8"}} | _DENSE,
)

#: Sound inputs to begin from, and the words that their languages are made of.
SEEDS: Final[dict[str, tuple[bytes, ...]]] = {
    "yaml": tuple(
        bytes([i]) + registry.find(kind, name).read_bytes()[:3000]
        for i, kind in enumerate(KINDS)
        for name in registry.list_ids(kind)[:2]
    ),
    "units": (b"1.44 TB", b"400 Gbit/s", b"128Ki", b"1e400 TB", b"12,000 USD", b"50%", b"3 us"),
    "config": tuple(bytes([i]) + b"\x00\x00 64\n\x01 4" for i in range(len(_TYPES)))
    + tuple(json.dumps(c).encode() for c in _CONFIGS),
    "cases": (b"users,context\n1,1k\n8,32k\n", b"model,tp,kv_dtype\nllama-3.1-8b,1,fp8\n"),
    "measured": (
        b"model,hardware,metric,value,isl,osl,concurrency,devices\nllama-3.1-8b,dgx-h100,ttft_s,0.2,1000,100,1,1\n",
        b"model,hardware,metric,value,isl,osl,concurrency,tp\nllama-3.1-8b,dgx-b200,tpot_s,,8k,1,max,8\n",
    ),
    "trace": (
        b'{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}\n',
        b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n1.5,10,1\n",
    ),
    "scenario": (b"log 1k..1M 40 points", b"tp divides kv_heads", b"users=1,10;context=1..9 step 2", b"tp*users<=8"),
    "argv": (
        b"\x00--context\n1k\n--users\n2",
        b"\x04--kv-dtype\nfp8",
        b"\x02--set\nusers=1,2",
        b"\x08devices\n--users\n9",
    ),
    "options": tuple(bytes([i]) for i in range(11)) + tuple(bytes([i % 11, 3 * i, 4 * i]) for i in range(60)),
    "answers": (
        b"\x00small.yaml\n-o\nreport.html",
        b"\x00tiers.csv\n--format\nmd\n-o\nr.md",
        b"\x01--measured\nmeasured.csv\n-o\nmine.yaml",
        b"\x02--measured\nmeasured.csv\n--format\njson",
        b"\x03trace.jsonl\n--capacities\n1,2\n--window\n60s",
        b"\x03--generate\nusers=3,turns=2,seed=1\n--write-trace\nmade.jsonl.gz",
        b"\x04--users-max\n--ttft\n2s\n--model\nllama-3.1-8b",
        b"\x05dgx-h100\ndgx-h200\n--model\nllama-3.1-8b\n--context\n8k",
        b"\x06--term\ntier:dram\n--context\n8k",
        b"\x07small.yaml\n--plot\nprefill=a.svg\n-o\nrows.csv",
        b"\x07small.yaml\n-o\nrows.parquet\n--set\nusers=1,2",
    ),
}
# fmt: off
WORDS: Final[dict[str, tuple[str, ...]]] = {
    "yaml": (": ", "\n  ", "- ", "[", "]", "{", "}", "&a ", "*a", "<<: ", "!!python/object ", "|\n", "---\n", ".nan",
             "schema: ", "id: ", "sources:", "80 GB", "1e999 TB", "\u202e", "\ufeff", "\x00", "\x1b[31m", "../../etc"),
    "units": ("1", "9", ".", ",", "e", "-", "k", "Ki", "GB", "Gbit/s", "ms", "%", "USD", "inf", "nan", "1e400",
              "µ", "٣"),
    "config": ("\n", "null", "-1", "0", "1e400", "NaN", "[]", "{}", "\"fp8\"", "true", "[\"full_attention\"]", "1e18",
               "{\"quant_method\": \"fp8\"}", "{\"model_type\": \"llama\"}", "0.5"),
    "cases": (",", "\n", "\r\n", "\"", "users", "context", "model", "tp", "hardware", "dram", "1 TB", "=1+1", "\ufeff",
              "1e15", "llama-3.1-8b", "dgx-h100", "0", "-1", "nan", "kv_policy", "sessions"),
    "measured": (",", "\n", "\"", "nan", "inf", "1e308", "1e-308", "0", "max", "ttft_s", "tpot_s", "isl", "concurrency",
                 "output_tok_per_s", "llama-3.1-8b", "fp8", "cached_tokens", "batch"),
    "trace": ("{\"timestamp\": ", ", \"input_length\": ", "\"hash_ids\": [", "]}\n", "1e400", "NaN", "-1", "null", "\n",
              "TIMESTAMP", "ContextTokens", "GeneratedTokens", "2023-11-16 18:15:46", "\x1f\x8b\x08", "999999999999"),
    "scenario": ("..", "log ", "linear ", " points", " step ", "1k", "1M", "=", ",", ";", "divides", "<=", "==", "*",
                 "users",
                 "context", "model=", "tp=", "override", "new_tokens", "1e15", "kv_heads", "0"),
    "argv": ("\n", "--users\n", "--context\n", "--model\n", "--tier\n", "--format\njson", "--hardware\n", "--dram\n",
             "--tp\n",
             "cxl:2 TB:100 GB/s", "dgx-h100", "llama-3.1-8b", "1e9", "0", "--sessions\n", "--help", "--cached-tokens\n",
             "--kv-policy\n", "--chunk-tokens\n", "\u202e", "\x1b[31m", "--output-tokens\n", "1e-9"),
    "options": ("\x00", "\x01\x02", "\x0b\x07"),
    "answers": ("\n", "-o\n", "--format\n", "json", "csv", "md", "html", "parquet", "small.yaml",
                "trace.jsonl", "tiers.csv", "measured.csv", "answer.json", "azure.csv", ".", "--set\n",
                "users=1,2", "context=log 1k..8k 3 points", "--override\n", "long", "--prices\n",
                "hyperscaler-2026-04", "--kernels\n", "--measured\n", "--engine\n", "vllm", "--assumptions\n",
                "ideal", "--block-tokens\n", "--capacities\n", "--window\n", "--generate\n", "users=2,turns=3",
                "span=", "--max-bad-lines\n", "--time-unit\n", "--write-trace\n", "--users-max\n",
                "--devices-min\n", "--cheapest\n", "--ttft\n", "--tpot\n", "--term\n", "kv", "prefill",
                "--plot\n", "prefill", "reload=b.png", "cost", "--workers\n1", "--scheduler\n", "--resume\n",
                "--from\n", "--limit\n", "--chunk-cases\n", "--hardware\n", "dgx-h100", "--model\n",
                "llama-3.1-8b", "--tp\n", "kv-dtype=bf16", "--context\n", "8k", "1e9", "1e15", "0", "-1",
                "1e-9", "nan", "50%", "\u202e", "\x1b[31m", "=", ",", "--help"),
}
# fmt: on
