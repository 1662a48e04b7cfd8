"""The specification of matching and curves, in plain loops over Python numbers."""

import math
from itertools import pairwise


def intersection(a, b):
    width = max(min(a[2], b[2]) - max(a[0], b[0]), 0)
    height = max(min(a[3], b[3]) - max(a[1], b[1]), 0)
    return width * height


def area(a):
    return (a[2] - a[0]) * (a[3] - a[1])


def iou(a, b):
    union = area(a) + area(b) - intersection(a, b)
    return intersection(a, b) / union if union > 0 else 0.0


def match(boxes, scores, truths, ignored, smallest=0.5):
    """Labels and found_by, as lists."""
    labels, found_by = [0] * len(boxes), [-1] * len(truths)
    for i in sorted(range(len(boxes)), key=lambda i: (-scores[i], i)):
        best, most = -1, smallest
        for j, truth in enumerate(truths):
            if not ignored[j] and found_by[j] < 0 and iou(boxes[i], truth) > most:
                best, most = j, iou(boxes[i], truth)
        if best >= 0:
            labels[i], found_by[best] = 1, i
        else:
            regions = [truth for truth, ignore in zip(truths, ignored, strict=True) if ignore]
            covered = any(
                area(boxes[i]) and intersection(boxes[i], region) / area(boxes[i]) > 0.5 for region in regions
            )
            labels[i] = -1 if covered else 0
    return labels, found_by


def points(scores, labels):
    """(found, false positives) when all scores of at least t stand, for each t from infinity downwards."""
    counted = [(s, label) for s, label in zip(scores, labels, strict=True) if label >= 0]
    steps = [math.inf, *sorted({s for s, _ in counted}, reverse=True)]
    return [tuple(sum(s >= t and label == kind for s, label in counted) for kind in (1, 0)) for t in steps]


def average_precision(scores, labels, n_truths):
    at = points(scores, labels)
    total = 0.0
    for k, (before, after) in enumerate(pairwise(at), start=1):
        best = max(found / (found + false) for found, false in at[k:])
        total += (after[0] - before[0]) / n_truths * best
    return total


def log_average_miss_rate(scores, labels, n_truths, n_images):
    logs = []
    for exponent in range(-8, 1):
        rate = 10 ** (exponent / 4)
        miss = min(1 - found / n_truths for found, false in points(scores, labels) if false / n_images <= rate)
        logs.append(math.log(max(miss, 1e-10)))
    return math.exp(sum(logs) / 9)
