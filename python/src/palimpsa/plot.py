# SPDX-License-Identifier: MIT
"""Figures for notebooks, by matplotlib."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

import numpy as np

if TYPE_CHECKING:
    from .observe import Windows

_POINTS = 96  # of a curve; each is the median of a stretch
_NAMED = 8  # curves that get a colour and a name


def _matplotlib() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("figures need matplotlib: pip install 'palimpsa[plot]'") from None
    return Figure


def heat_maps(maps: Sequence[np.ndarray], title: str, names: Sequence[str] | None = None, signed: bool = False) -> Any:
    """Maps [dv, dk] side by side on one scale, as its own figure: pyplot's state is left alone."""
    most = max(float(np.abs(m).max()) for m in maps) or 1.0
    least = -most if signed else min(float(m.min()) for m in maps)
    columns = min(4, len(maps))
    rows = -(-len(maps) // columns)
    figure = _matplotlib()(figsize=(2.6 * columns + 0.8, 2.6 * rows + 0.6), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for i, axis in enumerate(axes):
        if i >= len(maps):
            axis.set_visible(False)
            continue
        image = axis.imshow(maps[i], cmap="RdBu_r" if signed else "viridis", vmin=least, vmax=most, aspect="auto", interpolation="nearest")
        axis.set_title(names[i] if names else f"head {i}", fontsize=9)
        axis.set_xlabel("key channel", fontsize=8)
        axis.set_ylabel("value channel", fontsize=8)
        axis.tick_params(labelsize=7)
    figure.colorbar(image, ax=list(axes), shrink=0.8)
    figure.suptitle(title, fontsize=10)
    return figure


def windows_figure(w: Windows) -> Any:
    figure = _matplotlib()(figsize=(9.8, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    layers, tokens = w.n_t.shape
    points = min(tokens, _POINTS)
    edges = np.arange(points + 1) * tokens // points
    named = set(w.top(_NAMED))
    for i in range(layers):
        if np.isnan(w.median[i]):
            continue
        y = [float(np.median(w.n_t[i, a:b])) for a, b in zip(edges[:-1], edges[1:])]
        x = (edges[:-1] + edges[1:] - 1) / 2
        if i in named:
            left.plot(x, y, linewidth=1.2, label=f"layer {i}")
        else:
            left.plot(x, y, linewidth=0.7, color="0.75", zorder=0)
    right.plot(np.arange(layers), w.median, "o", color="0.35", markersize=5)
    left.set(title="by position", xlabel="token position", ylabel="$N_t$ (tokens), median over heads", yscale="log")
    right.set(title="by layer", xlabel="layer", ylabel="$N_t$ (tokens), median over heads and tokens", yscale="log")
    right.xaxis.get_major_locator().set_params(integer=True)
    left.legend(fontsize=8)
    return figure
