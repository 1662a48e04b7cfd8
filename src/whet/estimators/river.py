"""Online GSLDA for River's streams of dictionaries (extra: river)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from whet.arrays import Floats
from whet.errors import MissingExtraError
from whet.estimators.gslda import whole_weight
from whet.estimators.online_gslda import OnlineGSLDA
from whet.lda.discriminant import DEFAULT_RIDGE

try:
    from river import base
except ImportError as error:
    raise MissingExtraError("river", "river") from error


class RiverClassifier(base.Classifier):
    """River's `learn_one` and `predict_proba_one` over `OnlineGSLDA`.

    The features are those of the samples before the weak learners are trained. A feature that is
    missing later counts as 0, and one that appears later is passed over.

    Parameters
    ----------
    n_weak, ridge, decay, n_reserve
        Those of `OnlineGSLDA`.
    min_initial
        How many samples of each class to gather before the weak learners are trained on them.

    Examples
    --------
    >>> from whet.estimators import RiverClassifier
    >>> model = RiverClassifier(n_weak=1, min_initial=2)
    >>> for x, y in [(0.0, False), (1.0, False), (2.0, True), (3.0, True)]:
    ...     model.learn_one({"width": x}, y)
    >>> model.predict_one({"width": 2.5})
    True
    """

    def __init__(
        self,
        n_weak: int = 50,
        *,
        n_reserve: int | None = None,
        ridge: float = DEFAULT_RIDGE,
        decay: float = 1.0,
        min_initial: int = 50,
    ) -> None:
        self.n_weak = n_weak
        self.n_reserve = n_reserve
        self.ridge = ridge
        self.decay = decay
        self.min_initial = min_initial
        self._model: OnlineGSLDA | None = None
        self._names: list[Any] = []
        self._gathered: list[tuple[dict[Any, float], Any, int]] = []
        self._count: Counter[Any] = Counter()

    def learn_one(self, x: dict[Any, float], y: Any, w: int = 1) -> None:  # noqa: ANN401 - River's labels are any hashable
        """Learn one sample, counted `w` times: a whole number of at least 0."""
        if self._model is not None:
            self._model.update(self._vector(x), y, w)
            return
        if y not in self._count and len(self._count) == 2:
            raise ValueError(f"only two classes are supported; got a third label: {y!r}")
        weight = whole_weight(w, self._count.total())
        if not weight:
            return
        self._gathered.append((dict(x), y, weight))
        self._count[y] += weight
        if len(self._count) == 2 and min(self._count.values()) >= self.min_initial:
            self._train()

    def predict_proba_one(self, x: dict[Any, float], **_: Any) -> dict[Any, float]:  # noqa: ANN401
        """Probability of each class; of the prior, while samples are still being gathered."""
        if self._model is None:
            count = dict(self._count)
            if set(count) <= {False, True}:  # River's binary labels: both are known before the first sample
                count = {False: 0, True: 0} | count
            prior = {label: n + 1 for label, n in count.items()}
            return {label: n / sum(prior.values()) for label, n in prior.items()}
        p = self._model.predict_proba(self._vector(x)[None])[0]
        return dict(zip(self._model.classes_.tolist(), p.tolist(), strict=True))

    def _train(self) -> None:
        self._names = list(dict.fromkeys(name for x, *_ in self._gathered for name in x))
        X = np.array([self._vector(x) for x, *_ in self._gathered])
        y = np.array([label for _, label, _ in self._gathered])
        weights = [weight for *_, weight in self._gathered]
        n_weak = min(self.n_weak, len(self._names))
        n_reserve = None if self.n_reserve is None else max(self.n_reserve, n_weak)
        model = OnlineGSLDA(n_weak, n_reserve=n_reserve, ridge=self.ridge, decay=self.decay)
        self._model = model.fit(X, y, sample_weight=weights)
        self._gathered = []

    def _vector(self, x: dict[Any, float]) -> Floats:
        return np.array([float(x.get(name, 0.0)) for name in self._names])
