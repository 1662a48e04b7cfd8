"""Training settings: types and bounds, TOML files, and one set of names for Python, TOML and the command line."""

import inspect
import re
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import pytest
import typer

import whet
from whet.cli import train as command
from whet.errors import ConfigError
from whet.features.families import TRAINABLE
from whet.training.config import CASCADE_SETTINGS, SETTINGS, TOML_NAMES, TrainingConfig, read_settings, write_settings
from whet.training.positives import Jitter
from whet.training.train import ARGUMENTS


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
        ("annotations = 3", "annotations=3: expected str"),
        ('max_stages = "two"', "max_stages='two': expected a whole number"),
        ("max_stages = 0", "max_stages=0: expected a whole number of at least 1"),
        ("max_stages = true", "max_stages=True"),
        ("max_weak_learners = []", r"max_weak_learners=\[\]"),
        ("max_weak_learners = 2001", "max_weak_learners=2001: expected a whole number from 1 to 2000"),
        ("early_exits = 1", "early_exits=1: expected bool"),
        ('mirror = "maybe"', "mirror='maybe': expected true, false or 'safe'"),
        ("window = [24]", r"window=\[24\]: expected width and height"),
        ("window = [24, 24.5]", r"window=\[24, 24.5\]"),
        ("window = [24, 3]", r"window=\[24, 3\]"),
        ("window = 24", "window=24"),
        ('annotations = ["a", "b"]', "annotations="),
        ("negatives = [3]", "negatives="),
        ("margin = -5", "margin=-5"),
        ("ridge = -3", "ridge=-3"),
        ("ridge = nan", "ridge=nan"),
        ("ridge = inf", "ridge=inf"),
        ("seed = -1", "seed=-1"),
        ('features = "colour"', "features='colour': expected channels, or feature families, one or more of haar, lbp"),
        ('features = ["haar", "colour"]', "features="),
        ("features = []", r"features=\[\]"),
        ("features = 3", "features=3"),
        ("jitter_shift = 0.7", "jitter_shift=0.7"),
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
    (tmp_path / "a.toml").write_text('annotations = "a"\nridge = 3\nnegatives = []\n')
    assert TrainingConfig(**read_settings(tmp_path / "a.toml")) == TrainingConfig(str(tmp_path / "a"), ridge=3.0)
    given = TrainingConfig(Path("a"), Path("b"), seed=np.int64(3), window=[30, 12], margin=np.float64(0.5))
    assert given == TrainingConfig("a", ("b",), seed=3, window=(30, 12), margin=0.5)
    assert type(given.seed) is int
    assert replace(given, max_stages=3).max_stages == 3


def test_a_file_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"does not exist: .*none\.toml"):
        read_settings(tmp_path / "none.toml")


def test_python_toml_and_the_command_line_have_the_same_settings():
    parameters = inspect.signature(whet.train).parameters
    assert [name for name in parameters if name not in (*ARGUMENTS, "unknown")] == list(SETTINGS)
    for each in fields(TrainingConfig):
        expected = inspect.Parameter.empty if each.name == "annotations" else each.default
        assert parameters[each.name].default == expected, each.name
    options = _options()
    for name in SETTINGS:
        option = TOML_NAMES[name].replace("_", "-")
        assert name == "annotations" or f"--{option}" in options, name
    others = {
        "out",
        "config",
        "classes",
        "for-opencv",
        "resume",
        "fresh",
        "force",
        "dry-run",
        "threads",
        "scheduler",
        "workers",
        "json",
        "quiet",
        "help",
    }
    assert {option.removeprefix("--").removeprefix("no-") for option in options if option.startswith("--")} == {
        name.replace("_", "-") for name in TOML_NAMES.values() if name != "annotations"
    } | others


def _parameters():
    app = typer.Typer(add_completion=False)
    app.command()(command.train)
    return typer.main.get_command(app).params


def _options():
    return {option for one in _parameters() for option in (*one.opts, *one.secondary_opts)} | {"--help"}


def test_defaults_that_are_written_twice_agree():
    config = TrainingConfig()
    assert config.jitter == Jitter()
    for one in _parameters():
        said = re.search(r"\[default: ([^\];]+)", one.help or "")
        default = getattr(config, one.name, None)
        if default is None or one.name == "negatives":
            assert said is None or one.name == "margin"
        else:
            assert said[1] == {True: "yes"}.get(default, default) or float(said[1]) == default, one.name
    assert set(CASCADE_SETTINGS) <= set(SETTINGS)


def test_the_help_names_every_feature_family():
    (option,) = (one for one in _parameters() if one.name == "features")
    assert all(name in option.help for name in TRAINABLE)


def test_an_unknown_setting_lists_the_valid_ones_and_suggests_the_closest():
    with pytest.raises(TypeError, match=r"unknown setting 'epochs'.*Valid settings: .*max_stages.*checkpoint"):
        whet.train("cars.csv", epochs=3)
    with pytest.raises(TypeError, match=r"did you mean .*max_stages"):
        whet.train("cars.csv", n_stages=3)
    with pytest.raises(ConfigError, match="max_stages='x'"):
        whet.train("cars.csv", max_stages="x")
