"""Every number in the tables of README.md, docs/results*.md and one guide is the one in the JSON that it comes from.

`scripts/results_tables.py` renders the tables; here they are compared with the pages, cell by cell.
"""

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from experiments.page import markdown
from experiments.report import Report, module_of
from experiments.table import EXPERIMENTS
from scripts import results_tables
from scripts.results_tables import ROOT, Table

RESULTS_PAGES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("results*.md"))
PAGES = ["README.md", "docs/guarantees.md", "docs/guides/cluster.md", "docs/guides/how-many-images.md", *RESULTS_PAGES]
PRINT = "`python -m scripts.results_tables` prints all tables"
DASHES = re.compile(r"\|(\s*:?-+:?\s*\|)+")


def tables(text):
    """The tables of a Markdown page, without those in blocks of code."""
    found, block, in_code = [], [], False
    for line in [*text.splitlines(), ""]:
        in_code ^= line.startswith("```")
        if line.startswith("|") and not in_code:
            block.append(line.strip())
            continue
        if len(block) > 1 and DASHES.fullmatch(block[1]):
            header, _, *rows = block
            found.append(Table.from_cells(cells(header), map(cells, rows)))
        block = []
    return found


def cells(line):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def faults(page_tables, rendered, unmeasured=()):
    """What is wrong with the tables of a page, each in one line."""
    said = []
    left = list(rendered)
    measured = [table for table in page_tables if table.header not in unmeasured]
    strangers = []
    for table in measured:
        if table in left:
            left.remove(table)
        else:
            strangers.append(table)
    for table in strangers:
        labels = [row[0] for row in table.rows]
        same_header = [each for each in left if each.header == table.header]
        twin = max(same_header, key=lambda each: sum(row[0] in labels for row in each.rows), default=None)
        if twin is None:
            said.append(f"no function renders the table {' | '.join(table.header)!r}")
            continue
        left.remove(twin)
        said += [f"the page has {row}, the results do not" for row in table.rows if row not in twin.rows]
        said += [f"the results have {row}, the page does not" for row in twin.rows if row not in table.rows]
        if set(table.rows) == set(twin.rows):
            said.append(f"the rows of {' | '.join(table.header)!r} are in another order, or one is there twice")
    said += [f"the page lacks the table {' | '.join(table.header)!r}" for table in left]
    return said


def joined(text):
    """Text without its line breaks."""
    return " ".join(text.split())


@pytest.mark.parametrize("page", PAGES)
def test_every_table_is_the_one_of_its_results(page):
    rendered = [table() for table in results_tables.TABLES.get(page, ())]
    found = faults(tables((ROOT / page).read_text("utf-8")), rendered, results_tables.UNMEASURED.get(page, ()))
    assert not found, "\n".join([f"{page} and docs/results/*.json differ; {PRINT}", *found])


@pytest.mark.parametrize("page", results_tables.SENTENCES)
def test_every_listed_sentence_is_in_its_page(page):
    text = joined((ROOT / page).read_text("utf-8"))
    for sentence in results_tables.SENTENCES[page]:
        assert sentence() in text, f"{page} lacks it; {PRINT}"


def test_the_page_of_the_paper_is_the_one_of_its_results():
    """All numbers in its text come from the JSON: the page is rendered from it."""
    assert (ROOT / "docs/paper.md").read_text("utf-8") == markdown(results_tables.RESULTS), (
        "run `python -m experiments page --out docs/results --markdown docs/paper.md`"
    )


@pytest.mark.parametrize("entry", EXPERIMENTS, ids=lambda entry: entry.name)
def test_stored_verdicts_are_those_that_the_stored_numbers_give(entry):
    path = results_tables.RESULTS / f"{entry.name}.json"
    if not path.exists():
        pytest.skip(f"{entry.name} was not run at paper size")
    report = Report.read(path)
    stored = json.loads(path.read_text("utf-8"))["claims"]
    for claim, found in zip(module_of(entry).CLAIMS, stored, strict=True):
        assert found == {"where": claim.where, "says": claim.says, "criterion": claim.criterion} | asdict(
            claim.judged(report)
        )


def test_verdicts_are_counted_as_they_are_listed():
    """Verdicts of the whole page are counted from the claims in it."""
    text = (ROOT / "docs/paper.md").read_text("utf-8")
    counted = re.search(r"Verdicts at paper\ssize:\s(.+?)\.\n", text, re.DOTALL)
    assert counted, "the page does not count its verdicts"
    numbers = {
        name: int(n) for n, name in re.findall(r"(\d+) (reproduced|partly|not measured|not)\b", joined(counted[1]))
    }
    rows = next(table for table in tables(text) if table.header == ("where", "claim", "verdict")).rows
    for name, n in numbers.items():
        assert n == sum(row[2] == name for row in rows), name


def test_pages_with_results_exist():
    for page in {*results_tables.TABLES, *results_tables.SENTENCES, *results_tables.UNMEASURED}:
        assert Path(ROOT / page).exists(), page
        assert page in PAGES


# What the comparison notices.

PAGE = """
| detector | 10 | 26 |
|---|---:|---|
| ours | 469 | 1,473 |
| theirs, `a \\| b` | 451 | |

```
| no | table |
|---|---|
| 1 | 2 |
```
| not a table either, 12 |
"""
OURS = Table.from_cells(["detector", 10, 26], [["ours", 469, "1,473"], ["theirs, `a \\| b`", 451, ""]])


def test_tables_are_read_as_they_are_written():
    assert tables(PAGE) == [OURS]
    assert tables(str(OURS)) == [OURS]


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        (PAGE.replace("469", "470"), "('ours', '470', '1,473')"),
        (PAGE.replace("1,473", "1473"), "('ours', '469', '1473')"),
        (PAGE.replace("| 26 |", "| 27 |"), "no function"),
        (PAGE.replace("| ours | 469 | 1,473 |\n", ""), "the results have"),
        (PAGE.replace("| ours |", "| ours | 469 | 1,473 |\n| ours |"), "there twice"),
        (PAGE + "\n| more |\n|---|\n| 7 |\n", "no function renders the table 'more'"),
        ("nothing", "lacks the table"),
    ],
)
def test_a_difference_is_noticed(page, fault):
    assert not faults(tables(PAGE), [OURS])
    found = faults(tables(page), [OURS])
    assert fault in "\n".join(found)


def test_tables_may_stand_in_any_order_and_have_the_same_header():
    other = Table.from_cells(OURS.header, [["others", 1, 2]])
    assert not faults([other, OURS], [OURS, other])
    wrong = Table.from_cells(OURS.header, [["others", 1, 3]])
    assert len(faults([wrong, OURS], [OURS, other])) == 2


def test_tables_without_measurements_are_listed():
    assert not faults([OURS], [], unmeasured=[OURS.header])


def test_a_row_that_an_experiment_lacks_is_named():
    with pytest.raises(LookupError, match=r"usps.json has 0 rows of error, batch"):
        results_tables.measured("usps", "error", "batch", n_weak=-1)
