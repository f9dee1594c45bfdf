"""Generate the reference page of the commands from their help texts."""

from typing import Any

HEAD = """# Commands

Generated from the help texts of the commands; `coblock COMMAND --help` shows the same.

Exit codes: 0, success; 1, the fit did not converge, and its result is written; 2, the input is
invalid, and a message on standard error says why. Results are written to standard output, all
other messages to standard error.
"""


def page(group: Any) -> str:
    """Return Markdown for all commands of a click group."""
    return "\n".join([HEAD, *(_section(name, group.commands[name]) for name in group.commands)])


def _section(name: str, command: Any) -> str:
    paragraphs = [" ".join(part.split()) for part in command.help.split("\n\n")]
    description, example = paragraphs[:-1], paragraphs[-1].removeprefix("Example:").strip()
    options = [_line(option) for option in command.params if option.name != "help"]
    lines = [f"## {name}\n", *(f"{part}\n" for part in description), f"Example: `{example}`\n"]
    return "\n".join([*lines, "| | | default |", "|---|---|---|", *options, ""])


def _line(option: Any) -> str:
    argument = option.param_type_name == "argument"
    names = option.name.upper() if argument else ", ".join((*option.opts, *option.secondary_opts))
    default = option.default
    hidden = option.required or default is None or default is False or callable(default)
    shown = "" if hidden else f"`{default}`"
    choices = f" `{option.metavar}`" if option.metavar and not argument else ""
    text = " ".join((option.help or "").split()).replace("|", r"\|")
    return f"| `{names}` | {text}{choices.replace('|', chr(92) + '|')} | {shown} |"
