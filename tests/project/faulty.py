"""For tests that make the program's surroundings fail: PROGRAM is palimpsa_faults (tests/faults/faults.c)."""
import os, pathlib, re, shutil, subprocess, sys, tempfile

from outside import check, golden, program

long_run = bool(os.environ.get("PALIMPSA_TEST_LONG"))
TEXT = " ".join(w for i in range(400) for w in ("the river", "came over", f"hill {i % 37}", "with gold", "and silver\n"))
TRAIN = ("train --task text --data text --tokenizer bytes --model palimpsa-d --hidden 16 --layers 1 --heads 2 --row 32 --context 32 --batch 1 --steps 3 --checkpoint-every 1 "
         "--eval-every 3 --threads 1 --seed 2").split()


def folder_in_memory():
    """A folder for thousands of short commands, which a disk would make wait."""
    return tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


def can_serve():
    """Whether the program was built with the server."""
    return subprocess.run([program, "serve", "--help"], capture_output=True).returncode == 0


def palimpsa(*words, faults="count", folder, log=None, timeout=120):
    """The finished process. Every failure is one sentence; the sanitizers have nothing to say. To be distinguished from process to process, places need
    addresses that stay."""
    environment = {**os.environ, "PALIMPSA_FAULTS": faults, "PALIMPSA_FAULTS_LOG": str(log or "/dev/null")}
    start = ["setarch", "-R"] if faults == "places" and shutil.which("setarch") else []
    done = subprocess.run([*start, program, *map(str, words)], cwd=folder, env=environment, capture_output=True, timeout=timeout)
    lines = [line for line in done.stderr.decode(errors="replace").split("\n") if line.startswith("palimpsa: ") and not line.startswith("palimpsa: warning")]
    what = f"{' '.join(map(str, words))} with {faults}"
    check(done.returncode in (0, 1, 2), f"{what}: ended with {done.returncode}: {done.stderr.decode(errors='replace')[-3000:]}")
    check(b"ERROR: " not in done.stderr and b"runtime error" not in done.stderr, f"{what}: {done.stderr.decode(errors='replace')[:3000]}")
    check(len(lines) == (done.returncode != 0), f"{what}: expected one sentence, found {done.stderr.decode(errors='replace')}")
    done.sentence = lines[0] if lines else ""
    return done


def good(*words, folder, **how):
    done = palimpsa(*words, folder=folder, **how)
    check(done.returncode == 0, f"{' '.join(map(str, words))}: {done.stderr.decode(errors='replace')}")
    return done


def counted(kind, *words, folder, log):
    """How many allocations or calls a command makes when nothing fails."""
    log.unlink(missing_ok=True)
    good(*words, folder=folder, log=log)
    return max(int(n) for n in re.findall(rf"^count {kind} (\d+)$", log.read_text(), re.M))


def places(*words, folder, log):
    """The first allocation of each place that allocates, which is a stack of callers: its number and a hash of the stack."""
    log.unlink(missing_ok=True)
    good(*words, folder=folder, log=log, faults="places")
    return noted(log)


def noted(log):
    return [(int(k), int(callers, 16)) for k, callers in re.findall(r"^place (\d+) ([0-9a-f]+)$", log.read_text(), re.M)]


def shared_out():
    """In a long run a process for each core: this one's number, how many there are, and whom the first waits for in the end."""
    processes, others = (os.cpu_count() or 1) if long_run else 1, []
    while len(others) + 1 < processes:
        others.append(os.fork())
        if not others[-1]:
            return len(others), processes, []
    return 0, processes, others


def wait_for(others):
    failed = [pid for pid in others if os.waitpid(pid, 0)[1]]
    check(not failed, f"{len(failed)} of the other processes failed")


def some(count, most, rng):
    """Numbers from 1 to count: all, or as many as there is time for, the first and the last among them."""
    if "--sanitized" in sys.argv:
        most = max(3, most // 3)
    if long_run or count <= most:
        return range(1, count + 1)
    return sorted({1, count, *rng.sample(range(1, count + 1), most - 2)})


def copied(source, target):
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


def contents(folder, but=()):
    """Every file below a folder by its name; those with times in them are left out."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(pathlib.Path(folder).rglob("*")) if p.is_file() and not any(re.search(b, str(p)) for b in but)}


def strays(folder):
    """Temporaries that were left over."""
    return [str(p) for p in pathlib.Path(folder).rglob("*") if re.search(r"\.[0-9a-f]{8}$|\.tmp$|\.part$", p.name)]
