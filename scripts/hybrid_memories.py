#!/usr/bin/env python3
"""What a long conversation costs a hybrid model: reading it, a fork, the first token of the next turn, saving and loading, and branches.

    PYTHONPATH=build/python scripts/hybrid_memories.py MODEL [--tokens 32000] [--kv-type f16]

MODEL may have random weights; tests/interop/random_families.py makes some in published shapes. Times are medians on an idle machine. The speed of the
disk is that of writing and reading the same bytes with the file's pages dropped from RAM in between.
"""
import argparse, os, pathlib, statistics, tempfile, time

import numpy as np, palimpsa

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("model")
options.add_argument("--tokens", type=int, default=32000)
options.add_argument("--kv-type", default="f16")
options.add_argument("--branches", type=int, default=64)
options.add_argument("--branch-tokens", type=int, default=8000)
options.add_argument("--dir", help="where files are saved, on the disk to measure")
a = options.parse_args()
rng = np.random.default_rng(1)


def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def timed(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def median(work, times=7):
    return statistics.median(timed(work)[0] for _ in range(times))


def ids(n):
    return rng.integers(0, 256, n).astype(np.uint32)


def dropped(path):
    """The file's bytes are no longer in RAM."""
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def written_and_read(path, size):
    """Seconds that the disk takes for so many bytes."""
    block = os.urandom(1 << 24)

    def write():
        with open(path, "wb") as f:
            for at in range(0, size, len(block)):
                f.write(block[: min(len(block), size - at)])
            os.fsync(f.fileno())

    def read():
        with open(path, "rb", buffering=0) as f:
            while f.read(1 << 24):
                pass

    written = timed(write)[0]
    dropped(path)
    return written, timed(read)[0]


with palimpsa.Model.open(a.model, "bytes", max_context=a.tokens + 4096, kv_type=a.kv_type) as model, tempfile.TemporaryDirectory(dir=a.dir) as folder:
    session = model.session()
    seconds = timed(lambda: session.read(ids(a.tokens)))[0]
    print(f"{a.model}, keys and values in {a.kv_type}")
    print(f"{a.tokens} tokens: read in {seconds:.1f} s, {a.tokens / seconds:.0f} tokens/s")
    branch = session.fork()

    def answer(new):
        branch.roll_back(session)
        return timed(lambda: branch.generate(ids(new), max_tokens=1, temperature=0).all())[0]

    def steps(count):
        branch.roll_back(session)
        return timed(lambda: branch.generate(ids(1), max_tokens=count, temperature=0).all())[0]

    step = statistics.median((steps(17) - steps(1)) / 16 for _ in range(5))
    print(f"a step there: {1e3 * step:.1f} ms")
    print(f"a fork: {1e3 * median(session.fork):.1f} ms")
    for new in (1, 8, 32):
        first = statistics.median(answer(new) for _ in range(7))
        print(f"first token of a next turn of {new} tokens: {1e3 * first:.1f} ms, {first / step:.2f} steps")
    file = pathlib.Path(folder) / "memory"
    saved = median(lambda: session.save(file), 3)
    size = file.stat().st_size
    dropped(file)
    loaded, _ = timed(lambda: branch.load(file))
    disk = written_and_read(pathlib.Path(folder) / "disk", size)
    print(f"saved: {size / 1e6:.0f} MB in {saved:.2f} s, {size / saved / 1e6:.0f} MB/s; the disk alone {size / disk[0] / 1e6:.0f} MB/s ({disk[0] / saved:.0%})")
    print(f"loaded: {loaded:.2f} s, {size / loaded / 1e6:.0f} MB/s; the disk alone {size / disk[1] / 1e6:.0f} MB/s ({disk[1] / loaded:.0%})")
    branch.close(), session.close()

    root = model.session().read(ids(a.branch_tokens))
    before = resident()
    kept = [root.fork().read(ids(1)) for _ in range(a.branches)]
    grown = (resident() - before) / a.branches
    print(f"{a.branches} branches of {a.branch_tokens} tokens, each one token longer: {grown / 2**20:.1f} MiB each")
