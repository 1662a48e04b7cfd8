"""`whet demo`: a short demonstration on images that every installation has."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from whet.cli.options import Seed
from whet.cli.output import progress_bar, start


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Output directory.")] = Path("demo-out"),
    seed: Seed = 0,
) -> None:
    """Run a short demonstration: correct a face detector, train a van detector, learn digits online.

    Needs the extra 'demo' (pip install 'whet[demo]'). Takes about a minute.

    \b
    Examples:
      whet demo
      whet demo --out images --seed 1
    """
    from whet.demo import objects as vans
    from whet.demo.online import correct_faces, draw_corrections, draw_digits, learn_digits
    from whet.io.files import prepared_folder
    from whet.plots import figure

    figure.check_installed()
    prepared_folder(out)
    start()
    corrections = correct_faces()
    typer.echo("1. Correct the bundled face detector")
    typer.echo(corrections.summary())
    typer.echo(f"Wrote {', '.join(map(str, draw_corrections(corrections, out)))}\n")
    typer.echo("2. Train a detector of your own and correct it")
    with progress_bar("training on vans") as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = vans.run(out, progress, seed)
    typer.echo(own.summary())
    typer.echo(f"Wrote {', '.join(map(str, own.files))}; images, annotations and models: {out / 'vans'}/\n")
    typer.echo("3. Classify digits online, one sample at a time")
    with progress_bar("learning digits") as progress:
        learning = learn_digits(seed, progress)
    typer.echo(learning.summary())
    typer.echo(f"Wrote {draw_digits(learning, out)}")
