# SPDX-License-Identifier: MIT
"""Texts with their memories: reading, writing, forks, files."""
from __future__ import annotations

import json
import math
import os
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Sequence

import numpy as np

from ._library import check, ffi, lib, path_bytes, raise_kept

if TYPE_CHECKING:
    from .model import Model

__all__ = ["Generation", "Session", "Token"]


class Token(NamedTuple):
    """A token that a model wrote. logprob, variance and alternatives are the model's own, before temperature and filters."""

    id: int
    text: str  # what can be shown now: whole characters, nothing that may become a stop string
    logprob: float
    variance: float  # how uncertain the memory's answer was; NaN where no layer can say
    alternatives: tuple[tuple[int, float], ...] = ()  # the likeliest ids with their logprobs, likeliest first

    @property
    def probability(self) -> float:
        return math.exp(self.logprob)


class Sessions:
    """What a model's sessions share: the engine that steps them, and their pointers. A session that is collected or closed leaves
    its pointer in `dead`, because collection may happen while the engine runs."""

    def __init__(self, model: Model, options: Any) -> None:
        self.guard, self.open = model._guard, True
        out, err = ffi.new("pal_engine **"), ffi.new("pal_error *")
        check(lib.pal_engine_new(out, model._bundle.model, model._bundle.tokenizer, model._cx, options, err), err)
        self.engine = out[0]
        self.alive: set[Any] = set()
        self.dead: deque[Any] = deque()
        self.running: Any = None  # the one that steps are for; all others pause

    def run(self, pointer: Any) -> None:
        if self.running is not None:
            lib.pal_session_pause(self.running, True)
        lib.pal_session_pause(pointer, False)
        self.running = pointer

    def pause(self, pointer: Any) -> None:
        lib.pal_session_pause(pointer, True)
        if self.running is pointer:
            self.running = None

    def new(self) -> Any:
        self.reap()
        out, err = ffi.new("pal_session **"), ffi.new("pal_error *")
        check(lib.pal_session_new(out, self.engine, err), err)
        self.alive.add(out[0])
        return out[0]

    def reap(self) -> None:
        while self.dead:
            pointer = self.dead.popleft()
            if pointer in self.alive:
                if self.running is pointer:
                    self.running = None
                self.alive.remove(pointer)
                lib.pal_session_free(pointer)

    def reap_if_free(self) -> None:
        """What is dropped is freed at once, unless the model is at work now: then by the next call."""
        lock = self.guard.free()
        if lock is not None:
            try:
                if self.open:
                    self.reap()
            finally:
                lock.release()

    def close(self) -> None:
        self.open = False
        for pointer in self.alive:
            lib.pal_session_free(pointer)
        self.alive.clear()
        lib.pal_engine_free(self.engine)


