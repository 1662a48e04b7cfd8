import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.detectors import bull_base, bull_finder, bull_scene

import whet
from whet.detector.journal import Journal, count_records
from whet.errors import JournalError


@pytest.fixture(scope="module")
def records():
    finder = bull_finder()
    box = finder.detect(bull_scene()).boxes[2:3]
    return finder.learn(bull_scene(), [*box, [40, 30, 70, 60]], [False, True])


@pytest.fixture
def journal(tmp_path, records):
    made = Journal(tmp_path / "camera.jsonl")
    made.add_learned(records)
    return made


def test_what_is_written_is_read(journal, records):
    assert sorted(map(repr, Journal(str(journal.path)).learned())) == sorted(map(repr, records))


def test_a_journal_that_is_not_there_is_empty(tmp_path):
    assert Journal(tmp_path / "none").learned() == []
    assert Journal(tmp_path / "none").repair() == ""


def test_a_day_with_a_journal(journal, records):
    finder = bull_finder()
    finder.relearn(journal.learned())
    finder.unlearn(journal.learned(is_object=False))
    journal.add_unlearned(journal.learned(is_object=False))
    assert [record.is_object for record in journal.learned()] == [True]
    assert finder.learned == (sum(record.weight for record in records if record.is_object), 0)


def test_records_are_selected_by_image_label_and_base(journal, records):
    other = replace(records[0], image="a" * 64)
    journal.add_learned([other])
    assert journal.learned(image="a" * 64) == [other]
    assert len(journal.learned(image=records[0].image)) == len(records)
    assert journal.learned(base_id="b" * 64) == []
    assert len(journal.learned(is_object=True)) == 1


def test_what_was_unlearned_is_marked_and_refused_the_second_time(journal, records):
    journal.add_unlearned(records[:1])
    before = journal.path.read_bytes()
    with pytest.raises(JournalError, match="1 of 2 records"):
        journal.add_unlearned(records[:2])
    assert journal.path.read_bytes() == before
    assert len(journal.learned()) == len(records) - 1


def test_an_record_that_was_learned_twice_is_unlearned_twice(journal, records):
    journal.add_learned(records[:1])
    journal.add_unlearned([records[0], records[0]])
    assert records[0] not in journal.learned()
    with pytest.raises(JournalError):
        journal.add_unlearned(records[:1])


def test_a_line_that_was_cut_short_is_named_and_can_be_taken_off(journal, records):
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole[:-20])
    n = len(records)
    for verb in (journal.learned, lambda: journal.add_learned(records), lambda: journal.add_unlearned(records)):
        with pytest.raises(JournalError, match=r"camera.jsonl.* cut short.*repair"):
            verb()
    assert journal.path.read_bytes() == whole[:-20]
    assert journal.repair().startswith('{"base_id"')
    assert len(journal.learned()) == n - 1
    assert journal.repair() == ""


def test_a_file_that_is_no_journal_is_not_repaired(journal, tmp_path):
    other, none = tmp_path / "photo.png", journal.path.read_bytes() + b'{"bas'
    for data in (b"\x89PNG\r\n\x1a\n\0\0\0", b"{no", none.replace(b"learned", b"eaten", 1), none + b"x"):
        other.write_bytes(data)
        with pytest.raises(JournalError, match=r"photo\.png"):
            Journal(other).repair()
        assert other.read_bytes() == data
    other.write_bytes(none)
    assert Journal(other).repair() == '{"bas'
    assert other.read_bytes() == journal.path.read_bytes()


