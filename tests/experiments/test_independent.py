"""One number of each experiment, computed again by short NumPy that shares no code with what is checked.

Numbers of the digits are those of the stored results, to the last sample. Others are computed again in small runs, from
the windows and boxes that the experiment has.
"""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from experiments import cited, node, single_stage, toy, video_rule
from experiments.mit_cmu import Trial, faces_at
from experiments.report import Report, Run

from whet.images.boxes import BoxOffset
from whet.models.gslda.haar import HaarPool

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def stored(name):
    path = RESULTS / f"{name}.json"
    if not path.exists():
        pytest.skip(f"{name} was not measured at paper size")
    report = Report.read(path)
    if report.size != "paper":
        pytest.skip(f"{name} was not measured at paper size")
    return report


# Greedy sparse LDA from its definition.


def stump(x, y, balanced):
    """Threshold and sign of the least error, by trying all midpoints; ties to the lowest, and there to sign 1."""
    weights = np.where(y, (~y).sum(), y.sum()).astype(float) if balanced else np.ones(len(y))
    values = np.unique(x)
    cuts = (values[:-1] + values[1:]) / 2 if len(values) > 1 else values
    above = x[:, None] > cuts
    upright = weights @ (above != y[:, None])
    errors = np.stack([upright, weights.sum() - upright], axis=1).ravel()
    best = int(np.argmin(errors))
    return cuts[best // 2], 1 if best % 2 == 0 else -1


def respond(X, stumps):
    return np.stack([(x > t) ^ (sign < 0) for x, (t, sign) in zip(X.T, stumps, strict=True)], axis=1).astype(float)


def scatter(H, y, ridge):
    S = sum((H[side] - H[side].mean(axis=0)).T @ (H[side] - H[side].mean(axis=0)) for side in (y, ~y))
    return S + ridge * np.eye(H.shape[1]), H[y].mean(axis=0) - H[~y].mean(axis=0)


def greedy(A, d, n):
    """Add, one by one, the candidate with the largest d^T A^-1 d."""
    chosen = []
    for _ in range(n):
        values = np.full(len(d), -np.inf)
        for j in set(range(len(d))) - {*chosen}:
            at = [*chosen, j]
            values[j] = d[at] @ np.linalg.solve(A[np.ix_(at, at)], d[at])
        chosen.append(int(np.argmax(values)))
    return chosen


def discriminant(H, y, ridge):
    """Weights, and the crossing of the two projected Gaussians between their means."""
    A, d = scatter(H, y, ridge)
    w = np.linalg.solve(A, d)
    (m1, s1), (m2, s2) = ((z.mean(), z.std()) for z in (H[y] @ w, H[~y] @ w))
    a, b = 1 / (2 * s2**2) - 1 / (2 * s1**2), m1 / s1**2 - m2 / s2**2
    c = m2**2 / (2 * s2**2) - m1**2 / (2 * s1**2) + np.log(s2 / s1)
    between = [root.real for root in np.roots([a, b, c]) if m2 < root.real < m1]
    return w, between[0] if between else (m1 + m2) / 2


def gslda_error(train, select_on, test, n, ridge, balanced):
    """Error on test samples: stumps and selection from `select_on`, weights from all of `train`."""
    (X, y), (X_test, y_test) = train, test
    stumps = [stump(x, y[select_on], balanced) for x in X[select_on].T]
    chosen = greedy(*scatter(respond(X[select_on], stumps), y[select_on], ridge), n)
    used = [stumps[j] for j in chosen]
    w, t = discriminant(respond(X[:, chosen], used), y, ridge)
    return float(((respond(X_test[:, chosen], used) @ w > t) != y_test).mean())


@pytest.fixture
def digits(usps):
    return (usps.X_train, usps.y_train == 1), (usps.X_test, usps.y_test == 1)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["", ", balanced stumps"])
def test_usps_batch(digits, suffix):
    train, test = digits
    everything = np.arange(len(train[1]))
    error = gslda_error(train, everything, test, 10, 1e-6, bool(suffix))
    assert stored("usps").one("error", f"batch{suffix}", n_weak=10).mean == pytest.approx(error)


