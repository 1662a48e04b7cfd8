"""Sites that learn apart: merged, they are one detector that learned all; and what a merged file tells of them."""

from dataclasses import replace

import numpy as np
import pytest
from tests.cascades import loose_crop
from tests.detectors import BULL, base, bull_finder, bull_scene, content, false_positive, judged_finder

from whet.corrections.records import Records
from whet.detector.detector import Detector
from whet.detector.model_file import to_bytes
from whet.detector.model_header import Contents
from whet.errors import CannotMergeError, ModelFileError, RecordError
from whet.training.learning import crop_record

pytestmark = pytest.mark.filterwarnings("ignore::whet.errors.WorseEstimateWarning")

SITES = ("north", "south", "east", "west", "harbour")


@pytest.fixture(autouse=True)
def same_time(monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1.7e9)


def examples(detector, site, seed, n=6):
    """Records of crops of the object."""
    rng = np.random.default_rng(seed)
    made = [crop_record(detector.only, loose_crop(rng)) for _ in range(n)]
    return [record.described(17, f"{seed}.png", "", site) for record in made]


def learn_all(detector, number, site):
    """What one of the sites has learned: examples, an object and a false positive of its own scene."""
    detector.add(examples(detector, site, number))
    wrong = false_positive(bull_finder(), number)
    detector.learn(bull_scene(number), np.concatenate([BULL, wrong]), [True, False], name=f"{number}.png", site=site)


def of_sites(numbers, label=lambda number: SITES[number]):
    detector = judged_finder(default=0.5)
    for number in numbers:
        learn_all(detector, number, label(number))
    return detector


def merged(detectors):
    first, *others = (each.copy() for each in detectors)
    first.merge(*others)
    return first


def weights(detector):
    return [(stage.coef.tobytes(), stage.threshold) for stage in detector.model.cascade.stages]


@pytest.mark.slow
def test_five_sites_merge_into_the_one_that_learned_all_and_each_can_be_taken_out():
    apart = [of_sites([number]) for number in range(5)]
    together = merged(apart)
    assert content(together) == content(of_sites(range(5))) == content(of_sites([3, 1, 4, 0, 2]))
    assert content(merged(apart[::-1])) == content(together)
    assert content(Detector.from_bytes(content(together))) == content(together)
    for number, site in enumerate(SITES):
        others = [each for each in range(5) if each != number]
        left = together.copy()
        gone = left.unlearn_site(site)
        assert {record.id for record in gone} == {record.id for record in apart[number].records}
        assert content(left) == content(of_sites(others)) == content(merged([apart[i] for i in others]))
        assert all(check.holds for check in left.check())
    for site in SITES:
        together.unlearn_site(site)
    assert content(together) == content(judged_finder(default=0.5))


def test_merging_twice_or_with_oneself_changes_nothing():
    one, other = of_sites([0, 1]), of_sites([1, 2])
    both = merged([one, other])
    assert content(merged([both, one, other, both])) == content(both) == content(of_sites([0, 1, 2]))


def test_what_two_sites_have_learned_counts_once_and_stays_if_one_of_them_leaves():
    alone, there = (of_sites([1], lambda _, site=site: site) for site in ("north", "south"))
    unlabelled = of_sites([1], lambda _: "")
    both = merged([alone, there])
    assert len(both.records) == 2 * len(alone.records)
    assert both.n_examples == unlabelled.n_examples
    assert weights(both) == weights(unlabelled)
    found, expected = both.detect(bull_scene(1)), unlabelled.detect(bull_scene(1))
    np.testing.assert_array_equal(found.boxes, expected.boxes)
    np.testing.assert_array_equal(found.scores, expected.scores)
    both.unlearn_site("north")
    assert content(both) == content(there)
    mixed = merged([alone, unlabelled])
    assert mixed.n_examples == unlabelled.n_examples
    mixed.unlearn_site("north")
    assert content(mixed) == content(unlabelled)


def test_a_site_changes_nothing_that_a_detector_finds():
    assert weights(of_sites([0, 1])) == weights(of_sites([0, 1], lambda _: ""))


