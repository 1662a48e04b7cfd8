import numpy as np
import pytest
from experiments import datasets, mit_cmu

from whet.errors import DataNotFoundError
from whet.images.boxes import box_iou


@pytest.fixture
def images():
    if datasets.find("mit_cmu") is None:
        pytest.skip("the MIT+CMU test set is not on this machine: set WHET_DATA")
    return mit_cmu.labelled_images()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A set of the right shape without any image in its files; the first has all 511 faces."""
    monkeypatch.setenv("WHET_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, n_images in mit_cmu.N_IMAGES.items():
        (tmp_path / "mit_cmu" / name).mkdir(parents=True)
        for i in range(n_images):
            (tmp_path / "mit_cmu" / name / f"{name}.{i:02}.png").touch()
    rows = "".join(f"test.00.jpg {i} 0 {i + 10} 12\n" for i in range(mit_cmu.N_FACES))
    (tmp_path / "mit_cmu" / mit_cmu.BOXES_FILE).write_text(rows)
    return tmp_path / "mit_cmu"


def test_the_complete_set_has_130_images_and_511_faces(images):
    assert len(images) == 130
    assert sum(len(image.boxes) for image in images) == 511
    assert sum(len(image.boxes) == 0 for image in images) == 13
    by_folder = dict.fromkeys(mit_cmu.N_IMAGES, 0)
    for image in images:
        by_folder[image.path.parent.name] += len(image.boxes)
    assert by_folder == {"test": 169, "test-low": 157, "newtest": 185}
    assert len({image.path.stem for image in images}) == 130  # so a name without its folder is enough


def test_faces_lie_in_their_own_images(images):
    for image in images:
        centres = (image.boxes[:, :2] + image.boxes[:, 2:]) / 2
        assert (centres >= 0).all()
        assert (centres <= size_of(image)).all()
        assert (image.boxes[:, 2:] - image.boxes[:, :2] >= 20).all()


def test_one_face_is_too_large_for_any_box_within_its_image(images):
    """The best that stays inside is the face's box cut at the edges."""
    best = []
    for image in images:
        cut = np.clip(image.boxes, 0, np.tile(size_of(image), 2))
        overlaps = np.diagonal(box_iou(image.boxes, cut))
        best += [(iou, image.path.stem) for iou in overlaps if iou < 1]
    assert len(best) == 12
    assert [(round(iou, 2), stem) for iou, stem in best if iou <= 0.5] == [(0.43, "sarah_live_2")]


def size_of(image):
    from PIL import Image

    with Image.open(image.path) as opened:
        return np.array(opened.size)


def test_boxes_go_to_the_image_of_their_name(folder):
    first, *others = mit_cmu.labelled_images()
    assert first.path == folder / "test" / "test.00.png"  # a dot in the name is not its end
    assert first.boxes.shape == (511, 4)
    assert first.boxes[1].tolist() == [1, 0, 11, 12]
    assert {image.boxes.shape for image in others} == {(0, 4)}


def test_the_whole_set_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("WHET_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(DataNotFoundError, match="folder mit_cmu"):
        mit_cmu.labelled_images()


def rename_a_labelled_image(folder):
    (folder / "test" / "test.00.png").rename(folder / "test" / "other.png")


def delete_an_image(folder):
    (folder / "newtest" / "newtest.64.png").unlink()


def delete_the_boxes(folder):
    (folder / mit_cmu.BOXES_FILE).unlink()


def cut_the_boxes(folder):
    path = folder / mit_cmu.BOXES_FILE
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def cut_a_row(folder):
    path = folder / mit_cmu.BOXES_FILE
    path.write_text(path.read_text().removesuffix(" 12\n"))


def two_images_of_one_name(folder):
    (folder / "newtest" / "newtest.64.png").rename(folder / "newtest" / "test.00.png")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (rename_a_labelled_image, r"images that are missing: test\.00"),
        (delete_an_image, r"newtest has 64 images \(\*\.png\); expected 65"),
        (delete_the_boxes, r"boxes_padded\.txt is missing"),
        (cut_the_boxes, "has 510 faces; expected 511"),
        (cut_a_row, r"row 'test\.00\.jpg 510 0 520'; expected: name xmin"),
        (two_images_of_one_name, "same name in different folders"),
    ],
)
def test_what_is_missing_is_named(folder, damage, message):
    damage(folder)
    with pytest.raises(DataNotFoundError, match=message):
        mit_cmu.labelled_images()
