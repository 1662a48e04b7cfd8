"""Parts of a run, the report that collects them, claims with verdicts, and the page that shows them."""

import json
import re

import numpy as np
import pytest
from experiments import page, report, toy, usps
from experiments.claims import Claim, Finding, difference, verdict
from experiments.report import Report, Row, Run, collected, planned, reproduce
from experiments.table import BY_NAME, EXPERIMENTS


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("toy")
    return out, reproduce("toy", out, runs=4)


@pytest.mark.slow
def test_a_report_is_read_as_it_was_written(done):
    out, reproduction = done
    again = Report.read(out / "toy.json")
    assert again.rows == reproduction.report.rows
    assert again.figures == reproduction.report.figures
    assert again.seeds == [0, 1, 2, 3]
    assert again.is_complete


@pytest.mark.slow
def test_stored_means_are_those_of_the_stored_values(done):
    for row in json.loads((done[0] / "toy.json").read_text())["results"]:
        values = list(row["values"].values())
        assert row["mean"] == pytest.approx(np.mean(values))
        assert row["std"] == pytest.approx(np.std(values, ddof=1))
        assert row["runs"] == len(values) == 4


@pytest.mark.slow
def test_a_second_run_measures_only_what_is_missing(monkeypatch, tmp_path):
    measured = []
    monkeypatch.setattr(toy, "measure", lambda run: measured.append((run.seed, run.part)) or run.note("e", "m", 1.0))
    monkeypatch.setattr(toy, "draw", lambda *_: [])
    reproduce("toy", tmp_path, runs=1)
    assert measured == [(0, part) for part in toy.SETTINGS]
    reproduce("toy", tmp_path, runs=2)
    assert measured[3:] == [(1, part) for part in toy.SETTINGS]
    reproduce("toy", tmp_path, runs=1, fresh=True)
    assert len(measured) == 9


@pytest.mark.slow
def test_an_interrupted_run_has_a_report_of_what_is_done(monkeypatch, tmp_path):
    def stop(run):
        if run.seed == 1:
            raise KeyboardInterrupt
        run.note("error", "no update", 0.5, data=run.part, samples=200)

    monkeypatch.setattr(toy, "measure", stop)
    monkeypatch.setattr(report, "WRITE_EVERY", 0.0)
    with pytest.raises(KeyboardInterrupt):
        reproduce("toy", tmp_path, runs=3)
    found = Report.read(tmp_path / "toy.json")
    assert (found.done, found.planned, found.seeds) == (3, 9, [0])
    assert page.status(json.loads((tmp_path / "toy.json").read_text())).endswith("3 of 9 parts done (1 seed)")


def test_parts_of_a_seed_are_runs_of_their_own_where_they_measure_the_same(tmp_path):
    for seed, part, value in ((0, "a", 1.0), (0, "b", 2.0), (1, "a", 3.0)):
        content = {"seconds": 1.0, "processor_seconds": 1.0, "notes": [["m", "x", {}, value], [part, "x", {}, value]]}
        (tmp_path / f"{seed}-{part}.json").write_text(json.dumps(content))
    rows = collected("toy", "small", [(0, "a"), (0, "b"), (1, "a"), (1, "b")], tmp_path)
    assert rows.one("m", "x").values == {"0 a": 1.0, "0 b": 2.0, "1 a": 3.0}
    assert rows.one("a", "x").values == {"0": 1.0, "1": 3.0}
    assert (rows.done, rows.planned) == (3, 4)


def test_what_is_measured_once_comes_first():
    class Both:
        ONCE = ("peers",)

        @staticmethod
        def parts(_):
            return ("a",)

    assert planned(Both, "small", [5, 6]) == [(5, "peers"), (5, "a"), (6, "a")]


def rows_of(*values):
    return [Row.from_values("rate", str(n), row) for n, row in enumerate(values)]


def test_a_difference_is_paired_over_runs():
    """A constant gain of every run is clear, even where runs differ by much more."""
    a, b = rows_of([0.2, 0.5, 0.81, 0.9], [0.1, 0.41, 0.7, 0.8])
    assert difference(a, b).is_clear
    assert difference(a, b).mean == pytest.approx(0.1)
    c, d = rows_of([0.2, 0.5, 0.8], [0.5, 0.2, 0.7])
    assert not difference(c, d).is_clear


def test_few_runs_have_no_verdict():
    a, b = rows_of([0.2, 0.5], [0.1, 0.4])
    claim = Claim("here", "Says.", "Criterion.", lambda _: Finding(verdict(difference(a, b).is_clear), ""))
    finding = claim.judged(Report("x", "small"))
    assert finding.verdict == "not measured"
    assert "at least 3" in finding.measured


def test_the_p_value_is_that_of_a_paired_t_test():
    from scipy.stats import ttest_rel

    a, b = rows_of([0.2, 0.5, 0.8, 0.4], [0.1, 0.45, 0.6, 0.45])
    assert difference(a, b).p == pytest.approx(ttest_rel(list(a.values.values()), list(b.values.values())).pvalue)


def test_an_explanation_is_given_only_where_a_claim_does_not_hold():
    holds = Claim("here", "Says.", "Criterion.", lambda _: Finding("reproduced", "1", "tried"))
    fails = Claim("here", "Says.", "Criterion.", lambda _: Finding("partly", "1", "tried"))
    assert [claim.judged(Report("x", "small")).tried for claim in (holds, fails)] == ["", "tried"]


@pytest.mark.slow
def test_the_page_has_every_experiment_claim_and_figure(done):
    out, reproduction = done
    made = page.html(out, {"usps": "needs data & more"})
    for claim in usps.CLAIMS:  # not run, and still on the page
        assert claim.says in made
    for entry in EXPERIMENTS:
        assert f"<h2 id='{entry.name}'>" in made
    for claim in toy.CLAIMS:
        assert claim.says in made
    assert made.count("data:image/png;base64,") == len(reproduction.files) - 1 == 3
    assert "skipped: needs data &amp; more" in made
    assert "not run at paper size" in made
    assert not re.search(r"(src|href)='(?!data:|#)", made)  # nothing outside of the page


@pytest.mark.slow
def test_markdown_is_wrapped_and_has_all_verdicts(done):
    text = page.markdown(done[0])
    assert text.count("(small size) |") == len(toy.CLAIMS)
    assert max(len(line) for line in text.splitlines() if not line.startswith("|")) <= 100


def test_a_note_goes_where_a_row_is_found(tmp_path):
    run = Run("small", 0, "a", tmp_path, True)
    run.note("seconds", "N", 1.5, value=3, measure="x")
    assert run.notes == [("seconds", "N", {"value": 3, "measure": "x"}, 1.5)]


def test_expected_times_of_the_small_size_are_below_ten_minutes():
    assert sum(entry.expected_seconds("small") for entry in EXPERIMENTS) < 600
    assert [*BY_NAME] == [entry.name for entry in EXPERIMENTS]
