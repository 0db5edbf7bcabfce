"""Loading of a model, weight by weight: each is read, cut to this rank's part and packed before the next one.

So the most that loading takes is what the loaded part takes, and one weight more. The model is built without memory for
its weights first. Checkpoints that transformers alone can read are the exception: they are read whole, on the
processor.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers.initialization import no_init_weights

from paddock.models import gguf
from paddock.models.errors import ModelError
from paddock.models.meta import quiet
from paddock.models.shapes import LLAMA_KIND
from paddock.serve.errors import ServeInputError
from paddock.serve.own import parallel, refusals
from paddock.serve.own.packing.convert import merge, pack
from paddock.serve.own.packing.formats import plain_format
from paddock.serve.own.packing.linear import CpuPlain
from paddock.serve.own.protocol import Spec
from paddock.serve.own.weights import BuiltWeights, CheckpointWeights, RandomWeights, Weights

_PLAIN = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_LAYERS = "model.layers."
_SAME_INPUT = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Layers of Llama's kind that read the same input, in the order in which they are called."""


@dataclass(slots=True)
class Loaded:
    """A model on its device. `unpacked` are the names of layers whose size a packed format does not fit."""

    model: Any
    pack_seconds: float = 0.0
    unpacked: list[str] = field(default_factory=list)
    read_whole: bool = False
    """Whether the checkpoint was read whole on the processor."""


@dataclass(frozen=True, slots=True)
class _Part:
    spec: Spec
    device: torch.device
    rank: int
    ranks: int


_Names = Mapping[int, Sequence[str]]
"""Names of each weight in the whole model, by the weight's identity; several where weights are tied."""


def load(spec: Spec, device: torch.device, rank: int = 0, ranks: int = 1) -> Loaded:
    """Load the part of a model that the spec's layers and the rank name. Raises ServeInputError."""
    part = _Part(spec, device, rank, ranks)
    if not spec.source:
        arguments = spec.shape.config()
        config = transformers.AutoConfig.for_model(arguments.pop("model_type"), **arguments)
        skeleton = _skeleton(config, spec)
        return _filled(skeleton, _names(skeleton, spec), RandomWeights(spec.seed), part)
    try:
        with quiet():
            return _checkpoint(Path(spec.source), part)
    except (ServeInputError, ModelError):
        raise
    except Exception as error:  # safetensors, gguf and transformers have no common one
        reason = str(error).strip().partition("\n")[0]
        raise ServeInputError(
            f"--model: cannot read {spec.source}: {reason}\n"
            "    expected: a folder with config.json and whole .safetensors files, or one whole .gguf file\n"
            "    fix: fetch it again, and compare its size and checksum with those of where it came from"
        ) from None


def _checkpoint(path: Path, part: _Part) -> Loaded:
    spec = part.spec
    if path.is_dir():
        config = transformers.AutoConfig.from_pretrained(path, local_files_only=True)
        refusals.check(refusals.of_transformers(config, spec.shape.name), spec)
        weights = CheckpointWeights.of(path)
        if weights is not None:
            skeleton = _skeleton(config, spec)
            names = _names(skeleton, spec)
            if weights.holds(names.values()):
                return _filled(skeleton, names, weights, part)
    if spec.layers is not None:
        raise ValueError("a stage of a pipeline needs .safetensors with the model's own names")
    if path.is_file():
        refusals.check(gguf.read(path, "--model"), spec)
    folder, file = (path.parent, path.name) if path.is_file() else (path, None)
    more = {"gguf_file": file} if file else {}
    model = transformers.AutoModelForCausalLM.from_pretrained(
        str(folder), dtype=_dtype(spec), local_files_only=True, **more
    ).eval()
    loaded = _filled(model, _names(model, spec), BuiltWeights(), part)
    loaded.read_whole = True
    return loaded


def _dtype(spec: Spec) -> torch.dtype:
    """Return torch's format of what is not packed: fp16 for int8 on a GPU without bf16."""
    if spec.dtype in _PLAIN:
        return _PLAIN[spec.dtype]
    device = torch.device(spec.device)
    return _PLAIN[plain_format(device.type, capability(device))]


def capability(device: torch.device) -> tuple[int, int] | None:
    """Return the compute capability of a GPU of NVIDIA's, None for every other device."""
    if device.type != "cuda" or torch.version.cuda is None:
        return None
    major, minor = torch.cuda.get_device_capability()
    return major, minor


def _skeleton(config: Any, spec: Spec) -> Any:
    """Return the model of a configuration with its buffers, and its weights on the device `meta`.

    That of a stage has the stage's layers, and neither embedding nor output head where they are another's.
    """
    if spec.layers is not None:
        config = _config_of_layers(config, *spec.layers)
    with _weights_on_meta(), no_init_weights():
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=_dtype(spec)).eval()
    model.tie_weights()
    return model


