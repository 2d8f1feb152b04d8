# SPDX-License-Identifier: MIT
"""Looking into the memory of a model that reads a text."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from ._library import check, ffi, finish, lib
from .session import state_parts

if TYPE_CHECKING:
    from .model import Model

__all__ = ["Layer", "Observation", "Windows"]

PIECE = 512  # tokens that run at once
_MOST = 1 << 16  # tokens that are observed at once


class Working:
    """Working memory for one call, under the model's guard."""

    def __init__(self, model: Model, tokens: int, context: int, logits: int = 0) -> None:
        self.err, self._context, self._model = ffi.new("pal_error *"), context, model
        out = ffi.new("pal_work **")
        options = {"tokens": tokens, "sequences": 1, "logits": logits, "context": context}
        check(lib.pal_work_new(out, model._bundle.model, model._cx, ffi.new("pal_work_options *", options), self.err), self.err)
        self.work, self._states = out[0], []  # type: tuple[Any, list[Any]]

    def state(self) -> Any:
        out = ffi.new("pal_state **")
        check(lib.pal_state_new(out, self._model._bundle.model, self._context, self.err), self.err)
        self._states.append(out[0])
        return out[0]

    def read(self, state: Any, ids: np.ndarray, logits: Any = ffi.NULL) -> None:
        """Any number of tokens after what a state holds; logits of the last. Between pieces Ctrl-C is heard."""
        for at in range(0, len(ids), PIECE):
            piece = ids[at : at + PIECE]
            check(lib.pal_model_prefill(self._model._bundle.model, self.work, state, ffi.from_buffer("int32_t[]", piece), len(piece),
                                        logits if at + PIECE >= len(ids) else ffi.NULL, self.err), self.err)

    def batch(self, ids: np.ndarray) -> Any:
        self._ends = ffi.new("int[]", [0, len(ids)])
        return ffi.new("pal_batch *", {"tokens": len(ids), "sequences": 1, "ids": ffi.from_buffer("int32_t[]", ids),
                                       "cu_seqlens": self._ends})

    def __enter__(self) -> Working:
        return self

    def __exit__(self, *_: Any) -> None:
        for state in self._states:
            lib.pal_state_free(state)
        lib.pal_work_free(self.work)


@dataclass
class Layer:
    """One layer's memory. What its rule does not have is None."""

    layer: int
    rule: str
    mean: np.ndarray | None  # [heads, dv, dk] after the last token: mu, S or G
    importance: np.ndarray | None  # [heads, dv, dk] after the last token; palimpsa
    decay: np.ndarray | None  # [tokens, heads]: at each token the memory keeps exp(-decay) of itself
    b_scale: np.ndarray | None  # [heads] scale of the importance gate

    @property
    def windows(self) -> np.ndarray | None:
        """[tokens, heads] N_t = 1 / (1 - exp(-decay)), how many tokens back the memory reaches."""
        if self.decay is None:
            return None
        with np.errstate(divide="ignore"):
            return -1 / np.expm1(-self.decay.astype(np.float64))

    @property
    def median_window(self) -> float:
        """Median over heads, then over tokens; NaN for a layer that does not forget."""
        found = self.windows
        return float("nan") if found is None else float(np.median(np.median(found, axis=1)))

    @property
    def unevenness(self) -> float:
        """Largest over mean importance, mean over heads: how unevenly learning is slowed. NaN without importance."""
        if self.importance is None:
            return float("nan")
        return float(np.mean(self.importance.max(axis=(1, 2)) / self.importance.mean(axis=(1, 2))))

    def plot(self, what: str = "importance", heads: int = 4) -> Any:
        """Heat maps of the importance (or the mean) of the first heads; a matplotlib figure."""
        shown = {"importance": self.importance, "mean": self.mean}.get(what)
        if shown is None:
            raise ValueError(f"layer {self.layer} ({self.rule}) has no {what}; expected importance or mean, where the rule has it")
        from .plot import heat_maps

        return heat_maps(shown[:heads], f"layer {self.layer} ({self.rule}): {what}", signed=what == "mean")


@dataclass
class Observation:
    """A model's memory after a text: one entry per layer."""

    ids: np.ndarray
    layers: list[Layer]

    def __getitem__(self, layer: int) -> Layer:
        return self.layers[layer]

    def __len__(self) -> int:
        return len(self.layers)

    def plot(self, what: str = "importance") -> Any:
        """The first head of every layer that has it; a matplotlib figure."""
        chosen = {"importance": lambda x: x.importance, "mean": lambda x: x.mean}.get(what)
        found = [(x.layer, chosen(x)[0]) for x in self.layers if chosen(x) is not None] if chosen else []
        if not found:
            raise ValueError(f"no layer of this model has {what!r}; expected importance or mean, where the rule has it")
        from .plot import heat_maps

        return heat_maps([x for _, x in found], f"{what}, head 0", [f"layer {i}" for i, _ in found], signed=what == "mean")

    def _repr_html_(self) -> str:
        from .html import number, table

        rows = [(x.layer, x.rule, number(x.median_window), number(x.unevenness)) for x in self.layers]
        return table(f"memory after {len(self.ids)} tokens", ("layer", "rule", "median N_t", "largest / mean importance"), rows)


