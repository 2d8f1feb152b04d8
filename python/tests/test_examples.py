# SPDX-License-Identifier: MIT
"""The examples run as they are, and the lines of the documents."""
import importlib.util
import pathlib
import re
import subprocess
import sys

import golden

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = golden.OPS.parent / "models"


def test_looking_into_a_memory(tmp_path):
    figures = ["--figures", str(tmp_path / "figures")] if importlib.util.find_spec("matplotlib") else []
    done = subprocess.run([sys.executable, ROOT / "python/examples/look_into_a_memory.py", MODELS / "hybrid_m", "--tokenizer", "bytes", *figures],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and not done.stderr, done.stderr
    said = done.stdout
    assert "hybrid Palimpsa-M" in said and re.search(r"layer 3 \(palimpsa\): remembers \d+ tokens", said)
    assert len(re.findall(r"importance from", said)) == 2 and len(re.findall(r"moved by", said)) == 4
    assert len(re.findall(r"variance \d", said)) == 5
    assert not figures or len(list((tmp_path / "figures").glob("*.png"))) == 3


def test_the_documents_blocks_run(tmp_path, monkeypatch):
    """docs/reference/python.md: blocks in their order, on a model and a text of ours."""
    import palimpsa

    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/reference/python.md").read_text(), flags=re.S | re.M)
    assert len(blocks) >= 3
    monkeypatch.chdir(tmp_path)
    palimpsa.convert(MODELS / "hybrid_m", tmp_path / "runs/talk", dtype="f32", tokenizer="bytes")
    palimpsa.convert(MODELS / "palimpsa_m_wo_meta", tmp_path / "mamba2", dtype="f32", tokenizer="bytes")
    (tmp_path / "play.txt").write_text("ROMEO:\nIs the day so young?\n" * 40)
    names = {}
    for block in blocks:
        if not importlib.util.find_spec("matplotlib"):
            block = "\n".join(line for line in block.splitlines() if ".plot(" not in line)
        if not importlib.util.find_spec("torch") and "torch" in block:
            continue
        exec(compile(block, "docs/reference/python.md", "exec"), names)  # noqa: S102


def test_the_lines_of_the_readme_print_what_they_say():
    text = (ROOT / "README.md").read_text()
    lines, printed = re.search(r"^```python\n(.*?)^```\n\nprints\n\n(.*?)\n\n", text, flags=re.S | re.M).groups()
    done = subprocess.run([sys.executable, "-c", lines], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.splitlines() == [line.strip() for line in printed.splitlines()], done
