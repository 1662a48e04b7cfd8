"""Draw the screenshots and the recording of the studio: `python -m scripts.studio_recording [--only NAME]`.

The images are photographs of scikit-image. Writes docs/guides/images/studio-*.webp: a session as an animation, and the
page on a laptop, a tablet and a phone, in light and dark.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image, ImageEnhance
from scripts import studio_browser
from scripts.studio_browser import Studio

OUT = Path(__file__).parents[1] / "docs" / "guides" / "images"
SIZES = {"laptop": (1280, 800), "tablet": (834, 1112), "phone": (390, 844)}
PHOTOGRAPHS = ("coffee", "camera", "chelsea", "rocket", "coins", "clock", "stereo_motorcycle", "immunohistochemistry")
FACE = (224, 110)  # a pixel of the astronaut's face
COIN = (80, 172, 124, 218)  # a coin with a head that the face detector does not find
QUALITY = 82


def main() -> None:
    """Write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["screenshots", "animation"])
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    missing = studio_browser.missing()
    if missing is not None:
        raise SystemExit(missing)
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, studio_browser.browser() as browser:
        folder = Path(name) / "photographs"
        folder.mkdir()
        save_photographs(folder)
        if options.only != "animation":
            with Studio("face", folder, project=Path(name) / "screens.studio") as studio:
                screenshots(browser, studio, options.out)
        if options.only != "screenshots":
            with Studio("face", folder, project=Path(name) / "session.studio") as studio:
                animation(browser, studio, options.out / "studio-session.webp")


def save_photographs(folder: Path) -> None:
    """Photographs of scikit-image, and the astronaut in other light and mirrored."""
    from skimage import data

    for name in PHOTOGRAPHS:
        pixels = getattr(data, name)()
        pixels = pixels[0] if isinstance(pixels, tuple) else pixels
        Image.fromarray(pixels).convert("RGB").save(folder / f"{name}.png")
    astronaut = Image.fromarray(data.astronaut())
    astronaut.save(folder / "astronaut.png")
    ImageEnhance.Brightness(astronaut).enhance(0.8).save(folder / "astronaut-dusk.png")
    astronaut.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(folder / "astronaut-mirrored.png")


@contextmanager
def opened(browser: Any, studio: Studio, image: str, size: str, scheme: str) -> Iterator[Any]:  # noqa: ANN401
    """The page with an image open."""
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        has_touch=size != "laptop",
        device_scale_factor=1 if size == "laptop" else 1.5,
    )
    page = context.new_page()
    page.goto(f"{studio.address}/#{studio.ids()[image]}")
    page.locator(".picture .box").first.wait_for()
    settle(page)
    yield page
    context.close()


def settle(page: Any) -> None:  # noqa: ANN401
    """Wait until everything is acknowledged and drawn."""
    page.wait_for_function("() => document.querySelector('.topbar .status')?.dataset.waiting === '0'")
    page.wait_for_timeout(700)


def false_positive(studio: Studio, image: str) -> str:
    """The key of the box of the astronaut that is not the face."""
    found = [found["box"] for found in studio.get(f"/api/images/{studio.ids()[image]}")["detections"]]
    (box,) = [box for box in found if not (box[0] < FACE[0] < box[2] and box[1] < FACE[1] < box[3])]
    return ",".join(f"{value:.1f}" for value in box)


def screenshots(browser: Any, studio: Studio, out: Path) -> None:  # noqa: ANN401
    """Correct a little, then every size in both schemes, and the panels."""
    with opened(browser, studio, "coffee.png", "laptop", "light") as page:
        page.locator(".box[data-kind=detection]").first.click()
        page.locator(".tools").get_by_role("button", name="Wrong").click()
        settle(page)
    with opened(browser, studio, "astronaut-dusk.png", "laptop", "light") as page:
        page.locator(".box[data-kind=detection]").first.click()
        page.locator(".tools").get_by_role("button", name="Right").click()
        settle(page)
        page.keyboard.press("g")
        settle(page)
    with opened(browser, studio, "coins.png", "laptop", "light") as page:
        for _ in range(2):
            page.locator(".box[data-kind=detection]").first.click()
            page.locator(".tools").get_by_role("button", name="Wrong").click()
            settle(page)
    key = false_positive(studio, "astronaut.png")
    with opened(browser, studio, "astronaut.png", "laptop", "light") as page:
        page.locator(f'.box[data-key="{key}"]').click()
        page.locator(".tools").get_by_role("button", name="Wrong").click()
        settle(page)
        page.locator(".box[data-kind=detection]").first.click()
        page.locator(".tools").get_by_role("button", name="Right").click()
        settle(page)
        page.keyboard.press("Control+z")
        settle(page)
    for size in SIZES:
        for scheme in ("light", "dark"):
            with opened(browser, studio, "astronaut.png", size, scheme) as page:
                if size == "laptop":
                    page.locator(".box[data-kind=detection]").first.click()
                elif size == "phone":
                    page.locator(".touch-bar .judge").first.tap()
                page.wait_for_timeout(300)
                suffix = scheme if size == "laptop" else f"{size}-{scheme}"
                save(page, out / f"studio-{suffix}.webp")
                if size == "laptop":
                    for panel in ("History", "Quality"):
                        page.get_by_role("tab", name=panel).click()
                        settle(page)
                        save(page, out / f"studio-{panel.lower()}-{scheme}.webp")


