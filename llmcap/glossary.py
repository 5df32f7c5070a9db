"""Every option and column: its unit, what it means, and its name on an axis. One table for help, docs and figures."""

from __future__ import annotations

from typing import Final

from llmcap.records import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """What a name stands for."""

    unit: str
    """Unit of the value; empty for names, words and yes or no."""
    text: str
    """One sentence, without the final stop."""
    label: str
    """Short name for an axis or a column head, without the unit."""

    @property
    def axis(self) -> str:
        """Label with the unit in brackets."""
        return f"{self.label} [{self.unit}]" if self.unit else self.label


def _table(*rows: tuple[str, str, str, str]) -> dict[str, Entry]:
    return {name: Entry(unit, text, label) for name, unit, label, text in rows}


#: Options of a question, named as in the Python calls; the command spells them with dashes.
OPTIONS: Final = _table(
    ("model", "", "model", "the model: an id, a Hugging Face id, a YAML document, or a config.json or its folder"),
    ("hardware", "", "hardware", "the server: an id or a YAML document"),
    (
        "devices",
        "devices",
        "devices",
        "accelerators in use; more than a server holds joins servers by their NICs (default: all of one server)",
    ),
    ("tp", "devices", "TP", "tensor parallelism (default: the largest that divides devices and query heads)"),
    ("pp", "stages", "PP", "pipeline parallelism (default: 1)"),
    (
        "dp",
        "replicas",
        "DP",
        "data parallelism: replicas over which the users are spread (default: devices / (tp x pp x cp))",
    ),
    ("ep", "devices", "EP", "expert parallelism over the tp x dp devices (default: 1)"),
    ("cp", "devices", "CP", "context parallelism of the prefill (default: 1)"),
    ("users", "users", "users", "users active at once, all arriving together; the clients of a closed loop"),
    ("context", "tokens", "context", "prompt of each user, cached tokens included (ISL)"),
    ("output_tokens", "tokens", "output", "tokens generated for each user (OSL)"),
    (
        "cached_tokens",
        "tokens",
        "cached prefix",
        "first tokens of each context that are cached already; fewer than the context",
    ),
    ("sessions", "sessions", "sessions", "caches kept in all, of which `users` are active (default: users)"),
    ("weight_dtype", "", "weights", "dtype of the weights (default: the model's own)"),
    (
        "activation_dtype",
        "",
        "activations",
        "dtype of activations and matrix products (default: the weights' where the device has a peak, else bf16)",
    ),
    ("kv_dtype", "", "KV cache", "dtype of the KV cache (default: fp8 for weights of 8 bits or fewer, else bf16)"),
    (
        "attention_dtype",
        "",
        "attention",
        "dtype of the attention products (default: the KV cache's where the device has a peak, else bf16)",
    ),
    (
        "kv_policy",
        "",
        "KV policy",
        "what local layers keep: only their window or chunk (hybrid), or the whole context (all-full)",
    ),
    ("assumptions", "", "assumptions", "how optimistic to be: ideal, calibrated, as-published, or a YAML document"),
    ("engine", "", "engine", "serving engine whose memory and reload behaviour is assumed"),
    ("chunk_tokens", "tokens", "chunk", "tokens per prefill step (default: the engine's)"),
    ("drive", "", "drive", "other NVMe drives for the server: an id or a YAML document"),
    ("drives", "drives", "drives", "number of NVMe drives in each server"),
    ("dram", "B", "DRAM", "host memory of each server that holds caches, such as '2 TB'"),
    ("expander", "", "CXL module", "CXL memory modules for the server (adds the tier cxl): an id or a YAML document"),
    ("expanders", "modules", "CXL modules", "number of CXL memory modules in each server"),
    ("nic", "", "NIC", "other network cards for the server: an id or a YAML document"),
    ("nics", "cards", "NICs", "number of network cards in each server"),
    ("store", "", "store", "a remote store that the server mounts (adds the tier remote): an id or a YAML document"),
    (
        "tiers",
        "",
        "tier",
        "a further tier, or another dram, nvme or remote: 'cxl:2 TB:100 GB/s', then optional :write=, :latency= and "
        ":through=host|device|network|peer; may be given several times",
    ),
    (
        "storage_path",
        "",
        "storage path",
        "how drives and remote stores reach device memory: direct, or through a bounce buffer in host memory (default: "
        "the server's)",
    ),
    ("transfer_block", "B", "block", "size of one transfer of a reload, such as '2 MiB' (default: the engine's)"),
    (
        "transfers_in_flight",
        "transfers",
        "in flight",
        "transfers that each device keeps under way at once (default: the engine's)",
    ),
    (
        "arrivals",
        "",
        "arrivals",
        "how requests arrive: together; closed, where each of the users sends its next request when the last is "
        "answered; or a rate of Poisson arrivals such as 2/s or 120/min",
    ),
    ("lengths", "", "lengths", "lengths in a closed loop: varied (default), or equal as in many benchmarks"),
    (
        "draft_tokens",
        "tokens",
        "drafted",
        "tokens drafted for each verifying step (speculative decoding, MTP)",
    ),
    ("acceptance", "1", "acceptance", "chance that a drafted token is accepted if those before it were, such as 0.8"),
    ("prefill_devices", "devices", "prefill devices", "devices that only prefill; the others decode (disaggregation)"),
    ("prefill_tp", "devices", "prefill TP", "tensor parallelism of the prefill devices (default: that of the others)"),
    ("prefill_ep", "devices", "prefill EP", "expert parallelism of the prefill devices (default: that of the others)"),
)

