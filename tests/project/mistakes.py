"""What people type who come from other programs, or for the first time: one sentence says what to type instead."""
import os, pathlib, select, shutil, signal, subprocess, tempfile

from outside import call, check, golden, program, run

with tempfile.TemporaryDirectory() as folder:
    golden = golden.resolve()
    os.chdir(folder)
    model = "model"
    call("convert", golden / "models/hybrid_m", model, "--to", "palimpsa", "--tokenizer", "bytes")
    cases = (
        (["generate", "state-spaces/mamba2-130m", "--prompt", "a"], "'mamba2-130m' is the name of a size"),
        (["convert", "mamba2-130m", "new", "--dtype", "f16"], "must be downloaded"),
        (["generate", "ibm-granite/granite-4.0-h-350m", "--prompt", "a"], "as 'hf download ibm-granite/granite-4.0-h-350m' does"),
        (["generate", "model/nothing", "--prompt", "a"], "model/nothing: cannot open"),
        (["generate", "mamba2-131m", "--prompt", "a"], "cannot open"),
        (["generate", f"{model}/model.safetensors", "--prompt", "a"], f"give the directory: {model}"),
        (["generate", "cache", "--prompt", "a"], "give the directory of one: cache/snapshots/"),
        (["generate", model, "-p", "a"], "no option '-p'; did you mean '--prompt'?"),
        (["generate", model, "-n", 5], "no option '-n'; did you mean '--max-tokens'?"),
        (["generate", "-m", model], "no option '-m'; the model is given without one: palimpsa generate MODEL"),
        (["generate", model, "--promt", "a"], "no option '--promt'; did you mean '--prompt'?"),
        (["generate", model, "hello", "world"], "did you mean --prompt 'hello world'?"),
        (["generate", model], "--prompt TEXT ('-': standard input)"),
        (["inspect", model, "more"], "unexpected argument 'more'; see 'palimpsa inspect --help'"),
        (["chat", "model"], "palimpsa generate MODEL --chat --interactive"),
        (["run"], "palimpsa generate MODEL --interactive"),
        (["quantize"], "palimpsa convert SRC DST --dtype TYPE"),
        (["train", "--resume", "--out", model], f"{model} is a model, not a run; to train on from it: --model {model}"),
        (["train", "--recipe", "shakespear", "--out", "run"], "did you mean 'shakespeare'?"),
        (["train", "--recipe", "configs/demo.json", "--out", "run"], "is given by --config"),
        (["convert", model, "x.gguf", "--dtype", "q3_k_m"], "expected f32"),
        (["sweep"], "the task is missing, and mqar is the only one"),
        (["sweep", "text"], "expected the task mqar, the only one, found 'text'"),
    )
    pathlib.Path("cache/snapshots/abc").mkdir(parents=True)
    for words, says in cases:
        text = run(*words, code=2)
        check(says in text, f"{words}: {text!r}, expected {says!r}")

    # Names of llama.cpp's mixtures mean their main type; 'none' leaves the tokenizer out, and a text is read with the source's own.
    done = call("convert", model, "mixed.gguf", "--dtype", "q4_k_m")
    check(b"q4_k_m is a mixture of types; all matrices become q4_k" in done.stderr, done.stderr)
    pathlib.Path("text.txt").write_text("A text to measure with. " * 20)
    call("convert", model, "plain", "--to", "palimpsa", "--tokenizer", "none", "--data", "text.txt", "--tokens", 64)
    check(run("-V") == run("--version"), "-V")
    check(b"100 threads share" in call("inspect", model, "--threads", 100).stderr or os.cpu_count() >= 25, "too many threads are warned of")

    # A recipe is in the program itself.
    shutil.copy(program, "alone")
    text = subprocess.run(["./alone", "train", "--recipe", "shakespeare", "--data", "nothing.txt", "--model", "palimpsa-m", "--out", "run"], capture_output=True, text=True).stderr
    check("nothing.txt" in text and "recipe" not in text, text)

    # The first signal is answered before the update has ended.
    child = subprocess.Popen([program, *"train --model palimpsa-d --seq-len 512 --kv-pairs 64 --vocab 512 --hidden 128 --batch 64 --steps 50 --test-examples 16 --threads 1 --out long".split()],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while b"tokens" not in child.stdout.readline():  # the plan: "... million tokens, roughly ..."
        pass
    child.send_signal(signal.SIGINT)
    check(select.select([child.stderr], [], [], 60)[0], "nothing was said")
    answer = child.stderr.readline()
    check(b"stopping after this update" in answer, f"the answer to a signal: {answer}")
    child.communicate(timeout=300)
    check(child.returncode == 3, child.returncode)