def test_a_contradiction_is_that_of_all_sites_that_have_it():
    one, other = bull_finder(), bull_finder()
    wrong = false_positive(one)
    for site in ("north", "south"):
        one.learn(bull_scene(), wrong, False, site=site)
    other.learn(bull_scene(), wrong, True, site="east")
    both = merged([one, other])
    assert {record.site for record in both.unsatisfied} == {"north", "south"}  # that of the east holds
    assert all(check.holds for check in both.check())


def test_files_without_sites_have_no_trace_of_them():
    assert b"site" not in content(of_sites([0], lambda _: ""))
    assert b"north" in content(of_sites([0]))


def test_an_unknown_site_is_an_error_that_names_the_others_and_changes_nothing():
    detector = of_sites([0, 1])
    before = content(detector)
    for site in ("nowhere", ""):
        with pytest.raises(RecordError, match="north, south"):
            detector.unlearn_site(site)
    assert content(detector) == before


@pytest.mark.parametrize("site", ["a\nb", " a", "a" * 101, "\x1b[2J", None, 7])
def test_a_site_is_a_short_printable_name(site):
    with pytest.raises(ValueError, match="site"):
        bull_finder().learn(bull_scene(), BULL, True, site=site)


def test_a_file_with_a_site_that_cannot_be_typed_is_refused():
    detector = bull_finder()
    (record,) = detector.new_records(bull_scene(), BULL, True)
    forged = replace(record, site="a\nb")
    with pytest.raises(RecordError, match="site"):
        detector.add([forged])
    contents = Contents(detector.base, None, detector.reporting, Records.from_iterable([forged]))
    with pytest.raises(ModelFileError, match="site"):
        Detector.from_bytes(to_bytes(contents))


def test_sites_without_one_base_do_not_merge_and_nothing_changes():
    detector = bull_finder()
    before = content(detector)
    learned = bull_finder()
    learned.learn(bull_scene(), BULL, True, site="north")
    with pytest.raises(CannotMergeError, match="do not share one base"):
        detector.merge(learned, Detector.from_base(base()))
    assert content(detector) == before


# --- What a merged file reveals ---------------------------------------------------------------------------------------


def counted(seed, n):
    """A site that counts patches, without records."""
    detector, rng = bull_finder(), np.random.default_rng(seed)
    patches = np.array([loose_crop(rng) for _ in range(n)])
    detector.learn_patches(patches, True)
    return detector, patches


def test_with_two_sites_the_merged_file_minus_ones_own_is_what_the_other_has_learned():
    (mine, _), (theirs, _) = counted(1, 20), counted(2, 30)
    learn_all(mine, 1, "north")
    learn_all(theirs, 2, "south")
    both = merged([mine, theirs])
    difference = both.only.counts - mine.only.counts
    for recovered, secret in zip(difference.stages, theirs.only.counts.stages, strict=True):
        for side, other in zip(recovered, secret, strict=True):
            assert side.n == other.n
            np.testing.assert_array_equal(side.C, other.C)
    own = {record.id for record in mine.records}
    recovered = [record for record in both.records if record.id not in own]
    rebuilt = Detector.from_base(both.base, difference, records=recovered)
    assert content(rebuilt) == content(theirs)


def test_a_site_with_one_example_discloses_the_bits_of_its_window():
    (mine, _), (theirs, patches) = counted(1, 20), counted(2, 1)
    both = merged([mine, theirs])
    secret = both.base.model.cascade.respond(patches)[0].bits[0]
    sums = [
        (one.s - other.s) for (one, _), (other, _) in zip(both.only.counts.stages, mine.only.counts.stages, strict=True)
    ]
    np.testing.assert_array_equal(np.concatenate(sums), secret)


def test_a_correction_discloses_the_bits_of_its_windows_whatever_is_merged():
    secret = judged_finder(default=0.5)
    secret.learn(bull_scene(3), BULL, True, site="harbour")
    both = merged([of_sites(range(3)), secret])
    (record,) = [record for record in both.records if record.site == "harbour"]
    pyramid = secret.only.pyramid(bull_scene(3))
    first = record.responses.bits[0]
    index = type(record.index)(record.index.scale[:1], record.index.y[:1], record.index.x[:1])
    np.testing.assert_array_equal(first, both.base.model.responses(pyramid, index)[0].bits[0])
    assert record.image == secret.records[0].image  # who has the image knows it by its hash
