"""Resident memory of processes, as Linux keeps account of it."""

import ctypes
import gc
from pathlib import Path


def resident(process: int | str = "self") -> int:
    """Return the memory of a process that is resident now, in bytes."""
    return _status(process, "VmRSS")


def peak(process: int | str = "self") -> int:
    """Return the most that was resident since the process began, or the peak was forgotten."""
    return _status(process, "VmHWM")


def forget_peak() -> None:
    """Give back what this process has freed, and let its peak be what is resident then."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # glibc keeps some of it, which a fit would use unnoticed
    Path("/proc/self/clear_refs").write_text("5")


def _status(process: int | str, field: str) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    return 0  # a process that has ended has no memory