class Generation(Iterator[Token]):
    """Tokens as they are written. `text` is everything so far, `finish` why the text ended: "length", "eos", "stop",
    "context", "grammar" (it is complete), or "cancelled" when the session was used for something else meanwhile; None while it continues."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.tokens: list[Token] = []
        self.finish: str | None = None
        self._parts: list[str] = []
        self._waiting: deque[Token] = deque()
        self._error: str | None = None

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def _take(self, token: Any) -> None:
        text, top, finish = token.text, token.top_count, token.finish
        shown = ffi.buffer(text.data, text.size)[:].decode(errors="replace") if text.size else ""
        if finish:
            self.finish = ffi.string(lib.pal_finish_name(finish)).decode()
            if finish == lib.PAL_FINISH_ERROR:
                self._error = ffi.string(token.error).decode(errors="replace")
                return
        self._parts.append(shown)
        if token.id >= 0:
            others = tuple((token.top[i].id, token.top[i].logprob) for i in range(top)) if top else ()
            self._waiting.append(Token(token.id, shown, token.logprob, token.variance, others))

    def _add(self, rest: str) -> None:
        self._parts.append(rest)
        if self._waiting:
            self._waiting[-1] = self._waiting[-1]._replace(text=self._waiting[-1].text + rest)

    def __iter__(self) -> Generation:
        return self

    def __next__(self) -> Token:
        while True:
            try:
                token = self._waiting.popleft()
                break
            except IndexError:  # none yet, or another thread took it
                pass
            if self._error:
                raise FloatingPointError(self._error)
            if self.finish:
                raise StopIteration
            self.session._step(self)
        self.tokens.append(token)
        return token

    def all(self) -> str:
        """Writes to the end; the text."""
        for _ in self:
            pass
        return self.text

    def __reduce__(self) -> Any:
        raise TypeError("a generation is neither pickled nor copied; its text and tokens are")

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<palimpsa.Generation: {len(self.tokens)} tokens, {self.finish or 'not finished'}>"

    def _repr_html_(self) -> str:
        """The tokens so far, the less likely the darker; the tip says probability and variance."""
        from .html import tokens_html

        return tokens_html(self.tokens)


class Session:
    """A text with its memory, which has the same size for any length (attention layers are the exception)."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._current: weakref.ref[Generation] | None = None
        self._handle: Any = None  # what the library calls
        with model._guard():
            self._of = model._sessions()
            self._pointer: Any = self._of.new()

    def _live(self) -> Any:
        """Under the model's guard: the pointer, or a sentence."""
        self.model._alive()
        if self._pointer is None:
            raise ValueError("this session is closed")
        if self._of.dead:
            self._of.reap()
        return self._pointer

    def _idle(self) -> Any:
        current = self._current and self._current()
        if current and not current.finish:
            current.finish = "cancelled"
        return self._live()

    def _begin(self, ids: np.ndarray, options: Any) -> Generation:
        made = Generation(self)
        err = ffi.new("pal_error *")
        current = weakref.ref(made)  # nothing refers in a circle: what is dropped is freed at once

        def take(token: Any) -> None:
            generation = current()
            if generation is not None:
                generation._take(token)

        handle = ffi.new_handle(take)
        options.on_token, options.user = lib.palimpsa_on_token, handle
        pointer = self._idle()
        check(lib.pal_session_begin(pointer, ffi.from_buffer("uint32_t[]", ids), len(ids), options, err), err)
        self._of.pause(pointer)  # until a token is requested
        self._current, self._handle = current, handle
        return made

    def _step(self, generation: Generation) -> None:
        """This runs for every token: what is usual comes first."""
        with self.model._guard():
            pointer, of = self._live(), self._of
            if self._current is None or self._current() is not generation:
                generation.finish = generation.finish or "cancelled"
                return
            if of.running is not pointer:
                of.run(pointer)
            lib.pal_engine_step(of.engine)
            try:
                raise_kept()
            except BaseException:  # Ctrl-C while a token was taken, which is lost
                lib.pal_session_cancel(pointer)
                generation.finish = generation.finish or "cancelled"
                raise
            if not generation._waiting and not generation.finish and not lib.pal_session_busy(pointer):  # it has only read
                generation.finish = "length"
            if generation.finish:  # the bytes of a character that will not be finished are part of the text
                rest = lib.pal_session_rest(pointer)
                if rest.size:
                    generation._add(ffi.buffer(rest.data, rest.size)[:].decode(errors="replace"))

    def _ids(self, prompt: str | bytes | Sequence[int] | np.ndarray) -> np.ndarray:
        with self.model._guard():
            state = lib.pal_session_state(self._live())
            fresh = lib.pal_state_position(state) == 0 and lib.pal_state_pending(state) < 0
        ids = self.model._ids(prompt)
        if fresh and not len(ids):
            start = self.model.tokenizer.bos
            start = self.model.tokenizer.eos if start is None else start
            if start is None:
                raise ValueError("the prompt is empty, and this tokenizer has no token to begin a text with")
            ids = np.array([start], np.uint32)
        return ids

    def generate(self, prompt: str | bytes | Sequence[int] | np.ndarray = "", *, max_tokens: int = 128,
                 temperature: float = 0.8, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0,
                 repetition_penalty: float = 1.0, presence_penalty: float = 0.0, frequency_penalty: float = 0.0,
                 stop: str | Sequence[str] | None = (), seed: int = 1, ignore_eos: bool = False,
                 alternatives: int = 0, json_schema: Any = None, grammar: str | None = None) -> Generation:
        """Appends the prompt to what the memory holds and generates: an iterator of tokens. Temperature 0 always takes the
        likeliest. With a JSON Schema (a mapping, or its text) or the rules of a grammar the text follows it."""
        ids = self._ids(prompt)
        stops = [stop] if isinstance(stop, str) else list(stop or ())
        if any(not isinstance(s, str) or not s or "\0" in s for s in stops):
            raise ValueError("stop expects texts that are not empty and have no zero byte")
        for name, number in (("max_tokens", max_tokens), ("top_k", top_k), ("alternatives", alternatives)):
            if not isinstance(number, (int, np.integer)) or not -(2**31) <= number < 2**31:
                raise ValueError(f"{name} is {number!r}; expected a whole number")
        if not isinstance(seed, (int, np.integer)):
            raise ValueError(f"seed is {seed!r}; expected a whole number")
        options = ffi.new("pal_session_options *")
        sampling = options.sampling
        sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p = temperature, top_k, top_p, min_p
        sampling.repetition_penalty = repetition_penalty
        sampling.presence_penalty, sampling.frequency_penalty = presence_penalty, frequency_penalty
        options.seed, options.max_tokens, options.ignore_eos = int(seed) % 2**64, int(max_tokens), bool(ignore_eos)
        options.logprobs, options.alternatives = True, alternatives
        texts = [ffi.new("char[]", s.encode()) for s in stops]
        listed = ffi.new("char *[]", texts)
        options.stop, options.stop_count = ffi.cast("const char *const *", listed), len(texts)
        followed = _grammar(json_schema, grammar)
        options.grammar = ffi.NULL if followed is None else followed
        with self.model._guard():
            begun = self._begin(ids, options)
            self._grammar = followed
            return begun

    def read(self, text: str | bytes | Sequence[int] | np.ndarray) -> Session:
        """Appends a text to what the memory holds; returns the session."""
        ids = self._ids(text)
        options = ffi.new("pal_session_options *")
        with self.model._guard():
            reading = self._begin(ids, options)
        for _ in reading:
            pass
        return self

    def fork(self) -> Session:
        """Another session with a copy of the memory. What this one was writing is cancelled."""
        made = Session(self.model)
        made.roll_back(self)
        return made

    def roll_back(self, to: Session) -> None:
        """The memory becomes a copy of that of `to`, a fork that was taken before."""
        if not isinstance(to, Session) or to.model is not self.model:
            raise ValueError("a session takes the memory of a session of the same model")
        err = ffi.new("pal_error *")
        with self.model._guard():
            check(lib.pal_session_copy(self._idle(), to._idle(), err), err)

    def reset(self) -> None:
        """Empties the memory."""
        with self.model._guard():
            lib.pal_session_reset(self._idle())

    def save(self, path: str | os.PathLike[str]) -> None:
        """The memory in one file, which only the same model accepts."""
        err = ffi.new("pal_error *")
        with self.model._guard():
            check(lib.pal_session_save(self._idle(), path_bytes(path), err), err)

    def load(self, path: str | os.PathLike[str]) -> Session:
        err = ffi.new("pal_error *")
        with self.model._guard():
            check(lib.pal_session_load(self._idle(), path_bytes(path), err), err)
        return self

    @property
    def position(self) -> int:
        """Tokens in the memory."""
        with self.model._guard():
            return int(lib.pal_state_position(lib.pal_session_state(self._live())))

    def parts(self, layer: int) -> dict[str, np.ndarray]:
        """The memory of a layer: `mu` and `I` [heads, dv, dk] of palimpsa; `S`, or `H` and `G`, of other rules; of
        attention `K` and `V` [key_heads, tokens, d]."""
        with self.model._guard():
            return state_parts(self.model, lib.pal_session_state(self._live()), layer)

    def close(self) -> None:
        if getattr(self, "_pointer", None) is not None:
            self._of.dead.append(self._pointer)
            self._pointer = None
            self._of.reap_if_free()

    __del__ = close

    def __reduce__(self) -> Any:
        raise TypeError("a session is neither pickled nor copied; fork() copies it, save() keeps it")

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._pointer is None or self.model.closed:
            return "<palimpsa.Session: closed>"
        return f"<palimpsa.Session of {self.model.path}: {self.position} tokens>"


