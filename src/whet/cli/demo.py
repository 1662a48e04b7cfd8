"""`whet demo`: see it work, on data that every installation has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from whet.cli.progress import progress_bar, tell_if_compiling


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("demo-out"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the order in which digits arrive.")] = 0,
) -> None:
    """Train a classifier of digits 3 and 5 on a few samples, teach it the rest one by one, and draw it.

    \b
    whet demo
    whet demo --out pictures --seed 1
    """
    from whet.experiments import digits, figures

    figures.check_installed()
    figures.prepared_folder(out)
    tell_if_compiling()
    with progress_bar("one digit at a time") as progress:
        story = digits.run(seed, progress)
    typer.echo(story.summary())
    typer.echo(f"picture: {digits.draw(story, out)}")
