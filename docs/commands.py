"""The page of the commands, from their own help."""

from typing import Any

HEAD = """# Commands

Made from the help of the commands. `coblock COMMAND --help` shows the same.

Exit codes: 0 all is well; 1 the fit did not converge, its result is written all the same; 2 the
input is bad, and a sentence on standard error says why. Results go to standard output, everything
else to standard error.
"""


def page(group: Any) -> str:
    """Return Markdown for all commands of a click group."""
    return "\n".join([HEAD, *(_section(name, group.commands[name]) for name in group.commands)])


def _section(name: str, command: Any) -> str:
    paragraphs = [" ".join(part.split()) for part in command.help.split("\n\n")]
    story, example = paragraphs[:-1], paragraphs[-1].removeprefix("Example:").strip()
    options = [_line(option) for option in command.params if option.name != "help"]
    lines = [f"## {name}\n", *(f"{part}\n" for part in story), f"Example: `{example}`\n"]
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