def _grammar(schema: Any, rules: str | None) -> Any:
    """A grammar that frees itself; None without schema and rules."""
    if schema is not None and rules is not None:
        raise ValueError("a text follows json_schema or grammar, not both")
    if schema is None and rules is None:
        return None
    out, err = ffi.new("pal_grammar **"), ffi.new("pal_error *")
    if rules is not None:
        text = rules.encode()
        check(lib.pal_grammar_read(out, text, len(text), err), err)
    else:
        text = (schema if isinstance(schema, str) else json.dumps(schema)).encode()
        check(lib.pal_grammar_from_schema(out, text, len(text), err), err)
    return ffi.gc(out[0], lib.pal_grammar_free)


def state_parts(model: Model, state: Any, layer: int) -> dict[str, np.ndarray]:
    """Copies of the parts of a layer's memory, under the model's guard."""
    layers = model.config["layers"]
    if not isinstance(layer, (int, np.integer)) or not 0 <= layer < layers:
        raise ValueError(f"layer {layer!r}: the model has 0 to {layers - 1}")
    size, err = ffi.new("size_t *"), ffi.new("pal_error *")
    parts: dict[str, np.ndarray] = {}
    for part in range(2):
        name = lib.pal_state_part(state, layer, part, size)
        if name != ffi.NULL:
            parts[ffi.string(name).decode()] = np.empty(size[0], np.float32)
    pointers = [ffi.from_buffer("float[]", x, require_writable=True) for x in parts.values()] + [ffi.NULL] * 2
    check(lib.pal_state_export(state, layer, pointers[0], pointers[1], err), err)
    mixer = model.layers[layer]["mixers"][0]
    if model.rules[layer] == "attention":  # there is room for the whole context
        tokens = lib.pal_state_position(state)
        return {name: x.reshape(mixer["key_heads"], -1, mixer["dk" if name == "K" else "dv"])[:, :tokens].copy() for name, x in parts.items()}
    return {name: x.reshape(mixer["heads"], -1, mixer["dk"]) for name, x in parts.items()}
