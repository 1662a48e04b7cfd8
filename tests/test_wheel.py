"""The wheel: equal sources give equal bytes, and it holds the licences of all that it holds."""

import hashlib
import re
import zipfile
from pathlib import Path

import pytest
from scripts.requirements import USED, declared, locked, lowest, normal

pytest.importorskip("hatchling", reason="the build backend is not installed")

ROOT = Path(__file__).parents[1]


def built(folder, monkeypatch):
    from hatchling.builders.wheel import WheelBuilder

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    (path,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    return Path(path)


@pytest.mark.slow
def test_equal_sources_give_an_equal_wheel_with_its_licences(tmp_path, monkeypatch):
    first, second = (built(tmp_path / name, monkeypatch) for name in "ab")
    assert hashlib.sha256(first.read_bytes()).digest() == hashlib.sha256(second.read_bytes()).digest()
    names = zipfile.ZipFile(first).namelist()
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "whet/bundled/LICENSE-OpenCV.txt" in names
    static = ROOT / "src/whet/web/static"
    files = [path for path in static.rglob("*") if path.is_file()]
    assert {f"whet/web/static/{path.relative_to(static).as_posix()}" for path in files} <= set(names)
    assert not [name for name in names if name.endswith((".pyc", ".nbi", ".nbc")) or name.startswith("tests")]


def test_every_bundled_model_has_a_line_on_its_data():
    folder = ROOT / "src/whet/bundled"
    text = (folder / "README.md").read_text()
    for model in folder.glob("*.whet"):
        row = next(line for line in text.splitlines() if line.startswith(f"| `{model.name}`"))
        assert (folder / re.findall(r"`([^`]+)`", row)[-1]).is_file()


def test_the_lock_names_every_requirement_with_one_version():
    lines = (ROOT / "requirements.lock").read_text().split()
    names = [line.partition("==")[0] for line in lines]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.+!]+", line) for line in lines)
    needed = {normal(re.match(r"[\w.-]+", one)[0]) for one in declared("dev")}
    assert needed <= set(names)
    assert len(list(lowest())) == len(list(declared(*USED)))
    assert {line.partition("==")[0] for line in locked()} >= needed
