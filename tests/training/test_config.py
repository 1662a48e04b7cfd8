"""Training settings: types and bounds, TOML files, and one set of names for Python, TOML and the command line."""

import inspect
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
import typer
from scripts import settings_tables

import whet
from whet.cli import train as command
from whet.errors import ConfigError
from whet.models.channels import tree_model
from whet.models.gslda import cascade_file, pools
from whet.parallel.threads import DEFAULT_MAX_MEMORY
from whet.training.config import (
    GREY_FEATURES,
    MOST_TREES,
    MOST_WEAK,
    SETTINGS,
    Settings,
    TrainingConfig,
    read_settings,
    write_settings,
)


def test_every_setting_survives(tmp_path):
    config = TrainingConfig(
        str(tmp_path / "sets" / "cars.csv"),
        format="csv",
        class_name='a "car"',
        negatives=(str(tmp_path / "größe"), str(tmp_path / "b")),
        window=(36, 16),
        mirror=False,
        margin=0.2,
        copies_per_object=4,
        features="lbp",
        max_weak_learners=(10, 20),
        ridge=3.5,
        seed=9,
    )
    write_settings(config, tmp_path / "cars.toml")
    assert asdict(TrainingConfig(**read_settings(tmp_path / "cars.toml"))) == asdict(config)
    text = (tmp_path / "cars.toml").read_text()
    assert 'annotations = "sets/cars.csv"' in text
    assert 'class = "a \\"car\\""' in text


def test_paths_are_relative_to_the_file_wherever_it_is_moved(tmp_path):
    write_settings(TrainingConfig(str(tmp_path / "cars.csv")), tmp_path / "a.toml")
    (tmp_path / "other").mkdir()
    moved = (tmp_path / "a.toml").rename(tmp_path / "other" / "a.toml")
    assert read_settings(moved)["annotations"] == str(tmp_path / "other" / "cars.csv")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("annotations = 3", "annotations=3: expected a path"),
        ('[gslda]\nmax_stages = "two"', "max_stages='two': expected a whole number"),
        ("[gslda]\nmax_stages = 0", "max_stages=0: expected a whole number of at least 1"),
        ("[gslda]\nmax_stages = true", "max_stages=True"),
        ("[gslda]\nmax_weak_learners = []", r"max_weak_learners=\[\]"),
        ("[gslda]\nmax_weak_learners = 2001", "max_weak_learners=2001: expected a whole number from 1 to 2000"),
        ("[gslda]\nearly_exits = 1", "early_exits=1: expected true or false"),
        ('mirror = "maybe"', "mirror='maybe': expected true, false or safe"),
        ("window = [24]", r"window=\[24\]: expected width and height"),
        ("window = [24, 24.5]", r"window=\[24, 24.5\]"),
        ("window = [24, 3]", r"window=\[24, 3\]"),
        ("window = 24", "window=24"),
        ('annotations = ["a", "b"]', "annotations="),
        ("negatives = [3]", "negatives="),
        ("margin = -5", "margin=-5"),
        ("[gslda]\nridge = -3", "ridge=-3"),
        ("[gslda]\nridge = nan", "ridge=nan"),
        ("[gslda]\nridge = inf", "ridge=inf"),
        ("seed = -1", "seed=-1"),
        ('features = "colour"', "features='colour': expected channels, or one or more of haar, lbp"),
        ('features = ["haar", "colour"]', "features="),
        ("features = []", r"features=\[\]"),
        ("features = 3", "features=3"),
        ("trees = 7", r"got trees at the top; expected it under \[channels\]"),
        ("[gslda]\ntrees = 7", r"got trees under \[gslda\]; expected it under \[channels\]"),
        ("[channels]\nseed = 7", r"got seed under \[channels\]; expected it above the first table"),
        (
            "[channels]\ntree = 7",
            "unknown setting 'tree'; did you mean trees. Valid settings: trees, negatives_per_round",
        ),
        ("gslda = 3", r"gslda=3: expected a table, \[gslda\]"),
        ("[colours]\nred = 7", "unknown setting 'colours'.*Valid settings: annotations, .*tables channels, gslda"),
        ("= 3", "is not a TOML file"),
        ('clas = "b"', "unknown setting 'clas'; did you mean class"),
        ('class_name = "b"', "unknown setting 'class_name'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, says):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(ConfigError, match=f"a.toml.*{says}"):
        read_settings(tmp_path / "a.toml")


def test_a_single_folder_of_negatives_needs_no_list_and_names_may_hold_any_character(tmp_path):
    (tmp_path / "a.toml").write_text('annotations = "a"\nnegatives = "bg"\n')
    assert read_settings(tmp_path / "a.toml")["negatives"] == (str(tmp_path / "bg"),)
    config = TrainingConfig(str(tmp_path / "\N{PIG FACE}.csv"))
    write_settings(config, tmp_path / "b.toml")
    assert TrainingConfig(**read_settings(tmp_path / "b.toml")) == config


def test_values_have_one_type_however_they_are_given(tmp_path):
    (tmp_path / "a.toml").write_text('annotations = "a"\nnegatives = []\n[gslda]\nridge = 3\n')
    assert TrainingConfig(**read_settings(tmp_path / "a.toml")) == TrainingConfig(str(tmp_path / "a"), ridge=3.0)
    given = TrainingConfig(Path("a"), Path("b"), seed=np.int64(3), window=[30, 12], margin=np.float64(0.5))
    assert given == TrainingConfig("a", ("b",), seed=3, window=(30, 12), margin=0.5)
    assert type(given.seed) is int
    assert replace(given, max_stages=3).max_stages == 3


def test_a_file_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"does not exist: .*none\.toml"):
        read_settings(tmp_path / "none.toml")


