import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image
from tests.commands import whet
from tests.drawn_sets import QUICK, QUICK_CHANNELS, van_set

import whet as library
from whet.cli.options import ExitCode
from whet.training.config import read_settings

pytestmark = pytest.mark.slow  # each test starts processes that train

TRAIN = ("train", "vans.csv", "--negatives", "textures", *QUICK)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    van_set(folder)
    done = whet(*TRAIN, "--out", "vans.whet", cwd=folder)
    assert done.returncode == 0, done.stderr
    (folder / "stdout.txt").write_text(done.stdout)
    (folder / "stderr.txt").write_text(done.stderr)
    return folder


def same(first, second):
    """Whether two detector files are of one training; their seconds and commands may differ."""
    first, second = map(library.load, (first, second))
    return first.base_id == second.base_id and first.operating_points == second.operating_points


def test_a_summary_of_the_data_comes_first_the_stages_follow_and_a_summary_says_what_to_do_next(folder):
    log, summary = (folder / "stderr.txt").read_text(), (folder / "stdout.txt").read_text()
    for word in (
        "object     van: 30 images",
        "window     ",
        "positives  ",
        "negatives  ",
        "held out   ",
        "memory     ",
        "time       ",
    ):
        assert word in log
    assert "step 2: trained" in log
    assert "stop reason: " in summary
    assert "at any score: " in summary
    assert "at the default minimum score of " in summary
    assert "whet evaluate vans.whet" in summary
    assert not (folder / "vans.whet.checkpoint").exists()


def test_what_was_trained_finds_vans_of_their_shape(folder, tmp_path):
    found = van_set(tmp_path, n=6, seed=9)
    detector = library.load(folder / "vans.whet")
    height, width = detector.window
    assert 1.8 < width / height < 2.8
    from whet.evaluation.evaluation import evaluate_detections

    boxes = [detector.detect(image.path, min_score=-1e9) for image in found.images]
    judged = evaluate_detections(
        [(one.boxes, one.scores) for one in boxes], [(image.boxes, None) for image in found.images]
    )
    assert judged.curve.recall[-1] > 0.7
    assert detector.provenance.data.startswith("vans.csv: 30 images")
    assert detector.class_name == "van"
    assert len(detector.base.training_images) == 30 + 12
    assert detector.base.mean_positive.shape == detector.window


def test_the_settings_that_were_written_repeat_the_training(folder):
    assert read_settings(folder / "vans.toml")["max_weak_learners"] == 8
    done = whet("train", "--config", "vans.toml", "--out", "again.whet", "--json", "--quiet", cwd=folder)
    assert done.returncode == 0, done.stderr
    written = (folder / "vans.toml").read_bytes(), (folder / "vans.whet").read_bytes()
    for arguments, says in (
        (("--config", "vans.toml", "--out", "vans.whet", "--force"), "would overwrite vans.toml"),
        (("vans.csv", "--out", "vans.whet"), "vans.whet already exists"),
    ):
        refused = whet("train", *arguments, cwd=folder)
        assert refused.returncode == 2
        assert says in " ".join(refused.stderr.split())
    assert written == ((folder / "vans.toml").read_bytes(), (folder / "vans.whet").read_bytes())
    assert all(line.startswith("whet: ") for line in done.stderr.splitlines())  # warnings alone
    assert json.loads(done.stdout)["stages"] == len(library.load(folder / "again.whet").base.model.stages)
    assert same(folder / "vans.whet", folder / "again.whet")


