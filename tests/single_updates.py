"""Updates of one object that take the views of a sweep, so that they are compiled once for both."""

from coblock.kernels import BlockTables, DomainView, cvb0, kernel
from coblock.kernels.gather import strided, transposed


@kernel
def update_cvb0(
    domain: DomainView, other: DomainView, blocks: BlockTables, i: int, turned: bool
) -> tuple[float, float]:
    """Update object ``i``; ``turned`` is whether the tables are those seen from the other end."""
    tables = strided(blocks)
    flipped = transposed(tables)
    return cvb0.update_one(domain, other, flipped if turned else tables, i)
