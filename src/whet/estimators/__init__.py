"""Classifiers of feature matrices with the interfaces of scikit-learn and River.

`whet.estimators.baselines` has AdaBoost, AsymBoost and online boosting for comparison.

>>> from whet.estimators import OnlineGSLDA
>>> model = OnlineGSLDA(n_weak=1).fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
>>> model.partial_fit([[2.5]], [1]).predict([[0.4], [2.6]])
array([0, 1])
"""

from typing import TYPE_CHECKING

from whet import lazy_names

if TYPE_CHECKING:
    from whet.estimators.gslda import GSLDA as GSLDA
    from whet.estimators.online_gslda import OnlineGSLDA as OnlineGSLDA
    from whet.estimators.river import RiverClassifier as RiverClassifier

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "whet.estimators.gslda": "GSLDA",
        "whet.estimators.online_gslda": "OnlineGSLDA",
        "whet.estimators.river": "RiverClassifier",
    },
)
# It needs an extra: it is there by name, but not for `from whet.estimators import *`.
__all__.remove("RiverClassifier")
