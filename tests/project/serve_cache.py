#!/usr/bin/env python3
"""What `palimpsa serve` has read it need not read again: the longest common beginning of a prompt is known, from snapshots on the grid with the same bits; the
least recently used go; and the texts of one prompt read it once."""
from serving import serving, speaking_model

import concurrent.futures, pathlib, tempfile

with tempfile.TemporaryDirectory() as folder:
    hybrid, attention = speaking_model(pathlib.Path(folder))
    book = "".join(chr(33 + (i * i // 7 + i // 3) % 90) for i in range(2000))
    G = dict(max_tokens=12, temperature=0, logprobs=3)

    def told(answer):
        """Everything that must be the same, exactly: numbers are printed with all their digits."""
        return [(c["text"], c["logprobs"]["token_logprobs"], c["logprobs"]["top_logprobs"]) for c in answer["choices"]]

    def cached(answer):
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    with serving(hybrid, "--cache-distance", 256) as s:
        fresh = s.complete(prompt=book[:700], cache_prompt=False, **G)
        first, second = (s.complete(prompt=book[:700], **G) for _ in range(2))
        assert [cached(a) for a in (fresh, first, second)] == [0, 0, 699] and told(fresh) == told(first) == told(second)

        # A prompt that begins alike is known up to the grid, with the same bits.
        for length, known in ((600, 512), (513, 512), (512, 256), (300, 256), (256, 0), (255, 0)):
            other = book[:length] + "!" * 50
            answer, whole = s.complete(prompt=other, **G), s.complete(prompt=other, cache_prompt=False, **G)
            assert cached(answer) >= known and cached(whole) == 0, (length, cached(answer))
            if cached(answer) % 256 == 0:
                assert told(answer) == told(whole), length
        assert cached(s.complete(prompt="?" + book[:700], **G)) == 0

        # A conversation continues after its last answer: not on the grid, so close instead of equal.
        answer = s.complete(prompt=book[700:1000], **G)
        on = book[700:1000] + answer["choices"][0]["text"] + " and"
        more, whole = s.complete(prompt=on, **G), s.complete(prompt=on, cache_prompt=False, **G)
        assert cached(more) == 300 + 11, cached(more)
        assert all(abs(a - b) < 1e-5 for a, b in zip(told(more)[0][1], told(whole)[0][1]))
        said = [{"role": "user", "content": "Tell me of the fox. " * 3}]
        reply = s.post("/v1/chat/completions", messages=said, max_tokens=8, temperature=0)["choices"][0]["message"]
        again = s.post("/v1/chat/completions", messages=said + [reply, {"role": "user", "content": "On."}], max_tokens=8, temperature=0)
        assert cached(again) > 60, again["usage"]

        # What is penalised was seen, whether it was read now or before.
        penal = dict(max_tokens=20, temperature=0, logprobs=0, repetition_penalty=1.5)
        assert told(s.complete(prompt=book[:700], **penal)) == told(s.complete(prompt=book[:700], cache_prompt=False, **penal))

        # Probabilities of a prompt come from reading it.
        assert cached(s.complete(prompt=book[:700], echo=True, **G)) == 0
        assert cached(s.complete(prompt="short", **G)) == cached(s.complete(prompt="short", **G)) == 0

        # Several texts of one prompt read it once, known or not, with its probabilities or not.
        for prompt, more in ((book[1000:1700], {}), (book[1000:1700], {}), (book[1100:1600], {"cache_prompt": False}), (book[1200:1700], {"echo": True}), ("x", {})):
            before = s.metric("prompt_tokens_total")
            many = s.complete(prompt=prompt, n=4, **{**G, "temperature": 1, "seed": 3}, **more)
            assert s.metric("prompt_tokens_total") - before <= len(prompt) - 1, more
            for i, one in enumerate(told(many)):
                assert told(s.complete(prompt=prompt, **{**G, "temperature": 1, "seed": 3 + i, "cache_prompt": False}, **{k: v for k, v in more.items() if k == "echo"})) == [one], (i, more)
        s.refused({"prompt": "a", "cache_prompt": 1}, "cache_prompt")
        assert s.metric("cache_bytes") > 0 and s.metric("cached_tokens_total") > 2000

    # The least recently used go; what is kept fits.
    bytes_of_one = 60000
    with serving(hybrid, "--cache-distance", 0) as s:
        assert [cached(s.complete(prompt=book[:100], **G)) for _ in range(2)] == [0, 0] and s.metric("cache_bytes") == 0
        bytes_of_one = s.get("/v1/models")["data"][0]["memory_bytes"] + 1000
    a, b, c = book[:100], book[100:200], book[200:300]
    with serving(hybrid, "--memory-budget", 5 * bytes_of_one) as s:  # one text and four snapshots
        N = dict(max_tokens=0, temperature=0)
        for prompt, known in ((a, 0), (b, 0), (c, 0), (a, 99), (book[300:400], 0), (book[400:500], 0), (b, 0), (a, 99)):
            assert cached(s.complete(prompt=prompt, **N)) == known, prompt
            assert s.metric("cache_bytes") <= 4 * bytes_of_one
    # So do the texts that run, and the memory that the texts of one prompt share.
    with serving(hybrid, "--memory-budget", 3 * bytes_of_one) as s, concurrent.futures.ThreadPoolExecutor(3) as pool:
        texts = [pool.submit(s.complete, prompt=book[100 * i : 100 * i + 99], n=5, max_tokens=60, ignore_eos=True, seed=1) for i in range(3)]
        taken = [0]
        while not all(t.done() for t in texts):
            taken.append(s.metric("text_bytes") + s.metric("cache_bytes"))
        assert 2 * bytes_of_one - 2000 <= max(taken) <= 3 * bytes_of_one, (max(taken), bytes_of_one)
        assert told(s.complete(prompt=book[:99], n=5, max_tokens=60, ignore_eos=True, seed=1, logprobs=0))[4][0] == texts[0].result()["choices"][4]["text"]
    with serving(attention, "--tokenizer", "bytes", "--max-context", 300) as s:
        assert [cached(s.complete(prompt=book[:200], **G)) for _ in range(2)] == [0, 199]
    print("serve_cache: as promised")
