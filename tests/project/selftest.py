#!/usr/bin/env python3
"""`palimpsa selftest` from the outside: it passes on recorded cases at every CPU level, checks every expected tensor, fails
when a number is wrong, and answers damaged cases with a sentence. Reads and writes safetensors with its own few lines."""
import json, pathlib, struct, tempfile

from outside import call, check, golden

SIZES = {"F32": 4, "F64": 8, "I64": 8}


def read(path):
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + length])
    meta = header.pop("__metadata__", {})
    data = raw[8 + length :]
    return meta, {n: [t["dtype"], t["shape"], data[slice(*t["data_offsets"])]] for n, t in header.items()}


def write(path, meta, tensors):
    header, at = {"__metadata__": meta}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def selftest(folder, *options):
    done = call("selftest", folder, "--json", *options, code=(0, 1, 2), findings=True, timeout=1500)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def expected_names(tensors):
    return {n for n in tensors if n.startswith(("out.", "grad."))}


# Every recorded case, at every level that this machine runs.
cases = sorted((golden / "ops").glob("*.safetensors"))
for level in ("ref", "avx2", "avx512"):
    for threads in ("1", "3"):
        code, out, err = selftest(golden, "--cpu", level, "--threads", threads)
        if code == 2 and "supports" in err:
            print(f"{level}: skipped, {err.strip()}")
            continue
        check(code == 0, f"{level}, {threads} threads: exit code {code}: {err or out[-2000:]}")
        result = json.loads(out)
        check(result["failed"] == 0 and result["passed"] >= len(cases), f"{level}: {result['passed']} passed, {result['failed']} failed")
        found = {c["case"]: {t["tensor"] for t in c["tensors"]} for c in result["cases"]}
        for path in cases:
            missing = expected_names(read(path)[1]) - found["ops/" + path.name]
            check(not missing, f"{level}: {path.name}: not checked: {missing}")
        print(f"{level}, {threads} threads: {result['passed']} cases passed, every expected tensor checked")

with tempfile.TemporaryDirectory() as name:
    root = pathlib.Path(name)
    (root / "ops").mkdir()

    # A wrong number must be seen, whatever tensor it is in.
    wrong = 0
    for path in cases:
        meta, tensors = read(path)
        if len(path.read_bytes()) > 40000:
            continue
        for target in sorted(expected_names(tensors)):
            dtype, shape, data = tensors[target]
            values = list(struct.unpack(f"<{len(data) // 8}d", data))
            worst = max(range(len(values)), key=lambda i: abs(values[i]))
            values[worst] = values[worst] * 1.01 + 1e-3
            damaged = dict(tensors)
            damaged[target] = [dtype, shape, struct.pack(f"<{len(values)}d", *values)]
            write(root / "ops" / f"{path.stem}.{wrong:04}.safetensors", meta, damaged)
            wrong += 1
    code, out, err = selftest(root)
    result = json.loads(out)
    check(code == 1 and result["failed"] == wrong, f"{wrong} cases with a wrong number, {result['failed']} failed, exit code {code}")
    print(f"{wrong} wrong numbers: all seen")
    for path in (root / "ops").iterdir():
        path.unlink()

    # A NaN must fail too, and so must garbage, an unknown op and a missing one.
    meta, tensors = read(golden / "ops" / "gla_tiny.safetensors")
    poisoned = dict(tensors)
    poisoned["in.q"] = ["F32", tensors["in.q"][1], struct.pack("<f", float("nan")) + tensors["in.q"][2][4:]]
    write(root / "ops" / "nan.safetensors", meta, poisoned)
    write(root / "ops" / "unknown.safetensors", {"op": "rmsnormal"}, tensors)
    write(root / "ops" / "nameless.safetensors", {}, tensors)
    write(root / "ops" / "nothing_expected.safetensors", meta, {n: t for n, t in tensors.items() if n.startswith("in.")})
    (root / "ops" / "garbage.safetensors").write_bytes(b"\xff" * 100)
    (root / "ops" / "empty.safetensors").write_bytes(b"")
    code, out, err = selftest(root)
    result = json.loads(out)
    check(code == 1 and result["failed"] == 6 and result["passed"] == 0, f"broken cases: exit code {code}, {out}")
    for path in (root / "ops").iterdir():
        path.unlink()

    # Damaged cases: a tensor left out, a tensor cut short or to one number, a tensor of another rank, no attributes. Never a crash.
    count = 0
    for path in cases:
        meta, tensors = read(path)
        if len(path.read_bytes()) > 20000:
            continue
        variants = [({"op": meta["op"]}, tensors)]
        for victim in tensors:
            variants.append((meta, {n: t for n, t in tensors.items() if n != victim}))
            dtype, shape, data = tensors[victim]
            flat = len(data) // SIZES[dtype]
            variants.append((meta, {**tensors, victim: [dtype, [flat], data]}))
            variants.append((meta, {**tensors, victim: [dtype, [1], data[:SIZES[dtype]]]}))
            if shape and shape[0] > 0:
                inner = len(data) // shape[0]
                variants.append((meta, {**tensors, victim: [dtype, [shape[0] - 1] + shape[1:], data[: len(data) - inner]]}))
            if dtype == "I64":
                variants.append((meta, {**tensors, victim: [dtype, shape, struct.pack("<q", 2**40) * flat]}))
        for changed in variants:
            write(root / "ops" / f"{path.stem}.{count:05}.safetensors", *changed)
            count += 1
    code, out, err = selftest(root)
    check(code == 1, f"damaged cases: exit code {code}\n{err[-3000:]}")
    result = json.loads(out)
    check(result["passed"] + result["failed"] == count, f"{count} damaged cases, {result['passed']} + {result['failed']} reported")
    for case in result["cases"]:
        check(case["result"] != "failed" or case.get("why") or any(not t["passed"] for t in case["tensors"]), f"{case['case']}: failed without a reason")
    print(f"{count} damaged cases: {result['failed']} refused or failed with a reason, none crashed")

    # Nothing to run is an error of usage.
    for path in (root / "ops").iterdir():
        path.unlink()
    for folder in (root, root / "absent", golden / "ops" / "gla_tiny.safetensors"):
        code, out, err = selftest(folder)
        check(code == 2 and err.count("\n") == 1 and str(folder) in err, f"{folder}: exit code {code}: {err}")
