"""`python -m whet` runs the `whet` command."""

from whet.cli.options import CTRL_C


def main() -> None:
    """Run the command line. Ctrl-C during the imports exits without a traceback, as it does later."""
    try:
        from whet.cli.main import main as run

        run()
    except KeyboardInterrupt:
        raise SystemExit(CTRL_C) from None


if __name__ == "__main__":
    main()
