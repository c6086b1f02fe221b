"""A picker of one's own under contract. Shown in README.md."""

import pytest

from miles_sim.pytest_plugin import contracts


def without_retries(samples, session_metadata):
    """Leaves whose last request was not asked again later; longest path first, then the latest."""

    def path(sample):
        return sample.metadata["leaf"]["path_node_ids"]

    def asked_again(leaf):
        turn = len(path(leaf)) - 1
        answer = "".join(map(str, leaf.loss_mask)).rpartition("0")[2]
        asked = leaf.tokens[: -len(answer)]
        return any(s.tokens[: len(asked)] == asked and path(s)[turn : turn + 1] > path(leaf)[turn:] for s in samples)

    kept = [sample for sample in samples if not asked_again(sample)]
    return sorted(kept, key=lambda sample: (len(path(sample)), path(sample)[-1]), reverse=True)


@pytest.mark.miles_scenario("retry-*", "subagent-*", session="v2", sample_picker=without_retries)
@contracts("selection/*", "tokens/*")
def test_my_picker(contract, miles_case):
    contract.check_on(miles_case)
