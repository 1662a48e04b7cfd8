import json

import numpy as np
import pytest
from PIL import Image
from tests.commands import check_message, whet, whet_here
from tests.detectors import bull_finder, bull_scene, counts_in, detector, false_positive

from whet.cli.options import ExitCode
from whet.detector.storage import load
from whet.lda.statistics import BinaryStatistics
from whet.training.learning import crop_record


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inspected")
    detector = bull_finder()
    detector.set_operating_point("careful", 4.5)
    detector.learn(bull_scene(), false_positive(detector), False)
    detector.add([crop_record(detector.only, bull_scene()[70:120, 120:170], weight=7)])
    detector.save(folder / "bull.whet")
    Image.fromarray(bull_scene()).save(folder / "scene.png")
    return folder


def test_json_has_every_stage_what_was_learned_and_where_it_comes_from(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    done = whet_here(monkeypatch, capsys, "inspect", "bull.whet", "scene.png", "--windows", 500, "--json")
    assert done.code == 0, done.err
    table = json.loads(done.out)
    assert table["window"] == [12, 12]
    assert table["min_sigma"] == 10.0
    assert table["operating_points"] == {"careful": 4.5}
    assert table["provenance"]["licence"] == "CC0-1.0"
    assert table["stages"][0]["learned_positives"] == 7
    assert table["corrections"] == {"object": 0, "not object": 1, "example": 1, "background": 0, "unsatisfied": 0}
    assert (table["reference"], table["estimate"]) == (None, None)
    assert len(table["rejected"]) == 1 + len(table["stages"])
    assert 0 < table["rejected"][1] <= sum(table["rejected"]) <= 500


@pytest.mark.slow
def test_people_see_a_table_and_the_features(folder):
    done = whet("inspect", "bull.whet", "--draw", "features.png", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Window 12 x 12" in done.stdout
    assert "standard deviation below 10 are skipped" in done.stdout
    assert "'careful': minimum score 4.5" in done.stdout
    assert "drawn by the tests" in done.stdout
    assert "1 correction (0 object, 1 not object), 1 example" in done.stdout
    sheet = np.asarray(Image.open(folder / "features.png"))
    assert {int(sheet.min()), int(sheet.max())} != {128}


@pytest.mark.slow
def test_a_corrupt_image_is_one_line_and_other_images_take_its_share(folder):
    (folder / "cut [b].png").write_bytes((folder / "scene.png").read_bytes()[:300])
    options = ("--windows", 5000, "--json", "--quiet")
    done = whet("inspect", "bull.whet", "scene.png", "cut [b].png", *options, cwd=folder)
    assert done.returncode == ExitCode.SOME_SKIPPED
    (line,) = done.stderr.splitlines()
    assert "cut [b].png" in line
    again = whet("inspect", "bull.whet", "scene.png", "cut [b].png", *options, cwd=folder)
    assert again.stdout == done.stdout
    assert 2500 < sum(json.loads(done.stdout)["rejected"]) <= 5000


@pytest.mark.slow
def test_quiet_is_silent(folder):
    done = whet("inspect", "bull.whet", "scene.png", "--windows", 10, "-q", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_the_reference_set_of_the_face_detector_is_shown(folder):
    table = json.loads(whet("inspect", "face", "--json", cwd=folder).stdout)
    assert table["reference"]["positives"] > 100
    assert table["estimate"]["recall"] == load("face").estimate.recall


@pytest.mark.slow
def test_wrong_names_are_one_line(folder):
    done = whet("inspect", "nothing.whet", cwd=folder)
    assert done.returncode == ExitCode.DATA_MISSING
    assert len(done.stderr.splitlines()) == 1
    assert "nothing.whet" in check_message(done.stderr, ["nothing.whet"])
    assert whet("inspect", "bull.whet", "no.png", cwd=folder).returncode == ExitCode.DATA_MISSING


def test_check_lists_what_holds_and_fails_by_its_exit_code(tmp_path, monkeypatch, capsys):
    made = detector()
    made.save(tmp_path / "a.whet")
    done = whet_here(monkeypatch, capsys, "inspect", tmp_path / "a.whet", "--check")
    assert done.code == 0
    assert "weights follow from counts: yes" in done.out
    done = whet_here(monkeypatch, capsys, "inspect", tmp_path / "a.whet", "--check", "--json")
    assert [one["holds"] for one in json.loads(done.out)["checks"]] == [True] * 5
    # Each pair of learners is possible, but no samples have all five.
    forged = BinaryStatistics(100, np.full(5, 50), np.diag(np.full(5, 50)))
    made.only.add_counts(counts_in(made, 0, True, forged))
    made.save(tmp_path / "a.whet")
    done = whet_here(monkeypatch, capsys, "inspect", tmp_path / "a.whet", "--check")
    assert done.code == ExitCode.FAILED
    assert "stage 0, learned positives: scatter is not positive semidefinite" in done.out
