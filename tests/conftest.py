"""Shared by all tests: settings of Hypothesis, a seeded generator, and the USPS digits, if present."""

import numpy as np
import pytest
from experiments import datasets
from hypothesis import settings

# Compilation makes the first example of a kernel slow; time is never asserted.
settings.register_profile("whet", deadline=None, max_examples=60)
settings.register_profile("quick", deadline=None, max_examples=15)


def pytest_configure(config: pytest.Config) -> None:
    """Fewer examples where slow tests are left out."""
    settings.load_profile("quick" if "not slow" in config.getoption("markexpr") else "whet")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Examples in docstrings that train a detector are slow tests."""
    for item in items:
        if item.name in {"whet.training.train.train", "whet.training.train.train_classes"}:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20_110_101)


@pytest.fixture(scope="session")
def usps() -> datasets.DigitPair:
    if datasets.find(datasets.USPS_FILE) is None:
        pytest.skip("USPS digits not found: set WHET_DATA, or run `python -m experiments usps` once")
    return datasets.usps_pair()
