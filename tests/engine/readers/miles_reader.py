"""Asks an engine by miles' own single-turn generate, and prints the samples that come of it.

PYTHON miles_reader.py URL TOKENIZER_FOLDER ASKED        ASKED: JSON list of [text, max_new_tokens]
"""

import asyncio
import importlib
import json
import os
import sys
from types import SimpleNamespace
from urllib.parse import urlsplit


def arguments(url):
    """What the code on this way looks at; every other attribute is an error."""
    return SimpleNamespace(
        sglang_router_ip=urlsplit(url).hostname,
        sglang_router_port=urlsplit(url).port,
        sglang_server_concurrency=4,
        sglang_speculative_algorithm="EAGLE",
        rollout_num_gpus=1,
        rollout_num_gpus_per_engine=1,
        rollout_max_response_len=64,
        rollout_max_context_len=None,
        use_distributed_post=False,
        use_rollout_routing_replay=True,
        use_miles_router=False,
        num_layers=3,
        moe_router_topk=2,
    )


async def samples(url, folder, asked):
    generate = importlib.import_module("miles.rollout.generate_hub.single_turn").generate
    inputs = importlib.import_module("miles.rollout.base_types").GenerateFnInput
    http = importlib.import_module("miles.utils.http_utils")
    sample = importlib.import_module("miles.utils.types").Sample
    tokenizer = importlib.import_module("transformers").AutoTokenizer.from_pretrained(folder)
    state = SimpleNamespace(args=arguments(url), tokenizer=tokenizer, processor=None)
    http.init_http_client(state.args)
    for text, limit in asked:
        one = sample(prompt=[{"role": "user", "content": text}])
        given = inputs(state=state, sample=one, sampling_params={"max_new_tokens": limit}, evaluation=False)
        found = (await generate(given)).samples
        yield {
            "status": found.status.value,
            "tokens": list(found.tokens),
            "response_length": found.response_length,
            "rollout_log_probs": found.rollout_log_probs,
            "weight_versions": found.weight_versions,
            "rollout_routed_experts": found.rollout_routed_experts.tolist(),
            "spec_info": found.spec_info.to_dict(),
            "prefix_cache_info": found.prefix_cache_info.to_dict(),
        }


async def main():
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    json.dump([sample async for sample in samples(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))], said)
    said.close()


if __name__ == "__main__":
    asyncio.run(main())
