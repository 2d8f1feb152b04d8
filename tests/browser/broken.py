#!/usr/bin/env python3
"""Whether inspector.py notices what it is there for: the page is broken in one place at a time, and the part that
checks it has to fail, with the words that belong to it. A line of BROKEN that no longer stands in the page is an error.
   broken.py PROGRAM [--models DIR] [PART ...]    all parts, or some; --models: as of inspector.py"""
import os, pathlib, shutil, subprocess, sys, tempfile

HERE = pathlib.Path(__file__).parent
WEB = HERE.parents[1] / "web"

# part: (file, what stands there, what is put in its place, words of the check that must fail)
BROKEN = {
    "talk": [
        ("api.js", "else onEvent(event);", "else if (event.type !== 'token' || event.prompt) onEvent(event);",
         "the first written token"),
        ("side.js", "${c.model}`", "`", "the model's name is text"),
        ("app.js", "app.layer = layer;", "app.layer = 0;", "the layer's maps"),
        ("app.js", "app.position = Math.min(Math.max(position, r.start), end);", "app.position = end;", "the place"),
        ("memory.js", "shortText(r.tile(frame, l, 'ratio'))", "shortText(r.tile(frame, l, 'norm'))",
         "ratio: the page shows"),
        ("memory.js", "r.frames[r.frameIndex(app.position)]", "r.frames[r.frameIndex(app.position) - 1]",
         "the page shows"),
        ("tokens.js", "percentText(Math.exp(lp))", "percentText(Math.exp(lp) / 2)", "the server says"),
        ("recording.js", "this.windows.put(e.from - this.start, floats(e.window));",
         "this.windows.put(e.from - this.start, floats(e.window).reverse());", "the library says"),
        ("tokens.js", "name += ' ahead';", "name += '';", "what is not yet read is pale"),
        ("app.js", "[[e.layer, e.head, e.key, e.value]]", "[[e.layer, e.head, e.key, 0]]", "history is the server's"),
        ("recording.js", "Math.min(best.length, count);", "Math.min(best.length, count - 1);", "ten tokens that wrote"),
        ("text.js", "ArrowRight: 1", "ArrowRight: -1", "the arrow key's token"),
        ("tokens.js", "bars(top, t =>", "bars(top.slice(1), t =>", "five alternatives"),
        ("keep.js", "recording: c.recording.fork(n)", "recording: c.recording.fork(n + 1)", "the first twelve tokens"),
        ("keep.js", "from: c.kept.id,\n                  mark", "from: undefined, model: c.model,\n                  unused",
         ""),
        ("keep.js", "c.recording.cut(n);", "c.recording.cut(n + 1);", "the end of what was rolled back"),
        ("recording.js", "fork(length) {", "fork(length) { this.cut(length);", "the first conversation is as it was"),
        ("talk.js", "c.recording.cut(from);", "c.recording.cut(from - 2);", "the prompt stays"),
        ("talk.js", "'click', () => app.busy?.abort()", "'click', () => {}", "the end of the text"),
        ("api.js", "raw: file", "raw: 'nothing'", "a file becomes a memory"),
        ("keep.js", "base: { id: m.id, tokens: m.tokens },", "base: null,", "a conversation that continues from it"),
        ("api.js", "remove: id => remove(place(id))", "remove: id => {}", "a memory is deleted"),
    ],
    "lists": [
        ("side.js", "h('bdi', { text: name })", "h('bdi', { innerHTML: name })", "the new name"),
        ("side.js", "if (a) c.name = a.name;", "", "the new name"),
        ("dom.js", "dialog.returnValue === 'yes'", "true", "cancelled changes nothing"),
        ("side.js", "await api.memory.rename(m.id, a.name);", "", "the memory's new name"),
        ("api.js", "post(place(id), { name })", "post(place(id), { name: name.slice(1) })", "the memory's new name"),
        ("side.js", "await api.memory.mark(m.id, a.name);", "", "the server's sentence"),
        ("api.js", "post(`${place(id)}/marks`, { name })", "post(`${place(id)}/marks`, { name: name + '1' })", "the mark"),
        ("side.js", "mark${m.marks.length > 1 ? 's' : ''}`", "mark`", "the page counts it"),
        ("side.js", "await api.memory.rollBack(m.id, k.name);", "", "back to the mark"),
        ("side.js", "{ from: m.id, name: `", "{ model: m.model, name: `", "a fork"),
        ("keep.js", "(parent && parent !== node ? parent.children : top).push(node);", "top.push(node);",
         "under its parent"),
    ],
    "recall": [
        ("recording.js", "all.slice(k * size, (k + 1) * size)", "all.slice(k * size, (k + 1) * size).reverse()",
         "the brightest pixel"),
        ("chart.js", "pixels[i] = table[levels[i]];", "pixels[i] = table[levels[i] & 1 ? 0 : levels[i]];", "bright"),
        ("chart.js", "pixels[i] = table[levels[i]];", "pixels[i] = table[128];", "bright"),
        ("memory.js", "at = Math.min(at + stride, r.frames.length - 1);", "at = r.frames.length - 1;", ""),  # over before it is seen
        ("tokens.js", "if (!query || i + r.start >= app.position)", "if (true)", "every question has an answer"),
        ("take.js", "set('position', app.position);", "", "the link restores"),
        ("take.js", "position: app.position, layers", "position: 0, layers", "JSON has tokens"),
        ("main.js", "await pictureOf(app.view)", "new Blob(['x'])", "a PNG"),
    ],
    "comparison": [
        ("compare.js", "app.models.find(m => m.id === `${first}@plain`)?.id ??", "", "two models"),
        ("compare.js", "model: s.model,\n        prompt", "model: compare.sides[0].model,\n        prompt",
         "are the server's"),
        ("chart.js", "export function runningPerplexity(logprobs) {",
         "export function runningPerplexity(logprobs) { logprobs = logprobs.map(x => x && x / 2);", "perplexity"),
    ],
    "runs": [
        ("training.js", "h('bdi', { text: r.name })", "h('bdi', { innerHTML: r.name })", "names of runs are text"),
        ("training.js", "rows.push({ ...row, seconds });", "rows.push({ ...row, seconds, loss: 1 });",
         "the curve's numbers"),
    ],
    "looks": [
        ("style.css", ":root[data-theme='dark'] {", ":root[data-theme='night'] {", "dark"),
        ("main.js", "wish = NEXT[wish];", "", "the switch says dark"),
        ("style.css", "html,\nbody {", "main { min-width: 700px; }\nhtml,\nbody {", "fits a phone"),
        ("style.css", ".tools {\n", "#tab-compare[aria-selected='true'] { padding: 6px 40px !important; }\n.tools {\n",
         "does not jump"),
        ("main.js", "if (cls) talk.classList.toggle(cls, key === name);", "", "one part at a time"),
        ("index.html", ' aria-label="Position in the text"', "", "every control has a name"),
    ],
    "long_text": [
        ("text.js", "rootMargin: '700px 0px'", "rootMargin: '900000px 0px'", "elements for"),
        ("text.js", "s.textContent = l.text;", "s.innerHTML = l.text;", "elements for"),
    ],
    "others": [
        ("app.js", "if (!rule || rule === 'attention') return null;", "", "observe.map.layer"),
        ("memory.js", "if (!r.layers[app.layer].parts.length) {", "if (false) {", "attention reads"),
        ("chart.js", "signedColour((i - 127.5) / 127.5, theme) :", "signedColour((127.5 - i) / 127.5, theme) :",
         "amber is positive"),
        ("app.js", "|| app.layer >= rules.length", "", "a smaller model"),
        ("app.js", "        app.element = null;\n}", "        ;\n}", "observe.elements"),
        ("keep.js", "m?.tokens !== (c.base?.tokens ?? 0) + c.kept.at", "!m", "of ten tokens"),
        ("main.js", "if (!app.models.some(m => m.id === q.get('model')))", "if (false)", "model=nobody"),
        ("main.js", "&& q.get('model')) await guard(restore)(q);", "&& q.get('model')) await restore(q);", "the page"),
        ("api.js", "if (e.name !== 'TypeError') throw e;", "throw e;", "network error"),
        ("talk.js", "$('prompt').value = typed;", ";", "what was typed"),
    ],
    "with_key": [
        ("api.js", "if (key) headers.Authorization = `Bearer ${key}`;", "", ""),
    ],
}


