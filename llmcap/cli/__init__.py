"""The command line: parse, call one analysis, print.

What is set here holds for the whole process of a command, and before it imports anything.
"""

from __future__ import annotations

import gc
import os

# What a short command imports and loads lives to its end; looking through it for garbage costs 25 ms.
gc.set_threshold(100_000, 50, 50)

# No plugin of pydantic serves a command, and looking for them reads the metadata of every installed package.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
