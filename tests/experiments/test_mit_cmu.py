import numpy as np
import pytest
from experiments import datasets, mit_cmu

from whet.cascade.boxes import intersection_over_union
from whet.errors import DataNotFoundError


@pytest.fixture
def pictures():
    if datasets.find("mit_cmu") is None:
        pytest.skip("the MIT+CMU test set is not on this machine: set WHET_DATA")
    return mit_cmu.labelled_pictures()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A set of the right shape without any picture in its files; the first has all 511 faces."""
    monkeypatch.setenv("WHET_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, n_pictures in mit_cmu.N_PICTURES.items():
        (tmp_path / "mit_cmu" / name).mkdir(parents=True)
        for i in range(n_pictures):
            (tmp_path / "mit_cmu" / name / f"{name}.{i:02}.png").touch()
    rows = "".join(f"test.00.jpg {i} 0 {i + 10} 12\n" for i in range(mit_cmu.N_FACES))
    (tmp_path / "mit_cmu" / mit_cmu.BOXES_FILE).write_text(rows)
    return tmp_path / "mit_cmu"


def test_the_complete_set_has_130_pictures_and_511_faces(pictures):
    assert len(pictures) == 130
    assert sum(len(picture.boxes) for picture in pictures) == 511
    assert sum(len(picture.boxes) == 0 for picture in pictures) == 13
    by_folder = dict.fromkeys(mit_cmu.N_PICTURES, 0)
    for picture in pictures:
        by_folder[picture.path.parent.name] += len(picture.boxes)
    assert by_folder == {"test": 169, "test-low": 157, "newtest": 185}
    assert len({picture.path.stem for picture in pictures}) == 130  # so a name without its folder is enough


def test_faces_lie_in_their_own_pictures(pictures):
    for picture in pictures:
        centres = (picture.boxes[:, :2] + picture.boxes[:, 2:]) / 2
        assert (centres >= 0).all()
        assert (centres <= size_of(picture)).all()
        assert (picture.boxes[:, 2:] - picture.boxes[:, :2] >= 20).all()


def test_one_face_is_too_large_for_any_box_within_its_picture(pictures):
    """The best that stays inside is the face's box cut at the edges."""
    best = []
    for picture in pictures:
        cut = np.clip(picture.boxes, 0, np.tile(size_of(picture), 2))
        overlaps = np.diagonal(intersection_over_union(picture.boxes, cut))
        best += [(overlap, picture.path.stem) for overlap in overlaps if overlap < 1]
    assert len(best) == 12
    assert [(round(overlap, 2), stem) for overlap, stem in best if overlap <= 0.5] == [(0.43, "sarah_live_2")]


def size_of(picture):
    from PIL import Image

    with Image.open(picture.path) as image:
        return np.array(image.size)


def test_boxes_go_to_the_picture_of_their_name(folder):
    first, *others = mit_cmu.labelled_pictures()
    assert first.path == folder / "test" / "test.00.png"  # a dot in the name is not its end
    assert first.boxes.shape == (511, 4)
    assert first.boxes[1].tolist() == [1, 0, 11, 12]
    assert {picture.boxes.shape for picture in others} == {(0, 4)}


def test_the_whole_set_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("WHET_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(DataNotFoundError, match="folder mit_cmu"):
        mit_cmu.labelled_pictures()


def rename_a_labelled_picture(folder):
    (folder / "test" / "test.00.png").rename(folder / "test" / "other.png")


def delete_a_picture(folder):
    (folder / "newtest" / "newtest.64.png").unlink()


def delete_the_boxes(folder):
    (folder / mit_cmu.BOXES_FILE).unlink()


def cut_the_boxes(folder):
    path = folder / mit_cmu.BOXES_FILE
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def cut_a_row(folder):
    path = folder / mit_cmu.BOXES_FILE
    path.write_text(path.read_text().removesuffix(" 12\n"))


def two_pictures_of_one_name(folder):
    (folder / "newtest" / "newtest.64.png").rename(folder / "newtest" / "test.00.png")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (rename_a_labelled_picture, r"pictures that are missing: test\.00"),
        (delete_a_picture, r"newtest has 64 pictures \(\*\.png\); expected 65"),
        (delete_the_boxes, r"boxes_padded\.txt is missing"),
        (cut_the_boxes, "has 510 faces; expected 511"),
        (cut_a_row, r"row 'test\.00\.jpg 510 0 520'; expected: name xmin"),
        (two_pictures_of_one_name, "same name in different folders"),
    ],
)
def test_what_is_missing_is_named(folder, damage, message):
    damage(folder)
    with pytest.raises(DataNotFoundError, match=message):
        mit_cmu.labelled_pictures()