def main():
    program, words = os.path.abspath(sys.argv[1]), sys.argv[2:]
    kept = words[1] if words[:1] == ["--models"] else None
    parts = words[2 if kept else 0 :] or list(BROKEN)
    with tempfile.TemporaryDirectory() as name:
        models, missed, seen = kept or pathlib.Path(name) / "models", [], 0
        for part in parts:
            for file, old, new, words in [(None, "", "", "")] + BROKEN[part]:
                web = pathlib.Path(name) / "web"
                shutil.rmtree(web, ignore_errors=True)
                shutil.copytree(WEB, web)
                if file:
                    text = (web / file).read_text()
                    assert old in text, f"{file} no longer has: {old}"
                    (web / file).write_text(text.replace(old, new, 1))
                words_of_it = ["--web", web, "--models", models, "--only", part, "--patience", "15"]
                done = subprocess.run([sys.executable, HERE / "inspector.py", program, *words_of_it],
                                      capture_output=True, text=True)
                said = done.stderr.strip().splitlines()[-1:] or [done.stdout.strip()]
                good = done.returncode == 0 if file is None else done.returncode != 0 and words in done.stderr
                seen += 1
                if not good:
                    missed.append(f"{part}: {file or 'the page as it is'}: {old}")
                print(f"{'ok    ' if good else 'MISSED'} {part:10} {file or 'as it is':12} {said[0][:150]}", flush=True)
    print(f"{seen - len(missed)} of {seen} as they should be")
    if missed:
        sys.exit("\n".join(missed))


main()