#: Options of the command alone.
OUTPUT_OPTIONS: Final = _table(
    ("format", "", "format", "form of the answer: table for people, json, csv or md for programs and documents"),
    ("output", "", "file", "write here instead of to the terminal; the file appears whole or not at all"),
    (
        "cases",
        "",
        "cases",
        "CSV file of cases, one a row, columns named as the options; rows out are one per case and tier",
    ),
    ("plot", "", "figure", "also write a figure of prefill and reload time against context (png, svg or pdf)"),
)

#: Columns of inputs, beside the options of the same name.
INPUTS: Final = _table(
    ("context_tokens", "tokens", "context", "prompt of each user, cached tokens included"),
)

#: Columns of results.
RESULTS: Final = _table(
    ("prefill_s", "s", "prefill time", "until the last user's prompt is processed"),
    (
        "ttft_s",
        "s",
        "time to first token",
        "time to first token of the last user, all arriving together and served first come first served",
    ),
    ("ttft_low_s", "s", "TTFT, low", "lower end of the band of ttft_s; empty under ideal and as-published"),
    ("ttft_high_s", "s", "TTFT, high", "upper end of the band of ttft_s; empty under ideal and as-published"),
    ("ttft_mean_s", "s", "mean TTFT", "time to first token, mean over the users"),
    ("tpot_s", "s", "time per output token", "mean time between output tokens of one user with all users decoding"),
    ("tpot_low_s", "s", "TPOT, low", "lower end of the band of tpot_s; empty under ideal and as-published"),
    ("tpot_high_s", "s", "TPOT, high", "upper end of the band of tpot_s; empty under ideal and as-published"),
    ("e2el_s", "s", "end-to-end latency", "ttft_s + (output - 1) tpot_s, the sum of the phases"),
    ("output_tok_per_s", "tokens/s", "output rate", "users x output tokens / e2el_s"),
    (
        "kv_bytes_per_token",
        "B",
        "KV per token",
        "marginal state of one more token of one user at context + output tokens, one copy",
    ),
    (
        "kv_bytes_per_user",
        "B",
        "KV per user",
        "state of one user at context + output tokens, one copy over all devices",
    ),
    ("kv_bytes_total", "B", "KV cache", "state of all active users, one copy over all devices"),
    (
        "kv_bytes_total_reserved",
        "B",
        "KV reserved",
        "what the engine sets aside for the active users: policy, block rounding and TP copies included",
    ),
    ("weight_bytes", "B", "weights", "one copy of all weights"),
    ("weight_bytes_per_device", "B", "weights per device", "weights on the fullest device"),
    (
        "hbm_free_bytes",
        "B",
        "free HBM",
        "over all devices, after weights, activations, engine reserve and these users' KV; negative when short",
    ),
    ("max_users_hbm", "users", "users in HBM", "users of this length whose caches device memory holds"),
    ("fits", "", "fits", "whether the active users fit device memory; if not, no time is given"),
    (
        "limit",
        "",
        "limit",
        "largest share of e2el_s: compute, memory, network or overhead; capacity when it does not fit",
    ),
    ("mfu", "1", "MFU", "prefill FLOP over what all devices could do at the peak of each operator's dtype"),
    ("mbu", "1", "MBU", "decode bytes over what the memories of all devices could move"),
)

