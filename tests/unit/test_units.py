"""Quantities in and out. Expected values are the definitions of the units, written out."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcap.units import (
    DIMENSIONS,
    QuantityError,
    format_bytes,
    format_count,
    format_flop_rate,
    format_rate,
    format_seconds,
    parse_count,
    parse_quantity,
    quantity_text,
)


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("1.44 TB", "bytes", 1_440_000_000_000),
        ("80 GB", "bytes", 80_000_000_000),
        ("180 GiB", "bytes", 180 * 1024**3),
        ("180GiB", "bytes", 180 * 1024**3),
        ("512 B", "bytes", 512),
        ("64 KiB", "bytes", 65536),
        ("1 kB", "bytes", 1000),
        ("1,024 MB", "bytes", 1_024_000_000),
        ("0 B", "bytes", 0),
        ("64 GB/s", "bytes_per_s", 64e9),
        ("400 Gbit/s", "bytes_per_s", 50e9),
        ("7.7 TB/s", "bytes_per_s", 7.7e12),
        ("2250 TFLOP/s", "flop_per_s", 2250e12),
        ("9 PFLOP/s", "flop_per_s", 9e15),
        ("1979 TOP/s", "flop_per_s", 1979e12),
        ("8 us", "seconds", 8e-6),
        ("13 ms", "seconds", 0.013),
        ("2s", "seconds", 2),
        ("4 min 12 s", "seconds", 252),
        ("3 h 5 min", "seconds", 11100),
        ("1.5 h", "seconds", 5400),
        ("1e-3 s", "seconds", 0.001),
        ("14.3 kW", "watts", 14300),
        ("25 USD", "usd", 25),
        ("3.3 M/s", "per_s", 3.3e6),
        ("3.3M IOPS", "per_s", 3.3e6),
        ("250k/s", "per_s", 250_000),
        ("67 %", "fraction", 0.67),
        ("0.67", "fraction", 0.67),
        ("1", "fraction", 1),
        ("3", "dwpd", 3),
    ],
)
def test_a_quantity_is_read_exactly(text: str, dimension: str, value: float) -> None:
    assert parse_quantity(text, dimension) == value


@pytest.mark.parametrize(
    ("text", "dimension", "hint"),
    [
        ("80", "bytes", "80 GB"),
        ("64", "bytes_per_s", "64 GB/s"),
        ("8", "seconds", "8 s"),
        ("80 gb", "bytes", "80 GB"),
        ("80 KB", "bytes", "KiB"),
        ("80 Gb", "bytes", "GB"),
        ("400 Gb/s", "bytes_per_s", "Gbit/s"),
        ("400 Gbps", "bytes_per_s", "Gbit/s"),
        ("400 gbit/s", "bytes_per_s", "Gbit/s"),
        ("2250 TFLOPS", "flop_per_s", "FLOP/s"),
        ("8 µs", "seconds", "us"),
        ("8 μs", "seconds", "us"),
        ("12 s 4 min", "seconds", "larger units come first"),
    ],
)
def test_a_near_miss_is_refused_with_what_to_write(text: str, dimension: str, hint: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_quantity(text, dimension)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "GB",
        "-5 GB",
        "nan GB",
        "inf GB",
        "1e400 TB",
        "1e-400 TB",
        "1e99999 GB",
        "1e30 GB",
        "٥ GB",  # Arabic-Indic digit five
        "８０ GB",  # full-width digits
        "80 ＧＢ",
        "80\u00a0GB",
        "1.2.3 GB",
        "1,5 GB",
        "1,00,000 GB",
        "0x10 GB",
        "1_000 GB",
        ". GB",
        "e5 GB",
        "80 GB/s",
        "80 GB 3",
        "80 GB\x00",
        "1 min 2 x",
        "9" * 5000 + " GB",
    ],
)
def test_what_is_no_quantity_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_quantity(text, "bytes")


@pytest.mark.parametrize(
    ("text", "dimension"), [("0 GB/s", "bytes_per_s"), ("0 FLOP/s", "flop_per_s"), ("0 /s", "per_s")]
)
def test_a_rate_of_zero_is_refused(text: str, dimension: str) -> None:
    with pytest.raises(QuantityError, match="greater than zero"):
        parse_quantity(text, dimension)


def test_the_caller_decides_about_other_zeros() -> None:
    assert parse_quantity("0 s", "seconds") == 0
    with pytest.raises(QuantityError, match="greater than zero"):
        parse_quantity("0 s", "seconds", allow_zero=False)


@pytest.mark.parametrize("text", ["1.01", "101 %", "-0.1", "67"])
def test_a_fraction_is_between_none_and_all(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(text, "fraction")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1M", 1_000_000),
        ("1Mi", 1_048_576),
        ("250k", 250_000),
        ("250K", 250_000),
        ("128Ki", 131_072),
        ("1_000", 1000),
        ("1,000,000", 1_000_000),
        ("1.5k", 1500),
        ("0.5Ki", 512),
        ("1e6", 1_000_000),
        ("0", 0),
        (" 7 ", 7),
        (7, 7),
        ("1000000000000000", 10**15),
    ],
)
def test_a_count_is_read_exactly(text: str | int, value: int) -> None:
    assert parse_count(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "many",
        "-5",
        "1.5",
        "1.0001k",
        "1e400",
        "1e99999",
        "10000000000000001",
        "1m",
        "1KI",
        "1,0",
        "1__0",
        "_1",
        "1_",
        "inf",
        "nan",
        "٥",
        "1 M x",
        "0x10",
        "1e-3",
        -1,
        10**16,
        True,
        "9" * 10_000,
    ],
)
def test_what_is_no_count_is_refused(text: str | int) -> None:
    with pytest.raises(ValueError):
        parse_count(text)


def test_a_fraction_of_a_count_is_called_that() -> None:
    with pytest.raises(QuantityError, match="not whole"):
        parse_count("1.5")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (25.2e9, "25.2 GB"),
        (1.44e12, "1.44 TB"),
        (999.96e9, "1 TB"),
        (1.5308e12, "1.53 TB"),
        (-25.2e9, "-25.2 GB"),
        (math.nan, "n/a"),
        (math.inf, "n/a"),
    ],
)
def test_bytes_for_people(value: float, text: str) -> None:
    assert format_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (3.2e-6, "3.2 us"),
        (250e-9, "250 ns"),
        (0.140, "140 ms"),
        (0.9999, "1 s"),
        (27.1, "27.1 s"),
        (119.4, "119 s"),
        (119.9, "2 min 0 s"),
        (252, "4 min 12 s"),
        (11100, "3 h 5 min"),
        (7199.9, "2 h 0 min"),
        (12.5 * 86400, "12.5 d"),
        (-27.1, "-27.1 s"),
        (math.nan, "n/a"),
    ],
)
def test_durations_for_people(value: float, text: str) -> None:
    assert format_seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1_000_000, "1M"),
        (10_000_000, "10M"),
        (1_500_000, "1.5M"),
        (1_048_576, "1,048,576"),
        (250_000, "250k"),
        (1000, "1,000"),
        (999, "999"),
        (131_072, "131,072"),
        (0, "0"),
    ],
)
def test_counts_for_people(value: int, text: str) -> None:
    assert format_count(value) == text


def test_rates_for_people() -> None:
    assert format_rate(112e9, "B/s") == "112 GB/s"
    assert format_rate(1234.5, "tok/s") == "1,230 tok/s"
    assert format_rate(0.01234, "tok/s") == "0.0123 tok/s"
    assert format_rate(1.0, "requests/s") == "1 request/s"
    assert format_rate(1.004, "tokens/s") == "1 token/s"
    assert format_rate(1.5, "requests/s") == "1.5 requests/s"
    assert format_flop_rate(2.25e15) == "2.25 PFLOP/s"


@given(st.integers(min_value=0, max_value=10**15))
def test_a_printed_count_is_read_back(n: int) -> None:
    assert parse_count(format_count(n)) == n


@given(st.floats(min_value=1, max_value=1e18))
def test_printed_bytes_are_read_back_within_their_digits(x: float) -> None:
    assert parse_quantity(format_bytes(x), "bytes") == pytest.approx(x, rel=0.0051)


@given(st.floats(min_value=1e-9, max_value=1e9))
def test_a_printed_duration_is_read_back_within_its_digits(x: float) -> None:
    # '2 h 0 min' is the coarsest: half a minute in two hours.
    assert parse_quantity(format_seconds(x), "seconds") == pytest.approx(x, rel=0.0051)


@given(st.floats(min_value=1e3, max_value=1e18))
def test_printed_rates_are_read_back_within_their_digits(x: float) -> None:
    assert parse_quantity(format_rate(x, "B/s"), "bytes_per_s") == pytest.approx(x, rel=0.0051)
    assert parse_quantity(format_flop_rate(x), "flop_per_s") == pytest.approx(x, rel=0.0051)


@given(st.sampled_from(sorted(DIMENSIONS)), st.floats(min_value=1e-12, max_value=1e20))
def test_a_written_quantity_is_read_back_exactly(dimension: str, x: float) -> None:
    if dimension == "fraction":
        x = min(x, 1.0)
    assert parse_quantity(quantity_text(x, dimension), dimension) == x


@given(st.integers(1, 9999), st.sampled_from(["GB", "GiB", "TB", "KiB"]))
def test_a_document_keeps_the_unit_that_reads_best(n: int, unit: str) -> None:
    text = f"{n} {unit}"
    assert len(quantity_text(parse_quantity(text, "bytes"), "bytes")) <= len(text)
