"""The options of commands that take a configuration, and how it is loaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fmware.cli.output import USAGE, fail

if TYPE_CHECKING:
    from fmware.service.settings import Settings

__all__ = ["Config", "Sets", "load_settings"]

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The configuration. Default: FMWARE_CONFIG, else fmware.toml.",
        show_default=False,
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="KEY=VALUE",
        help="One setting, as a.b=value, in place of what the file says. May be repeated.",
        show_default=False,
    ),
]


def load_settings(config: Path | None, sets: list[str], *, required: bool = True) -> Settings:
    """The settings in force; what is wrong with them ends the command with exit code 2.

    Args:
        config: the file, or None for the default one.
        sets: settings as `key=value`, which go before the file.
        required: whether there must be a file.
    """
    try:
        from fmware.service.settings import SettingsError, default_file, load
    except ModuleNotFoundError as error:
        raise fail(f"{error.name} is not installed: pip install 'fmware[service]'", USAGE) from None
    path = config or default_file(os.environ)
    if path is None and required:
        said = "no fmware.toml here: name a file with --config, or write one with `fmware init`"
        raise fail(said, USAGE)
    try:
        return load(path, os.environ, sets)
    except SettingsError as error:
        raise fail(error, USAGE) from None
    except OSError as error:
        raise fail(f"{error.filename}: {error.strerror}", USAGE) from None
