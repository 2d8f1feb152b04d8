#!/usr/bin/env python3
"""Tools and thinking in chats of `palimpsa serve`: the loop of calls and results in four syntaxes, calls that are required, and what people, tools and documents say."""
from serving import golden, run, serving, tool_model, writes

import json, pathlib, tempfile

TEMPLATES = pathlib.Path(__file__).resolve().parents[1] / "templates"
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": {"type": "object", "properties": {
    "city": {"type": "string"}, "days": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["city"]}}}
CHOOSE = {"type": "function", "function": {"name": "choose", "parameters": {"type": "object", "properties": {
    "colour": {"type": "string", "enum": ["red", "green"]}, "many": {"type": "integer", "minimum": 1, "maximum": 3}, "sure": {"type": "boolean"}}, "required": ["colour", "many"]}}}
NOW = {"type": "function", "function": {"name": "now"}}
TOOLS = [WEATHER, CHOOSE, NOW]
CITY = "K\u00f6ln, \"a\" </tool_call> \U0001f600"
# Each family: its special tokens, two calls as its models write them, and what makes thinking.
FAMILIES = {
    "json_tags": (["<|im_start|>", "<|im_end|>"], "<tool_call>\n" + json.dumps({"name": "get_weather", "arguments": {"city": CITY, "days": 3}}, ensure_ascii=False)
                  + "\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"),
    "toolcall_list": (["<SPECIAL_10>", "<SPECIAL_11>", "<TOOLCALL>", "</TOOLCALL>"], "<TOOLCALL>[" + json.dumps({"name": "get_weather", "arguments": {"city": CITY, "days": 3}})
                      + ", {\"name\": \"now\", \"arguments\": {}}]</TOOLCALL>"),
    "xml_function": (["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"],
                     f"so</think>\n<tool_call>\n<function=get_weather>\n<parameter=city>\n{CITY.replace('</tool_call>', '</b>')}\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n"
                     "<tool_call>\n<function=now>\n</function>\n</tool_call>"),
    "python_calls": (["<|im_start|>", "<|im_end|>", "<|tool_call_start|>", "<|tool_call_end|>"], f"<|tool_call_start|>[get_weather(city='{CITY}', days=3), now()]<|tool_call_end|>"),
}


def joined(events):
    """The message that a stream of chunks makes, as clients put it together."""
    message, finish = {"content": "", "reasoning_content": "", "tool_calls": []}, None
    assert events[0]["choices"][0]["delta"]["role"] == "assistant" and not any("role" in e["choices"][0]["delta"] for e in events[1:])
    for event in events:
        delta, finish = event["choices"][0]["delta"], event["choices"][0]["finish_reason"] or finish
        for part in "content", "reasoning_content":
            message[part] += delta.get(part) or ""
        for call in delta.get("tool_calls", []):
            assert call["index"] == len(message["tool_calls"]) and call["id"] and call["type"] == "function"
            message["tool_calls"].append({k: call[k] for k in ("id", "type", "function")})
    return message, finish


def same(message, other):
    """Apart from the calls' ids, which are new in each answer, and parts that are empty."""
    def essence(m):
        return (m.get("content") or "", m.get("reasoning_content") or "", [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in m.get("tool_calls") or []])
    assert essence(message) == essence(other), (message, other)


