#!/usr/bin/env python3
"""Chats of the page in a real browser: thinking folded, calls of tools as cards, a person who plays the tools, hostile texts.
   chat.py PROGRAM [--shots DIR] [--web DIR]"""
import json, pathlib, sys, tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "project"))
from serving import tool_model, writes

import harness
from driver import Browser, missing
from harness import HOSTILE, check, option, ready, serving, shot

TEMPLATE = pathlib.Path(__file__).resolve().parents[1] / "templates/json_tags.jinja"
SCRIPT = [
    f"<think>\nI call {HOSTILE}\n</think>\n\nI **look**.\n<tool_call>\n{{\"name\": \"get_weather\", \"arguments\": {{\"city\": \"{HOSTILE} Köln\"}}}}\n</tool_call>\n"
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>',
    "<think>\nso\n</think>\n\nSunny in both.",
    "Bye.",
]
# The model writes what the script says: the page's requests get a grammar on their way.
SCRIPTED = """window.script = arguments[0]; window.asked = [];
const real = window.fetch;
window.fetch = (path, o) => {
    if (path === '/v1/chat/completions') {
        const body = { ...JSON.parse(o.body), grammar: window.script.shift() };
        window.asked.push(body);
        o = { ...o, body: JSON.stringify(body) };
    }
    return real(path, o);
};"""


def talk(b):
    b.click("#tab-chat")
    b.wait("the view", "return !document.querySelector('#view-chat').hidden && document.querySelector('#chat-note').textContent.includes('JSON in <tool_call>')")
    b.js(SCRIPTED, [writes(text) for text in SCRIPT])
    b.click(".chat-setup summary")
    b.type("#chat-system", "Be brief.")
    b.click("#chat-tools-example")
    b.click(".chat-setup summary")
    b.type("#chat-prompt", f"Weather? {HOSTILE}")
    b.click("#chat-send")
    b.wait("two calls", "return document.querySelectorAll('#chat-messages .call form').length === 2")
    check(b.texts("#chat-messages .message h3") == ["System", "You", "Model"], b.texts("#chat-messages .message h3"))
    check(b.js("return document.querySelectorAll('#chat-messages img, #chat-messages b').length") == 0, "what is said is never HTML")
    check(b.js("return document.querySelector('.thinking').open") is False and "I call " + HOSTILE in b.js("return document.querySelector('.thinking p').textContent"), "thinking is folded")
    check(b.js("return document.querySelector('.message.assistant .said').textContent") == "I **look**.", "text stays text")
    check(json.loads(b.js("return document.querySelector('.call pre').textContent")) == {"city": f"{HOSTILE} Köln"}, "arguments are shown")
    check(b.js("return document.querySelector('#chat-send').disabled"), "calls wait for results first")
    shot(b, "chat")
    b.type(".call:nth-of-type(1) textarea", "20 degrees")
    b.click(".call:nth-of-type(1) form button")
    b.wait("one call", "return document.querySelectorAll('#chat-messages .call form').length === 1")
    b.type(".call form textarea", "snow")
    b.click(".call form button")
    b.wait("the answer", "return [...document.querySelectorAll('.message.assistant .said')].at(-1).textContent === 'Sunny in both.' && !document.querySelector('#chat-send').disabled")
    check(b.texts("#chat-messages .message h3") == ["System", "You", "Model", "Result", "Result", "Model"], b.texts("#chat-messages .message h3"))
    b.type("#chat-prompt", "Bye")
    b.key("\ue007")  # Enter
    b.wait("a third answer", "return [...document.querySelectorAll('.message.assistant .said')].at(-1).textContent === 'Bye.'")
    asked = b.js("return window.asked")
    check(len(asked) == 3 and [m["role"] for m in asked[2]["messages"]] == ["system", "user", "assistant", "tool", "tool", "assistant", "user"], asked[2])
    check(asked[1]["messages"][2]["reasoning_content"].startswith("I call") and asked[1]["messages"][3]["content"] == "20 degrees", "all goes back")
    b.click("#chat-new")
    b.wait("an empty list", "return document.querySelectorAll('#chat-messages .message').length === 0")
    # What goes wrong is said, and what was typed stays.
    b.click(".chat-setup summary")
    b.js("document.querySelector('#chat-tools').value = '{'")
    b.click(".chat-setup summary")
    b.type("#chat-prompt", "again")
    b.click("#chat-send")
    b.wait("a notice", "return document.querySelector('#notice').textContent.includes('not JSON') && document.querySelector('#chat-prompt').value === 'again'")
    b.js("document.querySelector('#chat-tools').value = ''; window.script = ['root ::= [a-z]{100000}']")
    b.js("document.querySelector('#chat-tokens').value = 100000")
    b.click("#chat-send")
    b.wait("writing", "return [...document.querySelectorAll('.message.assistant .said')].at(-1)?.textContent.length > 5")
    b.click("#chat-stop")
    b.wait("the end", "return !document.querySelector('#chat-send').disabled && document.querySelectorAll('.message').length === 3")


def main():
    lacks = missing()
    if lacks:
        sys.exit(f"chat.py: {lacks} is not installed; `make test-browser` installs it")
    with tempfile.TemporaryDirectory() as name:
        model = tool_model(pathlib.Path(name), TEMPLATE.read_text(), ["<|im_start|>", "<|im_end|>"])
        b = Browser(patience=60)
        try:
            with serving("serve", model, "--port", 0, "--threads", 1) as base:
                b.open(base + "/")
                ready(b)
                talk(b)
                noise = b.console()
                check(noise == [], f"the console is silent: {noise}")
        finally:
            b.close()
    print(f"{harness.checks} checks of chats in a browser passed")


main()
