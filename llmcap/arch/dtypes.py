"""Bytes per element of the number formats, scales included."""

from __future__ import annotations

#: Bytes per element with the format's own block scales: NVFP4 has one FP8 scale per 16 elements, MXFP4 one
#: 8-bit scale per 32 (OCP Microscaling Formats v1.0); int4 is handled apart, since its group size varies.
_BYTES: dict[str, float] = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "nvfp4": 0.5 + 1.0 / 16.0,
    "mxfp4": 0.5 + 1.0 / 32.0,
}

#: Formats of eight bits or fewer: the default KV cache dtype is then fp8.
NARROW: frozenset[str] = frozenset({"fp8", "int8", "nvfp4", "mxfp4", "int4"})
#: Formats that weights are multiplied in as they are stored, where the device has a path for them.
WIDE: frozenset[str] = frozenset({"fp32", "bf16", "fp16"})
#: Formats that are stored narrow and multiplied in a wider one.
WEIGHT_ONLY: frozenset[str] = frozenset({"mxfp4", "int4"})


def bytes_per_element(dtype: str, int4_group: int = 32) -> float:
    """Bytes that one element of `dtype` takes, scales included.

    Parameters
    ----------
    dtype : str
        One of fp32, bf16, fp16, fp8, int8, nvfp4, mxfp4, int4.
    int4_group : int
        Elements that share one bf16 scale in int4 formats.

    Returns
    -------
    float
        [bytes]

    Examples
    --------
    >>> bytes_per_element("nvfp4"), bytes_per_element("int4"), bytes_per_element("int4", 128)
    (0.5625, 0.5625, 0.515625)
    """
    if dtype == "int4":
        return 0.5 + 2.0 / int4_group
    return _BYTES[dtype]
