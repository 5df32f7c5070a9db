"""`python -m llmcap` is the command."""

from __future__ import annotations

from llmcap.cli.app import main

if __name__ == "__main__":
    main()
