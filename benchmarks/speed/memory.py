"""Resident memory of processes on Linux."""

import ctypes
import gc
from pathlib import Path


def resident(process: int | str = "self") -> int:
    """Return the resident memory of a process in bytes."""
    return _status(process, "VmRSS")


def peak(process: int | str = "self") -> int:
    """Return the peak of resident memory since the process began, or since ``reset_peak``."""
    return _status(process, "VmHWM")


def reset_peak() -> None:
    """Return freed memory to the system and reset the peak of this process."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # otherwise a fit reuses freed memory, which is not measured
    Path("/proc/self/clear_refs").write_text("5")


def _status(process: int | str, field: str) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    return 0  # the process has ended
