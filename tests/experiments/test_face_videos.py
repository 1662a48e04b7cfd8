import numpy as np
import pytest
from experiments import datasets
from experiments.face_videos import face_video
from PIL import Image

from whet.errors import DataNotFoundError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WHET_DATA", str(tmp_path))
    (tmp_path / "trellis" / "img").mkdir(parents=True)
    for number in (1, 2, 3):
        Image.new("L", (8, 6)).save(tmp_path / "trellis" / "img" / f"{number:04d}.jpg")
    (tmp_path / "trellis" / "groundtruth_rect.txt").write_text("1,2,3,4\n5\t6\t7\t8\n9 10 11 12\n")
    return tmp_path / "trellis"


@pytest.mark.usefixtures("folder")
def test_boxes_may_be_parted_by_commas_or_tabs():
    video = face_video("trellis")
    np.testing.assert_array_equal(video.truths, [[1, 2, 4, 6], [5, 6, 12, 14], [9, 10, 20, 22]])
    assert video.numbers == (1, 2, 3)
    assert video.every(2).numbers == (1, 3)


def test_what_is_missing_is_named(folder):
    (folder / "img" / "0002.jpg").unlink()
    with pytest.raises(DataNotFoundError, match=r"0002\.jpg"):
        face_video("trellis")
    (folder / "groundtruth_rect.txt").write_text("1,2,3\n")
    with pytest.raises(DataNotFoundError, match="damaged"):
        face_video("trellis")
    (folder / "groundtruth_rect.txt").unlink()
    with pytest.raises(DataNotFoundError, match="true boxes"):
        face_video("trellis")
    with pytest.raises(DataNotFoundError, match="david"):
        face_video("david")
    with pytest.raises(ValueError, match="expected one of"):
        face_video("caviar")


@pytest.mark.parametrize(("name", "n", "first"), [("david", 471, 300), ("trellis", 569, 1)])
def test_the_real_ones(name, n, first):
    if datasets.find(name) is None:
        pytest.skip(f"{name} is not on this machine: set WHET_DATA")
    video = face_video(name)
    assert (len(video), video.numbers[0], video.truths.shape) == (n, first, (n, 4))
    assert (video.truths[:, 2:] > video.truths[:, :2]).all()
