"""The best piecewise-constant fit of a series of vectors, by exact search."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def best_cuts(z: Floats, penalty: float, smallest: int) -> list[int]:
    """Rows at which new pieces begin, so that squares about the pieces' means plus `penalty` a piece are least.

    `z` has a row a moment and a column a quantity; pieces have at least `smallest` rows. PELT (Killick, Fearnhead and
    Eckley 2012), as `ruptures.KernelCPD` with a linear kernel has it: a start is given up once all before it are and it
    cannot be the last cut any more. That library takes a second to import, this a tenth of one for 1500 rows.
    """
    centred = z - z.mean(axis=0)
    sums = np.vstack([np.zeros(z.shape[1]), np.cumsum(centred, axis=0)])
    norms = np.einsum("ij,ij->i", sums, sums)
    # The least cost of the rows before each, less their squares, which are there however they are cut.
    least = np.full(len(sums), np.inf)
    least[0] = 0.0
    last_cut = np.zeros(len(sums), dtype=np.int64)
    first = 0
    for end in range(smallest, len(sums)):
        begins = slice(first, end - smallest + 1)
        between = norms[end] + norms[begins] - 2.0 * (sums[begins] @ sums[end])
        cost = least[begins] - between / np.arange(end - first, smallest - 1, -1)
        chosen = int(np.argmin(cost))
        least[end] = cost[chosen] + penalty
        last_cut[end] = first + chosen
        first += int(np.argmax(cost < least[end]))
    cuts = []
    cut = int(last_cut[-1])
    while cut:
        cuts.append(cut)
        cut = int(last_cut[cut])
    return cuts[::-1]
