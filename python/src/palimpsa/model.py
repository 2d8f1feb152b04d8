# SPDX-License-Identifier: MIT
"""Models with their tokenizers.

    model = palimpsa.Model.open("runs/talk")
    for token in model.generate("ROMEO:", max_tokens=50):
        print(token.text, end="")

A model does one call at a time, whatever thread it comes from; several models run at once. The GIL is released during
work, and Ctrl-C ends it.
"""
from __future__ import annotations

import math
import os
import weakref
from typing import Any, Callable, Iterable, NamedTuple, Sequence

import numpy as np

from . import observe as _observe
from ._library import Guard, check, context, ffi, finish, lib, path_bytes
from .session import Generation, Session, Sessions
from .tokenizer import Tokenizer, id_array

__all__ = ["Model", "Score"]

Text = "str | bytes | Sequence[int] | np.ndarray"


class Score(NamedTuple):
    """How likely a model finds a continuation."""

    logprob: float  # sum over the continuation
    greedy: bool  # every token of it was the likeliest
    ids: np.ndarray  # of the continuation
    logprobs: np.ndarray  # of each token
    likeliest: np.ndarray  # True where no id had a larger logit

    @property
    def perplexity(self) -> float:
        return math.exp(-self.logprob / len(self.ids)) if len(self.ids) else math.nan


_MIXER = ("heads", "key_heads", "dk", "dv", "rank", "conv")
_KEPT = {"f32": lib.PAL_F32, "f16": lib.PAL_F16, "q8_0": lib.PAL_Q8_0}  # types of keys and values


def _layer(native: Any, layer: int) -> dict[str, Any]:
    """What one layer is: its mixers, each with a kind and sizes, and the width of its MLP, 0 without one."""
    block = lib.pal_model_block(native, layer)
    mixers = [{"kind": ffi.string(lib.pal_mixer_name(block.mixer[k].kind)).decode()}
              | {name: getattr(block.mixer[k], name) for name in _MIXER} for k in range(block.mixers)]
    return {"rule": ffi.string(lib.pal_model_layer_rule(native, layer)).decode(), "mixers": mixers, "mlp": block.mlp}


