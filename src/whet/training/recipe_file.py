"""A recipe as a TOML file: written by every training, so that it can be repeated; read where one is."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from whet.errors import RecipeError
from whet.io.atomic_file import write_atomically
from whet.training.recipe import Recipe

HEADING = "# How a detector was trained; `whet train --config` repeats it. Paths are relative to this file.\n"
PATHS = ("annotations", "images", "negatives")
# `class` is a word of Python's own.
NAMES = {"class_name": "class"}


def write_recipe(recipe: Recipe, path: Path) -> None:
    """Write a recipe; settings that are not given are left out. Paths become relative to the file.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "cars.toml"
    >>> write_recipe(Recipe("cars.csv", class_name="car", seed=3), file)
    >>> read_recipe(file).class_name
    'car'
    """
    table = asdict(recipe)
    for name in PATHS:
        table[name] = _mapped(table[name], lambda one: os.path.relpath(one, path.parent or "."))
    lines = (
        f"{NAMES.get(name, name)} = {json.dumps(value, ensure_ascii=False)}\n"
        for name, value in table.items()
        if value is not None
    )
    write_atomically(path, (HEADING + "".join(lines)).encode())


def read_recipe(path: Path) -> Recipe:
    """Read a recipe; raises `RecipeError` that says what is wrong, and where."""
    table = read_settings(path)
    if "annotations" not in table:
        raise RecipeError(f"{path} does not say `annotations`: the file or folder with the boxes")
    return recipe_of(table, str(path))


def read_settings(path: Path) -> dict[str, Any]:
    """The settings of a TOML file by the names of `Recipe`; paths are resolved from the file's folder."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RecipeError(f"there is no file {path}; every training writes one beside its detector") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} is not TOML: {error}") from error
    names = {NAMES.get(field.name, field.name): field.name for field in fields(Recipe)}
    unknown = sorted(set(table) - set(names))
    if unknown:
        raise RecipeError(f"{path}: there is no setting {unknown[0]!r}; there are: {', '.join(sorted(names))}")
    settings = {names[name]: _checked(names[name], value, path) for name, value in table.items()}
    for name in PATHS:
        if name in settings:
            settings[name] = _mapped(settings[name], lambda one: os.path.join(path.parent, one))
    return settings


def recipe_of(settings: Mapping[str, Any], source: str = "the settings") -> Recipe:
    """A recipe of these settings; raises `RecipeError` where a value cannot be."""
    try:
        return Recipe(**settings)
    except (ValueError, TypeError) as error:
        raise RecipeError(f"{source}: {error}") from error


def _mapped(value: Any, change: Any) -> Any:  # noqa: ANN401 - a path, several, or none
    if value is None or isinstance(value, str):
        return None if value is None else change(value)
    return tuple(map(change, value))


def _checked(name: str, value: Any, path: Path) -> Any:  # noqa: ANN401 - of the type that the field has
    hint = get_type_hints(Recipe)[name]
    takes_several = any(get_origin(part) is tuple for part in (hint, *get_args(hint)))
    wanted = [_plain(part) for part in (get_args(hint) or (hint,)) if part is not NoneType]
    items = value if isinstance(value, list) and takes_several else [value]
    if float in wanted:
        items = [float(item) if type(item) is int else item for item in items]
    if not all(type(item) in wanted for item in items):
        words = " or ".join(sorted({part.__name__ for part in wanted if part is not type(Ellipsis)}))
        raise RecipeError(f"{path}: {NAMES.get(name, name)} is {value!r}; expected {words}")
    return tuple(items) if takes_several else items[0]


def _plain(hint: Any) -> type:  # noqa: ANN401 - any hint of a field
    """The type of one value: of the items of a tuple, of the words of a literal."""
    parts = [part for part in get_args(hint) if part is not Ellipsis]
    first = parts[0] if parts else hint
    return first if isinstance(first, type) else type(first)
