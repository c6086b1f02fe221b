"""Hugging Face folders as tokenizers; `hf/checks.py` runs in the interpreter that has transformers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from miles_sim.hf_tokenizer import HuggingFaceTokenizer, _vocab_size
from miles_sim.tokenizer import ByteTokenizer, TokenizerError

HERE = Path(__file__).parent


@pytest.mark.hf
@pytest.mark.skipif("MILES_SIM_HF_PYTHON" not in os.environ, reason="MILES_SIM_HF_PYTHON names no interpreter")
@pytest.mark.parametrize("check", ["same_ids", "boundaries", "refused"])
def test_under_transformers(check: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [os.environ["MILES_SIM_HF_PYTHON"], str(HERE / "hf" / "checks.py"), check, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(HERE.parent), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_missing_transformers_are_told_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(TokenizerError, match=r"transformers is missing; pip install 'miles-sim\[hf\]'"):
        HuggingFaceTokenizer(ByteTokenizer().save(tmp_path))


@pytest.mark.parametrize(
    ("config", "size"),
    [('{"vocab_size": 9}', 9), ('{"text_config": {"vocab_size": 8}}', 8), ('{"vocab_size": "9"}', None), ("{}", None)],
)
def test_the_models_vocabulary_is_as_large_as_its_config_says(config: str, size: int | None, tmp_path: Path) -> None:
    assert _vocab_size(tmp_path) is None
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    assert _vocab_size(tmp_path) == size


@pytest.mark.parametrize("config", ["{", "[]"])
def test_a_config_that_is_none_is_named(config: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"config\.json"):
        _vocab_size(tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="nowhere is no folder"):
        HuggingFaceTokenizer(tmp_path / "nowhere")