#: Columns of tiers; P is the reusable prefix, the cached tokens if any, else the whole context.
TIERS: Final = _table(
    ("tier", "", "tier", "place that keeps KV caches"),
    ("capacity_bytes", "B", "capacity", "of the whole tier, all servers in use"),
    ("read_bytes_per_s", "B/s", "read bandwidth", "nominal, over the narrowest hop to the devices in use"),
    ("effective_read_bytes_per_s", "B/s", "effective read bandwidth", "after block sizes, protocols and software"),
    ("users_held", "users", "users held", "caches of this length that the tier holds, alone"),
    ("reload_s", "s", "reload time", "transfer of P of all users"),
    ("ttft_reload_s", "s", "TTFT with reload", "reload_s and the prefill of the remaining tokens on top of P"),
    ("ttft_overlap_s", "s", "TTFT, overlapped", "load and remaining prefill overlapped layer by layer"),
    ("ttft_hybrid_s", "s", "TTFT, hybrid", "best split of P into a part computed while the rest is loaded"),
    ("recompute_s", "s", "recompute time", "prefill of the whole context of all users with nothing cached"),
    ("speedup", "1", "speedup", "recompute_s / ttft_reload_s"),
    ("winner", "", "winner", "reload or recompute, whichever gives the first token sooner"),
    ("break_even_bytes_per_s", "B/s", "break-even bandwidth", "rate above which reloading P beats computing it"),
    ("break_even_tokens", "tokens", "break-even context", "smallest P from which reloading from this tier wins"),
)

