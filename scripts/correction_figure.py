"""Draw the figure of the README, an image before and after one correction: `python -m scripts.correction_figure`."""

from pathlib import Path

from whet.demo.faces_digits import astronaut, corrected
from whet.detector.storage import load
from whet.plots.drawing import save_image

FIGURE = Path(__file__).parents[1] / "docs" / "results" / "correction.png"


def main() -> None:
    """Correct the detection that is no face, and write the figure."""
    print(f"wrote {save_image(corrected(load('face'), astronaut(), 1).drawn(), FIGURE).relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