@pytest.mark.slow
def test_usps_online_from_30_percent(digits):
    train, test = digits
    first = np.random.default_rng([0, 0]).permutation(767)[:230]
    error = gslda_error(train, first, test, 10, 1e-6, False)
    assert stored("usps").one("error", "online", share=0.3, n_weak=10).values["0"] == pytest.approx(error)


@pytest.mark.slow
def test_ridge(digits):
    (X, y), _ = digits
    rng = np.random.default_rng(0)
    wrong = 0.0
    for held_out in np.array_split(rng.permutation(767), 5):
        others = np.setdiff1d(np.arange(767), held_out)
        first = others[rng.permutation(len(others))[: round(0.3 * len(others))]]
        error = gslda_error((X[first], y[first]), np.arange(len(first)), (X[held_out], y[held_out]), 25, 20.0, True)
        wrong += error * len(held_out)
    assert stored("ridge").one("error", "offline", ridge=20.0, n_weak=25).values["0"] == pytest.approx(wrong / 767)


@pytest.mark.slow
def test_cited_oracle(digits):
    """The first pools of the first seed, all sets of four tried."""
    (X, y), _ = digits
    report = stored("cited")
    stumps = [stump(x, y, False) for x in X.T]
    rng, shares = np.random.default_rng(0), []
    for _ in range(cited.N_POOLS["paper"]):
        pool = np.sort(rng.choice(256, 16, replace=False))
        A, d = scatter(respond(X[:, pool], [stumps[j] for j in pool]), y, 1e-6)
        value = {
            at: d[[*at]] @ np.linalg.solve(A[np.ix_(at, at)], d[[*at]]) for at in itertools.combinations(range(16), 4)
        }
        shares.append(value[tuple(sorted(greedy(A, d, 4)))] / max(value.values()))
    row = report.one("separation of greedy over optimal", "greedy", candidates=16, members=4)
    assert row.values["0"] == pytest.approx(np.mean(shares))


def test_toy(tmp_path):
    """The error of least squares, from the samples of the run and normal equations."""
    outcome = toy.one_run("spreading", 0)
    p, n = (outcome[side][:100] @ outcome["line"] for side in ("positives", "negatives"))
    A = np.stack([np.concatenate([p, n]), np.ones(200)], axis=1)
    slope, intercept = np.linalg.solve(A.T @ A, A.T @ np.repeat([1.0, -1.0], 100))
    assert outcome["thresholds"]["least squares", 100] == pytest.approx(-intercept / slope)
    run = Run("small", 0, "spreading", tmp_path, True)
    toy.measure(run)
    noted = [v for measure, method, s, v in run.notes if method == "least squares" and s["samples"] == 200]
    assert noted == [outcome["errors"]["least squares", 100]]


def test_complexity():
    """Both co-occurrence matrices, the inverse and its factor, and three vectors: 4 T^2 + 3 T numbers."""
    for n in (100, 200, 400):
        assert stored("complexity").one("numbers in memory", "online", n_weak=n).mean == 4 * n * n + 3 * n


# Faces: responses from pixels.


PARTS = {"x2": ([1], [-1, 1]), "y2": ([-1, 1], [1]), "x3": ([1], [-1, 2, -1]), "y3": ([-1, 2, -1], [1])}
PARTS["x2_y2"] = ([-1, 1], [-1, 1])


def haar_values(pool, patches):
    """Haar features from their definition: weighted sums of pixels, over the deviation of the inner pixels."""
    pixels = patches.astype(float)
    inner = pixels[:, 1:-1, 1:-1]
    sigma = np.sqrt(inner[0].size * (inner**2).sum((1, 2)) - inner.sum((1, 2)) ** 2)
    rows = []
    for kind, x, y, width, height in map(pool.describe, range(len(pool))):
        down, across = PARTS[kind]
        h, w = height // len(down), width // len(across)
        total = np.zeros(len(patches))
        for (i, a), (j, b) in itertools.product(enumerate(down), enumerate(across)):
            total += a * b * pixels[:, y + i * h : y + (i + 1) * h, x + j * w : x + (j + 1) * w].sum((1, 2))
        rows.append(total / sigma)
    return np.array(rows)


