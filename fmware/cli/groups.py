"""Groups of commands, and the old forms of commands and options that still work for one release.

`group` makes a group, `attach` puts a command into one. A command that has moved, or an option that
has another name now, is translated before it is parsed, and a hint on stderr names the new form.
Old forms are neither in help pages nor in completions.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from fmware.cli.output import complain, prose

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["BuildsByDefault", "Group", "attach", "group", "moved", "renaming"]

LAST = "the old form works in this release and is then dropped"


def moved(old: str, new: str) -> None:
    """Say on stderr that a form of the command line has another one now."""
    complain(f"hint: `{old}` is now `{new}`; {LAST}")


class Group(TyperGroup):
    """A group of commands that also knows where commands have moved to."""

    moves: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Old command to the words of its new place, from this group."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in self.moves and args[0] not in self.commands:
            new = self.moves[args[0]]
            moved(f"{ctx.command_path} {args[0]}", " ".join([ctx.command_path, *new]))
            args = [*new, *args[1:]]
        return super().resolve_command(ctx, args)


class BuildsByDefault(Group):
    """`fmware index`, which once was the command that is now `fmware index build`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and not ctx.resilient_parsing and self._is_old(args, ctx.help_option_names):
            moved("fmware index SOURCE", "fmware index build SOURCE")
            args = ["build", *args]
        return super().parse_args(ctx, args)

    def _is_old(self, args: list[str], help_options: list[str]) -> bool:
        """Whether this is `fmware index SOURCE`: a file or an option where a command belongs."""
        first = args[0]
        if first in self.commands or first in help_options:
            return False
        # What is neither a file nor looks like one is more likely a misspelt command.
        return first.startswith("-") or Path(first).exists() or bool(set(first) & set("*?./"))


class _Renaming(TyperCommand):
    """A command with options that had another name once."""

    renamed: ClassVar[Mapping[str, str]] = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        new = [self._renamed(ctx, each) for each in args[:end]]
        return super().parse_args(ctx, [*new, *args[end:]])

    def _renamed(self, ctx: Any, argument: str) -> str:
        for old, new in self.renamed.items():
            if argument == old or argument.startswith(f"{old}="):
                moved(f"{ctx.command_path} {old}", f"{ctx.command_path} {new}")
                return new + argument.removeprefix(old)
        return argument


def renaming(renamed: Mapping[str, str]) -> type[TyperCommand]:
    """The class of a command whose options had other names: old option to new."""
    return type("Command", (_Renaming,), {"renamed": renamed})


def group(
    name: str, text: str, *, epilog: str = "", cls: type[Group] = Group, moves: Any = None
) -> typer.Typer:
    """A group of commands; `moves` leads from commands it once had to where they are now."""
    kind = type(cls.__name__, (cls,), {"moves": moves}) if moves else cls
    return typer.Typer(
        name=name, cls=kind, help=text, epilog=epilog, no_args_is_help=True, rich_markup_mode="rich"
    )


def attach(
    app: typer.Typer,
    command: Callable[..., None],
    name: str | None = None,
    *,
    epilog: str = "",
    panel: str | None = None,
    renamed: Mapping[str, str] | None = None,
) -> None:
    """Put a command into a group; `renamed` leads from old options to new ones."""
    kind = renaming(renamed) if renamed else TyperCommand
    app.command(
        name, cls=kind, help=prose(command.__doc__ or ""), epilog=epilog, rich_help_panel=panel
    )(command)
