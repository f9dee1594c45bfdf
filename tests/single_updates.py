"""Updates of one object that take the views of a sweep, so that they are compiled once for both."""

from coblock.kernels import BlockTables, DomainView, Floats, cvb0, kernel, second_order
from coblock.kernels.gather import strided, transposed


@kernel
def update_cvb0(
    domain: DomainView, other: DomainView, blocks: BlockTables, i: int, turned: bool
) -> tuple[float, float]:
    """Update object ``i``; ``turned`` is whether the tables are those seen from the other end."""
    tables = strided(blocks)
    flipped = transposed(tables)
    return cvb0.update_one(domain, other, flipped if turned else tables, i)


@kernel
def update_second_order(
    exact: bool,
    here: second_order.Side,
    there: second_order.Side,
    blocks: BlockTables,
    V: Floats,
    i: int,
    turned: bool,
) -> tuple[float, float]:
    """Update object ``i`` by the second-order method."""
    tables, V = strided(blocks), V[:, ::1, ::1]
    flipped, V_flipped = transposed(tables), V.transpose((0, 2, 1))
    if turned:
        tables, V = flipped, V_flipped
    return second_order.update_one(exact, here, there, tables, V, i)