@pytest.mark.slow
def test_node(rng):
    """Test error of a node: weights, threshold and responses computed again from its stumps."""
    patches = rng.integers(0, 200, (400, 24, 24), dtype=np.uint8)
    patches[::2, :, 12:] += 30
    y = np.arange(400) % 2 == 0
    pool = HaarPool.from_window((24, 24)).sample(300, rng)
    stage = node.nested_stages(pool, patches[:200], y[:200])["", 30]
    values, weak = haar_values(stage.features, patches), stage.weak
    H = ((values > weak.threshold[:, None]) ^ (weak.polarity < 0)[:, None]).T.astype(float)
    w, t = discriminant(H[:200], y[:200], 1e-6)
    error = ((H[200:] @ w > t) != y[200:]).mean()
    assert ((stage.run().score(patches[200:]) > 0) != y[200:]).mean() == pytest.approx(error)


def test_node_time():
    """Online is the smaller batch and the stream; the stream is exact."""
    report = stored("node-time")
    for n in (10, 200):
        batch, stream = (
            report.one("processor seconds", m, n_weak=n).mean for m in ("batch, 5,000 + 5,000", "the stream alone")
        )
        online = report.one("processor seconds", "online, 5,000 + 5,000 and 1,000,000 more", n_weak=n).mean
        assert online == pytest.approx(batch + stream)


# Video and images: boxes against true boxes.


def overlap(a, b):
    """Intersection over union of two boxes, by counting the cells of a fine grid."""
    grid = np.linspace(-50, 150, 1001)
    x, y = np.meshgrid(grid, grid)
    inside = [(x >= box[0]) & (x < box[2]) & (y >= box[1]) & (y < box[3]) for box in (a, b)]
    return (inside[0] & inside[1]).sum() / (inside[0] | inside[1]).sum()


def test_video_and_tracking_rates(rng):
    truths = np.array([10.0, 10.0, 60.0, 70.0]) + rng.uniform(-5, 5, (12, 4))
    windows = truths + rng.uniform(-18, 18, (12, 4))
    best = single_stage.BestWindows(windows, np.zeros(12))
    expected = np.mean([overlap(a, b) > 0.5 for a, b in zip(windows, truths, strict=True)])
    assert best.rate(truths, BoxOffset()) == expected
    assert 0 < expected < 1


def test_video_rule():
    """The crop in use has the highest mean rate in the stored values."""
    content = json.loads((RESULTS / "video-rule.json").read_text()) if (RESULTS / "video-rule.json").exists() else None
    if content is None or content["size"] != "paper":
        pytest.skip("video-rule was not measured at paper size")
    rows = [row for row in content["results"] if row["setting"]["box"] == "raw"]
    best = max(rows, key=lambda row: np.mean(list(row["values"].values())))
    assert best["setting"]["crop"] == single_stage.INNER
    assert {row["setting"]["crop"] for row in rows} == {*video_rule.CROPS}


def test_cascade_counts_faces_and_false_positives():
    """Faces at each number of false positives, by going down the scores with a pencil."""
    images = tuple(np.zeros((9, 9), dtype=np.uint8) for _ in range(2))
    truths = (np.array([[0.0, 0.0, 40.0, 40.0], [50.0, 50.0, 90.0, 90.0]]), np.array([[20.0, 20.0, 60.0, 60.0]]))
    found = [
        (
            np.array([[1.0, 1.0, 41.0, 41.0], [0.0, 50.0, 30.0, 80.0], [51.0, 50.0, 91.0, 90.0]]),
            np.array([5.0, 4.0, 1.0]),
        ),
        (np.array([[20.0, 20.0, 60.0, 60.0], [22.0, 22.0, 62.0, 62.0]]), np.array([3.0, 2.0])),
    ]
    curve = Trial(images, truths).evaluate(found, "raw").curve
    # By score: right, wrong, right, a second box of the same face (wrong), right.
    assert faces_at(curve, [0, 1, 2]) == [1, 2, 3]
