# SPDX-License-Identifier: MIT
"""Our models for the package transformers: importing this module registers `palimpsa` and `meta_mamba2`.

    import palimpsa.transformers
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(directory)

Directories are those of our program, both ways. Batches may be padded on either side: tokens that attention_mask leaves out are not computed,
so a row gives what it gives alone. The cache is the recurrent memory, of the same size for any length.
"""
from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .torch_layers import LayerCache, PalimpsaD, PalimpsaM

__all__ = ["MetaMamba2Config", "MetaMamba2ForCausalLM", "MetaMamba2Model", "PalimpsaConfig", "PalimpsaForCausalLM", "PalimpsaModel", "RecurrentCache"]


def _refuse(config: PreTrainedConfig, key: str, expected: str) -> None:
    raise ValueError(f"{config.model_type}: {key} is {getattr(config, key)!r}; expected {expected}")


class _Config(PreTrainedConfig):
    """What both kinds share."""

    keys_to_ignore_at_inference = ["past_key_values"]

    vocab_size: int = 32000
    hidden_size: int = 768
    beta_step_rank: int | str = "auto"
    metaplasticity: bool = True
    metaplastic_layers: list[int] | None = None
    finetuning: bool = False
    initializer_range: float = 0.02
    unpadded_vocab_size: int | None = None
    use_cache: bool = True
    tie_word_embeddings: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def layer_rule(self, layer: int) -> str:
        rule = getattr(self, "rule", "palimpsa")
        listed = self.metaplastic_layers is not None
        on = layer in self.metaplastic_layers if listed else self.metaplasticity or rule != "palimpsa"
        return rule if on else "gla"

    def check(self) -> None:
        if self.hidden_act not in ("silu", "swish"):
            _refuse(self, "hidden_act", "silu or swish")
        if any(not 0 <= layer < self.num_hidden_layers for layer in self.metaplastic_layers or ()):
            _refuse(self, "metaplastic_layers", f"numbers of its {self.num_hidden_layers} layers")
        if self.unpadded_vocab_size is not None and not 1 <= self.unpadded_vocab_size <= self.vocab_size:
            _refuse(self, "unpadded_vocab_size", f"at most vocab_size, {self.vocab_size}")


class PalimpsaConfig(_Config):
    """Palimpsa-D; keys as in docs/reference/formats.md."""

    model_type = "palimpsa"

    num_hidden_layers: int = 19
    num_heads: int = 16
    head_dim: int = 48
    expand_k: float = 1
    expand_v: float = 1
    conv_size: int = 4
    rule: str = "palimpsa"
    mesa_tolerance: float = 0.0
    softplus_rate: bool = False
    intermediate_size: int | None = None
    hidden_ratio: float = 4
    hidden_act: str = "swish"
    norm_eps: float = 1e-6
    use_gate: bool = True
    use_short_conv: bool = True
    use_residual: bool = True

    def check(self) -> None:
        super().check()
        for key in ("use_gate", "use_short_conv", "use_residual"):
            if not getattr(self, key):
                _refuse(self, key, "true")

    def mixer(self, layer: int) -> PalimpsaD:
        rule = self.layer_rule(layer)
        plain = rule == "gla" and self.rule == "palimpsa"
        return PalimpsaD(self.hidden_size, self.num_heads, self.head_dim, expand_k=self.expand_k, expand_v=self.expand_v, conv_size=self.conv_size,
                         beta_step_rank=self.beta_step_rank, rule=rule, unused_gate=plain and self.metaplastic_layers is None,
                         norm_eps=self.norm_eps, initializer_range=self.initializer_range, finetuning=self.finetuning,
                         mesa_tolerance=self.mesa_tolerance if rule == "mesa" else 0.0, softplus_rate=self.softplus_rate)

    def mlp_width(self) -> int:
        return self.intermediate_size or 256 * math.ceil(math.trunc(self.hidden_size * self.hidden_ratio * 2 / 3) / 256)


