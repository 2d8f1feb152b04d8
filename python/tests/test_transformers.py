# SPDX-License-Identifier: MIT
"""Our models in the package transformers: recorded numbers, generation, padded batches, the Trainer, and directories both ways."""
import copy
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")

import golden
import palimpsa.transformers as pt
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

MODELS = golden.OPS.parent / "models"
NAMES = ["palimpsa_d", "palimpsa_d_wo_meta", "palimpsa_m", "palimpsa_m_wo_meta", "hybrid_m"]
GREEDY = dict(do_sample=False, eos_token_id=None, pad_token_id=0)
ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("PALIMPSA_PROGRAM") or shutil.which("palimpsa") or str(ROOT / "build" / "palimpsa")
near = lambda x, y, bound=1e-5: golden.nmax(x.detach().double().numpy(), y.detach().double().numpy()) <= bound
tensor = lambda x: torch.from_numpy(x.copy())


@pytest.fixture(scope="module", params=NAMES)
def model(request):
    made = AutoModelForCausalLM.from_pretrained(str(MODELS / request.param)).eval()
    made.expected = golden.read(MODELS / request.param / "expected.safetensors")
    return made


def test_recorded_logits_loss_and_gradients(model):
    expected = model.expected
    out = model(tensor(expected["input_ids"]), labels=tensor(expected["labels"]), output_hidden_states=True)
    assert golden.nmax(out.logits.detach().numpy(), expected["logits"]) <= 1e-5
    assert abs(out.loss.item() / expected["loss"][0] - 1) <= 5e-6
    hidden = [(i, h) for i, h in enumerate(out.hidden_states) if f"hidden.{i}" in expected]
    assert all(golden.nmax(h.detach().numpy(), expected[f"hidden.{i}"]) <= 2e-5 for i, h in hidden)
    model.zero_grad()
    out.loss.backward()
    compared = 0
    for name, p in model.named_parameters():
        if p.requires_grad and (recorded := expected.get(f"grad.{name}")) is not None:
            compared += 1
            assert golden.nmax(p.grad.numpy(), recorded) <= 1e-4, name
    assert compared > 15 and all(not p.requires_grad for n, p in model.named_parameters() if n.endswith("Ip_log"))


def test_recorded_packed_row(model):
    expected = model.expected
    logits = model(tensor(expected["packed.input_ids"]), cu_seqlens=tensor(expected["packed.cu_seqlens"])).logits
    assert golden.nmax(logits.detach().numpy(), expected["packed.logits"]) <= 2e-5


def test_recorded_greedy_tokens_with_and_without_cache(model):
    prompt, tokens = tensor(model.expected["greedy.prompt"])[None], model.expected["greedy.tokens"].tolist()
    for use_cache in (True, False):
        assert model.generate(prompt, max_new_tokens=12, use_cache=use_cache, **GREEDY)[0, 10:].tolist() == tokens


def test_left_padded_batches_equal_single_rows(model):
    g = torch.Generator().manual_seed(2)
    rows = [torch.randint(1, 256, (n,), generator=g) for n in (9, 3, 1, 6)]
    ids = torch.stack([torch.cat((torch.full((9 - len(r),), 7), r)) for r in rows])  # padding holds a token like others
    mask = torch.stack([torch.cat((torch.zeros(9 - len(r)), torch.ones(len(r)))) for r in rows]).long()
    with torch.no_grad():
        logits = model(ids, attention_mask=mask).logits
        right = model(ids.flip(1), attention_mask=mask.flip(1))  # padding on the other side: other texts, the same law
    for i, r in enumerate(rows):
        with torch.no_grad():
            assert near(logits[i, 9 - len(r):], model(r[None]).logits[0])
            assert near(right.logits[i, :len(r)], model(r.flip(0)[None]).logits[0])
    made = model.generate(ids, attention_mask=mask, max_new_tokens=10, **GREEDY)
    for i, r in enumerate(rows):
        assert made[i, 9:].tolist() == model.generate(r[None], max_new_tokens=10, **GREEDY)[0, len(r):].tolist()


def test_beams_and_samples_reorder_the_memory(model):
    prompt = tensor(model.expected["greedy.prompt"])[None]
    made = [model.generate(prompt, max_new_tokens=6, num_beams=3, use_cache=use_cache, **GREEDY) for use_cache in (True, False)]
    assert made[0].tolist() == made[1].tolist()
    torch.manual_seed(1)
    sampled = model.generate(prompt, max_new_tokens=4, do_sample=True, num_return_sequences=2, eos_token_id=None, pad_token_id=0)
    assert sampled.shape == (2, 14)


