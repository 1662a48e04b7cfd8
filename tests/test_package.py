import importlib
import inspect
from pathlib import Path

import pytest

import whet

ROOT = Path(__file__).parent.parent
PUBLIC = [name for name in dir(whet) if not name.startswith("_")]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example_and_a_place_in_the_docs(name):
    if name == "RiverClassifier":
        pytest.importorskip("river")
    assert ">>>" in (inspect.getdoc(getattr(whet, name)) or "")
    assert name in (ROOT / "docs" / "api.md").read_text()


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        whet.Nothing  # noqa: B018


def test_every_experiment_has_what_the_registry_expects():
    from experiments.report import EXPERIMENTS

    for name in EXPERIMENTS:
        module = importlib.import_module(f"experiments.{name.replace('-', '_')}")
        assert callable(module.run)
        assert callable(module.draw)
        assert set(module.RUNS) == {"small", "paper"}
