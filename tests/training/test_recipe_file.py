from dataclasses import asdict, replace

import pytest

from whet.errors import RecipeError
from whet.training.recipe import Recipe, read_recipe, write_recipe


def test_every_setting_survives(tmp_path):
    recipe = Recipe(
        str(tmp_path / "sets" / "cars.csv"),
        format="csv",
        class_name='a "car"',
        negatives=(str(tmp_path / "größe"), str(tmp_path / "b")),
        window=(36, 16),
        mirror=False,
        margin=0.2,
        copies=4,
        features="lbp",
        ridge=3.5,
        seed=9,
    )
    write_recipe(recipe, tmp_path / "cars.toml")
    again = read_recipe(tmp_path / "cars.toml")
    assert asdict(again) == asdict(recipe)
    assert 'annotations = "sets/cars.csv"' in (tmp_path / "cars.toml").read_text()


def test_paths_are_relative_to_the_file_wherever_it_is_moved(tmp_path):
    write_recipe(Recipe(str(tmp_path / "cars.csv")), tmp_path / "a.toml")
    (tmp_path / "other").mkdir()
    moved = (tmp_path / "a.toml").rename(tmp_path / "other" / "a.toml")
    assert read_recipe(moved).annotations == str(tmp_path / "other" / "cars.csv")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("annotations = 3", "annotations is 3; expected str"),
        ('annotations = "a"\nstages = "two"', "stages is 'two'; expected int"),
        ('annotations = "a"\nstages = 0', "n_stages"),
        ('annotations = "a"\nsoft = 1', "soft is 1; expected bool"),
        ('annotations = "a"\nmirror = "maybe"', "mirror='maybe'"),
        ('annotations = "a"\nwindow = [24]', "window="),
        ('annotations = "a"\nwindow = [24, 24.5]', "window is"),
        ('annotations = "a"\nwindow = 24', "window="),
        ('annotations = ["a", "b"]', "annotations is"),
        ('annotations = "a"\nmargin = -5', "margin=-5"),
        ('annotations = "a"\nridge = -3', "ridge=-3"),
        ('annotations = "a"\nseed = -1', "seed=-1"),
        ("stages = 3", "does not say `annotations`"),
        ("= 3", "is not TOML"),
        ('annotations = "a"\nclas = "b"', "there is no setting 'clas'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, says):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(RecipeError, match=says):
        read_recipe(tmp_path / "a.toml")


def test_a_single_folder_of_negatives_needs_no_list_and_names_may_hold_any_character(tmp_path):
    (tmp_path / "a.toml").write_text('annotations = "a"\nnegatives = "bg"\n')
    assert read_recipe(tmp_path / "a.toml").negatives == (str(tmp_path / "bg"),)
    recipe = Recipe(str(tmp_path / "\N{PIG FACE}.csv"))
    write_recipe(recipe, tmp_path / "b.toml")
    assert read_recipe(tmp_path / "b.toml") == recipe


def test_whole_numbers_serve_as_real_ones(tmp_path):
    (tmp_path / "a.toml").write_text('annotations = "a"\nridge = 3\nnegatives = []\n')
    assert read_recipe(tmp_path / "a.toml") == replace(Recipe(str(tmp_path / "a")), ridge=3.0)
