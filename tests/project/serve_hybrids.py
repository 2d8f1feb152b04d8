#!/usr/bin/env python3
"""What people say of recurrent and hybrid models on other servers, tried on five families: each function is named by what a user may expect of this one."""
from serving import chat_model, serving, Server

import concurrent.futures, contextlib, http.client, json, os, pathlib, random, shutil, signal, socket, sys, tempfile, time

from outside import golden

sanitized = "--sanitized" in sys.argv  # slower: two families, and what leaks is said when a server ends
families = ["qwen3_5_published", "granite_4_h"] if sanitized else ["qwen3_5_published", "nemotron_h", "granite_4_h", "falcon_h1", "lfm2"]
rng = random.Random(5)
text = "".join(rng.choice("abcdefghij klmnop\n") for _ in range(9000))


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def said(answer):
    return [c["text"] for c in answer["choices"]]


def message(seed, length):
    at = seed * 97 % 5000
    return text[at : at + length].strip() or "x"


def chat(s, messages, **more):
    return s.post("/v1/chat/completions", messages=messages, **{"temperature": 0, "max_tokens": 6, **more})


def talk(turns, seed=0, length=300):
    """A system prompt, then questions with answers, and a last question."""
    list_ = [{"role": "system", "content": message(seed, 4 * length)}]
    for i in range(turns):
        list_ += [{"role": "user", "content": message(seed + 2 * i + 1, length)}, {"role": "assistant", "content": message(seed + 2 * i + 2, length)}]
    return list_ + [{"role": "user", "content": message(seed + 99, length)}]


def unread(answer):
    return answer["usage"]["prompt_tokens"] - cached(answer)


def a_second_turn_reads_only_what_is_new(s):
    first = talk(3, seed=1)
    answer = chat(s, first)
    assert cached(answer) == 0, answer["usage"]
    reply = answer["choices"][0]["message"]["content"]
    question = "and then?"
    second = chat(s, first + [{"role": "assistant", "content": reply}, {"role": "user", "content": question}])
    assert unread(second) <= len(question) + 40, (second["usage"], reply)


def an_edited_last_message_reads_from_there(s):
    conversation = talk(4, seed=20)
    whole = chat(s, conversation)["usage"]["prompt_tokens"]
    conversation[-1] = {"role": "user", "content": "something else"}
    edited = chat(s, conversation)
    assert unread(edited) <= len("something else") + 40 + 2 * 64 + 64, edited["usage"]  # to the nearest end of a piece
    assert whole > 2500


def an_edit_of_an_earlier_message_reads_only_from_there(s):
    """A conversation that grew turn by turn left marks at each: an edit goes back to the nearest."""
    conversation = talk(0, seed=40)
    for turn in range(5):
        answer = chat(s, conversation)
        conversation += [{"role": "assistant", "content": message(turn + 60, 300)}, {"role": "user", "content": message(turn + 70, 300)}]
    whole = chat(s, conversation)["usage"]["prompt_tokens"]
    edited = conversation[:5] + [{"role": "user", "content": "no: " + message(3, 200)}]
    assert len(edited) == 6
    answer = chat(s, edited)
    assert cached(answer) > 0 and unread(answer) <= 204 + 40 + 3 * 64, (answer["usage"], whole)


def two_alternating_conversations_keep_both(s):
    a, b = talk(3, seed=100), talk(3, seed=200)
    chat(s, a), chat(s, b)
    for turn in range(3):
        for conversation in a, b:
            conversation += [{"role": "assistant", "content": message(turn + 300, 60)}, {"role": "user", "content": message(turn + 310, 60)}]
            answer = chat(s, conversation)
            assert unread(answer) <= 2 * (60 + 20) + 3 * 64, answer["usage"]


def temperature_0_gives_the_same_text_with_and_without_cache(s):
    """Alone, next to other requests, with a cache that is empty or full."""
    prompts = [text[i * 401 : i * 401 + 500 + 77 * i] for i in range(4)]
    ask = dict(max_tokens=12, temperature=0, ignore_eos=True)
    fresh = [said(s.complete(prompt=p, cache_prompt=False, **ask)) for p in prompts]
    for _ in range(2):
        assert [said(s.complete(prompt=p, **ask)) for p in prompts] == fresh
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        many = list(pool.map(lambda i: said(s.complete(prompt=prompts[i % 4], cache_prompt=i % 3 > 0, **ask)), range(16)))
    assert many == [fresh[i % 4] for i in range(16)]
    for length in (100, 256, 300, 700):  # what begins alike, to the grid: the same bits
        other = text[:length] + "!" * 30
        s.complete(prompt=text[:900], **ask)
        assert said(s.complete(prompt=other, **ask)) == said(s.complete(prompt=other, cache_prompt=False, **ask)), length


