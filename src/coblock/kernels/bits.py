"""The bits of a float64, as single machine instructions; used by log and exp (MODEL 5)."""

from collections.abc import Callable
from typing import Any

from numba.core import types
from numba.extending import intrinsic

instruction: Callable[[Callable[..., Any]], Callable[..., Any]] = intrinsic


@instruction
def bits_of(context: Any, x: Any) -> Any:
    """Return the 64 bits of a float."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.int64))

    return types.int64(types.float64), generate


@instruction
def float_of(context: Any, bits: Any) -> Any:
    """Return the float with these 64 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float64))

    return types.float64(types.int64), generate


@instruction
def exponent_bits(context: Any, bits: Any) -> Any:
    """Return bits 52 and up: a logical shift, the only one of 64 bits that AVX2 has."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.lshr(arguments[0], context.get_constant(types.int64, 52))

    return types.int64(types.int64), generate