def test_a_cache_continues(model):
    ids = tensor(model.expected["input_ids"])
    with torch.no_grad():
        whole = model(ids).logits
        first = model(ids[:, :7])
        kept = copy.deepcopy(first.past_key_values)
        second = model(ids[:, 7:], past_key_values=first.past_key_values)
        assert near(torch.cat((first.logits, second.logits), 1), whole, 2e-5)
        assert near(model(ids[:, 7:], past_key_values=kept).logits, second.logits, 1e-6)  # the copy was not touched
    assert second.past_key_values.get_seq_length() == ids.shape[1]
    made = model.generate(ids[:, :9], past_key_values=pt.RecurrentCache(model.config.num_hidden_layers), max_new_tokens=3, **GREEDY)
    assert made.tolist() == model.generate(ids[:, :9], max_new_tokens=3, **GREEDY).tolist()


def test_generation_goes_on_from_a_cache(model):
    ids = tensor(model.expected["input_ids"])[:1]
    whole = model.generate(ids, max_new_tokens=4, **GREEDY)
    with torch.no_grad():
        cache = model(ids[:, :-3], use_cache=True).past_key_values
    assert model.generate(ids, past_key_values=cache, max_new_tokens=4, **GREEDY).tolist() == whole.tolist()


def selftest(directory):
    done = subprocess.run([PROGRAM, "selftest", str(directory)], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.skipif(not os.path.exists(PROGRAM), reason="no palimpsa program: PALIMPSA_PROGRAM names it")
@pytest.mark.parametrize("name", NAMES)
def test_the_program_opens_what_is_saved(name, tmp_path):
    model, target = AutoModelForCausalLM.from_pretrained(str(MODELS / name)), tmp_path / "models" / name
    model.save_pretrained(str(target))
    shutil.copy(MODELS / name / "expected.safetensors", target)
    code, text = selftest(tmp_path)  # recorded logits, loss, gradients and greedy tokens, computed by the program
    assert code == 0 and "1 passed, 0 failed" in text, text
    again = AutoModelForCausalLM.from_pretrained(str(target))
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values()))
    with torch.no_grad():
        model.get_input_embeddings().weight[5] += 1
    model.save_pretrained(str(target))
    assert selftest(tmp_path)[0] == 1  # and it would notice


def test_new_models_start_as_ours_do(tmp_path):
    config = pt.MetaMamba2Config(hidden_size=64, num_hidden_layers=2, head_dim=16, state_size=8, vocab_size=100, beta_step_rank=4,
                                 time_step_limit=(0.001, float("inf")), tie_word_embeddings=False, unpadded_vocab_size=97)
    model = AutoModelForCausalLM.from_config(config)
    mixer = model.backbone.layers[1].mixer
    assert (mixer.D == 1).all() and (mixer.b_scale == 1).all() and (mixer.Ip_log == 0).all() and not mixer.Ip_log.requires_grad
    assert mixer.out_proj.weight.abs().max() <= 128**-0.5 / 2**0.5 and mixer.b_proj.weight.abs().max() <= 0.5
    assert mixer.A_log.exp().max() <= 16 and abs(mixer.in_proj.weight.std() - 0.02) < 0.002
    model.save_pretrained(str(tmp_path))
    again = AutoModelForCausalLM.from_pretrained(str(tmp_path))
    assert torch.equal(again.lm_head.weight, model.lm_head.weight) and not torch.equal(again.lm_head.weight, again.backbone.embeddings.weight)
    assert again.config.time_step_limit[1] == float("inf")
    made = again.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=40, do_sample=True, temperature=9.0, eos_token_id=None, pad_token_id=0)
    assert made.max() < 97  # rows that only pad the embedding are never drawn
    if os.path.exists(PROGRAM):
        assert subprocess.run([PROGRAM, "inspect", str(tmp_path)], capture_output=True).returncode == 0
    for rule in ("mesa", "longhorn", "gdn"):
        small = pt.PalimpsaConfig(hidden_size=32, num_hidden_layers=1, num_heads=2, head_dim=16, vocab_size=64, intermediate_size=64, rule=rule)
        AutoModelForCausalLM.from_config(small).save_pretrained(str(tmp_path / rule))
        if os.path.exists(PROGRAM):
            assert subprocess.run([PROGRAM, "inspect", str(tmp_path / rule)], capture_output=True).returncode == 0
    base = AutoModel.from_pretrained(str(tmp_path))
    assert isinstance(base, pt.MetaMamba2Model) and isinstance(AutoConfig.from_pretrained(str(tmp_path)), pt.MetaMamba2Config)


