#!/usr/bin/env python3
"""chat_tools.py PALIMPSA [TEMPLATES]: chats with tools as other programs have them.

The package openai talks to `palimpsa serve`: the loop of calls and results in four syntaxes, whole, streamed, and through the
client's own helpers for streams, tools and answers under a schema; and the examples of docs/how-to/chat.md as they stand. The
model is scripted: a grammar makes it write what its family writes. transformers' apply_chat_template gives the same ids as
the server reads. With TEMPLATES, a directory of published *.jinja, random message trees are rendered with those, too."""
import contextlib, importlib.metadata, io, json, os, pathlib, re, subprocess, sys, tempfile

program, published = sys.argv[1], sys.argv[2:3]
root = pathlib.Path(__file__).resolve().parents[2]
sys.argv = [sys.argv[0], program]
sys.path.insert(0, str(root / "tests/project"))
from serving import Server, serving, tool_model, writes

import openai, pydantic, transformers

MARKS = ["<|im_start|>", "<|im_end|>"]
CITY = "K\u00f6ln \U0001f600"
FAMILIES = {  # special tokens; a call as the family's models write it; text around it
    "json_tags": (MARKS, '<think>\nhm\n</think>\n\nI look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s", "days": 2}}\n</tool_call>'),
    "toolcall_list": (["<SPECIAL_10>", "<SPECIAL_11>"], 'I look.\n<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "%s", "days": 2}}]</TOOLCALL>'),
    "xml_function": ([*MARKS, "<think>", "</think>"], "hm\n</think>\n\nI look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\n%s\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>"),
    "python_calls": ([*MARKS, "<|tool_call_start|>", "<|tool_call_end|>"], 'I look.\n<|tool_call_start|>[get_weather(city="%s", days=2)]<|tool_call_end|>'),
}


class get_weather(pydantic.BaseModel):
    """The weather of a city"""
    city: str
    days: int = 1


class Verdict(pydantic.BaseModel):
    sure: bool
    grade: int = pydantic.Field(ge=1, le=5)


TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": get_weather.model_json_schema()}}]


def streamed(chunks):
    """A message put together from deltas, as the client's users do."""
    content, reasoning, calls, finish = "", "", {}, None
    for chunk in chunks:
        for choice in chunk.choices:
            delta, finish = choice.delta, choice.finish_reason or finish
            content += delta.content or ""
            reasoning += getattr(delta, "reasoning_content", None) or ""
            for call in delta.tool_calls or []:
                one = calls.setdefault(call.index, {"id": call.id, "type": "function", "function": {"name": "", "arguments": ""}})
                one["function"]["name"] += call.function.name or ""
                one["function"]["arguments"] += call.function.arguments or ""
    return {"role": "assistant", "content": content, **({"reasoning_content": reasoning} if reasoning else {}), **({"tool_calls": list(calls.values())} if calls else {})}, finish


def tool_loop(client, family, stream):
    marks, text = FAMILIES[family]
    thinks = "</think>" in text
    script = [text % CITY, text % "Oslo", ("<think>\nso\n</think>\n\n" if family == "json_tags" else "so</think>\n" if thinks else "") + "Sunny in both."]
    messages, seen = [{"role": "user", "content": "The weather in K\u00f6ln, then in Oslo?"}], []
    for written in script:
        ask = dict(model="m", messages=messages, tools=TOOLS, max_tokens=400, extra_body={"grammar": writes(written, marks)})
        if stream:
            message, finish = streamed(client.chat.completions.create(stream=True, **ask))
        else:
            choice = client.chat.completions.create(**ask).choices[0]
            message, finish = choice.message.model_dump(), choice.finish_reason  # with every field that the client knows
        assert bool(message.get("reasoning_content")) == thinks, message
        messages.append(message)
        if not message.get("tool_calls"):
            assert finish == "stop" and message["content"] == "Sunny in both.", message
            break
        assert finish == "tool_calls" and message["content"] == "I look.", message
        for call in message["tool_calls"]:
            arguments = get_weather.model_validate_json(call["function"]["arguments"])
            seen.append((arguments.city, arguments.days))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"Sunny in {arguments.city}"})
    assert seen == [(CITY, 2), ("Oslo", 2)], seen


