# SPDX-License-Identifier: MIT
"""Look into a memory: what a model keeps of a text, how far back it reaches, and what changes when it reads on.

    python look_into_a_memory.py runs/talk --text play.txt --figures figures
    python look_into_a_memory.py mamba2-130m --tokenizer gpt-neox/tokenizer.json

Works with any model that has a memory of fixed size; importance is there where layers are metaplastic.
"""
import argparse
import pathlib

import numpy as np

import palimpsa

STORY = """Once upon a time there was a king who had three daughters. The eldest was called Anna, the second Berta, and the
youngest Clara. One day the king lost his ring in the forest, and he said to them: whoever finds my ring shall have the castle.
"""

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--tokenizer")
parser.add_argument("--text", type=pathlib.Path)
parser.add_argument("--figures", type=pathlib.Path, help="a directory for figures (needs matplotlib)")
o = parser.parse_args()
text = o.text.read_text()[:20000] if o.text else STORY

with palimpsa.Model.open(o.model, o.tokenizer) as model:
    print(model)

    # 1. How far back does each layer remember? N_t, in tokens.
    windows = model.windows(text)
    for layer in windows.top(4):
        print(f"layer {layer} ({windows.rules[layer]}): remembers {windows.median[layer]:.0f} tokens")

    # 2. What has become important? Elements of high importance learn slowly from what comes next.
    seen = model.observe(text)
    for x in seen.layers:
        if x.importance is not None:
            least, most = x.importance.min(), x.importance.max()
            print(f"layer {x.layer}: importance from {least:.3g} to {most:.3g} in {x.importance.size} elements, "
                  f"scale of its gate {x.b_scale.mean():.3g}")

    # 3. What does reading on change? A fork keeps the memory as it was.
    session = model.session().read(text)
    before = session.fork()
    session.read(" And then everything was different.")
    for layer, rule in enumerate(model.rules):
        if rule == "attention":
            continue
        name = next(iter(session.parts(layer)))  # mu of palimpsa, S of Mamba2
        old, new = before.parts(layer)[name], session.parts(layer)[name]
        print(f"layer {layer}: {name} moved by {np.linalg.norm(new - old) / np.linalg.norm(old):.1%}")
    session.roll_back(before)

    # 4. What does the model expect, and how sure is its memory?
    for token in session.generate(" The king", max_tokens=5, temperature=0, alternatives=3):
        others = ", ".join(f"{model.tokenizer.decode([i])!r} {np.exp(p):.1%}" for i, p in token.alternatives)
        print(f"{others}; variance {token.variance:.3g}")

    if o.figures:
        o.figures.mkdir(parents=True, exist_ok=True)
        windows.plot().savefig(o.figures / "windows.png", dpi=150)
        if any(x.importance is not None for x in seen.layers):
            seen.plot().savefig(o.figures / "importance.png", dpi=150)
        seen.plot("mean").savefig(o.figures / "mean.png", dpi=150)
        print(f"figures are in {o.figures}")