@pytest.mark.parametrize("name", ["palimpsa_d", "hybrid_m"])
def test_halves_are_near(name):
    whole, half = (AutoModelForCausalLM.from_pretrained(str(MODELS / name), dtype=d) for d in (torch.float32, torch.bfloat16))
    ids = tensor(golden.read(MODELS / name / "expected.safetensors")["input_ids"])
    with torch.no_grad():
        assert half(ids).logits.dtype == torch.bfloat16 and near(half(ids).logits, whole(ids).logits, 5e-2)
    assert half.generate(ids[:, :4], max_new_tokens=3, **GREEDY).shape == (2, 7)


@pytest.mark.parametrize("name,checkpointing", [("palimpsa_d", False), ("hybrid_m", True)])
def test_the_trainer_fine_tunes(name, checkpointing, tmp_path):
    pytest.importorskip("accelerate")
    model = AutoModelForCausalLM.from_pretrained(str(MODELS / name))
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    g = torch.Generator().manual_seed(1)
    texts = [torch.randint(1, 20, (n,), generator=g) for n in (12, 7, 9, 12)] * 4

    def collate(rows):
        pad = lambda value: torch.nn.utils.rnn.pad_sequence([r["input_ids"] for r in rows], batch_first=True, padding_value=value)
        return {"input_ids": pad(0), "labels": pad(-100), "attention_mask": (pad(-1) >= 0).long()}

    options = transformers.TrainingArguments(str(tmp_path), max_steps=12, per_device_train_batch_size=4, learning_rate=1e-2, report_to="none",
                                             logging_steps=1, save_strategy="no", gradient_checkpointing=checkpointing, disable_tqdm=True,
                                             use_cpu=True)
    trainer = transformers.Trainer(model, options, train_dataset=[{"input_ids": t} for t in texts], eval_dataset=[{"input_ids": texts[0]}],
                                   data_collator=collate)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < 0.7 * losses[0]
    assert trainer.evaluate()["eval_loss"] < losses[0]
    moved = {n for n, p in model.named_parameters() if not torch.equal(p.detach(), before[n])}
    assert {n for n in before if n.endswith("Ip_log")}.isdisjoint(moved) and any("q_proj" in n or "in_proj" in n for n in moved)


def test_what_is_refused_says_so(tmp_path):
    model = AutoModelForCausalLM.from_pretrained(str(MODELS / "palimpsa_d"))
    ids = torch.ones(2, 3, dtype=torch.long)

    def refused(kind, words, call):
        with pytest.raises(kind, match=re.escape(words)) as why:
            call()
        assert "\n" not in str(why.value)

    refused(ValueError, "attention_mask: row 1 has no tokens", lambda: model(ids, attention_mask=torch.tensor([[0, 1, 1], [0, 0, 0]])))
    refused(ValueError, "attention_mask is [2, 2]; expected [2, 3]", lambda: model(ids, attention_mask=torch.ones(2, 2)))
    refused(TypeError, "past_key_values is a DynamicCache", lambda: model(ids, past_key_values=transformers.DynamicCache()))
    refused(ValueError, "exclude each other", lambda: model(ids[:1], attention_mask=torch.tensor([[0, 1, 1]]), cu_seqlens=torch.tensor([0, 3])))
    refused(NotImplementedError, "cannot forget its last tokens", lambda: pt.RecurrentCache(1).crop(2))
    small = dict(hidden_size=32, num_hidden_layers=2, num_heads=2, head_dim=16, vocab_size=8)
    for key, value, words in (("use_gate", False, "use_gate is False; expected true"), ("hidden_act", "gelu", "hidden_act is 'gelu'"),
                              ("metaplastic_layers", [2], "metaplastic_layers is [2]; expected numbers of its 2 layers"), ("rule", "cat", "rule is 'cat'"),
                              ("unpadded_vocab_size", 9, "unpadded_vocab_size is 9; expected at most vocab_size, 8")):
        refused(ValueError, words, lambda: AutoModelForCausalLM.from_config(pt.PalimpsaConfig(**{**small, key: value})))


def test_new_tokens_can_be_drawn(tmp_path):
    """Rows that only padded the embedding do not stay forbidden when there are more or fewer."""
    config = pt.PalimpsaConfig(hidden_size=32, num_hidden_layers=1, num_heads=2, head_dim=16, vocab_size=32, unpadded_vocab_size=29)
    draw = lambda model: model.generate(torch.tensor([[1, 2]] * 8), max_new_tokens=30, do_sample=True, temperature=9.0, eos_token_id=None, pad_token_id=0)
    for size, multiple, rows, unpadded in ((40, None, 40, None), (37, 8, 40, 37), (20, None, 20, None), (32, None, 32, 29)):
        model = AutoModelForCausalLM.from_config(config.__class__(**config.to_diff_dict()))
        model.resize_token_embeddings(size, pad_to_multiple_of=multiple)
        assert (model.config.vocab_size, model.config.unpadded_vocab_size) == (rows, unpadded)
        model.save_pretrained(str(tmp_path))
        made = draw(AutoModelForCausalLM.from_pretrained(str(tmp_path)))
        assert made.max() == (unpadded or rows) - 1


