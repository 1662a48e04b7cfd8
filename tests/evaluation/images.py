"""Hypothesis strategies: small images, where boxes overlap, scores tie and truths are ignored often."""

from hypothesis import strategies as st


@st.composite
def box(draw):
    # Sides of 2 to 5 on a grid of 8: an overlap of exactly one half, the border of the rule, comes up often.
    x, y = draw(st.integers(0, 6)), draw(st.integers(0, 2))
    return [x, y, x + draw(st.integers(2, 5)), y + draw(st.integers(2, 3))]


def boxes(most=5):
    return st.lists(box(), max_size=most)


@st.composite
def images(draw):
    """(boxes, scores, truths, ignored) of one image; few different scores, so that they tie."""
    detected, truths = draw(boxes(8)), draw(boxes(4))
    scores = draw(st.lists(st.integers(-3, 3).map(float), min_size=len(detected), max_size=len(detected)))
    ignored = draw(st.lists(st.booleans(), min_size=len(truths), max_size=len(truths)))
    return detected, scores, truths, ignored


def sets(smallest=1, most=5):
    """Images as `evaluate` takes them: (detections, truths)."""
    return st.lists(images(), min_size=smallest, max_size=most).map(split)


def split(all_images):
    return (
        [(detected, scores) for detected, scores, _, _ in all_images],
        [(truths, ignored) for _, _, truths, ignored in all_images],
    )
