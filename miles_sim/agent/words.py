"""Seeded text that looks like engineering work; never personal data."""

from functools import lru_cache
from typing import Any

_WORDS = """
adapter add align async batch bisect branch buffer build cache check claim clean commit compare config
connection context copy counter cursor deadline decode default deploy diff drain encode endpoint error event
fallback field file fix flag flush fork format guard handler hash header index inspect invariant job key latency
layout ledger leak limit link list loader lock log loop mask measure memory merge message metric migrate module
move node offset option order output packet page parse patch path pin plan pool port prefix probe process
profile prompt protocol prune queue range read rebase record region release rename replay report request reset
resolve retry review revert route row rule run sample scan schema scope seed server session shape shard
signature slot snapshot socket sort span split stack stage state status step stream suite sync table tail target
task test thread timeout token trace transport tree trim type unit update upload validate value vector verify
version walk weight window worker wrap write
""".split()  # noqa: SIM905 - a hundred quoted words would read worse


@lru_cache(maxsize=1)
def _generator() -> Any:
    from faker import Factory

    return Factory.create("en_US", providers=["faker.providers.lorem"])


@lru_cache(maxsize=4096)
def work_words(seed: int, key: str, count: int) -> str:
    """`count` words as one sentence without a full stop: a pure function of its arguments."""
    if count == 0:
        return ""
    fake = _generator()
    fake.seed_instance(f"{seed}:{key}")
    text = " ".join(fake.words(nb=count, ext_word_list=_WORDS))
    return text[0].upper() + text[1:]


def tagged(text: str, tag: str) -> str:
    """`text` with the tag that the engine's reply rules go by."""
    return f"{text} [{tag}]".lstrip()
