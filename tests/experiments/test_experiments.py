import numpy as np
import pytest
from experiments import toy, usps
from experiments.report import Report, Row, Run, reproduce


@pytest.fixture(scope="module")
def toy_report(tmp_path_factory):
    return reproduce("toy", tmp_path_factory.mktemp("toy"), runs=20).report


def error(report, method, data, samples):
    return report.one("error", method, data=data, samples=samples).mean


@pytest.mark.slow
def test_toy_regression_is_worse_on_asymmetric_data_and_fine_on_separable(toy_report):
    for samples in (100, 150, 200):
        regression = error(toy_report, "least squares", "stationary", samples)
        assert regression > 2 * error(toy_report, "Gaussian", "stationary", samples)
        assert regression > 2 * error(toy_report, "no update", "stationary", samples)
        assert error(toy_report, "least squares", "separable", samples) < 0.01


@pytest.mark.slow
def test_toy_regression_gets_worse_as_the_negatives_spread(toy_report):
    errors = [error(toy_report, "least squares", "spreading", samples) for samples in (100, 150, 200)]
    assert errors[0] < errors[1] < errors[2]


@pytest.mark.slow
def test_a_seed_gives_the_same_numbers(tmp_path):
    notes = []
    for seed in (3, 3, 4):
        run = Run("small", seed, "spreading", tmp_path, True)
        toy.measure(run)
        notes.append(run.notes)
    assert notes[0] == notes[1] != notes[2]


def test_least_squares_threshold_of_two_points():
    assert toy.least_squares_threshold(np.array([3.0]), np.array([1.0])) == pytest.approx(2.0)


def test_usps_share_and_stream_are_all_samples_once():
    first, stream = usps.split(767, 0.3, np.random.default_rng(0))
    assert len(first) == 230
    np.testing.assert_array_equal(np.sort(np.concatenate([first, stream])), np.arange(767))


def test_usps_online_holds_where_offline_overfits(usps):
    """One run of the figure's middle and end: what the paper reports, in small."""
    from experiments import usps as experiment

    from whet.estimators.gslda import GSLDA
    from whet.estimators.online_gslda import OnlineGSLDA

    first, stream = experiment.split(767, 0.3, np.random.default_rng(1))
    batch = GSLDA(100, ridge=1e-6, stump_error="plain").fit(usps.X_train, usps.y_train)
    model = OnlineGSLDA(100, ridge=1e-6, stump_error="plain").fit(usps.X_train[first], usps.y_train[first])
    offline = experiment.error_of(model, usps)
    model.partial_fit(usps.X_train[stream], usps.y_train[stream])
    online = experiment.error_of(model, usps)
    assert offline > online + 0.03
    assert abs(online - experiment.error_of(batch, usps)) < 0.03


def test_a_row_is_mean_and_sample_deviation():
    row = Row.from_values("error", "m", [0.0, 1.0, 2.0], share=0.3)
    assert (row.mean, row.std, row.runs) == (1.0, 1.0, 3)
    assert Row.from_values("error", "m", [0.5]).std == 0.0


def test_curves_are_chosen_by_their_setting():
    report = Report("x", "small", rows=[Row.from_values("e", "m", [1.0], share=s) for s in (0.3, 0.5)])
    assert [row.setting["share"] for row in report.select("e", "m", share=0.5)] == [0.5]
    assert len(report.select("e", "m")) == 2


def test_an_unknown_experiment_names_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match=r"toy, .*usps"):
        reproduce("nothing", tmp_path)