def test_keywords_of_train_are_the_settings_with_their_types_and_defaults():
    hints = get_type_hints(TrainingConfig)
    keywords = get_type_hints(Settings)
    for function, without in ((whet.train, set()), (whet.train_classes, {"class_name"})):
        parameters = inspect.signature(function).parameters
        assert set(SETTINGS) - set(parameters) == without
        for name, keyword in keywords.items():
            if name in without:
                continue
            assert parameters[name].default == SETTINGS[name].default
            assert parameters[name].annotation == keyword
            assert f"`{name}`: {SETTINGS[name].help}" in function.__doc__
    wider = {"images": str | PathLike[str] | None, "features": str | Sequence[str]}
    assert keywords == {name: hints[name] for name in SETTINGS if name not in ("annotations", "negatives")} | wider
    assert list(keywords) == [name for name in SETTINGS if name not in ("annotations", "negatives")]


def test_the_command_has_few_options_and_their_help_is_that_of_the_settings():
    options = [one for one in _parameters() if one.param_type_name == "option"]
    assert len(options) <= 20
    for one in options:
        if one.name in SETTINGS and one.name not in ("format", "images", "class_name"):  # shared by all commands
            assert one.help == str(SETTINGS[one.name])
    assert {"negatives", "features", "trees", "seed", "config"} <= {one.name for one in options}


def _parameters():
    app = typer.Typer(add_completion=False)
    app.command()(command.train)
    return typer.main.get_command(app).params


def test_bounds_are_those_of_the_model_file_and_the_features():
    assert MOST_TREES == tree_model.MOST_TREES
    assert MOST_WEAK == cascade_file.MOST_WEAK
    assert set(GREY_FEATURES) == set(pools.TRAINABLE)
    assert TrainingConfig().max_memory == DEFAULT_MAX_MEMORY
    assert all(name in SETTINGS["features"].help for name in pools.TRAINABLE)


def test_a_checkpoint_depends_on_the_settings_of_its_family():
    config = TrainingConfig()
    assert set(config.fingerprint("channels")) == {
        *("features", "validation_share", "seed", "trees", "negatives_per_round")
    }
    grey = set(config.fingerprint("gslda"))
    assert {"max_memory", "min_sigma", "negatives_per_stage"} <= grey
    assert not {"max_stages", "target_false_positive_rate", "trees", "annotations"} & grey


def test_the_tables_of_the_guide_are_the_definition():
    assert settings_tables.GUIDE.read_text(encoding="utf-8") == settings_tables.with_tables()


def test_the_example_file_of_the_guide_can_be_read(tmp_path):
    (example,) = re.findall(r"```toml\n(.*?)```", settings_tables.GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "vans.toml").write_text(example)
    config = TrainingConfig(**read_settings(tmp_path / "vans.toml"))
    assert (config.trees, config.max_stages) == (512, 8)


def test_an_unknown_setting_lists_the_valid_ones_and_suggests_the_closest():
    with pytest.raises(TypeError, match=r"unknown setting 'epochs'.*Valid settings: .*max_stages"):
        whet.train("cars.csv", epochs=3)
    with pytest.raises(TypeError, match=r"did you mean callback"):
        whet.train("cars.csv", calback=print)
    with pytest.raises(TypeError, match=r"did you mean .*max_stages"):
        whet.train("cars.csv", n_stages=3)
    with pytest.raises(ConfigError, match="max_stages='x'"):
        whet.train("cars.csv", max_stages="x")


def test_several_classes_have_no_single_class_name():
    with pytest.raises(TypeError, match="classes="):
        whet.train_classes("cars.csv", class_name="car")
    assert "class_name" in inspect.signature(whet.train).parameters
    assert "class_name" not in inspect.signature(whet.train_classes).parameters
