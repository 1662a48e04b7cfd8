"""`whet demo`: see it work, on data that every installation has."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from whet.cli.output import progress_bar, start


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the images.")] = Path("demo-out"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the order in which digits arrive.")] = 0,
) -> None:
    """Find faces and correct a false positive; train a detector of your own; teach a classifier of digits one by one.

    \b
    whet demo
    whet demo --out images --seed 1
    """
    from whet.demo import digits, faces
    from whet.demo import objects as own_detector
    from whet.io.files import prepared_folder
    from whet.plots import figure

    figure.check_installed()
    prepared_folder(out)
    start()
    found = faces.run()
    typer.echo(found.summary())
    typer.echo(f"images: {', '.join(map(str, faces.draw(found, out)))}\n")
    with progress_bar("a detector of vans") as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = own_detector.run(out, progress, seed)
    typer.echo(own.summary())
    typer.echo(f"image: {', '.join(map(str, own.files))}; images, boxes and detectors: {out / 'vans'}\n")
    with progress_bar("one digit at a time") as progress:
        story = digits.run(seed, progress)
    typer.echo(story.summary())
    typer.echo(f"image: {digits.draw(story, out)}")
