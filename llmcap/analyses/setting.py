"""One structural choice, resolved: documents loaded, defaults filled in, combinations checked.

Cases that share a setting differ only in numbers (users, lengths), so a whole grid is evaluated from one setting.
"""

from __future__ import annotations

import os
from dataclasses import replace

from llmcap.analyses.copies import note_copies, read_by_ranks
from llmcap.analyses.machine import Machine, compose
from llmcap.analyses.options import Options
from llmcap.arch.dtypes import NARROW, WEIGHT_ONLY, WIDE
from llmcap.arch.operators import OperatorTable, operator_table
from llmcap.arch.parameters import WeightDtypes
from llmcap.arch.structure import Parallelism, Structure, structure_of
from llmcap.errors import OptionError, did_you_mean
from llmcap.records import dataclass
from llmcap.specs.assumptions import Assumptions, Statement
from llmcap.specs.calibration import CalibrationDocument
from llmcap.specs.engine import Engine
from llmcap.specs.model import Dtype, Model, WeightClass
from llmcap.specs.registry import Loaded, Used, as_path, is_folder, load_as, stamp, unchanged
from llmcap.specs.transfers import Transfers
from llmcap.units import format_bytes

#: Classes of weights that quantised checkpoints usually leave in bf16.
_KEPT_WIDE: tuple[WeightClass, ...] = ("embedding", "lm_head", "norm", "router")