#: Columns of replay, beside those of tiers.
REPLAY: Final = _table(
    ("requests", "requests", "requests", "requests of the trace"),
    ("unique_blocks", "blocks", "blocks", "distinct blocks of all prompts; empty for a trace with lengths only"),
    ("block_accesses", "blocks", "accesses", "blocks of all prompts, repeated ones each time"),
    ("input_tokens", "tokens", "input", "tokens of all prompts"),
    ("duration_s", "s", "duration", "from the first to the last arrival"),
    ("ideal_hit_ratio", "1", "ideal hits", "share of input tokens hit when nothing is ever evicted"),
    ("capacity_for_90pct_of_ideal_tokens", "tokens", "90 % capacity", "smallest cache with 90 % of the ideal hits"),
    ("capacity_for_90pct_of_ideal_bytes", "B", "90 % capacity", "the same, in one logical copy of the model's state"),
    ("blocks_used_once_ratio", "1", "used once", "share of the distinct blocks that are never asked for again"),
    ("capacity_blocks", "blocks", "capacity", "blocks that a cache or tier holds"),
    ("capacity_tokens", "tokens", "capacity", "tokens that a cache or tier holds"),
    ("hit_ratio", "1", "hits", "share of input tokens hit, here or in a faster tier"),
    ("share_of_ideal", "1", "share of ideal", "hit_ratio / ideal_hit_ratio"),
    ("served_ratio", "1", "served", "share of input tokens that come from this very tier"),
    ("slower_ratio", "1", "slower", "share of requests that this tier makes slower than going without it"),
    ("bytes_per_block", "B", "block", "what a full block takes in this tier, copies included"),
    ("read_bytes", "B", "read", "reloaded from this tier over the trace"),
    ("read_mean_bytes_per_s", "B/s", "mean reads", "read_bytes over the trace's duration"),
    ("read_peak_bytes_per_s", "B/s", "peak reads", "reads in the busiest window"),
    ("write_bytes", "B", "written", "blocks that this tier did not hold when they were asked for"),
    ("write_mean_bytes_per_s", "B/s", "mean writes", "write_bytes over the trace's duration"),
    ("write_peak_bytes_per_s", "B/s", "peak writes", "writes in the busiest window"),
    ("write_bytes_per_day", "B", "writes a day", "write_bytes at the trace's pace"),
    (
        "write_bytes_per_day_second_touch",
        "B",
        "writes a day, second touch",
        "the same when a block is written only once it is asked for again",
    ),
    ("drive_writes_per_day", "1/d", "DWPD", "full writes of each drive a day"),
    ("drive_writes_per_day_second_touch", "1/d", "DWPD, second touch", "the same with the second-touch filter"),
    ("drive_life_years", "years", "life", "until the drives' rated endurance is used up; empty without a rating"),
    ("drive_life_years_second_touch", "years", "life, second touch", "the same with the second-touch filter"),
    ("mean_s", "s", "mean TTFT", "time to first token of a request alone, mean over the trace"),
    ("p50_s", "s", "median TTFT", "time to first token of a request alone, median"),
    ("p95_s", "s", "TTFT, p95", "time to first token of a request alone, 95th percentile"),
    ("p99_s", "s", "TTFT, p99", "time to first token of a request alone, 99th percentile"),
    ("prefill_gpu_s", "s", "GPU time", "prefill time of all requests times the devices that share a prefill"),
    ("gpu_s_saved", "s", "GPU time saved", "prefill_gpu_s without caches less that with the tiers in use"),
    ("busy_ratio", "1", "busy", "prefill time of all requests over the trace's duration and all replicas"),
)