def test_killed_at_several_moments_and_resumed_it_is_the_same_detector(folder):
    command = [sys.executable, "-m", "whet", *map(str, TRAIN), "--out", "killed.whet"]
    for seconds, how in ((2.5, signal.SIGKILL), (3.5, signal.SIGINT)):
        process = subprocess.Popen(
            [*command, "--resume"],
            cwd=folder,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            time.sleep(seconds)
            process.send_signal(how)
            _, log = process.communicate(timeout=60)
        finally:
            process.kill()
        # Ctrl-C in a finaliser of another package is reported by Python itself, and goes on to nobody.
        assert "Traceback" not in log or log.startswith("Exception ignored in")
    if not (folder / "killed.whet").exists():
        again = whet(*TRAIN, "--out", "killed.whet", cwd=folder)
        if (folder / "killed.whet.checkpoint").exists():
            assert again.returncode == 2
            assert "--resume to continue" in " ".join(again.stderr.split())
        if again.returncode:  # without a checkpoint, because the settings were written already
            done = whet(*TRAIN, "--out", "killed.whet", "--resume", cwd=folder)
            assert done.returncode == 0, done.stderr
    assert same(folder / "vans.whet", folder / "killed.whet")
    assert not (folder / "killed.whet.checkpoint").exists()


def test_killed_before_the_first_checkpoint_it_begins_again(folder):
    (folder / "early.toml").write_bytes((folder / "vans.toml").read_bytes())
    refused = whet(*TRAIN, "--out", "early.whet", cwd=folder)
    assert refused.returncode == 2
    assert "early.toml already exists" in " ".join(refused.stderr.split())
    done = whet(*TRAIN, "--out", "early.whet", "--resume", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert same(folder / "vans.whet", folder / "early.whet")


def test_a_dry_run_shows_the_data_and_writes_nothing(folder):
    (folder / "wide.toml").write_text("window = [48, 36]\nmirror = false\n")
    before = sorted(folder.iterdir())
    done = whet("train", "vans.csv", "--dry-run", "--json", "--config", "wide.toml", cwd=folder)
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)
    assert table["window"] == {"width": 48, "height": 36}
    assert table["images"] == 30  # no others were given: the vans' own, outside their boxes
    assert sorted(folder.iterdir()) == before


def test_a_corrupt_image_is_named_and_the_others_train(tmp_path):
    van_set(tmp_path)
    (tmp_path / "vans" / "van0003.png").write_bytes(b"no image")
    (tmp_path / "textures" / "größe.png").write_bytes(b"neither")
    with (tmp_path / "vans.csv").open("a") as file:
        file.write("vans/van0001.png,-500,-500,20,10,van\nvans/van0001.png,5,5,0,0,van\nvans/missing.png,1,1,9,9,van\n")
    assert whet(*TRAIN, "--dry-run", "--quiet", cwd=tmp_path).returncode == ExitCode.SOME_SKIPPED
    done = whet(*TRAIN, "--out", "vans.whet", cwd=tmp_path)
    assert done.returncode == ExitCode.SOME_SKIPPED, done.stderr
    for name in ("van0003.png", "größe.png", "missing.png", "van0001.png"):
        assert name in done.stderr
    assert "Traceback" not in done.stderr


def test_a_corrupt_negative_is_named_once_and_reported_by_the_exit_code(tmp_path):
    van_set(tmp_path)
    (tmp_path / "textures" / "texture1.png").write_bytes(b"no image")
    cut = tmp_path / "textures" / "texture2.png"
    cut.write_bytes(cut.read_bytes()[:2000])  # its header is whole
    done = whet(*TRAIN, "--out", "vans.whet", cwd=tmp_path)
    assert done.returncode == ExitCode.SOME_SKIPPED, done.stderr
    assert done.stderr.count("texture1.png cannot be read") == 1
    assert "texture2.png" in done.stderr
    assert (tmp_path / "vans.whet").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("nowhere.csv", "--out", "a.whet"), ExitCode.DATA_MISSING, "nowhere.csv"),
        (("vans.csv",), 2, "give --out"),
        ((), 2, "missing annotations"),
        (("vans.csv", "--out", "a.whet", "--class", "ship"), ExitCode.FAILED, "unknown class 'ship'"),
        (("vans.csv", "--out", "a.whet", "--window", "12x8"), 2, "write window = ... in a file and pass --config"),
        (("vans.csv", "--out", "a.whet", "--max-stages=9"), 2, "write max_stages = 12 under [gslda] in a file"),
        (("vans.csv", "--out", "a.whet", "--no-early-exits"), 2, "write early_exits = false under [gslda]"),
        (("vans.csv", "--out", "no/a.whet"), 2, "output directory does not exist: no"),
        (("vans.csv", "--out", "no/a.whet", "--dry-run"), 2, "output directory does not exist: no"),
        (("vans.csv", "--out", "vans.whet", "--dry-run"), 2, "vans.whet already exists"),
        (("vans.csv", "--out", "empty", "--dry-run"), 2, "empty is a directory"),
        (("vans.csv", "--out", "vans.xml"), 2, "use vans.whet"),
        (("vans.csv", "--out", "mine"), 2, "use mine.whet"),
        (("vans.csv", "--out", "a.whet", "--negatives", "empty"), ExitCode.DATA_MISSING, "no image in empty"),
        (("--config", "broken.toml", "--out", "a.whet"), ExitCode.FAILED, "broken.toml is not a TOML file"),
        (("--config", "odd.toml", "--out", "a.whet"), ExitCode.FAILED, "unknown setting 'colour'"),
        (("vans.csv", "--out", "a.whet", "--trees", "0"), ExitCode.FAILED, "--trees 0: expected a whole number"),
        (("--config", "top.toml", "--out", "a.whet"), ExitCode.FAILED, "expected it under [channels]"),
        (("vans.csv", "--out", "a.whet", "--for-opencv", "--features", "channels"), 2, "with --for-opencv"),
        (("vans.csv", "--out", "a.whet", "--for-opencv", "--features", "haar,lbp"), 1, "expected haar or lbp"),
    ],
)
def test_what_is_wrong_is_said_before_any_work(folder, arguments, code, says):
    (folder / "empty").mkdir(exist_ok=True)
    (folder / "broken.toml").write_text("annotations = ")
    (folder / "odd.toml").write_text('annotations = "vans.csv"\ncolour = "red"\n')
    (folder / "top.toml").write_text('annotations = "vans.csv"\ntrees = 3\n')
    done = whet("train", *arguments, cwd=folder)
    assert done.returncode == code, done.stderr
    assert says in re.sub(r"\s+", " ", done.stderr)
    assert "Traceback" not in done.stderr
    assert not (folder / "a.whet").exists()


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="a folder that nobody can write to, root neither")
def test_a_dry_run_tries_whether_the_detector_could_be_written(folder):
    done = whet("train", "vans.csv", "--dry-run", "--out", "/proc/a.whet", cwd=folder)
    assert done.returncode == 2, done.stderr
    assert "cannot write to the directory /proc" in re.sub(r"\s+", " ", done.stderr)