@dataclass
class Windows:
    """The memory window N_t, in tokens: how far back a layer remembers."""

    n_t: np.ndarray  # [layers, tokens] median over heads; NaN in a layer that has none
    median: np.ndarray  # [layers] over tokens
    order: np.ndarray  # layers by falling median, those without a window last
    rules: list[str]

    def top(self, k: int) -> list[int]:
        """The k layers that remember longest."""
        if k < 0:
            raise ValueError(f"{k} layers; expected 0 or more")
        return [int(i) for i in self.order if not np.isnan(self.median[i])][:k]

    def plot(self) -> Any:
        """Windows by position and by layer; a matplotlib figure."""
        from .plot import windows_figure

        return windows_figure(self)

    def _repr_html_(self) -> str:
        from .html import number, table

        rows = [(rank + 1 if not np.isnan(self.median[i]) else "–", int(i), self.rules[i], number(float(self.median[i])))
                for rank, i in enumerate(self.order)]
        return table(f"memory windows over {self.n_t.shape[1]} tokens", ("rank", "layer", "rule", "median N_t"), rows)


@dataclass
class Reading:
    """What one layer reads at the last token of a text, divided among the tokens that wrote it."""

    layer: int
    rule: str
    shares: np.ndarray  # [tokens, heads] add up to 1 over tokens
    weights: np.ndarray  # [tokens, heads, dv] of each token's value in what is read
    read: np.ndarray  # [heads, dv] what is read
    error: float  # of the sum of weights times values, over the size of its terms

    def top(self, head: int, k: int = 5) -> list[tuple[int, float]]:
        """The k tokens with the largest shares of a head, largest first: (token, share)."""
        shares = self.shares[:, head]
        return [(int(t), float(shares[t])) for t in np.argsort(-np.abs(shares), kind="stable")[:k]]


def attribution(model: Model, ids: np.ndarray, layer: int | None = None) -> list[Reading]:
    if not 1 <= len(ids) <= _MOST:
        raise ValueError(f"a text of {len(ids)} tokens; expected 1 to {_MOST}")
    tokens, err, made = ids.astype(np.int32), ffi.new("pal_error *"), []

    def array(pointer: Any, *shape: int) -> np.ndarray:
        return np.frombuffer(ffi.buffer(pointer, 4 * int(np.prod(shape))), np.float32).reshape(shape).copy()

    def take(a: Any) -> None:
        made.append(Reading(a.layer, ffi.string(a.rule).decode(), array(a.shares, a.tokens, a.heads),
                            array(a.weights, a.tokens, a.heads, a.dv), array(a.read, a.heads, a.dv), a.error))

    handle = ffi.new_handle(take)
    with model._guard():
        model._alive()
        finish(lib.pal_model_attribute(model._bundle.model, model._cx, ffi.from_buffer("int32_t[]", tokens), len(ids),
                                       lib.PAL_EVERY_LAYER if layer is None else layer, lib.palimpsa_on_reading, handle, err), err)
    return made


def observe(model: Model, ids: np.ndarray) -> Observation:
    if not 1 <= len(ids) <= _MOST:
        raise ValueError(f"a text of {len(ids)} tokens; expected 1 to {_MOST}")
    tokens, made = ids.astype(np.int32), []

    def array(pointer: Any, *shape: int) -> np.ndarray | None:
        if pointer == ffi.NULL:
            return None
        return np.frombuffer(ffi.buffer(pointer, 4 * int(np.prod(shape))), np.float32).reshape(shape).copy()

    def take(o: Any) -> None:
        made.append(Layer(o.layer, ffi.string(o.rule).decode(), None, None, array(o.decay, o.tokens, o.heads), array(o.b_scale, o.heads)))

    with model._guard():
        model._alive()
        with Working(model, len(ids), len(ids)) as work:
            out, err = ffi.new("pal_observer **"), work.err
            check(lib.pal_observer_new(out, model._bundle.model, len(ids), 1, err), err)
            handle = ffi.new_handle(take)
            try:
                finish(lib.pal_model_observe(model._bundle.model, work.work, out[0], work.batch(tokens), lib.palimpsa_on_layer, handle,
                                             err), err)
            finally:
                lib.pal_observer_free(out[0])
            state = work.state()
            work.read(state, tokens)
            for layer in made:
                if layer.rule in ("attention", "none"):
                    continue
                parts = state_parts(model, state, layer.layer)
                layer.importance = parts.pop("I", None)
                layer.mean = next(iter(parts.values()))
    return Observation(ids, made)


def windows(model: Model, ids: np.ndarray, progress: Callable[[int, int], Any] | None = None) -> Windows:
    handle = ffi.new_handle(progress)
    tokens, err, out = ids.astype(np.int32), ffi.new("pal_error *"), ffi.new("pal_windows *")
    with model._guard():
        model._alive()
        finish(lib.pal_windows_measure(out, model._bundle.model, model._cx, ffi.from_buffer("int32_t[]", tokens), len(ids),
                                       lib.palimpsa_go_on, handle, err), err)
        try:
            return take_windows(out, model.rules)
        finally:
            lib.pal_windows_free(out)


def take_windows(w: Any, rules: list[str]) -> Windows:
    """A copy of the library's."""
    numbers = lambda pointer, *shape: np.frombuffer(ffi.buffer(pointer, 8 * int(np.prod(shape)))).reshape(shape).copy()
    return Windows(numbers(w.n_t, w.layers, w.tokens), numbers(w.median, w.layers), np.array(ffi.unpack(w.order, w.layers)), rules)
