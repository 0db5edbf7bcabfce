"""Tokenizers of checkpoints: prompts that are refused, and tokens that end an answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddock.serve.admission.refusal import RequestError
from paddock.serve.engine.tokens import ByteTokens, FileTokens, tokens
from paddock.serve.errors import PromptTooLong, ServeError
from tests.support.packages import need

need("transformers")

from tests.support.tokenizers import SPECIAL, write_tokenizer

LENGTH = 4096


def test_a_chat_goes_through_the_checkpoints_template(tmp_path: Path) -> None:
    own = FileTokens(write_tokenizer(tmp_path, "bytes"))
    ids = own.encode("unused", [{"role": "user", "content": "hello"}], LENGTH)
    assert (ids[0], ids[-1]) == (SPECIAL.index("<s>"), SPECIAL.index("</s>"))
    assert own.decode(ids) == "user: hello"


def test_a_chat_that_the_template_refuses_is_the_requests_fault(tmp_path: Path) -> None:
    own = FileTokens(write_tokenizer(tmp_path, "bytes"))
    with pytest.raises(RequestError, match="chat template refuses them: System role not supported") as error:
        own.encode("", [{"role": "system", "content": "be brief"}], LENGTH)
    assert (error.value.status, error.value.param) == (400, "messages")


def test_a_value_that_is_no_text_is_the_requests_fault(tmp_path: Path) -> None:
    own = FileTokens(write_tokenizer(tmp_path, "bytes", template="{{ messages[0].tool_calls[0].name }}"))
    with pytest.raises(RequestError, match="tokenizer does not take it"):
        own.encode("", [{"role": "assistant", "content": "", "tool_calls": [{"name": "\ud800"}]}], LENGTH)


@pytest.mark.parametrize(("end", "expected"), [(None, {2}), (3, {2, 3}), ([3, 1], {1, 2, 3}), ("x", {2})])
def test_an_answer_ends_at_every_id_that_the_checkpoint_names(tmp_path: Path, end: object, expected: set[int]) -> None:
    assert FileTokens(write_tokenizer(tmp_path, "bytes", end=end)).end == expected


def test_ends_of_the_models_configuration_count_too(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, "bytes")
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": [3]}))
    assert FileTokens(tmp_path).end == {2, 3}


@pytest.mark.parametrize("kind", ["bytes", "pieces"])
def test_a_prompt_that_cannot_fit_is_refused_before_it_is_tokenized(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = FileTokens(write_tokenizer(tmp_path, kind))
    monkeypatch.setattr(own._tokenizer, "encode", None)
    with pytest.raises(
        PromptTooLong, match=r"the prompt has 400000[01] characters, and the context of 64 tokens holds"
    ):
        own.encode("a" * 4_000_000, (), 64)


def test_a_gguf_file_brings_its_tokenizer(tmp_path: Path) -> None:
    need("gguf")
    import gguf

    model = json.loads((write_tokenizer(tmp_path, "bytes") / "tokenizer.json").read_text())["model"]
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(sorted(model["vocab"], key=model["vocab"].get))
    writer.add_token_types([1] * len(model["vocab"]))
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    own = tokens(str(path), 420)
    assert own.end == {2, 3}
    assert own.decode(own.encode("hello \N{ROCKET}", (), LENGTH)) == "hello \N{ROCKET}"


@pytest.mark.parametrize(
    ("file", "only"), [("tekken.json", "only tekken.json"), ("tokenizer.model", "only tokenizer.model"), ("x", "none")]
)
def test_real_weights_never_speak_in_bytes(file: str, only: str, tmp_path: Path) -> None:
    (tmp_path / file).write_bytes(b"\0")
    with pytest.raises(ServeError, match=f"needs its tokenizer, of which it has {only}.*tokenizer.json beside"):
        tokens(str(tmp_path), 4096)


def test_random_weights_speak_in_bytes() -> None:
    assert isinstance(tokens("", 4096), ByteTokens)
    with pytest.raises(PromptTooLong, match="200 characters"):
        ByteTokens(4096).encode("x" * 200, (), 128)
