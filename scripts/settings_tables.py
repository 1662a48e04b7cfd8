"""Write the tables of training settings into docs/guides/train.md: `python -m scripts.settings_tables`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from whet.training.config import CHANNELS, DATA, GSLDA, SETTINGS, TRAINING

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "train.md"
# The text between these comments is replaced.
BEGIN, END = "<!-- settings: python -m scripts.settings_tables -->\n", "<!-- end of settings -->\n"
HEADINGS = {
    DATA: "Data and positives, at the top of the file:",
    TRAINING: "Training, at the top of the file:",
    CHANNELS: "Channels, in the table `[channels]`:",
    GSLDA: "Cascades of grey features, in the table `[gslda]`:",
}


def _lines() -> Iterator[str]:
    for group, heading in HEADINGS.items():
        yield from ("", heading, "", "| setting | meaning | values | default |", "|---|---|---|---|")
        for setting in (known for known in SETTINGS.values() if known.belongs_to == group):
            yield f"| `{setting.toml_name}` | {setting.help} | {setting.values} | {setting.default_text} |"
    yield ""


def with_tables() -> str:
    """The text of the guide, with the tables as the settings are."""
    tables = BEGIN + "\n".join(_lines()) + "\n" + END
    return re.sub(
        f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: tables, GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL
    )


if __name__ == "__main__":
    GUIDE.write_text(with_tables(), encoding="utf-8")