class MetaMamba2Config(_Config):
    """Palimpsa-M, and Mamba2 as its limit; keys as in docs/reference/formats.md."""

    model_type = "meta_mamba2"

    num_hidden_layers: int = 30
    head_dim: int = 64
    state_size: int = 128
    n_groups: int = 1
    expand: float = 2
    conv_kernel: int = 4
    use_bias: bool = False
    use_conv_bias: bool = True
    time_step_limit: Any = None
    norm_groups: int = 1
    hidden_act: str = "silu"
    norm_eps: float = 1e-5
    rms_norm: bool = True
    rescale_prenorm_residual: bool = True

    def check(self) -> None:
        super().check()
        if not self.rms_norm:
            _refuse(self, "rms_norm", "true")

    def mixer(self, layer: int) -> PalimpsaM:
        low, high = self.time_step_limit or (0.0, math.inf)
        on = self.layer_rule(layer) == "palimpsa"
        return PalimpsaM(self.hidden_size, self.head_dim, state_size=self.state_size, n_groups=self.n_groups, expand=self.expand,
                         conv_kernel=self.conv_kernel, beta_step_rank=self.beta_step_rank, metaplasticity=on,
                         unused_gate=not on and self.metaplastic_layers is None, use_bias=self.use_bias, use_conv_bias=self.use_conv_bias,
                         time_step_limit=(float(low), math.inf if high is None else float(high)), norm_groups=self.norm_groups,
                         norm_eps=self.norm_eps, initializer_range=self.initializer_range, finetuning=self.finetuning,
                         rescale_layers=self.num_hidden_layers if self.rescale_prenorm_residual else None)


class RecurrentCache:
    """The memories of a batch, one LayerCache for every layer. Its size does not depend on the number of tokens."""

    is_compileable = False

    def __init__(self, layers: int) -> None:
        self.layers = [LayerCache() for _ in range(layers)]
        self.seen_tokens = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.seen_tokens

    def get_max_length(self, layer_idx: int | None = None) -> int:
        return -1

    def batch_select_indices(self, indices: Tensor) -> None:
        for layer in self.layers:
            layer.select(indices)

    reorder_cache = batch_select_indices

    def batch_repeat_interleave(self, repeats: int) -> None:
        rows = next(iter(self.layers[0].windows.values())).shape[0] if self.layers[0].windows else 0
        if rows:
            self.batch_select_indices(torch.arange(rows).repeat_interleave(repeats))

    def crop(self, *_: Any) -> None:
        raise NotImplementedError("a recurrent memory cannot forget its last tokens; keep a copy.deepcopy of the cache instead")


class _DBlock(GradientCheckpointingLayer):
    def __init__(self, config: PalimpsaConfig, layer: int) -> None:
        super().__init__()
        E, width = config.hidden_size, config.mlp_width()
        self.attn_norm, self.mlp_norm = (nn.RMSNorm(E, eps=config.norm_eps) for _ in range(2))
        self.attn = config.mixer(layer)
        self.mlp = nn.ModuleDict({"gate_proj": nn.Linear(E, width, bias=False), "up_proj": nn.Linear(E, width, bias=False),
                                  "down_proj": nn.Linear(width, E, bias=False)})

    def forward(self, h: Tensor, cu_seqlens: Tensor | None, cache: LayerCache | None) -> Tensor:
        h = h + self.attn(self.attn_norm(h), cu_seqlens, cache)
        x = self.mlp_norm(h)
        return h + self.mlp["down_proj"](F.silu(self.mlp["gate_proj"](x)) * self.mlp["up_proj"](x))