def _config_of_layers(config: Any, start: int, end: int) -> Any:
    if config.model_type not in LLAMA_KIND:
        raise ServeInputError(
            f"--model: a {config.model_type} cannot run in stages\n    expected: one of {', '.join(sorted(LLAMA_KIND))}"
        )
    part, layers = copy.deepcopy(config), config.num_hidden_layers
    for name, value in vars(config).items():
        if isinstance(value, list | tuple) and len(value) == layers:  # such as layer_types
            setattr(part, name, value[start:end])
    part.num_hidden_layers = end - start
    return part


@contextlib.contextmanager
def _weights_on_meta() -> Iterator[None]:
    """Give every weight of modules that are built within no memory; buffers have theirs."""
    register: Any = nn.Module.register_parameter

    def on_meta(module: Any, name: str, weight: Any) -> None:
        register(
            module, name, None if weight is None else nn.Parameter(weight.detach().to("meta"), requires_grad=False)
        )

    nn.Module.register_parameter = on_meta
    try:
        yield
    finally:
        nn.Module.register_parameter = register


def _names(model: Any, spec: Spec) -> _Names:
    """Return the names of the weights, and drop those that a stage has not."""
    start = spec.layers[0] if spec.layers else 0
    names: dict[int, list[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(weight), []).append(_renumbered(name, start))
    if not spec.reads_tokens:
        model.model.embed_tokens = None
    if not spec.gives_tokens:
        model.lm_head, model.model.norm = None, nn.Identity()
    kept = {id(weight) for weight in model.parameters()}
    return {weight: names[weight] for weight in names if weight in kept}


def _renumbered(name: str, start: int) -> str:
    if not start or not name.startswith(_LAYERS):
        return name
    number, _, rest = name.removeprefix(_LAYERS).partition(".")
    return f"{_LAYERS}{int(number) + start}.{rest}"


def _filled(model: Any, names: _Names, weights: Weights, part: _Part) -> Loaded:
    """Read, cut and pack the model's weights in place, one module after the other."""
    loaded, tied = Loaded(model), dict[int, nn.Parameter]()
    for name in [name for name, _ in model.named_modules()]:
        # Nothing here holds a module for longer than its turn: its unpacked weight would stay with it.
        _fill(model.get_submodule(name), name, names, weights, part, tied)
        _pack(loaded, name, part)
        if part.device.type in ("cuda", "cpu") and model.config.model_type in LLAMA_KIND:
            _merge(model, name)
    return loaded


def _fill(
    module: nn.Module, name: str, names: _Names, weights: Weights, part: _Part, tied: dict[int, nn.Parameter]
) -> None:
    for key, buffer in list(module.named_buffers(recurse=False)):
        module._buffers[key] = buffer.to(part.device)
    for key, weight in list(module.named_parameters(recurse=False)):
        filled = tied.get(id(weight))
        if filled is None:
            cut = parallel.cut(f"{name}.{key}", part.rank, part.ranks)
            filled = nn.Parameter(weights.read(names[id(weight)], weight, cut, part.device), requires_grad=False)
            if len(names[id(weight)]) > 1:
                tied[id(weight)] = filled
        module._parameters[key] = filled


def _pack(loaded: Loaded, name: str, part: _Part) -> None:
    layer = loaded.model.get_submodule(name)
    if not isinstance(layer, nn.Linear):
        return
    layer.out_features, layer.in_features = layer.weight.shape
    summed = parallel.is_summed(name, part.ranks)
    if summed and part.rank:
        layer.bias = None  # the sum has it once
    start = time.perf_counter()
    packed = pack(layer, part.spec.dtype, part.device)
    loaded.pack_seconds += time.perf_counter() - start
    if packed is None:
        loaded.unpacked.append(name.rpartition(".")[2])
        packed = CpuPlain(layer.weight, layer.bias) if _is_narrow(layer, part) else layer
    loaded.model.set_submodule(name, parallel.Summed(packed) if summed else packed)


def _is_narrow(layer: nn.Linear, part: _Part) -> bool:
    """Return whether the weights are bf16 and what they multiply is fp32, as on the processor."""
    return part.device.type == "cpu" and bool(layer.weight.dtype == torch.bfloat16)


def _merge(model: Any, name: str) -> None:
    """Merge the layers of which this is the last one."""
    parent, _, last = name.rpartition(".")
    for group in _SAME_INPUT:
        if last == group[-1]:
            module = model.get_submodule(parent)
            parts = merge([getattr(module, layer) for layer in group])
            for layer, part in zip(group, parts or (), strict=bool(parts)):
                setattr(module, layer, part)
