"""`whet demo`: see it work, on data that every installation has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from whet.cli.progress import progress_bar
from whet.cli.start import start


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("demo-out"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the order in which digits arrive.")] = 0,
) -> None:
    """Find faces, correct a false alarm online, take it back; then teach a classifier of digits one by one.

    \b
    whet demo
    whet demo --out pictures --seed 1
    """
    from whet.experiments import digits, faces
    from whet.plots import figure

    figure.check_installed()
    figure.prepared_folder(out)
    start()
    found = faces.run()
    typer.echo(found.summary())
    typer.echo(f"pictures: {', '.join(map(str, faces.draw(found, out)))}\n")
    with progress_bar("one digit at a time") as progress:
        story = digits.run(seed, progress)
    typer.echo(story.summary())
    typer.echo(f"picture: {digits.draw(story, out)}")
