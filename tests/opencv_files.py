"""OpenCV cascade files that tests make for themselves: any trees on any features, in both formats."""

import numpy as np

HEAD = '<?xml version="1.0"?>\n<opencv_storage>\n'


def random_trees(rng, n, sizes=(1, 2, 3, 5)):
    """Trees as lists of (left, right): a child above 0 is a node, the others are leaves in the order they come."""
    return [random_tree(rng, int(rng.choice(sizes))) for _ in range(n)]


def random_tree(rng, size):
    children, open_ends = [[None, None] for _ in range(size)], [(0, 0), (0, 1)]
    for node in range(1, size):
        parent, side = open_ends.pop(int(rng.integers(len(open_ends))))
        children[parent][side] = node
        open_ends += [(node, 0), (node, 1)]
    leaf = iter(range(size + 1))
    return [[-next(leaf) if child is None else child for child in pair] for pair in children]


def random_rectangles(rng, window, tilted, fractional=False):
    """Two or three rectangles of one size inside a window (height, width), weighted so that brightness cancels."""
    height, width = window
    w, h = (int(v) for v in rng.integers(1, min(window) // 2 + 1, 2))
    weights = [(-1, 1), (-1, 2, -1)][int(rng.integers(2))]
    scale = rng.uniform(0.3, 3) if fractional else int(rng.integers(1, 4))
    rectangles = []
    while len(rectangles) < len(weights):
        x, y = int(rng.integers(0, width)), int(rng.integers(0, height))
        inside = x - h >= 0 and x + w <= width and y + w + h <= height if tilted else x + w <= width and y + h <= height
        if inside:
            rectangles.append((x, y, w, h, f"{np.float32(scale * weights[len(rectangles)]):.9g}"))
    return rectangles


def words(values):
    return " ".join(str(value) for value in values)


def haar_feature(rectangles, tilted):
    rects = "".join(f"<_>{words(rectangle)}</_>" for rectangle in rectangles)
    return f"<rects>{rects}</rects><tilted>{int(tilted)}</tilted>"


def haar_file(rng, window, stages, *, sizes=(1,), tilted=False, fractional=False, passing=0.55):
    """A Haar file in the new format; thresholds in the middle of what noise gives."""
    features, stage_texts = [], []
    for n in stages:
        texts = []
        for tree in random_trees(rng, n, sizes):
            nodes = []
            for left, right in tree:
                turned = tilted and rng.random() < 0.5
                features.append(haar_feature(random_rectangles(rng, window, turned, fractional), turned))
                nodes += [left, right, len(features) - 1, f"{rng.normal(0, 0.05):.9g}"]
            leaves = [f"{v:.9g}" for v in rng.normal(0, 1, len(tree) + 1).astype(np.float32)]
            texts.append(
                f"<_><internalNodes>{words(nodes)}</internalNodes><leafValues>{words(leaves)}</leafValues></_>"
            )
        threshold = -np.sqrt(n) * 2 * (passing - 0.5)
        stage_texts.append(stage(texts, threshold))
    return new_file("HAAR", window, 0, stage_texts, features)


def lbp_file(rng, window, stages, *, sizes=(1,), passing=0.55):
    features, stage_texts = [], []
    for n in stages:
        texts = []
        for tree in random_trees(rng, n, sizes):
            nodes = []
            for left, right in tree:
                w, h = int(rng.integers(1, window[1] // 3 + 1)), int(rng.integers(1, window[0] // 3 + 1))
                x, y = int(rng.integers(0, window[1] - 3 * w + 1)), int(rng.integers(0, window[0] - 3 * h + 1))
                features.append(f"<rect>{x} {y} {w} {h}</rect>")
                nodes += [left, right, len(features) - 1, *rng.integers(-(2**31), 2**31, 8)]
            leaves = [f"{v:.9g}" for v in rng.normal(0, 1, len(tree) + 1).astype(np.float32)]
            texts.append(
                f"<_><internalNodes>{words(nodes)}</internalNodes><leafValues>{words(leaves)}</leafValues></_>"
            )
        stage_texts.append(stage(texts, -np.sqrt(n) * 2 * (passing - 0.5)))
    return new_file("LBP", window, 256, stage_texts, features)


def stage(trees, threshold):
    weak = "".join(trees)
    counts = f"<maxWeakCount>{len(trees)}</maxWeakCount><stageThreshold>{threshold:.9g}</stageThreshold>"
    return f"<_>{counts}<weakClassifiers>{weak}</weakClassifiers></_>"


def new_file(family, window, categories, stages, features):
    return (
        f'{HEAD}<cascade type_id="opencv-cascade-classifier"><stageType>BOOST</stageType>'
        f"<featureType>{family}</featureType><height>{window[0]}</height><width>{window[1]}</width>"
        f"<stageParams><maxWeakCount>100</maxWeakCount></stageParams>"
        f"<featureParams><maxCatCount>{categories}</maxCatCount></featureParams><stageNum>{len(stages)}</stageNum>"
        f"<stages>{''.join(stages)}</stages><features>{''.join(f'<_>{f}</_>' for f in features)}</features>"
        "</cascade></opencv_storage>"
    )


def old_file(rng, window, stages, *, sizes=(1, 2), tilted=True):
    """A Haar file in the old format, which has a feature in every node and leaves beside their nodes."""
    texts = []
    for n in stages:
        trees = ""
        for tree in random_trees(rng, n, sizes):
            nodes = ""
            for pair in tree:
                turned = tilted and rng.random() < 0.5
                feature = haar_feature(random_rectangles(rng, window, turned), turned)
                sides = ""
                for side, child in zip(("left", "right"), pair, strict=True):
                    kind, value = ("node", child) if child > 0 else ("val", f"{rng.normal():.9g}")
                    sides += f"<{side}_{kind}>{value}</{side}_{kind}>"
                nodes += f"<_><feature>{feature}</feature><threshold>{rng.normal(0, 0.05):.9g}</threshold>{sides}</_>"
            trees += f"<_>{nodes}</_>"
        threshold = f"<stage_threshold>{-np.sqrt(n) * 0.1:.9g}</stage_threshold><parent>-1</parent><next>-1</next>"
        texts.append(f"<_><trees>{trees}</trees>{threshold}</_>")
    size = f"<size>{window[1]} {window[0]}</size>"
    return f'{HEAD}<old type_id="opencv-haar-classifier">{size}<stages>{"".join(texts)}</stages></old></opencv_storage>'


def shortened(text, stages):
    """A file in the new format with its first stages only, so that many windows pass."""
    head, rest = text.split("<stages>", 1)
    body, tail = rest.split("</stages>", 1)
    kept = "<maxWeakCount>".join(body.split("<maxWeakCount>")[: stages + 1])
    return f"{head}<stages>{kept[: kept.rindex('</_>') + 4]}</stages>{tail}"