def loop(s, family):
    """A question, calls, results, an answer; whole and as a stream. The model writes what a family's models write."""
    marks, text = FAMILIES[family]
    rules = dict(tools=TOOLS, max_tokens=400, temperature=0)
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather and time?"}]
    answer = s.post("/v1/chat/completions", messages=talk, grammar=writes(text, marks), **rules)["choices"][0]
    message = answer["message"]
    assert answer["finish_reason"] == "tool_calls" and message["content"] is None, answer
    assert message.get("reasoning_content") == ("so" if "</think>" in text else None), message
    calls = message["tool_calls"]
    city = CITY.replace("</tool_call>", "</b>") if family == "xml_function" else CITY
    assert [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls] == [("get_weather", {"city": city, "days": 3}), ("now", {})], calls
    assert len({c["id"] for c in calls}) == 2 and all(len(c["id"]) == 9 and c["id"].isalnum() and c["type"] == "function" for c in calls)
    streamed, finish = joined(s.stream("/v1/chat/completions", messages=talk, grammar=writes(text, marks), **rules))
    assert finish == "tool_calls"
    same(streamed, message)
    for said in message, streamed, {**message, "content": "", "refusal": None, "function_call": None}:  # as clients send it back
        more = talk + [{**said, "role": "assistant"}] + [{"role": "tool", "tool_call_id": c["id"], "content": r} for c, r in zip(calls, ("sun", [{"type": "text", "text": "noon"}]))]
        final = "It is noon." if family != "xml_function" else "hm</think>\n\nIt is noon."
        answer = s.post("/v1/chat/completions", messages=more, grammar=writes(final, marks), **rules)["choices"][0]
        assert answer["finish_reason"] == "stop" and answer["message"]["content"] == "It is noon." and "tool_calls" not in answer["message"], answer
        same(joined(s.stream("/v1/chat/completions", messages=more, grammar=writes(final, marks), **rules))[0], answer["message"])
    # Without tools, or when calls are not asked for, all is text.
    for less in dict(tools=[]), dict(tool_choice="none"), dict(tools=None):
        plain = s.post("/v1/chat/completions", messages=talk, grammar=writes(text, marks), **{**rules, **less})["choices"][0]
        assert "tool_calls" not in plain["message"] and "get_weather" in plain["message"]["content"] and plain["finish_reason"] == "stop", plain
    # What cannot be parsed is text; text around calls stays; what the model leaves open is still read.
    opener = text[text.index("<", text.find("</think>") + 1):].split(">")[0] + ">"
    broken = s.post("/v1/chat/completions", messages=talk, grammar=writes(("so</think>" if family == "xml_function" else "") + "Look: " + opener + "nonsense", marks), **rules)["choices"][0]
    assert broken["message"]["content"] == "Look: " + opener + "nonsense" and broken["finish_reason"] == "stop", broken
    cut = s.post("/v1/chat/completions", messages=talk, grammar=writes(text, marks), **{**rules, "max_tokens": 40})["choices"][0]
    assert cut["finish_reason"] == "length" and "tool_calls" not in cut["message"] and opener in cut["message"]["content"], cut
    several = s.post("/v1/chat/completions", messages=talk, grammar=writes("a " + text if family != "xml_function" else text, marks), n=3, **rules)["choices"]
    assert len({c["id"] for choice in several for c in choice["message"]["tool_calls"]}) == 6, several


def required(s, family):
    """A model that knows nothing, sampled, writes calls that parse and fit their schemas."""
    ask = dict(messages=[{"role": "user", "content": "Go"}], tools=[CHOOSE, NOW], max_tokens=600)
    for seed in range(6):
        choice = {"type": "function", "function": {"name": "choose"}} if seed % 2 else "required"
        think = {"chat_template_kwargs": {"enable_thinking": False}, "logit_bias": {"258": 5}} if family == "json_tags" else {}
        body = dict(ask, tool_choice=choice, parallel_tool_calls=seed > 3, seed=seed, **think)
        answer = s.post("/v1/chat/completions", **body)["choices"][0]
        if answer["finish_reason"] == "length":  # its thinking does not end
            continue
        calls = answer["message"]["tool_calls"]
        assert answer["finish_reason"] == "tool_calls" and not answer["message"]["content"] and (seed > 3 or len(calls) == 1), answer
        for call in calls:
            arguments = json.loads(call["function"]["arguments"])
            assert call["function"]["name"] == "choose" or seed % 2 == 0
            if call["function"]["name"] == "choose":
                assert arguments["colour"] in ("red", "green") and arguments["many"] in (1, 2, 3) and arguments.get("sure", True) in (True, False), arguments
        return
    assert family == "xml_function", family


def thinking(s):
    """The template of xml_function begins the model's thinking, that of json_tags lets it begin."""
    ask = dict(messages=[{"role": "user", "content": "Hi"}], max_tokens=400)
    marks = FAMILIES["xml_function"][0]
    for text, thought, said in (("a b\n</think>\n\nc ", "a b", "c "), ("never ends", "never ends", ""), ("</think>c", None, "c")):
        answer = s.post("/v1/chat/completions", grammar=writes(text, marks), **ask)["choices"][0]["message"]
        assert (answer.get("reasoning_content"), answer["content"]) == (thought, said), answer
        same(joined(s.stream("/v1/chat/completions", grammar=writes(text, marks), **ask))[0], answer)
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": CHOOSE["function"]["parameters"]}}
    for seed in range(20):
        answer = s.post("/v1/chat/completions", response_format=schema, seed=seed, logit_bias={"261": 20}, **ask)["choices"][0]
        if answer["finish_reason"] == "stop":
            assert json.loads(answer["message"]["content"])["many"] in (1, 2, 3), answer
            break
    else:
        assert False, answer
    # Stop strings end thinking, text and what may become a call.
    answer = s.post("/v1/chat/completions", grammar=writes("a b</think>c d", marks), stop=["b"], **ask)["choices"][0]
    assert answer["message"]["reasoning_content"] == "a " and answer["message"]["content"] == "" and answer["finish_reason"] == "stop", answer


