"""A browser for all tests of a process, and a studio of its own for each test: scikit-image's photographs."""

import pytest
from PIL import Image, ImageEnhance
from scripts import studio_browser
from scripts.studio_browser import Studio
from tests.web.e2e.page import StudioPage


@pytest.fixture(scope="session")
def browser():
    missing = studio_browser.missing()
    if missing is not None:
        pytest.skip(missing)
    with studio_browser.browser() as running:
        yield running


@pytest.fixture(scope="session")
def photographs(tmp_path_factory):
    """The astronaut three times, in other light and mirrored, and images without a face."""
    from skimage import data

    folder = tmp_path_factory.mktemp("photographs")
    astronaut = Image.fromarray(data.astronaut())
    astronaut.save(folder / "astronaut.png")
    ImageEnhance.Brightness(astronaut).enhance(0.8).save(folder / "dusk.png")
    astronaut.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(folder / "mirrored.png")
    Image.fromarray(data.coins()).save(folder / "coins.png")
    Image.fromarray(data.coffee()).save(folder / "coffee.png")
    return folder


@pytest.fixture
def studio(photographs, tmp_path, browser):  # noqa: ARG001 - without a browser no server is started
    with Studio("face", photographs, project=tmp_path / "test.studio") as running:
        yield running


@pytest.fixture
def open_page(browser):
    """Open the studio in a context of its own, as another person would; the page may not report an error."""
    contexts, errors = [], []

    def open_(studio, image=None, *, view="picture", width=1280, height=800, touch=False):
        context = browser.new_context(viewport={"width": width, "height": height}, has_touch=touch, is_mobile=touch)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if is_error(message) else None)
        return StudioPage(page, studio).open(image, view)

    yield open_
    for context in contexts:
        context.close()
    assert errors == []


def is_error(message):
    """An error that is not the browser's own note about a server that is down, or about a refusal that was expected."""
    return message.type == "error" and "Failed to load resource" not in message.text
