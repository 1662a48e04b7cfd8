import pytest
from tests.commands import whet_here


@pytest.fixture
def run_here(folder, monkeypatch, capsys):
    """Call a command in this process, in the folder of the test."""
    monkeypatch.chdir(folder)
    return lambda *arguments: whet_here(monkeypatch, capsys, *arguments)
