#!/usr/bin/env python3
"""record_chat_templates.py SETS: writes tests/golden/chat/templates.json, what transformers makes of message sets with the
templates of tests/templates. SETS: a JSON list of {name, messages, tools, add_generation_prompt, kwargs}; they are recorded, too."""
import json, pathlib, sys

from transformers.utils import chat_template_utils

root = pathlib.Path(__file__).resolve().parents[2]
sets = json.loads(pathlib.Path(sys.argv[1]).read_text())
rendered = {}
for path in sorted((root / "tests/templates").glob("*.jinja")):
    template = chat_template_utils._compile_jinja_template(path.read_text())
    rendered[path.name] = []
    for one in sets:
        try:
            text = template.render(messages=one["messages"], tools=one.get("tools"), documents=None, bos_token="<s>", eos_token="</s>",
                                   add_generation_prompt=one.get("add_generation_prompt", True), **(one.get("kwargs") or {}))
            rendered[path.name].append({"text": text})
        except Exception as error:
            rendered[path.name].append({"error": f"{type(error).__name__}: {error}"})
target = root / "tests/golden/chat/templates.json"
target.write_text("{\"sets\": [\n" + ",\n".join(json.dumps(one, ensure_ascii=False) for one in sets) + "\n],\n\"rendered\": {\n" + ",\n".join(
    f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(one, ensure_ascii=False) for one in all) + "\n]" for name, all in rendered.items()) + "\n}}\n")
print(f"{target}: {len(sets)} sets, {len(rendered)} templates, {sum('error' in one for all in rendered.values() for one in all)} are refused")
