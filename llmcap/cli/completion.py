"""Completion scripts for shells: every command, its options, and the shipped ids that some options take.

A script is written once and asks no Python at the Tab key; after an upgrade it is written again.
"""

from __future__ import annotations

from typing import Any, Final

from llmcap.errors import OptionError, did_you_mean, printable

SHELLS: Final = ("bash", "zsh", "fish")
#: option -> kind of the documents it names
_IDS: Final = {
    "--model": "model", "--hardware": "server", "--drive": "drive", "--engine": "engine", "--prices": "prices",
    "--assumptions": "assumptions",
}  # fmt: skip
#: command -> kind of the documents that it takes as an argument; a path to a file of one's own does as well
_NAMED: Final = {"sweep": "scenario", "report": "scenario", "models show": "model", "hardware show": "server"}


def script(shell: str) -> str:
    """The completion script of a shell.

    Raises
    ------
    OptionError
        A shell without one.
    """
    name = shell.strip().lower()
    if name not in SHELLS:
        hint = did_you_mean(name, SHELLS) or f"choose one of {', '.join(SHELLS)}"
        raise OptionError("--completion", f"no script for the shell '{printable(shell, 40)}'", hint)
    words = {
        path: (subs or (_shipped(_NAMED[path]) if path in _NAMED else []), options)
        for path, subs, options in _commands()
    }
    ids = {option: _shipped(kind) for option, kind in _IDS.items()}
    return _fish(words, ids) if name == "fish" else _bash(words, ids, zsh=name == "zsh")


#: words of the command -> (its subcommands or the ids it takes, its options)
Words = dict[str, tuple[list[str], list[str]]]


def _commands() -> list[tuple[str, list[str], list[str]]]:
    """(words of the command, its subcommands, its options) of every command."""
    from llmcap.cli.app import COMMANDS, build, command

    found = [("", list(COMMANDS), _options(build()))]
    for name in COMMANDS:
        built = command(name)
        subs: dict[str, Any] = dict(getattr(built, "commands", {}))
        found.append((name, list(subs), _options(built)))
        found += [(f"{name} {sub}", [], _options(c)) for sub, c in subs.items()]
    return found


def _options(command: Any) -> list[str]:
    return [o for p in command.params if not getattr(p, "hidden", False) for o in p.opts if o.startswith("--")] + [
        "--help"
    ]


def _shipped(kind: str) -> list[str]:
    from llmcap.specs.registry import list_ids

    return list(list_ids(kind))


def _bash(words: Words, ids: dict[str, list[str]], *, zsh: bool) -> str:
    lines = []
    if zsh:  # bashcompinit stands on compdef, which is there only once completion has been switched on
        lines = [
            "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }",
            "autoload -U +X bashcompinit && bashcompinit",
        ]
    lines += [
        "_llmcap() {",
        '  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" asked="" words="" word i',
        "  for ((i = 1; i < COMP_CWORD; i++)); do",
        '    word="${COMP_WORDS[i]}"',
        '    case "${asked:+$asked }$word" in',
        f'      {"|".join(repr(p) for p in words if p)}) asked="${{asked:+$asked }}$word" ;;',
        "    esac",
        "  done",
        '  case "$previous" in',
        *(f'    {option}) words="{" ".join(values)}" ;;' for option, values in ids.items()),
        '    *) case "$asked" in',
        *(f'      {path!r}) words="{" ".join(subs + options)}" ;;' for path, (subs, options) in words.items()),
        "    esac ;;",
        "  esac",
        '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
        "}",
        "complete -o default -F _llmcap llmcap",
    ]
    return "\n".join(lines) + "\n"


def _fish(words: Words, ids: dict[str, list[str]]) -> str:
    lines = []
    for path, (subs, options) in words.items():
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in path.split())
        if path and subs and path not in _NAMED:
            seen += f"; and not __fish_seen_subcommand_from {' '.join(subs)}"
        here = f'-n "{seen}"' if path else "-n __fish_use_subcommand"
        only = "-a" if path in _NAMED else "-xa"  # -x: no files
        lines += [f"complete -c llmcap {here} {only} '{' '.join(subs)}'"] if subs else []
        for option in options:
            values = f" -xa '{' '.join(ids[option])}'" if option in ids else ""
            lines.append(f"complete -c llmcap {here} -l {option.removeprefix('--')}{values}")
    return "\n".join(lines) + "\n"