def echo_and_probabilities_of_a_prompt_work(s):
    """What lm-evaluation-harness asks for by URL: each token's probability is that of a text that ends before it."""
    ids = [ord(c) for c in text[:40]]
    told = s.complete(prompt=ids, echo=True, logprobs=5, max_tokens=0)["choices"][0]["logprobs"]
    assert len(told["token_logprobs"]) == 40 and told["token_logprobs"][0] is None
    for i in (1, 7, 39):
        asked = dict(max_tokens=1, logprobs=0, logit_bias={str(ids[i]): 100}, temperature=0)
        forced = s.complete(prompt=ids[:i], **asked)["choices"][0]["logprobs"]["token_logprobs"][0]  # the model's own, before the bias
        assert abs(forced - told["token_logprobs"][i]) < 1e-4 and len(told["top_logprobs"][i]) > 1, (i, forced, told)


def no_request_continues_another_conversation(s):
    """64 sessions with their own texts, some of which are cancelled at any moment: no answer differs from the one that a text gets alone."""
    prompts = [f"{i:04d}" * 5 + text[i * 61 : i * 61 + 60 + i * 5] for i in range(64)]
    ask = dict(max_tokens=10, temperature=0, ignore_eos=True)
    alone = [said(s.complete(prompt=p, cache_prompt=False, **ask)) for p in prompts]

    def one(i):
        if i % 3 == 0:  # goes away in the midst
            with socket.create_connection(("127.0.0.1", s.port)) as c:
                body = json.dumps({"prompt": prompts[i % 64], "stream": True, "max_tokens": 200, "temperature": 0, "ignore_eos": True})
                c.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
                time.sleep(rng.random() * 0.05)
            return None
        return said(s.complete(prompt=prompts[i % 64], **ask))

    order = list(range(64)) * 3
    rng.shuffle(order)
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        for i, found in zip(order, pool.map(one, order)):
            assert found in (None, alone[i]), (i, found, alone[i])


def idle(s):
    for _ in range(200):
        if s.metric("texts_running") == 0:
            return
        time.sleep(0.05)
    raise AssertionError("texts still run")


def memory_of_32_snapshots_stays_below_the_budget(folder, attention):
    with serving(attention, "--tokenizer", "bytes", "--max-context", 2048, "--memory-budget", "6M") as s:
        fixed, page = (s.get("/v1/models")["data"][0][k] for k in ("memory_fixed_bytes", "memory_page_bytes"))
        for i in range(40):
            s.complete(prompt=f"{i:03d}" + text[i * 97 : i * 97 + 900], max_tokens=3, temperature=0)
            assert s.metric("memory_bytes") <= s.metric("memory_budget_bytes") == 6 << 20, s.metric("memory_bytes")
        assert s.metric("cache_snapshots") >= 8
        seen = s.get("/v1/models")["memory"]
        assert seen["budget_bytes"] == 6 << 20 and seen["page_bytes"] == s.metric("page_bytes") and seen["page_bytes"] % page == 0
        assert fixed * seen["snapshots"] <= seen["cache_bytes"]
    with serving(attention, "--tokenizer", "bytes", "--max-context", 2048, "--memory-budget", "64M", "--max-sessions", 64) as s:
        before = s.metric("page_bytes")
        assert before == 0
        s.complete(prompt=text[:1500], n=64, max_tokens=8, temperature=1, seed=1, cache_prompt=False, ignore_eos=True)
        s.complete(prompt=text[:1500], max_tokens=0, cache_prompt=True)
        one = s.metric("page_bytes")
        # 64 branches that write: one context of pages, and a page for each
        s.complete(prompt=text[:1500], n=64, max_tokens=8, temperature=1, seed=1, ignore_eos=True)
        assert s.metric("page_bytes") <= one + 66 * page, (s.metric("page_bytes"), one, page)