def test_two_turns_with_one_cache(model):
    """A padded batch continues talking: what the cache holds is not read again."""
    ids = torch.randint(1, 200, (2, 8), generator=torch.Generator().manual_seed(4))
    mask = torch.ones(2, 8, dtype=torch.long)
    mask[0, :3] = 0
    cache = pt.RecurrentCache(model.config.num_hidden_layers)
    first = model.generate(ids, attention_mask=mask, past_key_values=cache, max_new_tokens=4, **GREEDY)
    whole, longer = torch.cat((first, ids[:, :3]), 1), torch.cat((mask, torch.ones(2, 7, dtype=torch.long)), 1)
    second = model.generate(whole, attention_mask=longer, past_key_values=cache, max_new_tokens=4, **GREEDY)
    for row, begin in ((0, 3), (1, 0)):
        assert second[row, begin:].tolist() == model.generate(whole[row:row + 1, begin:], max_new_tokens=4, **GREEDY)[0].tolist()


def test_the_program_opens_shards_and_halves(tmp_path):
    import palimpsa
    model = AutoModelForCausalLM.from_pretrained(str(MODELS / "hybrid_m"))
    ids = torch.arange(1, 9)[None]
    expected = model(ids).logits[0]
    model.save_pretrained(str(tmp_path / "shards"), max_shard_size="100KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    model.bfloat16().save_pretrained(str(tmp_path / "halves"))
    for name, bound in (("shards", 1e-5), ("halves", 5e-2)):
        with palimpsa.Model.open(tmp_path / name, tokenizer=False) as ours:
            assert near(torch.from_numpy(ours.logits(ids[0].numpy())), expected, bound)


def test_the_trainer_stops_and_goes_on_with_workers(tmp_path):
    """Checkpoints of the Trainer, and its data from workers; what it saves is a model of ours."""
    pytest.importorskip("accelerate")
    import palimpsa
    g = torch.Generator().manual_seed(1)
    data = [{"input_ids": (x := torch.randint(1, 20, (9,), generator=g)), "labels": x} for _ in range(24)]

    def trainer(where, steps):
        options = transformers.TrainingArguments(str(tmp_path / where), max_steps=steps, per_device_train_batch_size=4, learning_rate=1e-2,
                                                 report_to="none", save_steps=3, logging_steps=1, disable_tqdm=True, use_cpu=True,
                                                 dataloader_num_workers=2, lr_scheduler_type="constant")
        return transformers.Trainer(AutoModelForCausalLM.from_pretrained(str(MODELS / "palimpsa_d")), options, train_dataset=data)

    whole, cut = trainer("whole", 6), trainer("cut", 3)
    whole.train()
    cut.train()
    rest = trainer("cut", 6)
    rest.train(resume_from_checkpoint=True)
    pairs = zip(whole.model.state_dict().items(), rest.model.state_dict().values())
    assert all(torch.equal(a, b) for (_, a), b in pairs)
    rest.save_model(str(tmp_path / "saved"))
    ids = data[0]["input_ids"]
    with palimpsa.Model.open(tmp_path / "saved", tokenizer=False) as ours, torch.no_grad():
        assert near(torch.from_numpy(ours.logits(ids.numpy())), rest.model(ids[None]).logits[0])


def test_a_plain_import_stays_light():
    code = "import palimpsa, sys; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_the_lines_of_the_documentation_run(tmp_path):
    names = {"directory": str(MODELS / "palimpsa_d"), "elsewhere": str(tmp_path / "copy")}
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "reference" / "torch.md").read_text(), re.S)
    assert len(blocks) == 3
    blocks[0] = blocks[0].replace("torch.compile(layer)", "torch.compile(layer, backend='aot_eager')")  # the other backend is slow to start
    for block in blocks:
        exec(block, names)
    assert names["I"].shape == (2, 4, 16, 32) and names["v"].grad.shape == names["more"].shape == (2, 128, 4, 32)
    assert names["out"].shape == (2, 128, 64) and names["ids"].shape[1] <= 23 and (tmp_path / "copy" / "config.json").exists()