#: Columns of the tiers question, beside those of tiers.
TIER_TABLE: Final = _table(
    ("shared_tokens", "tokens", "shared prefix", "first tokens that all users have in common"),
    ("reload_mean_s", "s", "mean reload", "transfer of P, mean over the users, by the discipline asked for"),
    ("reload_p95_s", "s", "reload, p95", "transfer of P, 95 % of the users, by the discipline asked for"),
    ("break_even_users", "users", "break-even users", "fewest users reloading together from which reloading loses"),
    ("narrowest_hop", "", "limited by", "hop of the path that bounds the rate"),
    ("no_gain_because", "", "no gain because", "why the tier gains nothing in this case; empty where it gains"),
    ("store_s", "s", "store time", "writing the whole context of all users to the tier once"),
    ("store_share_of_prefill", "1", "store share", "store_s / recompute_s"),
    ("sessions_placed", "sessions", "sessions here", "kept sessions that live in this tier"),
    ("sessions_dropped", "sessions", "dropped", "kept sessions that no tier has room for"),
    ("returns_share", "1", "share of returns", "share of returning sessions that this tier serves"),
    ("ttft_expected_s", "s", "expected TTFT", "of the next session to return, all tiers in use"),
    ("ttft_expected_hbm_only_s", "s", "expected TTFT, HBM alone", "the same without tiers beyond device memory"),
    ("tier_utilisation", "1", "tier busy", "share of time that the tier transfers, at the arrivals asked for"),
    ("device_utilisation_reload", "1", "devices busy", "share of time that the devices prefill what P leaves"),
    ("device_utilisation_recompute", "1", "devices busy, recompute", "the same with nothing cached"),
    ("ttft_reload_mean_s", "s", "mean TTFT", "at the arrivals asked for, reloading; empty without a steady state"),
    ("ttft_reload_p95_s", "s", "TTFT, p95", "at the arrivals asked for, reloading, 95 % of the requests"),
    ("ttft_recompute_mean_s", "s", "mean TTFT, recompute", "at the arrivals asked for, nothing cached"),
    ("ttft_recompute_p95_s", "s", "TTFT, p95, recompute", "the same, 95 % of the requests"),
    ("sustained_reload_per_s", "1/s", "sustained arrivals", "most requests a second with a steady state, reloading"),
    ("sustained_recompute_per_s", "1/s", "sustained, recompute", "the same with nothing cached"),
    ("written_bytes_per_s", "B/s", "writes", "new state that reaches the tier, by the write policy"),
    ("write_utilisation", "1", "of the write rate", "written_bytes_per_s over the tier's nominal write bandwidth"),
    ("recompute_device_s", "s", "device time, recompute", "device-seconds of one request with nothing cached"),
    ("reload_device_s", "s", "device time, reload", "the same with P reloaded, the devices held while loading"),
    ("recompute_j", "J", "energy, recompute", "energy of one request with nothing cached"),
    ("reload_j", "J", "energy, reload", "the same with P reloaded"),
    ("recompute_usd", "USD", "cost, recompute", "device time of one request at the price list's hour"),
    ("reload_usd", "USD", "cost, reload", "the same with P reloaded"),
    ("freed_device_h_per_day", "h", "device-hours freed", "device-hours a day that reloading saves"),
    ("saved_j_per_day", "J", "energy saved", "energy a day that reloading saves"),
    ("saved_usd_per_day", "USD", "saved", "device time a day that reloading saves, at the price list's hour"),
    ("tier_usd_per_day", "USD", "tier", "purchase of the tier, spread over its years"),
)

