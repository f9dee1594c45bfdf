"""What is told while a fit is under way."""

import math
from collections import deque
from collections.abc import Callable

from coblock.model.trace import Sweep

WINDOW = 12  # sweeps that a forecast looks back
SLOWEST = 0.05  # exponent below which the change is not seen to fall
MOST_GROWTH = 50.0  # logarithm of the sweeps at the end over those now: more is never


def counted(fits: int) -> Callable[[Sweep], str]:
    """Return what tells, sweep by sweep, which of several fits it belongs to.

    Examples
    --------
    >>> which = counted(5)
    >>> for number in (1, 2, 1):
    ...     told = which(Sweep(number, 0.5, 0.0, 0.0, 2, 2, 0.5))
    >>> told
    'fit 2 of 5, '
    """
    begun = 0

    def which(sweep: Sweep) -> str:
        nonlocal begun
        begun += sweep.sweep == 1
        return f"fit {max(begun, 1)} of {fits}, " if fits > 1 else ""

    return which


class Forecast:
    """How long a fit may still take, told from how its change has fallen so far.

    The change of an average falls like a power of the number of sweeps. The last sweeps give the
    power; the stop rule's ``tol`` gives the end, ``max_iter`` the latest end.

    Parameters
    ----------
    tol : float
        Change at which the fit stops; 0 for a fit that does all its sweeps.
    max_iter : int
        Largest number of sweeps.

    Examples
    --------
    >>> forecast = Forecast(tol=1e-4, max_iter=1000)
    >>> for s in range(1, 51):  # half a second each
    ...     left = forecast.seconds_left(Sweep(s, 1 / s**2, 0.0, 0.0, 2, 2, 0.5 * s))
    >>> round(left)
    25
    """

    def __init__(self, tol: float, max_iter: int) -> None:
        self.tol = tol
        self.max_iter = max_iter
        self.recent: deque[Sweep] = deque(maxlen=WINDOW)

    def seconds_left(self, sweep: Sweep) -> float | None:
        """Take note of a sweep; return the seconds to the end, None while nothing can be said."""
        if self.recent and sweep.sweep <= self.recent[-1].sweep:
            self.recent.clear()  # another start
        self.recent.append(sweep)
        first = self.recent[0]
        if sweep.sweep == first.sweep:
            return None
        each = (sweep.seconds - first.seconds) / (sweep.sweep - first.sweep)
        left, most = self._sweeps_left(first, sweep), max(self.max_iter - sweep.sweep, 0)
        if left is None or (most < left < math.inf and len(self.recent) < WINDOW):
            return None  # a few sweeps, of a search perhaps, say little about a far end
        return each * min(left, most)

    def _sweeps_left(self, first: Sweep, last: Sweep) -> float | None:
        """Return in how many sweeps the change will have fallen to ``tol``."""
        if self.tol <= 0.0:
            return math.inf
        if last.change <= self.tol:
            return 0.0
        fall = math.log(max(first.change, self.tol) / last.change)
        power = fall / math.log(last.sweep / first.sweep)
        if power < SLOWEST:
            return None
        growth = math.log(last.change / self.tol) / power
        return last.sweep * math.expm1(min(growth, MOST_GROWTH))
