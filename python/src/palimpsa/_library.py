# SPDX-License-Identifier: MIT
"""The C library: how it is loaded, how many threads it uses, and its errors as exceptions."""
from __future__ import annotations

import ctypes
import errno
import importlib.util
import numbers
import os
import threading
import weakref
from typing import Any


def _one_openmp() -> None:
    """A process with two OpenMP runtimes has two sets of threads that get in each other's way. What loads libgomp.so.1
    first decides whose it is: torch's copy if torch is installed, else the one that a wheel brings along, else the system's."""
    try:
        with open("/proc/self/maps") as maps:
            if "/libgomp.so.1" in maps.read():
                return
    except OSError:
        pass
    torch = importlib.util.find_spec("torch")  # without importing it
    homes = [os.path.join(home, "lib") for home in (torch and torch.submodule_search_locations) or ()] + [os.path.dirname(__file__)]
    for home in homes:
        path = os.path.join(home, "libgomp.so.1")
        if os.path.exists(path):
            ctypes.CDLL(path)
            return


def _load() -> Any:
    """libgomp reads once, when it is loaded, how long its threads spin while they wait; its default makes everything slower
    on a busy machine. Variables that the user has set are left alone, and the environment is as before afterwards."""
    calm = "OMP_WAIT_POLICY" not in os.environ and "GOMP_SPINCOUNT" not in os.environ
    if calm:
        os.environ["GOMP_SPINCOUNT"] = "3000"
    try:
        _one_openmp()
        from . import _native
    finally:
        if calm:
            del os.environ["GOMP_SPINCOUNT"]
    return _native


_native = _load()
ffi, lib = _native.ffi, _native.lib

_EXCEPTIONS: dict[int, type[Exception]] = {
    lib.PAL_E_ARGUMENT: ValueError,
    lib.PAL_E_MEMORY: MemoryError,
    lib.PAL_E_IO: OSError,
    lib.PAL_E_FORMAT: ValueError,
    lib.PAL_E_UNSUPPORTED: NotImplementedError,
}

_contexts: dict[tuple[int, str], Any] = {}
_lock = threading.Lock()
_threads = 0
_forked = False


_guards: weakref.WeakSet[Guard] = weakref.WeakSet()


def _after_fork() -> None:
    global _forked, _lock
    _forked = True  # OpenMP's threads stayed with the parent, and waiting for them would never end
    _lock = threading.Lock()  # another thread may have held it
    for guard in _guards:
        guard.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def exception(status: int, text: str) -> Exception:
    """An OSError gets the number of the system's error that ends its sentence, so that it is a FileNotFoundError, ..."""
    kind = _EXCEPTIONS.get(status, RuntimeError)
    number = next((n for n in errno.errorcode if text.endswith(": " + os.strerror(n))), None) if kind is OSError else None
    return kind(text) if number is None else OSError(number, text)


def check(status: int, err: Any, ffi: Any = ffi) -> None:
    if status:
        raise exception(status, ffi.string(err.text).decode(errors="replace"))


class Stopped(Exception):
    """Long work was ended by its progress function, which returned False."""


_raised = threading.local()


def _keep(_kind: Any, error: BaseException, _trace: Any) -> None:
    _raised.error = error  # no exception passes through C: it waits here until the library has returned


@ffi.def_extern(name="palimpsa_go_on", error=False, onerror=_keep)  # type: ignore[untyped-decorator]
def _go_on(user: Any, done: int, total: int) -> bool:
    progress = ffi.from_handle(user)
    return progress is None or progress(done, total) is not False


@ffi.def_extern(name="palimpsa_on_token", onerror=_keep)  # type: ignore[untyped-decorator]
def _on_token(user: Any, token: Any) -> None:
    ffi.from_handle(user)(token)


@ffi.def_extern(name="palimpsa_on_layer", error=False, onerror=_keep)  # type: ignore[untyped-decorator]
def _on_layer(user: Any, layer: Any) -> bool:
    ffi.from_handle(user)(layer)
    return True


@ffi.def_extern(name="palimpsa_on_reading", error=False, onerror=_keep)  # type: ignore[untyped-decorator]
def _on_reading(user: Any, reading: Any) -> bool:
    ffi.from_handle(user)(reading)
    return True


def raise_kept() -> None:
    """What Python raised while the library called it, Ctrl-C among it."""
    error = getattr(_raised, "error", None)
    if error is not None:
        _raised.error = None
        raise error


def finish(status: int, err: Any) -> None:
    """check, for calls that call Python."""
    raise_kept()
    if status == lib.PAL_STOPPED:
        raise Stopped("stopped by its progress function")
    check(status, err)


def path_bytes(path: Any) -> bytes:
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("a path with a zero byte in it")
    return name


class Guard:
    """`with guard():` is one call of a model at a time, from any thread, and none from its own callbacks. The lock is one
    of C, entered and left without a line of Python: Ctrl-C in between would leave it held."""

    def __init__(self) -> None:
        self._lock: Any = threading.RLock()
        self.lost = False  # in a forked child: a thread that stayed with the parent was at work
        _guards.add(self)

    def __call__(self) -> Any:
        if self._lock._is_owned():
            raise RuntimeError("this model is at work: it cannot be used from its own progress function")
        if self.lost:
            raise RuntimeError("this model was at work in another thread when the process forked; open it again here")
        return self._lock

    def free(self) -> Any:
        """The lock, taken, if nothing is at work; else None."""
        return self._lock if not self.lost and not self._lock._is_owned() and self._lock.acquire(blocking=False) else None

    def after_fork(self) -> None:
        if self._lock._is_owned():
            return
        self.lost = self.lost or not self._lock.acquire(blocking=False)
        if not self.lost:
            self._lock.release()


def usable_threads(threads: int) -> int:
    return 1 if _forked else threads


def context(threads: int | None = None, device: str = "cpu") -> Any:
    """The library's context for so many threads (None: those of set_threads) on a device."""
    n = usable_threads(_threads if threads is None else threads)
    made = _contexts.get((n, device))
    if made is None:
        if not isinstance(n, numbers.Integral) or not 0 <= n <= 1024:
            raise ValueError(f"threads is {n!r}; expected a whole number from 0 (all processors) to 1024")
        with _lock:
            err, out = ffi.new("pal_error *"), ffi.new("pal_context **")
            check(lib.pal_context_new_on(out, n, ffi.NULL, device.encode(), err), err)
            made = _contexts.setdefault((n, device), out[0])  # kept for the life of the process: there are few
    return made


def set_threads(threads: int) -> None:
    """How many threads operations use; 0: PALIMPSA_THREADS, else all processors. A forked child always uses one."""
    global _threads
    context(threads)
    _threads = threads


def get_threads() -> int:
    return int(lib.pal_context_threads(context()))


def devices() -> list[dict[str, Any]]:
    """What can compute in place of the CPU: `device` is the name that Model.open takes."""
    found, count, err = ffi.new("pal_device_info[64]"), ffi.new("int *"), ffi.new("pal_error *")
    check(lib.pal_devices(found, 64, count, err), err)

    def text(field: Any) -> str:
        return str(ffi.string(field).decode(errors="replace"))

    return [{"device": f"opencl:{i}", "name": text(d.name), "platform": text(d.platform), "driver": text(d.driver),
             "version": text(d.version), "memory_bytes": d.memory, "cpu": d.is_cpu, "usable": d.usable, "why_not": text(d.why)}
            for i, d in enumerate(found[0:min(count[0], 64)])]


def version() -> str:
    """Version and matrix backend of the library."""
    return str(ffi.string(lib.pal_version()).decode())
