# SPDX-License-Identifier: MIT
"""Long work with models: converting, surgery, evaluation. Each takes a `progress` function, which learns how far the work is
(done, total) and ends it with palimpsa.Stopped by returning False. Ctrl-C ends it too. What writes leaves all or nothing."""
from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Sequence

import numpy as np

from ._library import check, context, ffi, finish, lib, path_bytes
from .model import Model
from .observe import Windows, take_windows

if TYPE_CHECKING:
    Path = str | os.PathLike[str]
    Progress = Callable[[int, int], Any] | None

__all__ = ["Converted", "Metric", "Perplexity", "Proof", "Surgery", "TaskResult", "convert", "evaluate", "evaluate_task", "make_metaplastic",
           "tasks"]


def _text(value: Any) -> Any:
    return ffi.NULL if value is None else ffi.new("char[]", path_bytes(value))


class Converted(NamedTuple):
    tensors: int
    bytes: int
    dropped: int  # tensors of importance gates that nothing read
    tokenizer: bool  # the target has one
    finer: int  # matrices whose rows do not fill the type's blocks


def convert(source: Path, target: Path, *, to: str = "palimpsa", dtype: str | None = None, tokenizer: Path | None = None,
            progress: Progress = None) -> Converted:
    """A checkpoint in another layout ("palimpsa", "hf", "official", "gguf") or stored type ("q8_0", "bf16", ...)."""
    layouts = {ffi.string(lib.pal_layout_name(i)).decode(): i for i in range(lib.PAL_LAYOUTS)}
    if to not in layouts:
        raise ValueError(f"layout {to!r}; expected one of {', '.join(layouts)}")
    handle, kind, spec = ffi.new_handle(progress), _text(dtype), _text(tokenizer)
    options = ffi.new("pal_convert_options *", {"to": layouts[to], "dtype": kind, "tokenizer": spec, "progress": lib.palimpsa_go_on,
                                                "user": handle, "cx": context()})
    report, err = ffi.new("pal_converted *"), ffi.new("pal_error *")
    finish(lib.pal_convert(path_bytes(source), path_bytes(target), options, report, err), err)
    return Converted(report.tensors, report.bytes, report.dropped, report.tokenizer, report.finer)


class Proof(NamedTuple):
    """How the result differs from its source; off and on are the largest differences of a logit, over the largest logit."""

    tokens: int
    off: float  # with the new plasticity off: 0, up to rounding
    on: float
    moved: int  # positions whose likeliest token is a different one
    loss_before: float
    loss_now: float


@dataclass
class Surgery:
    layers: list[int]  # that became metaplastic
    windows: Windows | None
    proof: Proof | None


def make_metaplastic(source: Path, target: Path, layers: str | Sequence[int] = "all", *, text: str | bytes | Sequence[int] | None = None,
                     window_tokens: int = 4096, proof_tokens: int = 256, proof: bool = True, rank: int = 0,
                     b_scale: tuple[float, float] | None = None, exact: bool = False, seed: int = 1, dtype: str | None = None,
                     tokenizer: Path | None = None, progress: Progress = None) -> Surgery:
    """Surgery: layers of a Mamba2 model ("top:8" by memory window, "all", or their numbers) get importance. The result is
    proved on `text` to be its source with the new plasticity off."""
    chosen = layers if isinstance(layers, str) else ",".join(str(int(i)) for i in layers)
    ids = np.empty(0, np.int32)
    if text is not None:
        with Model.open(source, tokenizer if isinstance(text, (str, bytes)) else False) as model:
            ids, rules = model._ids(text).astype(np.int32), model.rules
    elif proof or chosen.startswith("top"):
        raise ValueError(f"surgery on {chosen} needs a text, for memory windows and proof; or layers by number and proof=False")
    least = 32
    if text is not None and len(ids) < least:
        raise ValueError(f"the text has {len(ids)} tokens; expected at least {least}")
    measured = min(len(ids), window_tokens) if chosen.startswith("top") else 0
    scale = ffi.NULL if b_scale is None else ffi.new("double[2]", list(b_scale))
    handle, name, kind, spec = ffi.new_handle(progress), _text(chosen), _text(dtype), _text(tokenizer)
    options = ffi.new("pal_surgery_options *", {
        "layers": name, "ids": ffi.from_buffer("int32_t[]", ids), "window_tokens": measured, "rank": rank, "b_scale": scale,
        "proof_tokens": min(len(ids), proof_tokens) if proof else 0, "exact": bool(exact), "seed": seed % 2**64, "dtype": kind,
        "tokenizer": spec, "progress": lib.palimpsa_go_on, "user": handle})
    report, err = ffi.new("pal_surgery_report *"), ffi.new("pal_error *")
    try:
        finish(lib.pal_surgery_operate(path_bytes(source), path_bytes(target), options, context(), report, err), err)
        found = report.proof
        return Surgery([i for i in range(lib.PAL_MAX_LAYERS) if report.layers[i]],
                       take_windows(report.windows, rules) if report.windows.layers else None,
                       Proof(found.tokens, found.off, found.on, found.moved, found.loss_source, found.loss_on) if options.proof_tokens else None)
    finally:
        lib.pal_surgery_report_free(report)


