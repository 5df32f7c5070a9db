"""The command `llmcap`: a table of commands that load when they are called, and what becomes of errors."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from llmcap.errors import LlmcapError, OptionError, did_you_mean, printable

#: name -> (module, function, one line for the list of commands). A command's module loads when it is called.
COMMANDS: Final[dict[str, tuple[str, str, str]]] = {
    "estimate": (
        "llmcap.cli.estimate",
        "estimate",
        "Time to first token, KV cache, memory, and reload against recompute for each tier.",
    ),
    "validate": ("llmcap.cli.validate", "validate", "Hold published claims against the model: which stand, and why."),
    "calibrate": (
        "llmcap.cli.calibrate",
        "calibrate",
        "Fit parameters to measured kernels, or factors to one's own machine.",
    ),
    "sweep": ("llmcap.cli.sweep", "sweep", "Evaluate every case of a scenario into a CSV or Parquet file."),
    "tiers": ("llmcap.cli.tiers", "tiers", "Reload against recompute on every tier, for lists of contexts and users."),
    "replay": (
        "llmcap.cli.replay",
        "replay",
        "Hit ratio of a request trace at every capacity, and on a server's tiers.",
    ),
    "explain": ("llmcap.cli.explain", "explain", "Derive one estimate operator by operator, with the numbers put in."),
    "compare": ("llmcap.cli.compare", "compare", "Machines, models or settings side by side, and why they differ."),
    "plan": ("llmcap.cli.plan", "plan", "Solve for users, devices, DRAM, drives, bandwidth, or the cheapest machine."),
    "report": (
        "llmcap.cli.report",
        "report",
        "A scenario or a result as one page with figures, tables and sources.",
    ),
    "models": ("llmcap.cli.models", "models", "List, show, import and check model documents."),
    "hardware": ("llmcap.cli.hardware", "hardware", "List, show and check hardware documents."),
    "schema": ("llmcap.cli.schema", "schema", "Print the JSON Schema of a kind of document."),
}

EPILOG: Final = (
    "'llmcap estimate' alone answers for Llama 4 Maverick with a million tokens on a DGX B200. "
    "'llmcap COMMAND --help' tells the options."
)

# typer carries its own copy of click since 0.26; the exception classes are reached without naming either.
_UsageError: Final[type[Exception]] = typer.BadParameter.__bases__[0]
_ClickError: Final[type[Exception]] = _UsageError.__bases__[0]


class Option(TyperOption):
    """An option that is converted only when it was given: typer makes a validator for each one that it converts."""

    def process_value(self, ctx: Any, value: Any) -> Any:
        if value is not None or self.required:
            return super().process_value(ctx, value)
        nothing = () if self.multiple else None
        return nothing if self.callback is None else self.callback(ctx, self, nothing)


class Command(TyperCommand):
    """A command whose help groups its options, in plain text: rich would double the time of a cold start."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _converted_when_given(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _write_help(self, ctx, formatter)


class Group(TyperGroup):
    """A group with plain help."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _converted_when_given(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _write_help(self, ctx, formatter)
        with formatter.section("Commands"):
            formatter.write_dl(self.summaries(ctx))
        if self.epilog:
            formatter.write_paragraph()
            formatter.write_text(self.epilog)

    def summaries(self, ctx: Any) -> list[tuple[str, str]]:
        """(name, one line) of each command that is not hidden."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        return [(name, _first_sentence(c.help)) for name, c in found if c is not None and not c.hidden]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            names = self.list_commands(ctx)
            hint = did_you_mean(args[0], names) or f"choose one of {', '.join(names)}"
            raise OptionError("", f"no such command '{printable(args[0], 40)}'", hint)
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """The group of all commands; imports the module of one only when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return command(cmd_name) if cmd_name in COMMANDS else None

    def summaries(self, ctx: Any) -> list[tuple[str, str]]:
        return [(name, text) for name, (_, _, text) in COMMANDS.items()]


def command(name: str) -> Any:
    """The command object of an entry of the table, with its module imported."""
    module, function, _ = COMMANDS[name]
    found = getattr(import_module(module), function)
    app = found if isinstance(found, typer.Typer) else _single(name, found)
    built = typer.main.get_command(app)
    built.name = name
    return built


def group(help_text: str) -> typer.Typer:
    """A Typer app for a group of commands (`models list`), with plain help."""
    return typer.Typer(cls=Group, help=help_text, add_completion=False, rich_markup_mode=None, no_args_is_help=True)


def build() -> Any:
    """The command object of `llmcap` itself."""
    app = typer.Typer(cls=LazyGroup, epilog=EPILOG, add_completion=False, rich_markup_mode=None, no_args_is_help=True)
    app.callback()(_root)
    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and exit.

    0 done, 2 an option, 3 a file, 4 it does not fit, 1 a bug, 130 interrupted, 143 terminated. Data goes to stdout,
    all else to stderr.
    """
    # Ended from outside, half-written files go as they do after an interrupt; a sweep's finished chunks stay.
    with contextlib.suppress(ValueError, AttributeError):  # not the main thread, or no such signal
        signal.signal(signal.SIGTERM, _terminated)
    status = run(list(sys.argv[1:] if arguments is None else arguments))
    gc.freeze()  # the interpreter looks through everything once more before it ends, in 20 ms
    sys.exit(status)


def _terminated(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)