#: Columns of serving in steady state, when requests come and go; in JSON they stand under `serving` without the prefix.
SERVING: Final = _table(
    ("arrivals_per_s", "1/s", "arrivals", "rate of Poisson arrivals asked for"),
    ("serving_fits", "", "fits", "whether each replica holds one request at its full length"),
    ("serving_limit", "", "limit", "as limit: what most of the devices' time goes into; or saturated"),
    ("serving_ttft_s", "s", "TTFT under load", "mean time to first token, waiting included"),
    ("serving_ttft_low_s", "s", "TTFT under load, low", "lower end of its band"),
    ("serving_ttft_high_s", "s", "TTFT under load, high", "upper end of its band; empty where it is past saturation"),
    ("serving_ttft_p95_s", "s", "TTFT under load, p95", "95 % of the requests have their first token by then"),
    ("serving_ttft_p99_s", "s", "TTFT under load, p99", "99 % of the requests have their first token by then"),
    ("serving_queue_s", "s", "queueing", "part of serving_ttft_s that passes before a request's own work begins, mean"),
    ("serving_transfer_s", "s", "transfer", "moving a prompt's cache from the prefill devices to those that decode"),
    ("serving_tpot_s", "s", "TPOT under load", "mean time between output tokens of a request"),
    ("serving_tpot_low_s", "s", "TPOT under load, low", "lower end of its band"),
    ("serving_tpot_high_s", "s", "TPOT under load, high", "upper end of its band; empty where it is past saturation"),
    ("serving_e2el_s", "s", "latency under load", "serving_ttft_s + (output - 1) serving_tpot_s"),
    ("serving_e2el_low_s", "s", "latency under load, low", "the same of the lower ends"),
    ("serving_e2el_high_s", "s", "latency under load, high", "the same of the upper ends"),
    ("serving_requests_per_s", "1/s", "request rate", "requests answered a second, all devices"),
    ("serving_output_tok_per_s", "tokens/s", "throughput", "output tokens a second, all devices"),
    ("serving_output_low_tok_per_s", "tokens/s", "throughput, low", "lower end of its band"),
    ("serving_output_high_tok_per_s", "tokens/s", "throughput, high", "upper end of its band"),
    (
        "serving_output_tok_per_s_per_user",
        "tokens/s",
        "interactivity",
        "output tokens a second of a request, 1 / TPOT",
    ),
    (
        "serving_output_tok_per_s_per_device",
        "tokens/s",
        "throughput per device",
        "output tokens a second of a device",
    ),
    ("serving_running", "requests", "running", "requests being prefilled or decoded at a time, mean"),
    ("serving_waiting", "requests", "waiting", "requests that wait at a time, mean"),
    (
        "serving_held",
        "requests",
        "held",
        "requests of this length that the pools hold, or the engine runs, at most",
    ),
    ("serving_utilisation", "1", "utilisation", "request rate over that at saturation"),
    ("serving_saturation_requests_per_s", "1/s", "saturation", "most requests a second that can be answered"),
    ("serving_saturation_tok_per_s", "tokens/s", "saturation throughput", "output tokens a second at saturation"),
    ("serving_saturation_low_tok_per_s", "tokens/s", "saturation throughput, low", "lower end of its band"),
    ("serving_saturation_high_tok_per_s", "tokens/s", "saturation throughput, high", "upper end of its band"),
    ("serving_saturation_limit", "", "saturates by", "what holds the rate down: cache pool, work, a pool of devices"),
    ("serving_prefill_tp", "devices", "prefill TP", "tensor parallelism of the prefill devices"),
    ("serving_prefill_dp", "replicas", "prefill DP", "replicas of the prefill devices"),
    ("serving_decode_tp", "devices", "decode TP", "tensor parallelism of the devices that decode"),
    ("serving_decode_dp", "replicas", "decode DP", "replicas of the devices that decode"),
    ("serving_prefill_utilisation", "1", "prefill busy", "share of time that the prefill devices are busy"),
    ("serving_decode_utilisation", "1", "decode busy", "request rate over the most that the decode devices answer"),
    ("serving_transfer_utilisation", "1", "links busy", "share of time that caches are moved"),
    ("serving_tokens_per_step", "tokens", "tokens a step", "output tokens that a verifying step yields, mean"),
)

OTHER: Final = _table(
    ("new_tokens", "tokens", "new tokens", "tokens of each context that follow its cached prefix"),
    (
        "usd_per_million_output_tokens",
        "USD",
        "cost per million output tokens",
        "price of the devices in use over the end-to-end latency, per million tokens generated",
    ),
    ("usd_per_million_tokens", "USD", "cost per million tokens", "the same per million tokens read or generated"),
    ("usd_per_hour", "USD", "cost per hour", "price of the devices in use"),
    ("device_power_w", "W", "power per device", "one device with its share of the server, and of the site if listed"),
    ("power_w", "W", "power", "of the devices in use"),
    ("energy_j_per_output_token", "J", "energy per output token", "power over the output rate"),
    ("time_s", "s", "time", "duration of a phase or an operator"),
    ("parameters_total", "parameters", "parameters", "all parameters of the text model"),
    ("parameters_active", "parameters", "active parameters", "parameters that one token meets"),
    ("bytes_total", "B", "bytes", "everything kept for one user: growing caches, index keys and constant states"),
    ("bytes_reserved", "B", "reserved", "what an engine sets aside for it: policy, blocks, padding and TP copies"),
    ("bytes_constant", "B", "constant", "the part that does not grow with the context"),
)

GLOSSARY: Final[dict[str, Entry]] = {
    **OPTIONS, **OUTPUT_OPTIONS, **INPUTS, **RESULTS, **TIERS, **TIER_TABLE, **REPLAY, **SERVING, **OTHER,
}  # fmt: skip


def entry(name: str) -> Entry:
    """The entry of an option or column, dashes and case forgiven.

    >>> entry("cached-tokens").axis
    'cached prefix [tokens]'
    """
    return GLOSSARY[name.strip().lower().replace("-", "_")]