def hundreds_of_requests_leak_nothing(attention):
    with serving(attention, "--tokenizer", "bytes", "--max-context", 1024, "--memory-budget", "4M") as s:
        def resident():
            return int(pathlib.Path(f"/proc/{s.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        for i in range(110 if sanitized else 350):
            s.complete(prompt=text[i * 7 % 3000 : i * 7 % 3000 + 100 + i % 300], max_tokens=3, temperature=0)
            if i == 100:
                settled = resident()
        assert sanitized or resident() < settled + (6 << 20), (settled, resident())
    with serving(attention, "--tokenizer", "bytes", "--cache-distance", 0) as s:
        for i in range(5):
            s.complete(prompt=text[: 100 + 50 * i], max_tokens=3)
        idle(s)
        assert s.metric("page_bytes") == 0 == s.metric("memory_bytes"), s.get("/metrics")


def restore_gives_reuse(folder, model, *options):
    """A server that was stopped or killed finds what it had read, with the same answers; the last text at most is read again."""
    keep = folder / "keep"
    shutil.rmtree(keep, ignore_errors=True)
    options = (model, "--tokenizer", "bytes", "--keep", keep, *options)
    ask = dict(max_tokens=9, temperature=0, ignore_eos=True, logit_bias={str(i): -100 for i in (*range(32), *range(127, 256))})
    prompts = [text[i * 700 : i * 700 + 800] for i in range(3)]
    with serving(*options) as s:
        first = [said(s.complete(prompt=p, **ask)) for p in prompts]
    again = [p + a[0] + " more" for p, a in zip(prompts, first)]
    with serving(*options) as s:
        assert s.metric("kept_prompts") >= 3 and s.metric("kept_bytes") > 0
        for p, q in zip(again, prompts):
            answer, whole = s.complete(prompt=p, **ask), s.complete(prompt=p, cache_prompt=False, **ask)
            assert unread(answer) <= 9 + 6, answer["usage"]
            assert said(answer) == said(whole)
        assert s.metric("kept_found_total") >= 3 and s.metric("kept_failed_total") == 0
    # Killed at any moment: nothing is damaged, and what was written is found.
    for kill in range(6):
        s = Server(*options)
        try:
            for i in range(3):
                s.complete(prompt=f"{kill}{i}" + text[i * 500 : i * 500 + 600], **ask)
            time.sleep(rng.random() * 0.1)
        finally:
            s.process.kill()
            s.process.communicate()
    with serving(*options) as s:
        found = [cached(s.complete(prompt=f"{kill}{i}" + text[i * 500 : i * 500 + 600] + "!", **ask)) for kill in range(6) for i in range(3)]
        assert sum(n >= 512 for n in found) >= 6 * 2, found
        assert s.metric("kept_failed_total") == 0
    # Damaged, cut or missing files are removed with a sentence; the prompt is read again.
    files = sorted((keep / "prompts").iterdir())
    for number, file in enumerate(files):
        if number % 3 == 0:
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        elif number % 3 == 1:
            whole = bytearray(file.read_bytes())
            whole[len(whole) * 2 // 3] ^= 16
            file.write_bytes(whole)
        else:
            file.unlink()
    s = Server(*options)
    answers = [said(s.complete(prompt=p, **ask)) for p in again]
    fresh = [said(s.complete(prompt=p, cache_prompt=False, **ask)) for p in again]
    errors = s.stop()
    assert answers == fresh and "it is removed" in errors, errors


def files_of_another_model_are_left_alone(folder, model, other):
    keep = folder / "shared"
    with serving(model, "--tokenizer", "bytes", "--keep", keep) as s:
        s.complete(prompt=text[:300], max_tokens=2)
    with serving(other, "--tokenizer", "bytes", "--keep", keep) as s:
        assert cached(s.complete(prompt=text[:300], max_tokens=2)) == 0
    with serving(model, "--tokenizer", "bytes", "--keep", keep) as s:
        assert cached(s.complete(prompt=text[:300], max_tokens=2)) == 299 - 0 or s.metric("kept_prompts") >= 1


def memories_fork_and_roll_back(s):
    """Branches and marks of saved memories: each continues as a text that was read whole."""
    m = s.post("/v1/memories", text=text[:500])
    s.post(f"/v1/memories/{m['id']}/marks", name="before")
    ask = dict(max_tokens=8, temperature=0, ignore_eos=True)
    whole = said(s.complete(prompt=text[:560], cache_prompt=False, **ask))
    branch = s.post("/v1/memories", **{"from": m["id"]})
    assert said(s.complete(prompt=text[500:560], memory=branch["id"], **ask)) == whole
    s.complete(prompt="something else", memory=m["id"], update_memory=True, **ask)
    s.post(f"/v1/memories/{m['id']}/rollback", mark="before")
    assert said(s.complete(prompt=text[500:560], memory=m["id"], **ask)) == whole
    s.complete(prompt="something else again", memory=branch["id"], update_memory=True, **ask)
    again = s.post("/v1/memories", **{"from": m["id"], "mark": "before"})
    for _ in range(2):  # from RAM, each memory with its own text
        assert said(s.complete(prompt=text[500:560], memory=again["id"], **ask)) == whole
    changed = s.get(f"/v1/memories/{branch['id']}")["tokens"]
    assert changed == 500 + len("something else again") + 8, changed


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for family in families:
            model = golden / "families" / family
            template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
            with serving(chat_model(folder, model, template), "--max-context", 8192) as s:
                a_second_turn_reads_only_what_is_new(s)
                an_edited_last_message_reads_from_there(s)
                an_edit_of_an_earlier_message_reads_only_from_there(s)
                two_alternating_conversations_keep_both(s)
            for kv in ("f32", "f16")[: 1 + (family in families[::2] and not sanitized)]:
                with serving(model, "--tokenizer", "bytes", "--kv-type", kv) as s:
                    temperature_0_gives_the_same_text_with_and_without_cache(s)
                    if kv == "f32":
                        echo_and_probabilities_of_a_prompt_work(s)
                        memories_fork_and_roll_back(s)
            print(f"{family}: as expected", flush=True)
        with serving(golden / "families" / "granite_4_h", "--tokenizer", "bytes", "--max-sessions", 64, "--max-queue", 256) as s:
            no_request_continues_another_conversation(s)
        memory_of_32_snapshots_stays_below_the_budget(folder, golden / "families" / "falcon_h1")
        hundreds_of_requests_leak_nothing(golden / "families" / "nemotron_h")
        restore_gives_reuse(folder, golden / "families" / "granite_4_h")
        restore_gives_reuse(folder, golden / "families" / "qwen3_5_published", "--kv-type", "f16")
        files_of_another_model_are_left_alone(folder, golden / "families" / "granite_4_h", golden / "families" / "lfm2")
    print("serve_hybrids: as promised")


main()