@dataclass
class Perplexity:
    """How well a model predicts a text."""

    documents: int
    tokens: int  # predicted ones
    bytes: int
    words: int
    nll: float  # sum of -log p, in nats
    by_position: list[tuple[int, int, float]] = field(default_factory=list)  # from, to (tokens read before), nats a token

    def _per(self, units: int) -> float:
        return math.exp(self.nll / units) if units else math.nan

    @property
    def loss(self) -> float:
        """Nats a token."""
        return self.nll / self.tokens if self.tokens else math.nan

    @property
    def token_perplexity(self) -> float:
        return self._per(self.tokens)

    @property
    def byte_perplexity(self) -> float:
        return self._per(self.bytes)

    @property
    def word_perplexity(self) -> float:
        return self._per(self.words)


def _options(progress: Any, more: dict[str, Any]) -> Any:
    return ffi.new("pal_evaluate_options *", {**more, "progress": lib.palimpsa_go_on, "user": progress})


def evaluate(model: Model, data: Path, *, context: int = 0, wikitext: bool = False, field: str | None = None, subset: str | None = None,
             piece: int = 0, together: int = 0, progress: Progress = None) -> Perplexity:
    """Loss and perplexity on a text file, a JSONL file or a directory of shards. context cuts documents into windows."""
    handle, name, part = ffi.new_handle(progress), _text(field), _text(subset)
    options = _options(handle, {"context": context, "wikitext": bool(wikitext), "field": name, "subset": part, "piece": piece, "together": together})
    out, err = ffi.new("pal_perplexity *"), ffi.new("pal_error *")
    model.tokenizer  # noqa: B018  the sentence, if there is none
    with model._guard():
        model._alive()
        try:
            finish(lib.pal_evaluate_text(out, model._bundle, path_bytes(data), options, model._cx, err), err)
            bins = [(1 << i, 1 << (i + 1), b.nll / b.count) for i, b in enumerate(out.bins[0 : out.bin_count]) if b.count]
            return Perplexity(out.documents, out.tokens, out.bytes, out.words, out.nll, bins)
        finally:
            lib.pal_perplexity_free(out)


class Metric(NamedTuple):
    value: float
    error: float  # standard error; NaN: it has none
    higher_is_better: bool


@dataclass
class TaskResult:
    task: str
    documents: int
    metrics: dict[str, Metric]

    def _repr_html_(self) -> str:
        from .html import number, table

        return table(f"{self.task}, {self.documents} documents", ("metric", "value", "standard error"),
                     [(name, number(m.value), number(m.error)) for name, m in self.metrics.items()])


def tasks() -> list[str]:
    """Names of the tasks of lm-evaluation-harness that can be run."""
    names: list[str] = []
    while (name := lib.pal_evaluate_task_at(len(names))) != ffi.NULL:
        names.append(ffi.string(name).decode())
    return names


def evaluate_task(model: Model, task: str, data: Path, *, limit: int | None = None, docs: tuple[int, int] | None = None, context: int = 0,
                  progress: Progress = None) -> TaskResult:
    """A task with the requests and metrics of lm-evaluation-harness, on the files below `data`. docs: from, to."""
    first, end = docs or (0, limit or 0)
    if first < 0 or end < 0 or (docs and end <= first):
        raise ValueError(f"documents {first} to {end}; expected numbers from 0 on, the smaller one first")
    handle = ffi.new_handle(progress)
    options = _options(handle, {"context": context, "from": first, "to": end})
    out, err = ffi.new("pal_task_result *"), ffi.new("pal_error *")
    model.tokenizer  # noqa: B018
    with model._guard():
        model._alive()
        finish(lib.pal_evaluate_task(out, model._bundle, task.encode(), path_bytes(data), options, model._cx, err), err)
    found = {ffi.string(m.name).decode(): Metric(m.value, m.error, m.higher_is_better) for m in out.metric[0 : out.count]}
    return TaskResult(task, out.documents, found)
