"""How long hardware takes: kernels, collectives, memory, transfers. No models here."""
