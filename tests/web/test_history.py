"""The tree of states against a plain model of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import UnknownItemError
from whet.web.history import History

STEPS = st.lists(st.tuples(st.sampled_from("cccurj"), st.integers(0, 9)), max_size=40)


@given(STEPS)
def test_any_walk_through_the_tree_has_the_sets_that_its_path_has(steps):
    """Each state's set is remembered by a model; undo, redo and jumps come back to it."""
    history, sets = History(), {0: frozenset()}
    for step, number in steps:
        if step == "c":
            now = sets[history.current]
            old = sorted(now)[: number % 2]
            node = history.commit([str(number)], old)
            sets[node.id] = (now - set(old)) | {str(number)}
        elif step == "u" and history.can_undo:
            before = history.current
            history.undo()
            assert history.nodes[before].parent == history.current
            assert history.can_redo
        elif step == "r" and history.can_redo:
            parent = history.current
            assert history.nodes[history.redo()].parent == parent
        elif step == "j":
            history.jump(number % len(history.nodes))
        assert history.items() == sets[history.current]
    for node, items in sets.items():
        assert history.items(node) == items


def test_undo_then_redo_returns_and_a_new_correction_makes_a_new_path():
    history = History()
    first = history.commit(["a"], []).id
    history.undo()
    second = history.commit(["b"], []).id
    assert history.nodes[first].parent == history.nodes[second].parent == 0
    history.undo()
    assert history.redo() == second
    history.jump(first)
    assert history.branch is None
    history.undo()
    assert history.redo() == first  # where one came from, not what is newest


def test_a_branch_follows_its_own_corrections_only():
    history = History()
    base = history.commit(["a"], []).id
    history.branches["other"] = base
    history.switch("other")
    end = history.commit(["b"], []).id
    assert history.branches == {"main": base, "other": end}
    history.switch("main")
    assert history.items() == {"a"}


@pytest.mark.parametrize("step", [lambda h: h.undo(), lambda h: h.redo(), lambda h: h.switch("x"), lambda h: h.jump(9)])
def test_steps_that_lead_nowhere_change_nothing(step):
    history = History()
    with pytest.raises(UnknownItemError):
        step(history)
    assert (history.current, history.branch) == (0, "main")