def test_a_folder_of_crops_trains_too(tmp_path):
    found = van_set(tmp_path, n=25, seed=5)
    (tmp_path / "crops").mkdir()
    for number, image in enumerate(found.images):
        x1, y1, x2, y2 = image.boxes[0].astype(int).tolist()
        Image.open(image.path).crop((x1, y1, x2, y2)).save(tmp_path / "crops" / f"{number}.png")
    done = whet("train", "crops", "--negatives", "textures", *QUICK, "--out", "c.whet", "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert library.load(tmp_path / "c.whet").box_offset == (0, 0, 1, 1)


def test_channels_are_the_default_and_work_in_all_commands(folder, tmp_path):
    model = tmp_path / "channels.whet"
    done = whet("train", "vans.csv", "--negatives", "textures", *QUICK_CHANNELS, "--out", model, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "data       format csv" in done.stderr
    assert "step 3: trained 32 trees" in done.stderr
    assert "32 trees" in done.stdout
    assert library.load(model).base.model.family == "channels"
    assert read_settings(tmp_path / "channels.toml")["features"] == "channels"
    evaluated = json.loads(whet("evaluate", model, "vans.csv", "--json", cwd=folder).stdout)
    assert evaluated["trained_on"] == 30
    rows = whet("detect", model, "vans", "-f", "csv", cwd=folder).stdout.splitlines()
    assert rows[0] == "path,x,y,width,height,score,label,probability"
    assert evaluated["measures"]["average_precision"]["value"] > 0.8
    assert "channels, soft" in whet("inspect", model, "textures", "--windows", 50, cwd=folder).stdout
    refused = whet("export", model, tmp_path / "channels.xml", cwd=folder)
    assert refused.returncode == ExitCode.FAILED
    assert "haar or lbp" in refused.stderr


def test_several_classes_make_one_model_and_its_settings_repeat_it(folder, tmp_path):
    model = tmp_path / "signs.whet"
    done = whet("train", "vans.csv", "--classes", "all", *QUICK_CHANNELS, "--out", model, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "class van, 1 of 1" in done.stderr
    assert library.load(model).classes == ("van",)
    assert not (tmp_path / "signs.whet.checkpoint").exists()
    again = tmp_path / "again.whet"
    assert whet("train", "--config", tmp_path / "signs.toml", "--out", again, cwd=folder).returncode == 0
    assert library.load(again).base_id == library.load(model).base_id
    assert whet("train", "vans.csv", "--classes", "all", "--class", "van", "--out", again, cwd=folder).returncode == 2
    assert "unknown class 'cow'" in whet("train", "vans.csv", "--classes", "cow", "--out", again, cwd=folder).stderr
