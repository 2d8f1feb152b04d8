#!/usr/bin/env python3
"""`--device` from the outside: devices are listed, what cannot run is refused in one sentence, and recorded models give their
numbers on the first device, such as PoCL's. Without OpenCL the program is as it was."""
import json, os, pathlib, shutil, tempfile

from outside import call, check, golden, run

# Without OpenCL: no device, and a sentence for who asks for one.
nowhere = dict(os.environ, PALIMPSA_OPENCL="/nonexistent/libOpenCL.so")
check(json.loads(run("devices", "--json", env=nowhere)) == [], "there are devices without OpenCL")
check(b"OpenCL finds no device here" in run("devices", env=nowhere), "no devices: nothing is said")
said = run("selftest", "--device", "opencl:0", code=2, env=nowhere)
check("there is no OpenCL here: /nonexistent/libOpenCL.so was not found" in said, said)
call("selftest", "--device", "cpu", env=nowhere)

said = run("selftest", "--device", "gpu", code=2)
check("device 'gpu': expected cpu, opencl or opencl:N" in said, said)

devices = json.loads(run("devices", "--json"))
usable = [d["device"] for d in devices if d["usable"]]
if not usable:
    print("skipped: there is no OpenCL device here")
    raise SystemExit
said = run("selftest", "--device", f"opencl:{len(devices)}", code=2)
check(f"OpenCL finds {len(devices)} device" in said and "numbered from opencl:0" in said, said)
if all(d["cpu"] for d in devices):
    said = run("selftest", "--device", "opencl", code=2)
    check("none is a usable GPU" in said, said)

checked = run("devices", "--check", timeout=900).decode()
check(checked.count(": passed") == 11 * len(usable) and "FAILED" not in checked, checked)

with tempfile.TemporaryDirectory() as name:
    root = pathlib.Path(name)
    for folder, models in ("models", ("palimpsa_d", "palimpsa_m", "hybrid_m", "transformer", "gated_deltanet")), ("families", ("lfm2", "granite_4_h", "qwen3_5_published")):
        (root / folder).mkdir()
        for model in models:
            shutil.copytree(golden / folder / model, root / folder / model)
    done = call("selftest", root, "--json", "--device", usable[0], timeout=1500)
    cases = {c["case"]: c for c in json.loads(done.stdout)["cases"]}
    for case, found in cases.items():
        check(found["result"] == "passed", f"{case} on {usable[0]}: {found}")
        check(any(t["tensor"].startswith("logits") for t in found["tensors"]), f"{case}: no logits were compared")
    (root / "text").write_text("A text that is read once. " * 60)
    call("train", "--task", "text", "--data", root / "text", "--tokenizer", "bytes", "--model", "palimpsa-d", "--rule", "longhorn", "--hidden", 32, "--layers", 1,
         "--heads", 2, "--head-dim", 16, "--batch", 1, "--context", 32, "--steps", 1, "--out", root / "run")
    said = run("generate", root / "run", "--prompt", "A", "--device", usable[0], code=2)
    check("the memory rule 'longhorn', for which a device has no kernels" in said, said)
    print(f"{usable[0]}: {len(cases)} models give their recorded numbers")
