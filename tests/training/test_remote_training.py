"""A training, an evaluation and corrections from URLs are those from files, to the last byte."""

from dataclasses import replace

import pytest
from tests.commands import whet as run
from tests.drawn_sets import QUICK, van_set
from tests.remote_store import http_store, memory_store

import whet
from whet.detector.base import Provenance
from whet.detector.detector import Detector
from whet.io.annotations.annotation import Examples
from whet.io.annotations.formats import read_annotations
from whet.training.learning import LearningInput, learn_from

pytestmark = pytest.mark.slow

CASCADE = {
    "features": "haar,lbp",
    "max_stages": 2,
    "max_weak_learners": 6,
    "max_features": 200,
    "negatives_per_stage": 200,
    "copies_per_object": 3,
}
CHANNELS = {"trees": 16, "negatives_per_round": 200, "copies_per_object": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("remote")
    van_set(folder)
    return folder


def contents(detector):
    """The bytes of a detector without its provenance, which names the images."""
    base = replace(detector.base, provenance=Provenance())
    return Detector.from_base(base, detector.only.counts, detector.reporting, detector.records).to_bytes()


def train(csv, images, settings):
    return whet.train(csv, f"{images}/textures", images=images, **settings)


@pytest.mark.parametrize("settings", [CASCADE, CHANNELS], ids=["cascade", "channels"])
def test_a_detector_trained_from_urls_has_the_bytes_of_the_one_trained_from_files(folder, settings):
    local = train(folder / "vans.csv", folder, settings)
    with memory_store(folder) as url:
        assert contents(train(folder / "vans.csv", url, settings)) == contents(local)
        assert contents(train(f"{url}/vans.csv", url, settings)) == contents(local)
    with http_store(folder) as (url, _):
        trained = train(f"{url}/vans.csv?signature=secret", url, settings)
        assert contents(trained) == contents(local)
        assert trained.provenance.data == local.provenance.data.replace(str(folder), "")
        assert b"secret" not in trained.to_bytes()


def test_evaluation_and_learning_from_urls_are_those_from_files(folder):
    detector = whet.train(folder / "vans.csv", folder / "textures", **CASCADE)
    here = read_annotations(folder / "vans.csv")
    with http_store(folder) as (url, _):
        there = read_annotations(folder / "vans.csv", images=url)
        one, other = (whet.evaluate(detector, found.images) for found in (here, there))
        assert one.measures() == other.measures()
        given = [LearningInput(Examples.from_annotations(found.images[:4])) for found in (here, there)]
        one, other = (learn_from(detector, each).detector for each in given)
        assert {(record.id, record.name) for record in one.records} == {(each.id, each.name) for each in other.records}


def test_the_commands_take_urls(folder):
    with http_store(folder) as (url, _):
        done = run(
            "train", f"{url}/vans.csv", "--images", url, "-n", f"{url}/textures", *QUICK, "-o", "a.whet", cwd=folder
        )
        assert done.returncode == 0, done.stderr
        again = run("train", "--config", "a.toml", "-o", "b.whet", cwd=folder)
        assert again.returncode == 0, again.stderr
        assert contents(whet.load(folder / "a.whet")) == contents(whet.load(folder / "b.whet"))
        assert url not in whet.load(folder / "a.whet").provenance.command
        first = next((folder / "vans").iterdir()).name
        for arguments in (
            ("detect", "a.whet", f"{url}/vans/{first}", "--out", "found.csv"),
            ("evaluate", "a.whet", "vans.csv", "--images", url),
            ("learn", "a.whet", "-n", f"{url}/textures", "-o", "c.whet", "--force"),
            ("learn", "a.whet", "--missed", f"{url}/vans/{first}:23,36,62,28", "-o", "d.whet", "--force"),
        ):
            done = run(*arguments, cwd=folder)
            assert done.returncode == 0, done.stderr
        assert f"{url}/vans/{first}" in (folder / "found.csv").read_text()
        done = run("train", "vans.csv", "-o", "s3://bucket/a.whet", cwd=folder)
        assert done.returncode == 1
        assert "local files only" in " ".join(done.stderr.split())
        done = run("evaluate", "a.whet", "vans.csv", "--images", "nothing://host/set", cwd=folder)
        assert done.returncode == 3
        assert "Protocol not known" in done.stderr
