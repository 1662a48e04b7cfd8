"""Early exits that learn: rejection thresholds on partial sums, which follow the positives as a threshold does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whet.lda.online import OnlineDiscriminant
from whet.lda.prefix import prefix_moments

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Exits:
    """Exit t lies z_t standard deviations from the mean of the positives' partial sums; z (T,) is frozen.

    The last exit is the stage's own threshold, which is why z_T is -inf here.
    """

    z: Floats

    @classmethod
    def calibrated(cls, sums: Floats, vote: OnlineDiscriminant) -> Exits:
        """The tightest exits that every positive passes which the stage accepts in the end.

        `sums` (T, samples) are partial sums of validation positives. What the stage loses anyway binds no exit
        (Zhang and Viola's multiple-instance pruning, 2007, keeps those that any window of the object passes; here
        it is every window), so all exits together keep the stage's detection rate on these samples.
        """
        kept = sums[:, sums[-1] > vote.threshold]
        mean, deviation = prefix_moments(vote.positive, vote.coef)
        lowest = np.nextafter(kept.min(axis=1), -np.inf) if kept.shape[1] else np.full(len(mean), -np.inf)
        z = np.full(len(mean), -np.inf)
        np.divide(lowest - mean, deviation, out=z, where=deviation > 0)
        z[-1] = -np.inf
        # Rounding of z must not lift an exit above the positive that it was made for.
        exits = mean + z * deviation
        return cls(np.where(exits > lowest, np.nextafter(z, -np.inf), z))

    def thresholds(self, vote: OnlineDiscriminant) -> Floats:
        """The exits (T,) of a vote as it is now."""
        mean, deviation = prefix_moments(vote.positive, vote.coef)
        with np.errstate(invalid="ignore"):  # -inf times 0
            return np.where(np.isneginf(self.z), -np.inf, mean + self.z * deviation)
