"""Work in blocks."""

import threading

import pytest

from whet.features.parallel import for_each_block


@pytest.mark.parametrize("threads", [None, 1, 2, 7])
@pytest.mark.parametrize("n", [0, 1, 9, 10, 11])
def test_every_row_is_done_once(n, threads):
    done = [0] * n

    def work(rows):
        for i in range(rows.start, rows.stop):
            done[i] += 1

    for_each_block(work, n, 10, threads)
    assert done == [1] * n


def test_one_thread_is_the_caller():
    seen = set()
    for_each_block(lambda _: seen.add(threading.current_thread()), 10, 1, threads=1)
    assert seen == {threading.current_thread()}


@pytest.mark.parametrize("threads", [1, 2])
def test_errors_come_through(threads):
    def fail(rows):
        if rows.start == 3:
            raise KeyError("block 3")

    with pytest.raises(KeyError, match="block 3"):
        for_each_block(fail, 5, 1, threads)
