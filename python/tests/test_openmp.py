# SPDX-License-Identifier: MIT
"""One OpenMP runtime in a process, and which one; and what a wheel brings along."""
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

import palimpsa

HERE = pathlib.Path(palimpsa.__file__).parent
TORCH = importlib.util.find_spec("torch")
SHOW = """
import numpy
q = numpy.ones((1, 64, 4, 16), numpy.float32)
palimpsa.memory.forward("delta", q, q, q, beta=q[..., 0], threads=2)
print(*sorted({line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}), sep="\\n")
"""


def libraries(code):
    done = subprocess.run([sys.executable, "-c", code + SHOW], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [pathlib.Path(line) for line in done.stdout.splitlines() if line.startswith("/")]


def runtimes(found):
    return [p for p in found if p.name.startswith(("libgomp", "libomp", "libiomp"))]


@pytest.mark.skipif(not TORCH, reason="torch is not installed")
@pytest.mark.parametrize("order", ["import palimpsa, torch", "import torch, palimpsa", "import palimpsa"])
def test_torch_and_palimpsa_share_one_runtime(order):
    with_work = order + "\ntorch.ones(1000, 1000) @ torch.ones(1000, 1000)" if "torch" in order else order
    found = runtimes(libraries(with_work))
    assert len(found) == 1 and found[0].parent == pathlib.Path(TORCH.submodule_search_locations[0]) / "lib", found


@pytest.mark.skipif(bool(TORCH), reason="torch is installed")
def test_without_torch_the_runtime_is_ours_or_the_systems():
    found = runtimes(libraries("import palimpsa"))
    own = HERE / "libgomp.so.1"
    assert len(found) == 1 and (found[0] == own.resolve() if own.exists() else HERE not in found[0].parents), found


@pytest.mark.skipif("PALIMPSA_SELF_CONTAINED" not in os.environ, reason="the package was not installed from a wheel of make wheel")
def test_a_wheel_needs_nothing_but_the_c_library():
    """The C++ runtime and the C library are on every machine that wheels are for; everything else comes along."""
    system = ("libc.so", "libm.so", "libgcc_s.so", "libstdc++.so", "libpthread.so", "libdl.so", "librt.so", "ld-linux")
    found = libraries("import palimpsa")
    assert any(p.name.startswith("libdnnl") and p.parent.name == "palimpsa.libs" for p in found), found
    packages = HERE.parent
    stray = [p for p in found if packages not in p.parents and not p.name.startswith(system)]
    python = [p for p in stray if "lib-dynload" in p.parts or p.name.startswith("libpython")]
    needs = {"libz.so", "libffi.so", "libexpat.so", "libbz2.so", "liblzma.so", "libcrypto.so", "libssl.so"}  # of Python's own modules
    assert not [p for p in stray if p not in python and not any(p.name.startswith(n) for n in needs)], stray
