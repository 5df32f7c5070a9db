"""Reading a config.json key by key: every key asked for is understood, what is left over must be harmless.

A family's reader asks for what it needs through `Config`; at the end `leftovers` tells the keys that nobody asked
for. Those that look as if they changed state or compute are an error, the rest is listed in the document's notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from llmcap.errors import DocumentError, Problem, did_you_mean, printable
from llmcap.specs.huggingface.ignored import IGNORED, IGNORED_PATTERN, SUSPICIOUS, VISION_PATTERN

HIDDEN: Final = ("hidden_size", "d_model", "n_embd")
LAYERS: Final = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS: Final = ("num_attention_heads", "n_head", "n_heads")
KV_HEADS: Final = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
INTERMEDIATE: Final = ("intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner")
CONTEXT: Final = (
    "max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "model_max_length", "seq_length",
)  # fmt: skip
EXPERTS: Final = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
TOP_K: Final = (
    "num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k", "experts_per_token",
    "top_k_experts",
)  # fmt: skip
EXPERT_WIDTH: Final = (
    "moe_intermediate_size", "expert_ffn_hidden_size", "expert_hidden_dim", "moe_ffn_hidden_size",
)  # fmt: skip

MOST: Final = 100_000_000
"""Largest value a count may have; more is a damaged file."""
MOST_LAYERS: Final = 2_000


class Config:
    """A checked view of one level of a config: typed look-ups that remember which keys were understood."""

    def __init__(
        self, data: Mapping[str, Any], file: str, outer: Mapping[str, Any] | None = None, path: str = ""
    ) -> None:
        self.data = data
        self.file = file
        self.outer: Mapping[str, Any] = outer or {}
        self.path = path
        self.understood: set[str] = set()
        self.notes: list[str] = []

    def fail(self, key: str, message: str, hint: str = "") -> NoReturn:
        """Refuse the file over `key`."""
        raise DocumentError([Problem(self.file, None, f"{self.path}{printable(key, 80)}", message, hint)])

    def skip(self, *names: str) -> None:
        """Take keys as understood without reading them."""
        self.understood.update(names)

    def raw(self, *names: str) -> tuple[str, Any]:
        """(key, value) of the first of `names` with a value; the value is None when there is none."""
        self.understood.update(names)
        found = [(name, self.data[name]) for name in names if self.data.get(name) is not None]
        return found[0] if found else (names[0], None)

    def has(self, *names: str) -> bool:
        """Whether one of `names` has a value; asking does not mark them as understood."""
        return any(self.data.get(name) is not None for name in names)

    def optional(self, *names: str, minimum: int = 1, most: int = MOST) -> int | None:
        """A whole number, or None when absent or null. Spellings that disagree are refused."""
        self.understood.update(names)
        found = [(name, self._whole(name, minimum, most)) for name in names if self.data.get(name) is not None]
        if not found:
            return None
        for name, value in found[1:]:
            if value != found[0][1]:
                self.fail(name, f"is {value}, but {found[0][0]} is {found[0][1]}", "one of the two must go")
        return found[0][1]

    def count(self, *names: str, default: int | None = None, minimum: int = 1, most: int = MOST) -> int:
        """A whole number; `default` is the value of the family's configuration class, and is mentioned in the notes."""
        value = self.optional(*names, minimum=minimum, most=most)
        if value is not None:
            return value
        if default is None:
            self.fail(names[0], "missing", f"add '{names[0]}' (a whole number)" + self._near(names[0]))
        self.notes.append(f"{names[0]} {default} is the default of the configuration class")
        return default

    def flag(self, *names: str, default: bool = False) -> bool:
        """true or false; `default` when absent or null."""
        name, value = self.raw(*names)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fail(name, f"'{printable(value, 40)}' must be true or false")
        return value

    def text(self, *names: str, default: str = "") -> str:
        """A text; `default` when absent or null."""
        name, value = self.raw(*names)
        if value is None:
            return default
        if not isinstance(value, str):
            self.fail(name, f"'{printable(value, 40)}' must be text")
        return value

    def per_layer(self, name: str, layers: int) -> list[Any] | None:
        """A list with one entry for each layer, or None when absent; longer lists are refused."""
        name, value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            self.fail(name, f"'{printable(value, 40)}' must be a list", f"one entry for each of {layers} layers")
        if len(value) != layers:
            self.fail(name, f"has {len(value)} entries for {layers} layers")
        return list(value)

    def counts_per_layer(self, name: str, layers: int, minimum: int = 0) -> list[int] | None:
        """Whole numbers, one for each layer; a single number stands for all layers."""
        if isinstance(self.data.get(name), int) and not isinstance(self.data.get(name), bool):
            return [self.count(name, minimum=minimum)] * layers
        values = self.per_layer(name, layers)
        if values is None:
            return None
        return [self.number(name, value, minimum, MOST) for value in values]

    def kinds(self, name: str, layers: int, allowed: Mapping[str, str]) -> list[str] | None:
        """Layer kinds by name, translated through `allowed`."""
        values = self.per_layer(name, layers)
        if values is None:
            return None
        for value in values:
            if not isinstance(value, str) or value not in allowed:
                hint = did_you_mean(str(value), allowed) or f"known here: {', '.join(sorted(allowed))}"
                self.fail(name, f"unknown layer kind '{printable(value, 40)}'", hint)
        return [allowed[value] for value in values]

    def mapping(self, name: str) -> Mapping[str, Any] | None:
        """A nested mapping, or None when absent."""
        name, value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            self.fail(name, f"'{printable(value, 40)}' must be a mapping")
        return value

    def inherited(self, *names: str) -> Any:
        """Value of the first of `names`, here or one level up (multimodal files keep some keys there)."""
        self.understood.update(names)
        for level in (self.data, self.outer):
            for name in names:
                if level.get(name) is not None:
                    return level[name]
        return None

    def tied(self, default: bool) -> bool:
        """Whether input and output embeddings are one matrix."""
        for name in ("tie_word_embeddings", "tie_embedding", "use_embedding_sharing"):
            value = self.inherited(name)
            if value is not None:
                if not isinstance(value, bool):
                    self.fail(name, f"'{printable(value, 40)}' must be true or false")
                return value
        return default

    def leftovers(self) -> list[str]:
        """Keys that nobody asked for and that change nothing; DocumentError for those that might."""
        harmless: list[str] = []
        doubtful: list[str] = []
        for level, where in ((self.data, self.path), (self.outer, "")):
            for key, value in level.items():
                key = str(key)
                if key in self.understood or key in IGNORED or IGNORED_PATTERN.search(key):
                    continue
                if where == "" and VISION_PATTERN.search(key):
                    continue
                # A feature that is switched off has no effect whatever it is.
                off = value is None or value is False or value == [] or value == {}
                if SUSPICIOUS.search(key) and not off:
                    doubtful.append(f"{where}{key}")
                else:
                    harmless.append(key)
        if doubtful:
            message = "is not understood for this model type and may change state or compute"
            hint = "describe the model in YAML (docs/add-a-model.md), or remove the key if it has no effect"
            raise DocumentError([Problem(self.file, None, printable(key, 80), message, hint) for key in doubtful])
        return harmless

    def _near(self, name: str) -> str:
        near = did_you_mean(name, [str(key) for key in self.data])
        return f"; {near}" if near else ""

    def _whole(self, name: str, minimum: int, most: int) -> int:
        return self.number(name, self.data[name], minimum, most)

    def number(self, name: str, value: Any, minimum: int, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(name, f"'{printable(value, 40)}' must be a whole number")
        if value < minimum:
            self.fail(name, f"{printable(value, 40)} is less than {minimum}")
        if value > most:
            self.fail(name, f"{printable(value, 40)} is more than {most:,}", "this looks like a damaged file")
        return value
