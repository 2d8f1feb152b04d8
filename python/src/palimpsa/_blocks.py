# SPDX-License-Identifier: MIT
"""Memory of large tensors that operations return.

The system hands out fresh memory page by page, and that costs as much as half of a training step: 3,000 page faults
for the 22 MB of outputs and gradients of 4,096 tokens. So large tensors lie on huge pages, and what is given back waits
for the next call.
"""
import ctypes
import math
import mmap
import weakref

import torch
from torch import Tensor

_PAGE = 2 << 20  # bytes of a huge page
_LARGE = _PAGE // 2  # bytes from which on a tensor gets blocks of its own
KEPT = 256 << 20  # bytes that may wait

_waiting: list[mmap.mmap] = []  # in the order they came back; threads only use operations that are one step of Python
_lent: "dict[int, _Loan]" = {}


class _Loan(weakref.ref):  # type: ignore[type-arg]
    """Knows when the last tensor on a block is gone."""

    __slots__ = ("block",)
    block: mmap.mmap


def waiting() -> int:
    """Bytes."""
    return sum(map(len, _waiting.copy()))


def _give_back(loan: _Loan) -> None:
    del _lent[id(loan)]
    _waiting.append(loan.block)
    while waiting() > KEPT:
        try:
            _waiting.pop(0)
        except IndexError:  # another thread was faster
            return


def _take(size: int) -> mmap.mmap:
    for block in reversed(_waiting.copy()):
        if len(block) == size:
            try:
                _waiting.remove(block)
                return block
            except ValueError:  # another thread was faster
                pass
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # a forked child gets its own
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            block.madvise(mmap.MADV_HUGEPAGE)
        except OSError:  # a system without them
            pass
    return block


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    count = math.prod(shape)
    bytes_ = count * dtype.itemsize
    if bytes_ < _LARGE:
        return torch.empty(shape, dtype=dtype)
    block = _take((bytes_ + 2 * _PAGE - 1) // _PAGE * _PAGE)  # one page more than needed, to begin where one begins
    start = -ctypes.addressof(ctypes.c_char.from_buffer(block)) % _PAGE
    view = memoryview(block)
    loan = _Loan(view, _give_back)
    loan.block = block
    _lent[id(loan)] = loan
    return torch.frombuffer(view, dtype=dtype, count=count, offset=start).view(shape)
