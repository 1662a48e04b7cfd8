import json
from pathlib import Path

import pytest
from scripts import house

ROOT = Path(__file__).parent.parent

FILES = {
    "src/whet/__init__.py": "from whet.core.model import Model\n__all__ = ['Model']\n",
    "src/whet/core/__init__.py": "from whet.core.model import Model\n",
    "src/whet/core/model.py": "class Model:\n    'A model.'\n\n\ndef _hidden():\n    'Hidden.'\n",
    "src/whet/core/helper.py": "from . import model\n",
    "src/whet/run.py": "def run():\n    from whet.core import Model, helper\n",
    "docs/api.md": (
        "```{eval-rst}\n.. autoclass:: whet.Model\n   :members: fit,\n             predict\n\n"
        ".. automodule:: whet.core.model\n   :members:\n\n"
        ".. automodule:: whet.run\n   :members: run\n\n"
        ".. automodule:: elsewhere.model\n   :members:\n```\n"
    ),
}


@pytest.fixture
def checkout(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return house.Checkout(tmp_path)


def test_modules_are_counted_with_and_without_packages(checkout):
    found = house.modules(checkout)
    assert (found["count"], found["modules_without_init"]) == (5, 3)
    assert found["packages"] == {"core": 2}


def test_importers_are_found_in_functions_and_behind_re_exported_names(checkout):
    assert house.imported_by(checkout, "whet.run") == {"whet.core", "whet.core.model", "whet.core.helper"}
    assert house.imported_by(checkout, "whet.core.helper") == {"whet.core.model"}
    assert house.one_importer(checkout)["names"] == ["whet.core.helper"]


def test_a_documented_name_is_deep_if_its_module_is_two_levels_below(checkout):
    found = house.documented_deep_names(checkout)
    assert found == {"count": 1, "of": 3, "names": ["whet.core.model.Model"]}


def test_a_syntax_error_is_an_error_of_the_figure_alone(checkout):
    (checkout.source / "whet" / "run.py").write_text("def run(:\n")
    assert "run.py, line 1" in house.measured(house.one_importer, checkout)["error"]
    assert house.has_error({"one_importer": {"error": "no"}})


def test_settings_are_passed_under_the_names_that_are_accepted():
    def train(n_stages, learners, max_features, n_negatives):
        assert (n_stages, learners, max_features, n_negatives) == (2, 10, 300, 300)

    names = house.accepted_settings(lambda settings: train(**settings))
    assert list(names) == ["n_stages", "learners", "max_features", "n_negatives"]


def test_only_functions_that_run_are_recorded(tmp_path):
    path = tmp_path / "part.py"
    path.write_text("def used():\n    return sorted(x for x in (lambda: [1])())\n\n\ndef idle():\n    pass\n")
    names = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    assert house.record(lambda _: names["used"], tmp_path) == ["part.py:used"]


def test_modules_beyond_detection_are_those_that_only_a_correction_runs(monkeypatch, checkout):
    ran = {"detect": ["scan.py:f", "boxes.py:g"], "learn": ["scan.py:other", "derive.py:f", "derive.py:g"]}
    monkeypatch.setattr(house, "touched_in", lambda _, scenario: {"names": ran.get(scenario, [])})
    assert house.touched(checkout)["learn"]["modules_beyond_detect"] == 1


def test_the_stored_figures_are_of_this_code():
    """Within a few modules, so that not every commit measures again; `python -m scripts.house` prints new ones."""
    stored = json.loads((ROOT / "docs" / "results" / "house.json").read_text())["after"]
    here = house.Checkout(ROOT)
    count, share = house.modules(here)["count"], house.one_importer(here)["share"]
    assert count == pytest.approx(stored["modules"]["count"], abs=6)
    assert share == pytest.approx(stored["one_importer"]["share"], abs=0.03)