class Model:
    """`Model.open(path)`: a model directory, the newest checkpoint of a run directory, or a GGUF file, in any stored type."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise TypeError("models are opened: palimpsa.Model.open(path)")

    @classmethod
    def open(cls, path: str | os.PathLike[str], tokenizer: str | os.PathLike[str] | bool | None = None, *,
             threads: int | None = None, max_context: int = 4096, kv_type: str = "f32", variance: bool = True, device: str = "cpu") -> Model:
        """tokenizer: instead of the one that lies with the model; False: none, for models of numbers. max_context: tokens
        that attention layers can hold; kv_type: numbers of their keys and values, "f32", "f16" or "q8_0". variance: of every
        token that is written, which costs a little. device: where to compute, "cpu", "opencl" or "opencl:N" as
        palimpsa.devices() counts."""
        self = object.__new__(cls)
        self.path = os.fsdecode(os.fspath(path))
        self._guard = Guard()
        self._engine: Sessions | None = None
        self._bundle = ffi.new("pal_bundle *")
        self._cx = context(threads, device)
        if not 1 <= max_context <= 1 << 24:
            raise ValueError(f"max_context is {max_context}; expected 1 to {1 << 24}")
        if kv_type not in _KEPT:
            raise ValueError(f"kv_type is {kv_type!r}; expected one of {', '.join(_KEPT)}")
        self._options = (int(max_context), bool(variance))
        err = ffi.new("pal_error *")
        name = path_bytes(path)
        if tokenizer is False:
            out = ffi.new("pal_model **")
            check(lib.pal_model_open(out, name, lib.PAL_FOR_INFERENCE, self._cx, err), err)
            self._bundle.model = out[0]
        else:
            spec = ffi.NULL if tokenizer is None or tokenizer is True else ffi.new("char[]", path_bytes(tokenizer))
            check(lib.pal_bundle_open(self._bundle, name, spec, ffi.NULL, self._cx, err), err)
        self._open = True
        check(lib.pal_model_keep_as(self._bundle.model, _KEPT[kv_type], err), err)
        self._describe()
        return self

    def _describe(self) -> None:
        native, text = lib.pal_model_config_of(self._bundle.model), ffi.new("char[64]")
        names = ("layers", "hidden", "vocab", "vocab_rows", "tied", "mqar", "metaplasticity")
        lib.pal_model_describe(native, text)
        self.kind: str = ffi.string(text).decode()
        self.config: dict[str, Any] = {name: getattr(native, name) for name in names}
        self.layers: list[dict[str, Any]] = [_layer(native, i) for i in range(native.layers)]
        shared = lib.pal_model_mixer(native)  # in a model of several kinds of layers these have no one value
        self.config |= {name: None if shared == ffi.NULL else getattr(shared, name) for name in _MIXER}
        self.config["mlp"] = self.layers[0]["mlp"] if native.blocks == 1 else None
        self.kv_type: str = ffi.string(lib.pal_dtype_name(lib.pal_model_kept_as(self._bundle.model))).decode().lower()
        self.rules: list[str] = [layer["rule"] for layer in self.layers]
        self.parameters = int(lib.pal_model_parameters(self._bundle.model))
        self.fingerprint = f"{lib.pal_model_fingerprint(self._bundle.model):016x}"
        self._reads_text = self._bundle.tokenizer != ffi.NULL
        self._tokenizer: weakref.ref[Tokenizer] | None = None  # it refers to the model, which would never be freed at once

    # What is open and what is closed.

    def _alive(self) -> None:
        if not self._open:
            raise ValueError(f"the model {self.path} is closed")

    @property
    def closed(self) -> bool:
        return not self._open

    def close(self) -> None:
        """Gives the memory back; sessions of the model are closed too. Waits for what another thread does with it."""
        if not getattr(self, "_open", False):
            return
        if self._guard.lost:  # in a forked child, which can neither use nor free what another thread was at work with
            self._open = False
            return
        with self._guard():
            self._open = False
            if self._engine:
                self._engine.close()
                self._engine = None
            lib.pal_bundle_close(self._bundle)

    __del__ = close

    def __reduce__(self) -> Any:
        raise TypeError("a model is neither pickled nor copied; open it again by its path")

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _sessions(self) -> Sessions:
        self._alive()
        if not self._reads_text:
            raise ValueError(f"the model {self.path} was opened without a tokenizer: it writes no text")
        if not self._engine:
            self._engine = Sessions(self, ffi.new("pal_engine_options *", {"context": self._options[0], "variance": self._options[1]}))
        return self._engine

    # Text.

    @property
    def tokenizer(self) -> Tokenizer:
        self._alive()
        if not self._reads_text:
            raise ValueError(f"the model {self.path} was opened without a tokenizer")
        made = self._tokenizer and self._tokenizer()
        if made is None:
            made = Tokenizer(self._bundle.tokenizer, self._bundle.scratch, self._guard, self._alive)
            self._tokenizer = weakref.ref(made)
        return made

    def _ids(self, text: Any) -> np.ndarray:
        self._alive()
        if isinstance(text, (str, bytes)):
            return np.array(self.tokenizer.encode(text), np.uint32)
        return id_array(text, self.config["vocab"], "the model's vocabulary")

    def session(self, memory: str | os.PathLike[str] | None = None) -> Session:
        """A new text with an empty memory, or with one that was saved."""
        made = Session(self)
        return made if memory is None else made.load(memory)

    def generate(self, prompt: Any = "", **options: Any) -> Generation:
        """Continues a prompt: an iterator of tokens, with the options of Session.generate. The session is fresh."""
        return self.session().generate(prompt, **options)

    # Numbers.

    def logits(self, text: Any, *, last: bool = False) -> np.ndarray:
        """Logits [tokens, vocab_rows] after every token of a text, or [vocab_rows] after its last one."""
        ids = self._ids(text).astype(np.int32)
        if not len(ids):
            raise ValueError("the text has no token")
        rows = self.config["vocab_rows"]
        with self._guard():
            self._alive()
            with _observe.Working(self, min(len(ids), _observe.PIECE), len(ids), logits=1 if last else min(len(ids), _observe.PIECE)) as work:
                state = work.state()
                if last:
                    out = np.empty(rows, np.float32)
                    work.read(state, ids, ffi.from_buffer("float[]", out))
                    return out
                out = np.empty((len(ids), rows), np.float32)
                for at in range(0, len(ids), _observe.PIECE):
                    piece = ids[at : at + _observe.PIECE]
                    batch = work.batch(piece)
                    check(lib.pal_model_continue(self._bundle.model, work.work, ffi.new("pal_state *[]", [state]), batch, ffi.NULL,
                                                 len(piece), ffi.from_buffer("float[]", out[at : at + _observe.PIECE]), work.err), work.err)
                return out

    def score(self, context: Any, continuation: Any = None) -> Score:
        """How likely the model finds a continuation after a context; of one text alone, the text after the token that
        begins texts, or, where there is none, after its first token."""
        return self.score_many([(context, continuation)])[0]

    def _request(self, context: Any, continuation: Any) -> tuple[np.ndarray, int]:
        """Ids, and how many of them are scored."""
        if continuation is None:
            context, continuation = ("" if isinstance(context, (str, bytes)) else np.empty(0, np.uint32)), context
        if isinstance(context, (str, bytes)) and type(context) is type(continuation):
            before, whole = self._ids(context), self._ids(context + continuation)  # type: ignore[operator]
        else:
            before, after = self._ids(context), self._ids(continuation)
            whole = np.concatenate([before, after])
        if not len(before) and self._reads_text:
            start = self.tokenizer.bos if self.tokenizer.bos is not None else self.tokenizer.eos
            if start is not None:
                before = np.array([start], np.uint32)
                whole = np.concatenate([before, whole])
        scored = len(whole) - max(1, len(before))
        if scored < 1:
            raise ValueError(f"{continuation!r} after {context!r} has no token that could be scored")
        return whole, scored

    def score_many(self, pairs: Iterable[tuple[Any, Any]], *, progress: Callable[[int, int], Any] | None = None) -> list[Score]:
        """Scores of (context, continuation) pairs; what neighbours have in common is read once. progress gets tokens read, of
        how many; returning False ends the work with palimpsa.Stopped."""
        asked = []
        for pair in pairs:
            if isinstance(pair, (str, bytes)) or len(pair) != 2:
                raise TypeError(f"{pair!r} is not a pair; expected (context, continuation)")
            asked.append(self._request(*pair))
        if not asked:
            return []
        requests = ffi.new("pal_score_request[]", len(asked))
        results, err = ffi.new("pal_score_result[]", len(asked)), ffi.new("pal_error *")
        arrays = [(ids, np.empty(scored, np.float32), np.empty(scored, np.uint8)) for ids, scored in asked]
        for request, (ids, logprobs, likeliest) in zip(requests, arrays):
            request.ids, request.count, request.scored = ffi.from_buffer("uint32_t[]", ids), len(ids), len(logprobs)
            request.logprobs, request.likeliest = ffi.from_buffer("float[]", logprobs), ffi.from_buffer("unsigned char[]", likeliest)
        handle, out = ffi.new_handle(progress), ffi.new("pal_scorer **")
        options = ffi.new("pal_scorer_options *", {"context": max(len(ids) for ids, _ in asked), "progress": lib.palimpsa_go_on,
                                                   "user": handle})
        with self._guard():
            self._alive()
            check(lib.pal_scorer_new(out, self._bundle.model, self._cx, options, err), err)
            try:
                finish(lib.pal_score(out[0], requests, len(asked), results, err), err)
            finally:
                lib.pal_scorer_free(out[0])
        return [Score(r.logprob, r.greedy, ids[len(ids) - len(logprobs) :], logprobs, likeliest.astype(bool))
                for r, (ids, logprobs, likeliest) in zip(results, arrays)]

    # Looking into the memory.

    def observe(self, text: Any) -> _observe.Observation:
        """What every layer's memory holds after a text, and how fast it forgot at every token."""
        return _observe.observe(self, self._ids(text))

    def attribution(self, text: Any, *, layer: int | None = None) -> list[_observe.Reading]:
        """Which tokens wrote what the last token of a text reads, exactly; of every layer that remembers or attends, or of one."""
        return _observe.attribution(self, self._ids(text), layer)

    def windows(self, text: Any, *, progress: Callable[[int, int], Any] | None = None) -> _observe.Windows:
        """The memory window N_t of every layer at every token."""
        return _observe.windows(self, self._ids(text), progress)

    def __repr__(self) -> str:
        if not self._open:
            return f"<palimpsa.Model {self.path}: closed>"
        return f"<palimpsa.Model {self.path}: {self.kind}, {len(self.rules)} layers, {self.parameters} parameters>"

    def _repr_html_(self) -> str:
        from .html import table

        names = ("layers", "hidden", "vocab", "heads", "dk", "dv")
        sizes = [(n, self.config[n]) for n in names if self.config[n] is not None]
        rows = [("kind", self.kind), ("parameters", f"{self.parameters:,}"), *sizes,
                ("rules", ", ".join(f"{self.rules.count(r)} × {r}" for r in dict.fromkeys(self.rules)))]
        return table(self.path, None, rows)
