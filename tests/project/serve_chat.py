#!/usr/bin/env python3
"""Chats of `palimpsa serve`: templates survive conversion and training, every id that ends a text ends an answer, and what people say stays text."""
from serving import chat_model, run, serving, speaking_model

import json, pathlib, shutil, tempfile

IM_START, IM_END, BOS, EOS = 96, 97, 98, 99  # ids of chat_model
CHATML = "{% for m in messages %}{{'<|im_start|>' + m['role'] + '<|im_end|>'}}"
TALK = [{"role": "user", "content": "Hi"}]


def prompt(s, messages=TALK):
    """The ids of a chat's prompt, from the server's own observation of it."""
    return [i for i, _ in s.stream("/v1/observe", messages=messages, max_tokens=0)[0]["prompt"]]


def keep_template(folder, hybrid):
    given = chat_model(folder, hybrid, [{"name": "tool_use", "template": "other"}, {"name": "default", "template": CHATML}])
    (given / "generation_config.json").write_text(json.dumps({"eos_token_id": [EOS, IM_END]}))
    (folder / "text").write_text("some text to learn " * 400)
    steps = {"a.gguf": given, "b.gguf": folder / "a.gguf", "c": folder / "b.gguf", "d.gguf": folder / "c"}
    for target, source in steps.items():
        run("convert", source, folder / target, "--to", "gguf" if target.endswith("gguf") else "palimpsa", *(["--dtype", "q8_0"] if target == "b.gguf" else []))
    run("tokenize", folder / "text", "--tokenizer", given / "tokenizer.json", "--out", folder / "data", "--valid", 0.1)
    (folder / "data/tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))  # as older programs left it
    train = ("train", "--task", "text", "--model", given, "--data", folder / "data", "--row", 64, "--context", 64, "--batch", 1, "--steps")
    run(*train, 4, "--out", folder / "run", "--stop-after", 2)
    run(*train, 4, "--out", folder / "run", "--resume")
    run("convert", folder / "run", folder / "trained.gguf")
    for model in (given, *(folder / name for name in steps), folder / "run", folder / "trained.gguf"):
        with serving(model) as s:
            assert prompt(s)[:2] == [IM_START, ord("u") - 33], model
            end = s.complete(prompt="a", max_tokens=5, logit_bias={str(IM_END): 100})["choices"][0]
            assert end["finish_reason"] == "stop" and not end["text"], (model, end)
    config = json.loads((folder / "c/tokenizer_config.json").read_text())
    assert {t["name"]: t["template"] for t in config["chat_template"]} == {"tool_use": "other", "default": CHATML}, config


def every_end(folder, hybrid):
    def finish(s, token, **more):
        return s.complete(prompt="a", max_tokens=5, logit_bias={str(token): 100}, **more)["choices"][0]["finish_reason"]

    for file, value in (("config.json", IM_END), ("config.json", [7, IM_END]), ("generation_config.json", [IM_END, EOS])):
        model = chat_model(folder, hybrid)
        path = model / file
        path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), "eos_token_id": value}))
        with serving(model) as s:
            assert [finish(s, t) for t in (EOS, IM_END, IM_START, 7)] == ["stop", "stop", "length", "length"], (file, value)
            assert finish(s, IM_END, ignore_eos=True) == "length"
    with serving(chat_model(folder, hybrid), "--chat-template", "chatml") as s:
        assert finish(s, IM_END) == "length"  # nothing says that it ends a text, but the template ends answers with it
        chat = dict(messages=TALK, max_tokens=6, logit_bias={str(IM_END): 100})
        answer = s.post("/v1/chat/completions", **chat)
        assert answer["choices"][0]["finish_reason"] == "stop" and answer["usage"]["completion_tokens"] == 1, answer
        assert s.post("/v1/chat/completions", **chat, ignore_eos=True)["choices"][0]["finish_reason"] == "stop"
        assert finish(s, IM_START, stop=["x", "<|im_start|>"]) == "stop"


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    hybrid, attention = speaking_model(folder)
    for test in (keep_template, every_end):
        (folder / test.__name__).mkdir()
        test(folder / test.__name__, hybrid)
    print("serve_chat: as promised")
