# SPDX-License-Identifier: MIT
"""Training, as `palimpsa train` does it: the same settings, the same run directory, and either continues with the other's runs."""
from __future__ import annotations

import difflib
import operator
import os
import pathlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from ._library import check, context, ffi, finish, lib, path_bytes

if TYPE_CHECKING:
    Path = str | os.PathLike[str]

__all__ = ["TrainProgress", "Trained", "train"]

_FIELDS: dict[str, Any] = {name: field.type for name, field in ffi.typeof("pal_train_settings").fields}
_NOTED = {"threads", "ranks", "weights", "data_checksum"}  # what a run writes into config.json by itself


class TrainProgress(NamedTuple):
    """How far a training is, after an update."""

    step: int  # updates done
    total: int  # the most there will be
    loss: float
    rate: float  # learning rate
    grad_norm: float
    score: float  # of the last evaluation: accuracy, or minus the validation loss; NaN before the first
    tokens_per_s: float
    evaluated: bool  # just now
    sample: str | None  # of text that the evaluation made


@dataclass
class Trained:
    directory: pathlib.Path  # Model.open opens it
    finished: bool  # False: stop_after ended it before
    step: int
    loss: float
    score: float
    best_score: float
    best_step: int
    skipped: int  # updates with a gradient that was not finite
    tokens: int


def _value(name: str, kind: Any, value: Any, kept: list[Any]) -> Any:
    """A setting as its field takes it."""
    if kind.kind == "pointer":
        if isinstance(value, (list, tuple)):
            value = ",".join(os.fsdecode(item) for item in value)
        if not isinstance(value, (str, bytes, os.PathLike)):
            raise TypeError(f"{name} is {value!r}; expected a text")
        kept.append(ffi.new("char[]", path_bytes(value)))
        return kept[-1]
    if kind.cname == "_Bool":
        if not isinstance(value, (bool, int)) or value not in (0, 1):
            raise TypeError(f"{name} is {value!r}; expected True or False")
        return bool(value)
    try:
        return float(value) if kind.cname == "double" else operator.index(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r}; expected a {'number' if kind.cname == 'double' else 'whole number'}") from None


def _settings(given: dict[str, Any], kept: list[Any]) -> Any:
    made, err = ffi.new("pal_train_settings *"), ffi.new("pal_error *")
    task = given.get("task", "mqar")
    if not isinstance(task, str):
        raise TypeError(f"task is {task!r}; expected a text")
    check(lib.pal_train_defaults(made, path_bytes(task), err), err)
    for name, value in given.items():
        if name not in _FIELDS or name in _NOTED:
            near = difflib.get_close_matches(name, _FIELDS.keys() - _NOTED, 1)
            raise TypeError(f"no setting {name!r}" + (f"; did you mean {near[0]!r}?" if near else "; docs/how-to/train.md names them"))
        if value is not None:
            setattr(made, name, _value(name, _FIELDS[name], value, kept))
    if made.steps and made.epochs:
        raise ValueError("either steps or epochs says how long the run is")
    return made


def train(out: Path, *, resume: bool = False, stop_after: int = 0, threads: int | None = None,
          progress: Callable[[TrainProgress], Any] | None = None, **settings: Any) -> Trained:
    """Trains a model into the directory `out`. Settings are the options of `palimpsa train`, with _ for -, such as
    task="text", model="palimpsa-d", data="book.txt", tokenizer="chars", steps=1000; None leaves a default.

    progress is called after every update; when it returns False, or on Ctrl-C, a checkpoint is written before
    palimpsa.Stopped or KeyboardInterrupt is raised. resume continues from the newest checkpoint, with the run's own settings,
    to the same bits as if it had never been stopped. stop_after ends earlier: that many updates in all."""
    if resume and settings:
        raise TypeError(f"resume continues with the run's own settings; found {', '.join(settings)}")
    kept: list[Any] = []
    made = ffi.NULL if resume else _settings(settings, kept)
    report = ffi.new("pal_train_progress *")

    def on_update(_done: int, _total: int) -> Any:
        if progress is None or report.evaluating:  # that this is called at all lets Ctrl-C through
            return True
        sample = None if report.sample == ffi.NULL else ffi.string(report.sample).decode(errors="replace")
        return progress(TrainProgress(report.step, report.total, report.loss, report.rate, report.grad_norm, report.score,
                                      report.tokens_per_s, report.evaluated, sample))

    handle = ffi.new_handle(on_update)
    options = ffi.new("pal_train_run_options *", {"resume": bool(resume), "stop_after": operator.index(stop_after), "report": report,
                                                  "progress": lib.palimpsa_go_on, "user": handle})
    result, err = ffi.new("pal_train_result *"), ffi.new("pal_error *")
    status = lib.pal_train_run(path_bytes(out), made, options, context(threads), result, err)
    by_count = status == lib.PAL_STOPPED and 0 < stop_after <= result.step
    finish(lib.PAL_OK if by_count else status, err)
    return Trained(pathlib.Path(os.fsdecode(out)), not by_count, result.step, result.loss, result.score, result.best_score,
                   result.best_step, result.skipped, result.tokens)