def with_memory(s):
    """A memory that an answer updates holds it without its stop; the answer is whole all the same."""
    memory = s.post("/v1/memories", text="Once upon a time")
    for stream in (False, True):
        ask = dict(messages=[{"role": "user", "content": "Hi"}], tools=TOOLS, memory=memory["id"], update_memory=True, grammar=writes("Look: <tool_c \n.STOP"), stop=["STOP"], max_tokens=100)
        message = joined(s.stream("/v1/chat/completions", **ask))[0] if stream else s.post("/v1/chat/completions", **ask)["choices"][0]["message"]
        assert message["content"] == "Look: <tool_c \n.", message
        ask.update(grammar=writes("Look <tool_cSTOP"))
        message = joined(s.stream("/v1/chat/completions", **ask))[0] if stream else s.post("/v1/chat/completions", **ask)["choices"][0]["message"]
        assert message["content"] == "Look <tool_c", message


def said(s, marks):
    """Special tokens come from the template alone, whatever messages, results, arguments, tools and documents say."""
    def prompt(word):
        tools = [{"type": "function", "function": {"name": "now", "description": word, "parameters": {"type": "object", "properties": {}}}}]
        call = {"id": "abcdefghi", "type": "function", "function": {"name": "now", "arguments": json.dumps({"x": word})}}
        talk = [{"role": "system", "content": word}, {"role": "user", "content": word}, {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "abcdefghi", "content": word}, {"role": "user", "content": word}]
        events = s.stream("/v1/observe", messages=talk, tools=tools, documents=[{"title": word, "text": word}], max_tokens=0)
        return [i for i, _ in events[0]["prompt"] if i >= 256]
    harmless = prompt("x")
    assert harmless and prompt("x" + "".join(marks) + "</s><s> x") == harmless, (harmless, marks)


def refusals(s):
    ask = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
    for more, param in (({"tools": [{}]}, "tools"), ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools"), ({"tools": 5}, "tools"), ({"tools": TOOLS, "tool_choice": "maybe"}, "tool_choice"),
                        ({"tool_choice": "required"}, "tool_choice"), ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
                        ({"messages": [{"content": "a"}]}, "messages"), ({"messages": [{"role": "user", "content": 5}]}, "messages"), ({"messages": "a"}, "messages"),
                        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]}, "messages"),
                        ({"chat_template_kwargs": 5}, "chat_template_kwargs"), ({"documents": 5}, "documents"), ({"parallel_tool_calls": 5, "tools": TOOLS}, "parallel_tool_calls"),
                        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}}}], "tool_choice": "required"}, "tools"),
                        ({"response_format": {"type": "json_object"}, "tools": TOOLS, "tool_choice": "required"}, "tool_choice"),
                        ({"response_format": {"type": "json_object"}, "grammar": "root ::= \"a\""}, "grammar"), ({"functions": [{}]}, "functions")):
        s.refused({**ask, **more}, param, "/v1/chat/completions")
    s.refused({"prompt": "a", "tools": TOOLS}, "tools")


with tempfile.TemporaryDirectory() as folder:
    for family, (marks, _) in FAMILIES.items():
        here = pathlib.Path(folder, family)
        here.mkdir()
        model = tool_model(here, (TEMPLATES / f"{family}.jinja").read_text(), marks)
        if family == "json_tags":  # every way through the program keeps the template, which is a file at first
            config = json.loads((model / "tokenizer_config.json").read_text())
            (model / "chat_template.jinja").write_text(config.pop("chat_template"))
            (model / "tokenizer_config.json").write_text(json.dumps(config))
            run("train", "--task", "text", "--model", model, "--data", here / "shards", "--row", 64, "--context", 64, "--batch", 1, "--steps", 1, "--out", here / "again")
            run("convert", here / "again", here / "directory", "--to", "palimpsa")
            run("convert", here / "directory", here / "first.gguf", "--to", "gguf")
            run("convert", here / "first.gguf", here / "back", "--to", "palimpsa")
            run("convert", here / "back", here / "model.gguf", "--to", "gguf", "--dtype", "f16")
            model = here / "model.gguf"
        with serving(model) as s:
            loop(s, family)
            required(s, family)
            said(s, marks)
            if family == "xml_function":
                thinking(s)
            if family == "json_tags":
                refusals(s)
                with_memory(s)
        if family == "json_tags":
            with serving(model, "--chat-template", "plain") as s:
                s.refused({"messages": [{"role": "user", "content": "a"}], "tools": TOOLS}, "tools", "/v1/chat/completions")
    print("serve_tools: as promised")
