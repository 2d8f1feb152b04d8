# SPDX-License-Identifier: MIT
"""Text to ids and back."""
from __future__ import annotations

import os
from typing import Any, Callable, Sequence

import numpy as np

from ._library import Guard, check, ffi, lib, path_bytes

__all__ = ["Tokenizer"]


def id_array(ids: Any, size: int, what: str) -> np.ndarray:
    """Whole numbers from 0 to size-1, as the library takes them."""
    found = np.asarray(ids)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise TypeError(f"ids are a {found.dtype} array {list(found.shape)}; expected a list of whole numbers")
    if found.size and not (0 <= int(found.min()) and int(found.max()) < size):
        wrong = found[(found < 0) | (found >= size)][0]
        raise ValueError(f"id {wrong}: {what} has 0 to {size - 1}")
    return np.ascontiguousarray(found, np.uint32)


class Tokenizer:
    """`Tokenizer.open(spec)`: a tokenizer.json, tokenizer.model, vocab.json with merges.txt, a GGUF file, a directory with
    one of these, or "bytes". A model's own is `model.tokenizer`."""

    def __init__(self, pointer: Any, scratch: Any, guard: Guard, owner: Callable[[], Any]) -> None:
        self._pointer, self._scratch, self._guard, self._owner = pointer, scratch, guard, owner

    @classmethod
    def open(cls, spec: str | os.PathLike[str]) -> Tokenizer:
        err, out, scratch = ffi.new("pal_error *"), ffi.new("pal_tokenizer **"), ffi.new("pal_tokenizer_scratch **")
        check(lib.pal_tokenizer_open(out, path_bytes(spec), err), err)
        pointer = ffi.gc(out[0], lib.pal_tokenizer_close)
        check(lib.pal_tokenizer_scratch_new(scratch, pointer, err), err)

        def free(made: Any, keep: Any = pointer) -> None:  # a scratch goes before its tokenizer
            lib.pal_tokenizer_scratch_free(made)

        return cls(pointer, ffi.gc(scratch[0], free), Guard(), lambda: None)

    def encode(self, text: str | bytes, *, add_special: bool = False, special_as_text: bool = False) -> list[int]:
        """Ids of a text. add_special puts the template's tokens (BOS, EOS) around it; special_as_text reads
        "<|endoftext|>" in the text as text."""
        if not isinstance(text, (str, bytes)):
            raise TypeError(f"a text is a {type(text).__name__}; expected str or bytes")
        raw = text.encode() if isinstance(text, str) else text
        err, ids = ffi.new("pal_error *"), ffi.new("pal_ids *")
        options = ffi.new("pal_encode_options *", [bool(add_special), bool(special_as_text)])
        with self._guard():
            self._owner()
            try:
                check(lib.pal_tokenizer_encode(self._pointer, self._scratch, raw, len(raw), options, ids, err), err)
                return list(ffi.unpack(ids.data, ids.count)) if ids.count else []
            finally:
                lib.pal_ids_free(ids)

    def decode_bytes(self, ids: Sequence[int] | np.ndarray, *, skip_special: bool = False) -> bytes:
        with self._guard():
            self._owner()
            given = id_array(ids, lib.pal_tokenizer_size(self._pointer), "the tokenizer")
            err, text = ffi.new("pal_error *"), ffi.new("pal_bytes *")
            try:
                check(lib.pal_tokenizer_decode(self._pointer, ffi.from_buffer("uint32_t[]", given), len(given),
                                               bool(skip_special), text, err), err)
                return bytes(ffi.buffer(text.data, text.size)) if text.size else b""
            finally:
                lib.pal_bytes_free(text)

    def decode(self, ids: Sequence[int] | np.ndarray, *, skip_special: bool = False) -> str:
        """The text of ids; bytes that are not whole character become U+FFFD."""
        return self.decode_bytes(ids, skip_special=skip_special).decode(errors="replace")

    def _ask(self, function: Any, *given: Any) -> Any:
        with self._guard():
            self._owner()
            return function(self._pointer, *given)

    def __len__(self) -> int:
        return int(self._ask(lib.pal_tokenizer_size))

    @property
    def kind(self) -> str:
        return str(ffi.string(self._ask(lib.pal_tokenizer_kind)).decode())

    @property
    def bos(self) -> int | None:
        """The id that begins a text, if there is one."""
        found = int(self._ask(lib.pal_tokenizer_bos))
        return None if found < 0 else found

    @property
    def eos(self) -> int | None:
        """The id that ends a text, if there is one."""
        found = int(self._ask(lib.pal_tokenizer_eos))
        return None if found < 0 else found

    @property
    def fingerprint(self) -> str:
        return f"{self._ask(lib.pal_tokenizer_fingerprint):016x}"

    def name(self, id: int) -> str:
        """An id as the file spells it; empty for an id that does not exist."""
        found = self._ask(lib.pal_tokenizer_name, int(id) if 0 <= id < 2**32 else 2**32 - 1)
        return bytes(ffi.buffer(found.data, found.size)).decode(errors="replace") if found.size else ""

    def find(self, name: str) -> int | None:
        """The id of a name."""
        if "\0" in name:
            return None  # the library would read it up to there
        found = int(self._ask(lib.pal_tokenizer_find, name.encode()))
        return None if found < 0 else found

    def is_special(self, id: int) -> bool:
        return bool(self._ask(lib.pal_tokenizer_is_special, int(id)))

    def __repr__(self) -> str:
        try:
            return f"<palimpsa.Tokenizer: {self.kind}, {len(self)} ids>"
        except ValueError:
            return "<palimpsa.Tokenizer: closed>"