class _MBlock(GradientCheckpointingLayer):
    def __init__(self, config: MetaMamba2Config, layer: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.mixer = config.mixer(layer)

    def forward(self, h: Tensor, cu_seqlens: Tensor | None, cache: LayerCache | None) -> Tensor:
        return h + self.mixer(self.norm(h), cu_seqlens, cache)


class _Padding:
    """Packs the tokens of a padded batch one after another, and unpacks what comes of them."""

    def __init__(self, mask: Tensor) -> None:
        lengths = mask.sum(1)
        if (lengths == 0).any():
            raise ValueError(f"attention_mask: row {int((lengths == 0).nonzero()[0])} has no tokens; expected at least one")
        self.shape, self.rows = mask.shape, mask.flatten().nonzero()[:, 0]
        self.cu_seqlens = F.pad(lengths.cumsum(0), (1, 0))

    def pack(self, x: Tensor) -> Tensor:
        return x.flatten(0, 1)[self.rows][None]

    def unpack(self, x: Tensor) -> Tensor:
        whole = x.new_zeros(self.shape[0] * self.shape[1], x.shape[-1])
        return whole.index_copy(0, self.rows, x[0]).unflatten(0, self.shape)


def _padding(attention_mask: Tensor | None, B: int, T: int) -> _Padding | None:
    if attention_mask is None:
        return None
    if attention_mask.ndim != 2 or attention_mask.shape[0] != B or attention_mask.shape[1] < T:
        raise ValueError(f"attention_mask is {list(attention_mask.shape)}; expected [{B}, {T}], or longer with a cache")
    mask = attention_mask[:, -T:] != 0
    return None if bool(mask.all()) else _Padding(mask)


class _PreTrained(PreTrainedModel):
    supports_gradient_checkpointing = True
    _is_stateful = True
    _no_split_modules = ["_DBlock", "_MBlock"]

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().from_pretrained(*args, **kwargs)
        for module in (made[0] if isinstance(made, tuple) else made).modules():
            if isinstance(module, (PalimpsaD, PalimpsaM)):
                module.freeze()  # loading puts new parameters in place of the old
        return made

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if not isinstance(module, (PalimpsaD, PalimpsaM)):
            return
        parameters = dict(module.named_parameters())
        for name, start in module.initial().items():
            if (x := parameters.get(name)) is None:
                continue
            if isinstance(start, Tensor):
                init.copy_(x, start)
            elif isinstance(start, tuple):
                init.uniform_(x, *start)
            else:
                init.constant_(x, start)


class _Model(_PreTrained):
    """Embedding, blocks, final norm."""

    block: type[nn.Module]
    final_norm: str

    def __init__(self, config: Any) -> None:
        config.check()
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(self.block(config, layer) for layer in range(config.num_hidden_layers))
        setattr(self, self.final_norm, nn.RMSNorm(config.hidden_size, eps=config.norm_eps))
        self.gradient_checkpointing = False
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embeddings = value

    def forward(self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, inputs_embeds: Tensor | None = None,
                past_key_values: RecurrentCache | None = None, use_cache: bool | None = None, output_hidden_states: bool | None = None,
                cu_seqlens: Tensor | None = None, return_dict: bool | None = None, **_: Any) -> Any:
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("expected either input_ids or inputs_embeds")
        h = self.embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        B, T = h.shape[:2]
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training
        if self.gradient_checkpointing and self.training:
            use_cache = False
        if past_key_values is not None and not isinstance(past_key_values, RecurrentCache):
            raise TypeError(f"past_key_values is a {type(past_key_values).__name__}; expected a palimpsa.transformers.RecurrentCache")
        cache = past_key_values
        if cache is None and use_cache:
            cache = RecurrentCache(self.config.num_hidden_layers)
        padding = _padding(attention_mask, B, T)
        if padding is not None:
            if cu_seqlens is not None:
                raise ValueError("cu_seqlens and padding in attention_mask exclude each other")
            h, cu_seqlens = padding.pack(h), padding.cu_seqlens
        unpack = padding.unpack if padding is not None else lambda x: x
        hidden = [unpack(h)] if output_hidden_states else []
        for layer, block in enumerate(self.layers):
            h = block(h, cu_seqlens, cache.layers[layer] if cache is not None else None)
            if output_hidden_states:
                hidden.append(unpack(h))
        h = getattr(self, self.final_norm)(unpack(h))
        if cache is not None:
            cache.seen_tokens += T
        made = BaseModelOutputWithPast(last_hidden_state=h, past_key_values=cache if use_cache or past_key_values is not None else None,
                                       hidden_states=tuple(hidden) or None)
        return made if return_dict is not False else made.to_tuple()


class _ForCausalLM(_PreTrained, GenerationMixin):
    """A model with a head, which is the embedding unless the configuration unties it."""

    model_class: type[_Model]

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        setattr(self, self.base_model_prefix, self.model_class(config))
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.base_model.embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.base_model.embeddings = value

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def set_output_embeddings(self, value: nn.Module) -> None:
        self.lm_head = value

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *args: Any, **kwargs: Any) -> Any:
        before, rows = self.config.vocab_size, super().resize_token_embeddings(new_num_tokens, *args, **kwargs)
        if self.config.vocab_size != before:  # all that were asked for are tokens; what is beyond them only pads
            self.config.unpadded_vocab_size = new_num_tokens if new_num_tokens and new_num_tokens < self.config.vocab_size else None
        return rows

    def forward(self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, inputs_embeds: Tensor | None = None,
                past_key_values: RecurrentCache | None = None, labels: Tensor | None = None, use_cache: bool | None = None,
                output_hidden_states: bool | None = None, cu_seqlens: Tensor | None = None, logits_to_keep: int | Tensor = 0,
                return_dict: bool | None = None, **kwargs: Any) -> Any:
        """With cu_seqlens, the one row of input_ids holds sequences one after another. labels are shifted here, and -100 is left out."""
        made = self.base_model(input_ids, attention_mask, inputs_embeds, past_key_values, use_cache, output_hidden_states, cu_seqlens)
        h = made.last_hidden_state
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(h[:, keep])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        out = CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=made.past_key_values, hidden_states=made.hidden_states)
        return out if return_dict is not False else out.to_tuple()

    def _prepare_cache_for_generation(self, generation_config: Any, model_kwargs: dict[str, Any], *_: Any, **__: Any) -> None:
        if generation_config.use_cache is not False and model_kwargs.get("past_key_values") is None:
            model_kwargs["past_key_values"] = RecurrentCache(self.config.num_hidden_layers)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        unpadded = self.config.unpadded_vocab_size
        if unpadded is not None and unpadded < self.config.vocab_size:
            kwargs.setdefault("suppress_tokens", list(range(unpadded, self.config.vocab_size)))  # rows that only pad the embedding
        return super().generate(*args, **kwargs)


class PalimpsaModel(_Model):
    config_class, base_model_prefix, block, final_norm = PalimpsaConfig, "model", _DBlock, "norm"


class PalimpsaForCausalLM(_ForCausalLM):
    config_class, base_model_prefix, model_class = PalimpsaConfig, "model", PalimpsaModel
    _tied_weights_keys = {"lm_head.weight": "model.embeddings.weight"}


class MetaMamba2Model(_Model):
    config_class, base_model_prefix, block, final_norm = MetaMamba2Config, "backbone", _MBlock, "norm_f"


class MetaMamba2ForCausalLM(_ForCausalLM):
    config_class, base_model_prefix, model_class = MetaMamba2Config, "backbone", MetaMamba2Model
    _tied_weights_keys = {"lm_head.weight": "backbone.embeddings.weight"}


for _config, _base, _whole in ((PalimpsaConfig, PalimpsaModel, PalimpsaForCausalLM), (MetaMamba2Config, MetaMamba2Model, MetaMamba2ForCausalLM)):
    AutoConfig.register(_config.model_type, _config, exist_ok=True)
    AutoModel.register(_config, _base, exist_ok=True)
    AutoModelForCausalLM.register(_config, _whole, exist_ok=True)
