#!/usr/bin/env python3
"""`palimpsa generate --chat`: prompts are messages, standard output has what is said and what is called, a conversation waits for results and reads only what is new."""
from serving import program, run, tool_model, writes

import json, pathlib, re, subprocess, tempfile

TEMPLATES = pathlib.Path(__file__).resolve().parents[1] / "templates"
MARKS = ["<|im_start|>", "<|im_end|>"]


def talk(model, lines, *options):
    """What a conversation prints, and how many tokens the memory had read after each answer."""
    done = subprocess.run([program, "generate", model, "--chat", "--interactive", "--max-tokens", "200", *map(str, options)], input="".join(line + "\n" for line in lines).encode(), capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode(), [int(n) for n in re.findall(rb", (\d+) tokens read", done.stderr)], done.stderr.decode()


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    model = tool_model(folder, (TEMPLATES / "json_tags.jinja").read_text(), MARKS)
    call, thought, tools = folder / "call.gbnf", folder / "thought.gbnf", folder / "tools.json"
    call.write_text(writes('I look.\n<tool_call>\n{"name": "now", "arguments": {"zone": "caf\u00e9"}}\n</tool_call>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'))
    thought.write_text(writes("<think>\nhm\n</think>\n\nIt is noon."))
    tools.write_text(json.dumps([{"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}]))
    G = ["generate", model, "--chat", "--prompt", "Time?", "--max-tokens", 200]

    # What is said and called is the output; thinking is not.
    assert run(*G, "--tools", tools, "--grammar", call).decode() == 'I look.\nnow({"zone": "caf\u00e9"})\nnow({})'
    assert "<tool_call>" in run(*G, "--grammar", call).decode()
    done = subprocess.run([program, *map(str, G), "--grammar", str(thought)], capture_output=True)
    assert done.stdout == b"It is noon." and b"hm\n" in done.stderr, done
    said = json.loads(run(*G, "--tools", tools, "--grammar", call, "--system", "Be brief.", "--json"))
    assert said["message"]["content"] == "I look." and [c["function"]["arguments"] for c in said["message"]["tool_calls"]] == ['{"zone": "caf\u00e9"}', "{}"], said
    assert said["prompt_tokens"] > json.loads(run(*G, "--grammar", call, "--json"))["prompt_tokens"]
    prompts = folder / "prompts"
    prompts.write_text("Time?\nAnd?\n")
    both = run("generate", model, "--chat", "--prompts", prompts, "--grammar", thought, "--max-tokens", 200).decode()
    assert both == "It is noon.\nIt is noon.\n", both

    # The template is the model's own, or another; its prompt is what chat-template shows.
    messages = folder / "messages.json"
    for options, template in (((), folder / "own.jinja"), (("--chat-template", "chatml"), None), (("--chat-template", folder / "other.jinja"), folder / "other.jinja")):
        (folder / "own.jinja").write_text((TEMPLATES / "json_tags.jinja").read_text())
        (folder / "other.jinja").write_text("{{ messages[0].content }}: ")
        messages.write_text(json.dumps([{"role": "user", "content": "Time?"}]))
        shown = run("chat-template", template, "--messages", messages) if template else b"<|im_start|>user\nTime?<|im_end|>\n<|im_start|>assistant\n"
        ids = run("tokenize", "--tokenizer", model, "--encode", shown).split()
        answer = json.loads(run(*G, "--json", *options))
        assert answer["prompt_tokens"] == len(ids), (options, answer, len(ids))

    (folder / "published").mkdir()  # a model directory has its template in it
    (folder / "published/chat_template.jinja").write_text((folder / "other.jinja").read_text())
    assert run("chat-template", folder / "published", "--messages", messages) == shown == b"Time?: "

    # A conversation: what is typed after a call is its result; the memory goes along while the template only adds to it.
    out, read, _ = talk(model, ["Time?", "noon", "in Oslo", "x", "y"], "--tools", tools, "--grammar", call)
    assert out.count("now({})") == 3 and len(read) == 3, out  # a question, and twice two results: three answers
    alone = talk(model, ["Time?"], "--tools", tools, "--grammar", call)[1]
    assert read[0] == alone[0] and read[0] < read[1] < read[2], read
    out, read, errors = talk(model, ["Time?", "/reset", "Time?", "/help", "/quit", "never"], "--grammar", thought)
    assert out == "It is noon.\nIt is noon.\n" and read[0] == read[1] and "[a new conversation]" in errors, (out, read)

    # Mistakes.
    for options, why in ((["--tools", tools, "--chat-template", "plain"], "does not take tools"), (["--tools", messages], "function"), (["--chat-template", folder / "none"], "chatml, llama2, plain"),
                         (["--chat-template", messages, "--bos"], "--bos"), (["--uncertainty"], "--uncertainty")):
        assert why in run(*G, *options, code=2), (options, why)
    assert "--chat" in run("generate", model, "--prompt", "a", "--tools", tools, code=2)
    assert "--load-memory" in run("generate", model, "--chat", "--interactive", "--load-memory", tools, code=2)
    (folder / "broken.jinja").write_text("{% for %}")
    assert "line 1" in run(*G, "--chat-template", folder / "broken.jinja", code=2)
    print("generate_chat: as promised")
