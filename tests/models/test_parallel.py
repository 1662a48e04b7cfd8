"""Work in blocks."""

import os
import threading

import pytest

from whet.parallel.threads import MOST_HELPERS, for_each_block, in_threads, map_in_order


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


@pytest.mark.parametrize("threads", [None, 1, 2, 7])
def test_results_come_in_the_order_of_the_items(threads):
    def late(i):
        threading.Event().wait(0.002 * (i % 3 == 0))
        return i * i

    assert list(map_in_order(late, range(20), threads)) == [i * i for i in range(20)]


@pytest.mark.parametrize("threads", [1, 3])
def test_who_stops_early_has_wasted_a_few_items_at_most(threads):
    begun = []
    results = map_in_order(begun.append, range(1000), threads)
    next(results)
    results.close()
    assert len(begun) <= threads + 1


@pytest.mark.parametrize("threads", [1, 2])
def test_errors_come_through_in_their_place(threads):
    results = map_in_order(lambda i: 1 // i, [1, 0, 1], threads)
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_blocks_that_have_not_begun_are_given_up_after_an_error():
    begun = []

    def work(rows):
        begun.append(rows)
        threading.Event().wait(0.005)
        raise KeyError

    with pytest.raises(KeyError):
        for_each_block(work, 1000, 1, threads=2)
    assert len(begun) < 100


def test_errors_of_helpers_are_raised():
    barrier = threading.Barrier(2, timeout=20)
    here = threading.get_ident()

    def work():
        barrier.wait()
        if threading.get_ident() != here:
            raise KeyError("helper")

    with pytest.raises(KeyError, match="helper"):
        in_threads(work, 2)


def test_an_error_here_waits_for_helpers_at_work():
    """They write to arrays of the caller."""
    barrier, here, ended = threading.Barrier(2, timeout=20), threading.get_ident(), []

    def work():
        barrier.wait()
        if threading.get_ident() == here:
            raise KeyError("here")
        threading.Event().wait(0.05)
        ended.append(True)

    with pytest.raises(KeyError, match="here"):
        in_threads(work, 2)
    assert ended


def test_helpers_that_never_began_are_not_waited_for():
    all_at_work, go_on, done = threading.Barrier(MOST_HELPERS + 2, timeout=60), threading.Event(), []

    def hold():
        all_at_work.wait()
        go_on.wait(60)

    holder = threading.Thread(target=in_threads, args=(hold, MOST_HELPERS + 1), daemon=True)
    caller = threading.Thread(target=in_threads, args=(lambda: done.append(1), 5), daemon=True)
    holder.start()
    try:
        all_at_work.wait()
        caller.start()
        caller.join(20)
        assert not caller.is_alive()
    finally:
        go_on.set()
        holder.join(60)
    in_threads(lambda: None, 5)
    assert done == [1]  # by the caller, and by no helper later


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_makes_helpers_of_its_own():
    in_threads(lambda: None, 2)
    child = os.fork()
    if child == 0:
        barrier = threading.Barrier(2, timeout=20)
        try:
            in_threads(lambda: barrier.wait() and None, 2)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
