# SPDX-License-Identifier: MIT
"""Memory rules of linear attention, with and without importance, on ordinary CPUs.

    import numpy, palimpsa
    y, state = palimpsa.memory.forward("gla", q, k, v, g=g, output_final_state=True)
"""
from . import memory
from ._library import get_threads, set_threads, version

__all__ = ["memory", "get_threads", "set_threads", "version"]
__version__ = "0.1.0"