def save(page: Any, path: Path) -> None:  # noqa: ANN401
    """Write a screenshot as WebP."""
    Image.open(BytesIO(page.screenshot())).save(path, "WEBP", quality=QUALITY, method=6)
    print(f"{path.name}: {path.stat().st_size // 1024} KB")


class Film:
    """Screenshots with the time that each is shown; the mouse is drawn by the page."""

    def __init__(self, page: Any) -> None:  # noqa: ANN401
        self._page = page
        self.frames: list[Image.Image] = []
        self.milliseconds: list[int] = []

    def shoot(self, milliseconds: int) -> None:
        """Add a frame."""
        frame = Image.open(BytesIO(self._page.screenshot())).convert("RGB")
        self.frames.append(frame.resize((960, 600), Image.Resampling.LANCZOS))
        self.milliseconds.append(milliseconds)

    def save(self, path: Path) -> None:
        """Write the animation."""
        first, *rest = self.frames
        first.save(
            path, "WEBP", save_all=True, append_images=rest, duration=self.milliseconds, loop=0, quality=70, method=6
        )
        print(f"{path.name}: {len(self.frames)} frames, {path.stat().st_size // 1024} KB")


def animation(browser: Any, studio: Studio, path: Path) -> None:  # noqa: ANN401
    """Mark a false positive, see the effect, undo, redo; draw a missed object."""
    key = false_positive(studio, "astronaut.png")
    with opened(browser, studio, "astronaut.png", "laptop", "light") as page:
        film = Film(page)
        film.shoot(1200)
        page.locator(f'.box[data-key="{key}"]').click()
        page.wait_for_timeout(200)
        film.shoot(1200)
        page.locator(".tools").get_by_role("button", name="Wrong").hover()
        film.shoot(500)
        page.locator(".tools").get_by_role("button", name="Wrong").click()
        settle(page)
        film.shoot(2000)
        page.locator(".change", has_text="astronaut-dusk.png").first.hover()
        film.shoot(700)
        page.locator(".change", has_text="astronaut-dusk.png").first.click()
        settle(page)
        film.shoot(1800)
        page.keyboard.press("Control+z")
        settle(page)
        film.shoot(1300)
        page.keyboard.press("Control+Shift+z")
        settle(page)
        page.get_by_role("tab", name="History").click()
        settle(page)
        film.shoot(1800)
        page.get_by_role("tab", name="Effect").click()
        page.goto(f"{studio.address}/#{studio.ids()['coins.png']}")
        settle(page)
        page.keyboard.press("w")
        film.shoot(900)
        draw(page, film)
        settle(page)
        film.shoot(2600)
        film.save(path)


def draw(page: Any, film: Film) -> None:  # noqa: ANN401
    """Drag a box around the coin, in some steps."""
    steps = [0.0, 0.4, 0.75, 1.0]
    for number, share in enumerate(steps):
        x, y = COIN[0] + share * (COIN[2] - COIN[0]), COIN[1] + share * (COIN[3] - COIN[1])
        at = page.evaluate(
            "([x, y]) => { const p = new DOMPoint(x, y).matrixTransform("
            "document.querySelector('.picture').getScreenCTM()); return [p.x, p.y]; }",
            [x, y],
        )
        page.mouse.move(*at)
        if number == 0:
            page.mouse.down()
        else:
            page.wait_for_timeout(60)
            film.shoot(180)
    page.mouse.up()


if __name__ == "__main__":
    main()
