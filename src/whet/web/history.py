"""The history of a project: a tree of states, each a set of items, with named branches.

An item is the id of a label, or `reviewed/IMAGE`. A state is the set of items that its path from the root adds and does
not take out again. Nothing is ever deleted from the tree: undo moves to the parent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from whet.errors import UnknownItemError

ROOT = 0
MAIN = "main"


def person_of(client: str) -> str:
    """The author of what a client does: without its page, and with the name that its person gave.

    >>> person_of("ab12:Ann%20B./77"), person_of("counter.py")
    ('ab12:Ann B.', 'counter.py')
    """
    person, slash, _ = client.rpartition("/")
    return unquote(person) if slash else client


@dataclass(frozen=True)
class Node:
    """A state: its parent, and the items that it adds and removes."""

    id: int
    parent: int | None
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    time: float = 0.0
    author: str = ""
    text: str = ""


@dataclass(eq=False)
class History:
    """All states, where the project is, and the child that redo moves to.

    >>> history = History()
    >>> one = history.commit(["a"], [])
    >>> two = history.commit(["b"], ["a"])
    >>> sorted(history.items()), sorted(history.items(one.id)), history.undo(), history.redo()
    (['b'], ['a'], 1, 2)
    """

    nodes: dict[int, Node] = field(default_factory=lambda: {ROOT: Node(ROOT, None, text="start")})
    branches: dict[str, int] = field(default_factory=lambda: {MAIN: ROOT})
    current: int = ROOT
    branch: str | None = MAIN
    latest: dict[int, int] = field(default_factory=dict)
    _known: dict[int, frozenset[str]] = field(default_factory=dict, repr=False)

    def copy(self) -> History:
        """The same history, to be moved without this one."""
        return replace(self, nodes=dict(self.nodes), branches=dict(self.branches), latest=dict(self.latest))

    def items(self, node: int | None = None) -> frozenset[str]:
        """The items of a state; without a node, of the current one."""
        wanted = self.node(self.current if node is None else node)
        self._known.setdefault(ROOT, frozenset(self.nodes[ROOT].added))
        path = []
        while wanted.id not in self._known and wanted.parent is not None:
            path.append(wanted)
            wanted = self.nodes[wanted.parent]
        if not path:
            return self._known[wanted.id]
        now = set(self._known[wanted.id])
        for step in reversed(path):
            now.difference_update(step.removed)
            now.update(step.added)
        # States whose sets are remembered.
        if len(self._known) > 32:  # a thousand states of a thousand items would be a million
            self._known = {ROOT: self._known[ROOT]}
        self._known[path[0].id] = frozenset(now)
        return self._known[path[0].id]

    def node(self, number: int) -> Node:
        """A state by its number; raises `UnknownItemError` if there is none."""
        if number not in self.nodes:
            raise UnknownItemError(f"got state {number}; expected one of 0 to {max(self.nodes)}: see the history")
        return self.nodes[number]

    def commit(
        self, added: Iterable[str], removed: Iterable[str], *, time: float = 0.0, author: str = "", text: str = ""
    ) -> Node:
        """Add a state after the current one, and move there; the current branch follows."""
        now, old = self.items(), tuple(dict.fromkeys(removed))
        new = tuple(key for key in dict.fromkeys(added) if key not in now or key in old)
        gone = tuple(key for key in old if key in now)
        node = Node(max(self.nodes) + 1, self.current, new, gone, time, author, text)
        self.nodes[node.id] = node
        self.latest[self.current] = node.id
        self._arrive(node.id)
        return node

    @property
    def can_undo(self) -> bool:
        """Whether there is a parent."""
        return self.nodes[self.current].parent is not None

    @property
    def can_redo(self) -> bool:
        """Whether there is a child."""
        return self.current in self.latest

    def undo(self) -> int:
        """Move to the parent."""
        parent = self.nodes[self.current].parent
        if parent is None:
            raise UnknownItemError("nothing to undo: this is the first state")
        self.latest[parent] = self.current
        self._arrive(parent)
        return parent

    def redo(self) -> int:
        """Move to the child that was undone last, or that is the newest."""
        if not self.can_redo:
            raise UnknownItemError("nothing to redo: no state follows this one")
        self._arrive(self.latest[self.current])
        return self.current

    def _arrive(self, node: int) -> None:
        self.current = node
        if self.branch is not None:
            self.branches[self.branch] = node

    def switch(self, branch: str) -> int:
        """Move to a branch."""
        if branch not in self.branches:
            known = ", ".join(sorted(self.branches))
            raise UnknownItemError(f"got branch {branch!r}; expected one of: {known}")
        self.branch, self.current = branch, self.branches[branch]
        return self.current

    def jump(self, number: int) -> int:
        """Move to any state: to the branch that ends there, else to no branch."""
        step = self.node(number)
        while step.parent is not None:  # redo leads back here
            self.latest[step.parent] = step.id
            step = self.nodes[step.parent]
        self.branch = next((name for name, end in sorted(self.branches.items()) if end == number), None)
        self.current = number
        return number
