import pytest

from whet.errors import DataNotFoundError
from whet.io.image_files import find_images, images_in


@pytest.fixture
def folder(tmp_path):
    for name in ("b/10.png", "b/2.PNG", "a.jpg", "b/notes.txt", "odd.data", "b/[1].png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def names(found, folder):
    return [path.relative_to(folder).as_posix() for path in found]


def test_a_folder_is_searched_to_the_bottom_in_natural_order(folder):
    assert names(find_images([folder]), folder) == ["a.jpg", "b/2.PNG", "b/10.png", "b/[1].png"]


def test_hidden_files_and_folders_are_passed_over_by_both_ways_to_look(folder):
    for name in ("b/._2.png", ".thumbs/1.png", "c.jfif"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    found = find_images([folder])
    assert names(found, folder) == ["a.jpg", "b/2.PNG", "b/10.png", "b/[1].png", "c.jfif"]
    assert sorted(found) == images_in(folder)


def test_names_keep_their_order_and_count_once(folder):
    found = find_images([folder / "b/10.png", folder / "b", folder / "odd.data"])
    assert names(found, folder) == ["b/10.png", "b/2.PNG", "b/[1].png", "odd.data"]


def test_patterns_reach_below_and_a_file_of_that_very_name_comes_first(folder):
    assert names(find_images([f"{folder}/**/*.png"]), folder) == ["b/10.png", "b/[1].png"]
    assert names(find_images([f"{folder}/b/[1].png"]), folder) == ["b/[1].png"]


def test_a_dash_stands_for_listed_names(folder):
    listed = [f"{folder}/a.jpg\r\n", "\n", f"{folder}/b/2.PNG"]
    assert names(find_images(["-"], listed), folder) == ["a.jpg", "b/2.PNG"]


def test_a_name_that_leads_nowhere_and_a_folder_without_images_are_distinguished(folder):
    with pytest.raises(DataNotFoundError, match="no such file or directory: nowhere"):
        find_images([folder, "nowhere"])
    (folder / "empty").mkdir()
    with pytest.raises(DataNotFoundError, match="no image in"):
        find_images([folder / "empty"])
