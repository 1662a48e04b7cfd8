"""Vector do what NumPy does on arrays of eight."""

import threading

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from whet._kernels.jit import (
    SIMD_WIDTH,
    address_of,
    as_floats,
    broadcast,
    broadcast_last,
    evens,
    has_code,
    kernel,
    load,
    load_bytes,
    load_pair,
    load_scalar,
    mask_bits,
    odds,
    prefix_sum,
    rounded,
    select,
    square_root,
    store,
    take,
    to_doubles,
    to_floats,
    weighted_corners,
    widened,
)
from whet._kernels.window_scan import pattern_code
from whet.parallel.threads import in_threads

ints = arrays(np.int32, SIMD_WIDTH)
floats = arrays(np.float32, SIMD_WIDTH, elements=st.floats(-(2.0**60), 2.0**60, width=32))


@kernel
def whole(a, b, out):
    x, y = load(address_of(a), 0), load(address_of(b), 0)
    to = address_of(out)
    k = 0
    for vector in (x + y, x - y, x * y, x & y, x < y, x >= y, select(x < y, x, y)):
        store(to, k, vector)
        k += SIMD_WIDTH
    shift = y & broadcast(np.int32(31))
    for vector in (prefix_sum(x), evens(x, y), odds(x, y), broadcast_last(x, y), x >> shift):
        store(to, k, vector)
        k += SIMD_WIDTH
    return mask_bits(x < y)


@given(ints, ints)
def test_whole_numbers_wrap_around(a, b):
    out = np.empty((12, SIMD_WIDTH), dtype=np.int32)
    bits = whole(a, b, out.reshape(-1))
    both, less = np.concatenate([a, b]), -(a < b).astype(np.int32)
    shifted = (a.view(np.uint32) >> (b & 31).astype(np.uint32)).view(np.int32)
    expected = [a + b, a - b, a * b, a & b, less, -1 - less, np.minimum(a, b), np.cumsum(a, dtype=np.int32)]
    expected += [both[::2], both[1::2], np.full(SIMD_WIDTH, a[-1]), shifted]
    assert np.array_equal(out, np.array(expected))
    assert bits == sum(1 << i for i in range(SIMD_WIDTH) if a[i] < b[i])


@kernel
def real(a, b, out):
    x, y, to = load(address_of(a), 0), load(address_of(b), 0), address_of(out)
    k = 0
    for vector in (x + y, x - y, x * y, x / y, select(x < y, x, y), rounded(widened(x) * widened(y))):
        store(to, k, vector)
        k += SIMD_WIDTH


@given(floats, floats)
def test_real_numbers_are_rounded_once_an_operation(a, b):
    out = np.empty((6, SIMD_WIDTH), dtype=np.float32)
    real(a, b, out.reshape(-1))
    with np.errstate(all="ignore"):
        wide = (a.astype(np.float64) * b.astype(np.float64)).astype(np.float32)
        expected = np.array([a + b, a - b, a * b, a / b, np.where(a < b, a, b), wide])
    assert np.array_equal(out, expected, equal_nan=True)


@kernel
def converted(a, out):
    x, to = load(address_of(a), 0), address_of(out)
    store(to, 0, to_floats(x))
    store(to, SIMD_WIDTH, rounded(square_root(to_doubles(x))))
    store(to, 2 * SIMD_WIDTH, as_floats(x & broadcast(np.int32(0x3FFFFFFF))))


@given(ints)
def test_conversions(a):
    out = np.empty((3, SIMD_WIDTH), dtype=np.float32)
    converted(a, out.reshape(-1))
    root = np.sqrt(a.view(np.uint32).astype(np.float64)).astype(np.float32)
    expected = np.array([a.astype(np.float32), root, (a & 0x3FFFFFFF).view(np.float32)])
    assert np.array_equal(out, expected)


@kernel
def read(a, b, out):
    store(address_of(out), 0, load_bytes(address_of(a), 1))
    return load_scalar(address_of(b), 3), load_pair(address_of(b), 3)


def test_reading_at_any_place(rng):
    out, b = np.empty(SIMD_WIDTH, dtype=np.int32), np.array([9, 9, 9, 5, 7], dtype=np.int32)
    a = rng.integers(0, 256, SIMD_WIDTH + 1).astype(np.uint8)
    assert read(a, b, out) == (5, 5 + (7 << 32))
    assert np.array_equal(out, a[1:])


@kernel
def take_all(counter, n, seen):
    number = take(counter)
    while number < n:
        seen[number] = True
        number = take(counter)


def test_threads_take_every_number_once():
    counter, n, rows = np.zeros(1, dtype=np.int64), 5_000_000, []
    all_here = threading.Barrier(4, timeout=60)
    take_all(np.ones(1, dtype=np.int64), 1, np.zeros(1, dtype=np.bool_))  # compiled before they meet

    def work():
        seen = np.zeros(n, dtype=np.bool_)
        rows.append(seen)
        all_here.wait()
        take_all(counter, n, seen)

    in_threads(work, 4)
    assert len(rows) == 4
    assert sum(seen.any() for seen in rows) > 1  # which one of them alone would not show
    assert (np.sum(rows, axis=0) == 1).all()
    assert counter[0] == n + 4


@kernel
def _weighted(sums, place, nodes, corners, weights, out):
    store(address_of(out), 0, weighted_corners(address_of(sums), place, address_of(nodes), corners, weights))


@kernel
def _has_code(sums, place, nodes, corners, subset, out):
    store(address_of(out), 0, has_code(address_of(sums), place, address_of(nodes), corners, subset))


PLACE, SUMS = 50, 100
words = arrays(np.uint32, SUMS)
offsets = st.integers(-PLACE, SUMS - PLACE - SIMD_WIDTH)


@given(words, arrays(np.int32, 3, elements=offsets), arrays(np.int32, 3))
def test_corners_are_weighed_modulo_two_to_the_32(sums, corners, weights):
    nodes, out = np.concatenate([np.zeros(4, np.int32), corners, weights]), np.empty(SIMD_WIDTH, np.int32)
    _weighted(sums, PLACE, nodes, 4, 7, out)
    values = sums[PLACE + corners[:, None] + np.arange(SIMD_WIDTH)]
    expected = (values * weights.view(np.uint32)[:, None]).sum(axis=0, dtype=np.uint32)
    assert (out.view(np.uint32) == expected).all()


@given(arrays(np.uint8, SUMS), arrays(np.int32, 16, elements=offsets), arrays(np.uint32, 8))
def test_a_pattern_has_a_code_of_the_subset(pixels, corners, subset):
    sums, out = pixels.astype(np.uint32), np.empty(SIMD_WIDTH, np.int32)
    nodes = np.concatenate([corners, subset.view(np.int32)])
    _has_code(sums, PLACE, nodes, 0, 16, out)
    codes = [int(pattern_code(sums, PLACE + lane, corners)) for lane in range(SIMD_WIDTH)]
    assert out.tolist() == [-int(subset[code >> 5] >> np.uint32(code & 31) & 1) for code in codes]