def run(arguments: list[str]) -> int:
    """Run the command and return its exit status."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, as by `>&-`
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A terminal or pipe that cannot show a letter gets its code instead of an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        group = build()
        # Not group.main(): it would turn a reader that left into an error of its own.
        with group.make_context("llmcap", list(arguments)) as ctx:
            group.invoke(ctx)
        sys.stdout.flush()
        return 0
    except typer.Exit as leave:
        return int(leave.exit_code)
    except LlmcapError as error:
        return _fail(str(error), error.exit_code)
    except _ClickError as error:
        return _usage(error)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        return _reader_gone()
    except (OSError, MemoryError) as error:
        # What the machine refuses (a full disk, a closed stream, a name too long, memory) is no bug of the model.
        if _debugging(arguments):
            raise
        return _refused(error)
    except ModuleNotFoundError as error:
        if _debugging(arguments) or (error.name or "llmcap").startswith("llmcap"):
            raise
        package = (error.name or "").partition(".")[0]
        again = "pip install scipy" if package == "scipy" else "pip install -e . (llmcap again)"
        return _fail(f"the Python package '{package}' is not installed. Install it: {again}", 2)
    except Exception as error:
        if _debugging(arguments):
            raise
        text = f"{type(error).__name__}: {printable(error, 300)}"
        return _fail(f"this is a bug in llmcap: {text} (--debug before the command shows where)", 1)


def _print_version(wanted: bool) -> None:
    if wanted:
        from llmcap.cli.version import version_text

        typer.echo(version_text())
        raise typer.Exit(0)


def _print_completion(shell: str | None) -> None:
    if shell is not None:
        from llmcap.cli.completion import script

        typer.echo(script(shell), nl=False)
        raise typer.Exit(0)


def _root(
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_print_version, help="Print the version and stop."
    ),
    completion: str | None = typer.Option(
        None,
        "--completion",
        metavar="bash|zsh|fish",
        is_eager=True,
        callback=_print_completion,
        help="Print a script that completes commands, options and ids in a shell, and stop.",
    ),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of a bug (also: LLMCAP_DEBUG=1)."),
) -> None:
    """Analytical performance model of LLM inference: how long until the first token, how big is the KV cache, where
    does it live, and is reloading it faster than computing it again.
    """


def _single(name: str, function: Any) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name, cls=Command)(function)
    return app


def _converted_when_given(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if type(parameter) is TyperOption:  # typer has no setting for the class that options are made of
            parameter.__class__ = Option
    return parameters


def _write_help(command: Any, ctx: Any, formatter: Any) -> None:
    command.format_usage(ctx, formatter)
    for paragraph in (command.help or "").split("\n\n"):
        formatter.write_paragraph()
        formatter.write_text(" ".join(paragraph.split()))
    panels: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(ctx):
        if not getattr(parameter, "hidden", False):
            usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
            panels.setdefault(getattr(parameter, "rich_help_panel", None) or usual, []).append(_record(parameter))
    for title in sorted(panels, key=lambda title: title == "Options"):
        with formatter.section(title):
            formatter.write_dl(panels[title], col_max=28)


def _record(parameter: Any) -> tuple[str, str]:
    metavar = parameter.metavar or ""
    text = getattr(parameter, "help", None) or ""
    if parameter.param_type_name == "argument":
        return metavar or parameter.name.upper(), text
    return f"{', '.join(parameter.opts)}{' ' + metavar if metavar else ''}", text


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split())


def _usage(error: Any) -> int:
    text = str(error.message) if getattr(error, "possibilities", None) else error.format_message()
    near = list(getattr(error, "possibilities", None) or ())
    elsewhere = _takers(str(getattr(error, "option_name", "")))
    hint = f" {elsewhere}." if elsewhere else f" Did you mean {near[0]}?" if near else ""
    ctx = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.format_message(), err=True)
        return 2
    where = f" See '{ctx.command_path} --help'." if ctx is not None else ""
    text = printable(text.strip(), 1000, keep="\n")
    return _fail(f"{text if text.endswith('.') else text + '.'}{hint}{where}", 2)


def _takers(option: str) -> str:
    """Which other commands take an option, as a sentence without its full stop; an empty text where none does.

    Imports every command: an error has the time for it.
    """
    if not option.startswith("--"):
        return ""
    found = [name for name in COMMANDS if any(option in getattr(p, "opts", ()) for p in command(name).params)]
    if not found:
        return ""
    return f"It is an option of {', '.join(f'llmcap {name}' for name in found)}"


def _fail(text: str, status: int) -> int:
    try:
        sys.stdout.flush()
    except OSError:
        _silence_stdout()
    print(f"Error: {text}", file=sys.stderr)
    return status


def _refused(error: OSError | MemoryError) -> int:
    if isinstance(error, MemoryError):
        return _fail("the question needs more memory than this machine has. Ask for shorter contexts or fewer cases", 2)
    reason = error.strerror or str(error)
    if error.filename is None:
        return _fail(f"the answer cannot be written: {printable(reason, 200)}. Make room, or name a file with -o", 2)
    return _fail(f"'{printable(error.filename, 200)}': {printable(reason, 200)}. Name another file", 2)


def _reader_gone() -> int:
    _silence_stdout()
    return 0


def _silence_stdout() -> None:
    # The interpreter flushes stdout once more at its end, which must not fail again.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _debugging(arguments: list[str]) -> bool:
    return "--debug" in arguments or os.environ.get("LLMCAP_DEBUG", "") not in ("", "0")