_RING = Statement(
    name="context parallelism",
    text="Context-parallel ranks pass keys and values, or queries and partial results, around a ring; each hop hides "
    "behind a rank's attention to the part it has, and what is longer shows. The chunk is shared by all ranks.",
    source="A. Yang et al., Context Parallelism for Scalable Million-Token Inference, arXiv:2411.01783",
    bias="optimistic where an engine gathers the keys first; small chunks show the messages that long ones hide",
)


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything that is the same for all cases of one structural choice."""

    options: Options
    model: Model
    structure: Structure
    machine: Machine
    engine: Engine
    assumptions: Assumptions
    calibration: CalibrationDocument
    parallelism: Parallelism
    weights: WeightDtypes
    activation_dtype: str
    kv_dtype: str
    attention_dtype: str
    chunk_tokens: int
    operators: OperatorTable
    statements: tuple[Statement, ...]
    documents: tuple[Used, ...]

    @property
    def calibrated(self) -> bool:
        """Whether times come from calibrated kernels rather than constant shares of peaks."""
        return self.assumptions.times == "calibrated"


def resolve(options: Options) -> Setting:
    """Load what the options name and settle every default. Repeated calls share one setting until a file changes.

    Raises
    ------
    OptionError
        Unknown ids, dtypes without a peak, parallelism that does not divide.
    DocumentError
        A file that cannot be used.
    """
    # A relative path means another file elsewhere, an id another one under another search path.
    key = (options, os.environ.get("LLMCAP_PATH"), os.getcwd())
    setting = _SETTINGS.get(key)
    if setting is None or not all(unchanged(digest) for _, digest, _ in setting.documents):
        if len(_SETTINGS) >= _MOST_SETTINGS:
            _SETTINGS.clear()
        setting = _SETTINGS[key] = _resolve(options)
    return setting


#: Costs are tabled for each length of a step; longer ones would need gigabytes and seconds, and no engine takes them.
_LARGEST_CHUNK = 2_000_000
_MOST_SETTINGS = 4096
_SETTINGS: dict[tuple[Options, str | None, str], Setting] = {}


def _resolve(options: Options) -> Setting:
    model, model_document = model_and_digest(options.model)
    engine = load_as(Engine, "engine", options.engine)
    transfers = load_as(Transfers, "transfers", "default")
    assumptions = load_as(Assumptions, "assumptions", options.assumptions)
    machine = compose(options, engine.document, transfers.document)
    calibration = load_as(CalibrationDocument, "calibration", machine.device.calibration)
    _check_scope(assumptions.document, model, machine)

    structure = structure_of(model)
    parallelism = _parallelism(options, structure, machine)
    notes: list[Statement] = []
    weights = _weights(options, model)
    activation = _activation_dtype(options, weights, machine, notes)
    kv = options.kv_dtype or ("fp8" if weights.default in NARROW else "bf16")
    attention = _attention_dtype(options, kv, machine, notes)
    if machine.server.hypothetical:
        notes.append(
            Statement(
                name="hypothetical server",
                text=f"{machine.server.name} is not a product: {machine.server.notes}".strip(),
                source="its document",
                bias="unknown",
            )
        )
    own = tuple(d for d in WIDE if machine.has_peak(d))
    if assumptions.document.times == "calibrated":
        notes.extend(_measured_so_far(calibration.document, machine))
    if parallelism.cp > 1:
        notes.append(_RING)
    if parallelism.tp > 1:
        rules, tiers = assumptions.document, machine.tiers
        machine = replace(machine, tiers=read_by_ranks(tiers, structure, kv, parallelism, rules))
        copies = note_copies(structure, parallelism, tiers, engine.document.name, ideal=rules.ideal_transfers)
        notes.extend([] if copies is None else [copies])
    allowed = engine.document
    if machine.server.unified_memory is not None:
        allowed = _beside_the_system(engine.document, machine)
        notes.append(_unified(machine, allowed))
    others = [loaded.used for loaded in (engine, transfers, assumptions, calibration)]
    return Setting(
        options=options,
        model=model,
        structure=structure,
        machine=machine,
        engine=allowed,
        assumptions=assumptions.document,
        calibration=calibration.document,
        parallelism=parallelism,
        weights=weights,
        activation_dtype=activation,
        kv_dtype=kv,
        attention_dtype=attention,
        chunk_tokens=_chunk(options.chunk_tokens or engine.document.chunk_tokens),
        operators=operator_table(structure, weights, activation, kv, attention, parallelism, own),
        statements=(*assumptions.document.statements, *notes),
        documents=tuple(dict.fromkeys((model_document, *machine.documents, *others))),
    )


def _beside_the_system(engine: Engine, machine: Machine) -> Engine:
    """The engine with no more of a memory than the system beside it leaves, as it would have to be started."""
    changes: dict[str, object] = {"memory_share": min(engine.memory_share, machine.share_left)}
    if engine.serving is not None:
        share = min(engine.serving.memory_share, machine.share_left)
        changes["serving"] = engine.serving.model_copy(update={"memory_share": share})
    return engine.model_copy(update=changes)


def _unified(machine: Machine, engine: Engine) -> Statement:
    kept = format_bytes(machine.device.memory.capacity * (1.0 - machine.share_left))
    return Statement(
        name="unified memory",
        text=f"Processor and device share one memory: the system keeps {kept} of it, the engine uses at most "
        f"{engine.memory_share:.0%}, and there is no DRAM tier. Copies from drives do not slow the device's own reads.",
        source=f"the document of {machine.server.name}",
        bias="reloads under way optimistic",
    )


def _measured_so_far(calibration: CalibrationDocument, machine: Machine) -> list[Statement]:
    """What an answer says of kernels that few or no measurements stand behind."""
    if calibration.notes:
        text, source = calibration.notes, "its calibration document"
    elif not calibration.device and not calibration.family:
        text = f"No kernel of {machine.device.name} was measured: it reaches the shares of its peaks that others do."
        source = "assumed"
    else:
        return []
    return [Statement(name="kernels of the device", text=text, source=source, bias="unknown, partly inside the band")]


def _chunk(tokens: int) -> int:
    if tokens > _LARGEST_CHUNK:
        raise OptionError(
            "--chunk-tokens", f"a prefill step of {tokens:,} tokens is longer than {_LARGEST_CHUNK:,}",
            "engines take some thousands at a time",
        )  # fmt: skip
    return tokens


def model_and_digest(name: str) -> tuple[Model, Used]:
    """A model by id, Hugging Face id, YAML path, or the path of a config.json or its folder."""
    folder = is_folder(name)
    if name.lower().endswith(".json") or (("/" in name or "." in name) and folder):
        from llmcap.specs.huggingface import load_config
        from llmcap.specs.loader import sha256_of

        file = as_path(name) / "config.json" if folder else as_path(name)
        model, digest = load_config(file), sha256_of(file)
        stamp(file, digest)
        return model, Used(model.id, digest, "model")
    loaded: Loaded[Model] = load_as(Model, "model", name)
    return loaded.document, loaded.used


def _check_scope(assumptions: Assumptions, model: Model, machine: Machine) -> None:
    for what, option, identity, allowed in (
        ("model", "--model", model.id, assumptions.models),
        ("hardware", "--hardware", machine.server.id, assumptions.hardware),
    ):
        if allowed and identity not in allowed:
            raise OptionError(
                "--assumptions",
                f"'{assumptions.id}' is defined for the {what} {' or '.join(allowed)}, not for '{identity}'",
                f"choose another {option}, or --assumptions calibrated",
            )  # fmt: skip


def _parallelism(options: Options, structure: Structure, machine: Machine) -> Parallelism:
    pp, cp, ep = options.pp or 1, options.cp or 1, options.ep or 1
    devices = machine.devices
    heads = structure.query_heads
    for name, value in (("pp", pp), ("cp", cp), ("dp", options.dp or 1), ("tp", options.tp or 1)):
        if devices % value:
            raise OptionError(
                f"--{name}", f"{name} {value} does not divide the {devices} devices",
                f"choose one of {', '.join(str(d) for d in _divisors(devices))}",
            )  # fmt: skip
    rest, over = divmod(devices, pp * cp * (options.dp or 1))
    if over:
        raise OptionError(
            "--devices",
            f"pp x cp x dp = {pp * cp * (options.dp or 1)} does not divide the {devices} devices",
            "choose degrees whose product is the number of devices",
        )
    tp = options.tp
    if tp is None:
        tp = max(d for d in _divisors(rest) if heads % d == 0) if options.dp is None else rest
    if heads % tp:
        raise OptionError(
            "--tp", f"tp {tp} does not divide the {heads} query heads of the model",
            f"choose one of {', '.join(str(d) for d in _divisors(devices) if heads % d == 0)}",
        )  # fmt: skip
    if rest % tp:
        raise OptionError(
            "--tp",
            f"tp {tp} x pp {pp} x cp {cp} x dp {options.dp or 1} does not divide the {devices} devices",
            "choose degrees whose product is the number of devices",
        )
    dp = options.dp or rest // tp
    if tp * pp * cp * dp != devices:
        raise OptionError(
            "--devices",
            f"tp {tp} x pp {pp} x dp {dp} x cp {cp} = {tp * pp * cp * dp}, not {devices} devices",
            f"use --devices {tp * pp * cp * dp}, or leave out one of the degrees",
        )
    if pp > structure.layers:
        raise OptionError(
            "--pp",
            f"{pp} stages are more than the {structure.layers} layers",
            f"choose at most {structure.layers}",
        )
    if (tp * dp) % ep:
        raise OptionError(
            "--ep",
            f"ep {ep} does not divide tp x dp = {tp * dp}",
            f"choose one of {', '.join(str(d) for d in _divisors(tp * dp))}",
        )
    routed = [part.experts.experts for part, _ in structure.ffns if part.experts is not None]
    if ep > 1 and not routed:
        raise OptionError("--ep", "the model has no experts", "leave --ep out")
    if routed and ep > min(routed):
        raise OptionError("--ep", f"ep {ep} is more than the {min(routed)} experts", f"choose at most {min(routed)}")
    return Parallelism(tp, pp, dp, ep, cp)


def _divisors(n: int) -> list[int]:
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def _weights(options: Options, model: Model) -> WeightDtypes:
    default = options.weight_dtype or model.weight_dtype
    by_class = dict(model.weight_dtypes)
    if options.weight_dtype is not None and options.weight_dtype not in NARROW:
        by_class = {}  # asked for wide weights: nothing stays narrow
    elif default in NARROW:
        kept: dict[WeightClass, Dtype] = dict.fromkeys(_KEPT_WIDE, "bf16")
        by_class = {**kept, **by_class}
    return WeightDtypes(default, tuple(sorted(by_class.items())), model.int4_group)


def _activation_dtype(options: Options, weights: WeightDtypes, machine: Machine, notes: list[Statement]) -> str:
    peaks = ", ".join(machine.device.peaks)
    if options.activation_dtype is not None:
        if not machine.has_peak(options.activation_dtype):
            raise OptionError(
                "--activation-dtype", f"{machine.device.name} has no tensor peak for {options.activation_dtype}",
                did_you_mean(options.activation_dtype, list(machine.device.peaks)) + f" it has {peaks}",
            )  # fmt: skip
        return options.activation_dtype
    narrowest = _narrowest(weights)
    if narrowest not in WEIGHT_ONLY and machine.has_peak(narrowest):
        return narrowest
    runs = next((d for d in ("bf16", "fp16", "fp32") if machine.has_peak(d)), None)
    if runs is None:
        raise OptionError(
            "--hardware",
            f"{machine.device.name} has no bf16 peak to run {narrowest} weights with",
            f"it has {peaks}",
        )
    notes.append(
        Statement(
            name="weight-only",
            text=f"{narrowest} weights are widened and multiplied in {runs}"
            + ("." if narrowest in WEIGHT_ONLY else f", since {machine.device.name} has no {narrowest} tensor peak."),
            source="how engines run such checkpoints", bias="neutral",
        )
    )  # fmt: skip
    return runs


def _narrowest(weights: WeightDtypes) -> str:
    """Dtype of the bulk of the weights: the default, or the one its experts or blocks are pinned to."""
    if weights.default in NARROW:
        return weights.default
    pinned = [dtype for _, dtype in weights.by_class if dtype in NARROW]
    return pinned[0] if pinned else weights.default


def _attention_dtype(options: Options, kv: str, machine: Machine, notes: list[Statement]) -> str:
    asked = options.attention_dtype
    if asked is not None:
        if not machine.has_peak(asked):
            raise OptionError(
                "--attention-dtype",
                f"{machine.device.name} has no tensor peak for {asked}",
                f"it has {', '.join(machine.device.peaks)}",
            )
        return asked
    wanted = "fp8" if kv in ("nvfp4", "mxfp4", "int4") else kv
    runs = wanted if machine.has_peak(wanted) and wanted != "int8" else "bf16"
    if runs != kv:
        notes.append(
            Statement(
                name="attention dtype",
                text=f"The {kv} cache is read back as {runs} for attention.",
                source="how engines read narrow caches",
                bias="neutral",
            )
        )
    return runs


def with_options(setting: Setting, **changes: object) -> Setting:
    """The same setting with some options changed."""
    return resolve(replace(setting.options, **changes))  # type: ignore[arg-type]
