"""Sources of a model: its files first, then transformers, then a formula; and names that are none of them."""

from __future__ import annotations

import copy
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.models import config, meta, sources
from paddock.models.errors import ModelError
from tests.models.configurations import CONFIGURATIONS
from tests.support.explore import examples
from tests.support.model_files import EMBEDDING, LLAMA, checkpoint, decoder, gguf, llama_tensors
from tests.support.packages import need


def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meta, "find_spec", lambda _: None)


def test_a_bare_configuration_is_counted_by_transformers(tmp_path: Path) -> None:
    need("torch", "transformers")
    model = sources.checkpoint(checkpoint(tmp_path, {**LLAMA, "quantization_config": {"quant_method": "fp8"}}))
    assert model.source == f"transformers {meta.transformers_version()}"
    assert (model.weight_source, model.facts, model.format) == ("formula", "config.json", "fp8")


def test_without_torch_a_formula_counts_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkpoint(tmp_path, model=llama_tensors())
    table = sources.checkpoint(folder)
    (folder / "model.safetensors").unlink()
    without_torch(monkeypatch)
    model = sources.checkpoint(folder)
    assert (model.source, model.parameters, model.bytes) == ("formula", table.parameters, table.bytes)
    assert model.layers == table.layers


def test_a_kind_without_a_formula_is_counted_by_transformers_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoint(tmp_path, {**LLAMA, "model_type": "stablelm"})
    with monkeypatch.context() as patch:
        without_torch(patch)
        with pytest.raises(ModelError, match=r"a stablelm is not of a kind that is sized by formula") as refused:
            sources.checkpoint(folder)
    assert "torch and transformers here" in str(refused.value)
    need("torch", "transformers")
    assert sources.checkpoint(folder).source.startswith("transformers ")


def test_a_class_says_which_layers_attend(tmp_path: Path) -> None:
    need("torch", "transformers")
    jamba = {**LLAMA, "model_type": "jamba", "num_hidden_layers": 8, "num_experts": 4, "mamba_dt_rank": 4}
    model = sources.checkpoint(checkpoint(tmp_path, jamba))
    assert model.layer_kinds == "8 layers: 7 without attention, with a state, 1 full"
    assert model.cache_bytes(10**6, 1) < 2 * 10**6 * 2 * 2 * 16


def test_a_kind_that_nobody_knows_says_what_transformers_says(tmp_path: Path) -> None:
    need("torch", "transformers")
    with pytest.raises(ModelError, match=r"a nobodys is not of a kind(.|\n)*transformers [\d.]+: ValueError: "):
        sources.checkpoint(checkpoint(tmp_path, {**LLAMA, "model_type": "nobodys"}))


def test_code_that_came_with_a_model_never_runs(tmp_path: Path) -> None:
    need("torch", "transformers")
    ran = tmp_path / "ran"
    (tmp_path / "modeling_own.py").write_text(f"open({str(ran)!r}, 'w')")
    own = {"AutoConfig": "modeling_own.Own", "AutoModelForCausalLM": "modeling_own.Own"}
    for kind in ("llama", "own"):
        folder = checkpoint(tmp_path, {**LLAMA, "model_type": kind, "auto_map": own})
        try:
            assert sources.checkpoint(folder).source.startswith("transformers ")
        except ModelError:
            assert kind == "own"
    assert not ran.exists()


ODD = [None, True, 0, -1, 3, 2**31, 2**70, 1e9, float("nan"), "", "x", [], [1], {}, {"a": 1}, 5000]


@examples(20, 500, deadline=None)
@given(st.sampled_from(sorted(CONFIGURATIONS)), st.data())
def test_a_class_that_raises_is_a_sentence(name: str, data: st.DataObject) -> None:
    need("torch", "transformers")
    values = copy.deepcopy(dict(CONFIGURATIONS[name].config))
    for _ in range(data.draw(st.integers(1, 3))):
        inner = data.draw(st.sampled_from([values, *(item for item in values.values() if isinstance(item, dict))]))
        if inner:
            inner[data.draw(st.sampled_from(sorted(inner)))] = copy.deepcopy(data.draw(st.sampled_from(ODD)))
    try:
        model = sources.of_configuration(config.of(values, "config.json"), name)
    except ModelError:
        return
    assert model.parameters >= 0


@pytest.mark.parametrize("name", ["gemma-3-4b", "Mistral-Small-3.1-24B"])
def test_towers_are_weights_beside_the_layers(name: str, tmp_path: Path) -> None:
    need("torch", "transformers")
    published: Any = dict(CONFIGURATIONS[name].config)
    model = sources.checkpoint(checkpoint(tmp_path, published))
    assert model.parameters == CONFIGURATIONS[name].parameters
    assert 0.3e9 < model.rest.parameters < 0.6e9


def test_a_folder_of_one_file_names_that(tmp_path: Path) -> None:
    gguf(tmp_path / "m.gguf", decoder(), [EMBEDDING])
    with pytest.raises(ModelError, match=r"no config\.json, and 1 \.gguf file\n.*\n    fix: name .*m\.gguf"):
        sources.model(str(tmp_path))


def test_a_file_of_weights_alone_is_not_a_model(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, model=llama_tensors())
    with pytest.raises(ModelError, match=r"does not say what model they are of\n.*\n    fix: name "):
        sources.model(str(folder / "model.safetensors"))


@pytest.mark.parametrize("name", ["", "\0", "x" * 5000, "nothing/here", "llama-3.1-8", "no.gguf"])
def test_a_name_of_nothing_is_a_sentence(name: str) -> None:
    with pytest.raises(ModelError, match="MODEL: "):
        sources.model(name)


def test_a_page_in_place_of_a_file_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_text("<!DOCTYPE html><title>404</title>")
    with pytest.raises(ModelError, match="it does not begin with GGUF"):
        sources.model(str(path))


def test_files_without_tensors_are_believed_and_said(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, model=llama_tensors())
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    model = sources.checkpoint(folder)
    assert model.parameters == 0
    assert "the files are taken as right" in json.dumps(model.notes)