DAMAGE = {
    "no JSON": (lambda _: "nothing", "not JSON"),
    "an empty line": (lambda _: "", "not JSON"),
    "a list": (lambda _: "[]", "expected a JSON object"),
    "deep": (lambda _: "[" * 100_000, "not JSON"),
    "missing": (lambda line: {key: line[key] for key in line if key != "weight"}, "weight"),
    "unknown": (lambda line: line | {"exec": 1}, "exec"),
    "done otherwise": (lambda line: line | {"did": "forgot"}, "did is 'forgot'"),
    "no weight": (lambda line: line | {"weight": 0}, "weight is 0"),
    "huge weight": (lambda line: line | {"weight": 2**60}, "weight"),
    "fractional weight": (lambda line: line | {"weight": 1.5}, "weight"),
    "label": (lambda line: line | {"is_object": 1}, "is_object"),
    "scale": (lambda line: line | {"scale": "x"}, "scale"),
    "place": (lambda line: line | {"y": -1}, "y is -1"),
    "hash": (lambda line: line | {"image": "../../x"}, "image is not"),
    "short hash": (lambda line: line | {"base_id": "ab"}, "base_id has 2 digits"),
    "responses": (lambda line: line | {"responses": "zz"}, "responses is not"),
    "half a byte": (lambda line: line | {"responses": line["responses"][:-1]}, "responses is not"),
    "unlearned too often": (lambda line: line | {"did": "unlearned", "x": 9999}, "unlearns what is not learned"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_line_is_named(damage, message, journal):
    lines = journal.path.read_text().splitlines()
    worse = damage(json.loads(lines[1]))
    lines[1] = worse if isinstance(worse, str) else json.dumps(worse)
    journal.path.write_text("\n".join(lines) + "\n")
    with pytest.raises(JournalError, match=rf"(?s)camera.jsonl, line 2.*{message}"):
        journal.learned()


ALTERED = {
    "other base": (lambda e: replace(e, base_id="0" * 64), "base"),
    "too many stages": (lambda e: replace(e, stages=4), "4 of 3 stages"),
    "fewer stages": (lambda e: replace(e, stages=1), "1 of 3 stages|have 4 weak learners"),
    "no weight": (lambda e: replace(e, weight=0), "0 times"),
    "more bits": (lambda e: replace(e, responses=e.responses + b"\0"), "weak learners"),
    "fewer bits": (lambda e: replace(e, responses=e.responses[:-1]), "weak learners"),
    "bits in the padding": (lambda e: replace(e, responses=e.responses[:-1] + b"\xff"), "weak learners"),
    "no bits": (lambda e: replace(e, responses=b""), "weak learners"),
}


@pytest.mark.parametrize(("alter", "message"), ALTERED.values(), ids=ALTERED)
def test_records_that_no_window_could_have_left_are_refused(alter, message, records):
    for record in (records[0], records[-1]):
        with pytest.raises(JournalError, match=message):
            count_records(bull_base(), [records[0], alter(record)])


def test_responses_that_lead_elsewhere_are_refused(records):
    """A negative that fails the first stage cannot have reached the others."""
    negative = next(record for record in records if not record.is_object and record.stages == 3)
    nothing = replace(negative, responses=bytes(len(negative.responses)))
    with pytest.raises(JournalError, match=r"3 stages.*altered"):
        count_records(bull_base(), [nothing])


def test_an_record_holds_no_pixels(records):
    """One bit for every weak learner, and nothing else of the image but its hash."""
    n = sum(len(stage) for stage in bull_base().stages)
    assert all(len(record.responses) <= -(-n // 8) for record in records)
    assert len(records[0].image) == 64


def test_a_full_disk_adds_nothing(tmp_path, records):
    """In a process of its own, whose files may not grow beyond some bytes."""
    journal = Journal(tmp_path / "camera.jsonl")
    journal.add_learned(records)
    before = journal.path.read_bytes()
    code = (
        "import resource, signal; from whet.detector.journal import Journal; from whet.errors import JournalError\n"
        f"journal = Journal({str(journal.path)!r}); records = journal.learned()\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before) + 50}, {len(before) + 50}))\n"
        "try: journal.add_learned(records)\n"
        "except JournalError as error: print(error)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(whet.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "nothing was added" in done.stdout
    assert journal.path.read_bytes() == before


def test_what_could_not_be_read_is_not_written(tmp_path, records):
    journal = Journal(tmp_path / "camera.jsonl")
    with pytest.raises(JournalError, match="nothing was added"):
        journal.add_learned([records[0], replace(records[0], image="abc")])
    assert not journal.path.exists()


def test_weights_that_no_count_can_hold_are_refused(records):
    finder = bull_finder()
    with pytest.raises(JournalError, match="altered"):
        finder.relearn([replace(records[0], weight=2**52)])
    with pytest.raises(JournalError, match="2\\^52"):
        finder.relearn([replace(records[0], weight=2**51)] * 2)
    assert finder.learned == (0, 0)
