#!/usr/bin/env python3
"""chat_templates_golden.py PALIMPSA TEMPLATES GOLDEN: renders the message sets of GOLDEN/messages.json with every
TEMPLATES/*.jinja and compares each with what Python's jinja2 made of it, in GOLDEN/rendered. Where jinja2 raised,
palimpsa has to refuse."""
import json, pathlib, subprocess, sys, tempfile

palimpsa, templates, golden = sys.argv[1:4]
sets = json.loads((pathlib.Path(golden) / "messages.json").read_text())
paths = sorted(pathlib.Path(templates).glob("*.jinja"))
read = equal = refused = 0
failures = []
with tempfile.TemporaryDirectory() as directory:
    for case in sets:
        (pathlib.Path(directory) / case["name"]).write_text(json.dumps({"messages": case["messages"], "tools": case.get("tools")}))
    for path in paths:
        probe = subprocess.run([palimpsa, "chat-template", path], capture_output=True, text=True)
        if probe.returncode:
            failures.append(f"{path.stem}: not read: {probe.stderr.strip()}")
            continue
        read += 1
        expected = {r["case"]: r for r in map(json.loads, (pathlib.Path(golden) / "rendered" / f"{path.stem}.jsonl").read_text().strip().split("\n"))}
        for case in sets:
            command = [palimpsa, "chat-template", path, "--messages", f"{directory}/{case['name']}", "--bos", "<s>", "--eos", "</s>",
                       "--date", "2026-11-18T12:34:56", "--kwargs", json.dumps(case.get("kwargs", {}))]
            if not case.get("add_generation_prompt", True):
                command.append("--no-generation-prompt")
            done = subprocess.run(command, capture_output=True)
            want = expected[case["name"]]
            if "error" in want:
                refused += done.returncode == 2
                if done.returncode != 2:
                    failures.append(f"{path.stem}, {case['name']}: rendered, but jinja2 raised {want['error']}")
            else:
                same = done.returncode == 0 and done.stdout == want["text"].encode()
                equal += same
                if not same:
                    failures.append(f"{path.stem}, {case['name']}: differs: {done.stderr.decode().strip()}")
print(*failures, sep="\n")
print(f"{read} of {len(paths)} templates are read; {equal} results are equal, {refused} are refused on both sides, {len(failures)} differ")
sys.exit(bool(failures) or not paths)