def helpers(client, family):
    """What the client makes of answers itself: events of a stream, parsed tools, an answer as an object."""
    marks, text = FAMILIES[family]
    ask = dict(model="m", messages=[{"role": "user", "content": "Hi"}], max_tokens=600)
    with client.chat.completions.stream(tools=[openai.pydantic_function_tool(get_weather)], extra_body={"grammar": writes(text % CITY, marks)}, **ask) as stream:
        kinds = {event.type for event in stream}
        call = stream.get_final_completion().choices[0].message.tool_calls[0].function
    assert "tool_calls.function.arguments.done" in kinds and call.parsed_arguments == get_weather(city=CITY, days=2), (kinds, call)
    for seed in range(30):
        try:
            parsed = client.chat.completions.parse(response_format=Verdict, seed=seed, **ask).choices[0].message.parsed
        except openai.LengthFinishReasonError:  # it thinks until then
            continue
        assert 1 <= parsed.grade <= 5
        break
    else:
        raise AssertionError("the model never came to an end")
    required = client.chat.completions.create(tools=[openai.pydantic_function_tool(Verdict)], tool_choice="required", seed=seed, logprobs=True, **ask).choices[0]
    if required.finish_reason == "tool_calls":
        Verdict.model_validate_json(required.message.tool_calls[0].function.arguments)
    try:
        client.chat.completions.create(tools=[{"type": "function", "function": {"name": ""}}], **ask)
    except openai.BadRequestError as error:
        assert error.param == "tools" and "name" in error.body["message"]
    else:
        raise AssertionError("a tool without a name")


def same_ids(server, model):
    """The ids that the server reads are those of transformers, with tools, calls, results and thinking."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "get_weather", "arguments": {"city": CITY, "days": 2}}}
    talks = [[{"role": "user", "content": "Hi there"}],
             [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi\n"}, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "the weather"}],
             [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [call]},
              {"role": "tool", "tool_call_id": "abcdefghi", "name": "get_weather", "content": '{"t": 20}'}]]
    for talk in talks:
        for tools in (None, TOOLS):
            for kwargs in ({}, {"enable_thinking": False}):
                ours = [i for i, _ in server.stream("/v1/observe", messages=talk, tools=tools, chat_template_kwargs=kwargs, max_tokens=0)[0]["prompt"]]
                theirs = tokenizer.apply_chat_template(talk, tools=tools, add_generation_prompt=True, return_dict=False, **kwargs)
                assert ours == theirs, (model, talk, tokenizer.decode(ours), tokenizer.decode(theirs))


def documentation(port):
    """The examples of the page, one after the other."""
    page = (root / "docs/how-to/chat.md").read_text().replace("http://127.0.0.1:8080", f"http://127.0.0.1:{port}")
    blocks, names = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S), {}
    for block in blocks:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block, "docs/how-to/chat.md", "exec"), names)
    return len(blocks)


with tempfile.TemporaryDirectory() as folder:
    for family, (marks, _) in FAMILIES.items():
        here = pathlib.Path(folder, family)
        here.mkdir()
        model = tool_model(here, (root / f"tests/templates/{family}.jinja").read_text(), marks)
        with serving(model) as server:
            client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
            for stream in (False, True):
                tool_loop(client, family, stream)
            helpers(client, family)
            same_ids(server, model)
            examples = documentation(server.port)
            assert examples >= 3, examples
templates = sorted((root / "tests/templates").glob("*.jinja")) + sorted(path for folder in published for path in pathlib.Path(folder).glob("*.jinja"))
count = int(os.environ.get("COUNT", "2000"))
subprocess.run([sys.executable, root / "tests/interop/chat_templates_random.py", program, str(count), *map(str, templates)], check=True)
print(f"openai {importlib.metadata.version('openai')}: the loop of tools in {len(FAMILIES)} syntaxes, {examples} examples of the page; transformers {transformers.__version__}: the same ids, "
      f"and {count} random conversations with {len(templates)} templates")
