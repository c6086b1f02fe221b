"""A campaign on a cluster: the same bytes as at home, though a node dies in the midst of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from miles_sim.campaign.local import local
from miles_sim.campaign.on_ray import on_ray
from miles_sim.campaign.run import run
from miles_sim.campaign.settings import CampaignError, CampaignSettings
from miles_sim.campaign.summary import Tally

SETTINGS = CampaignSettings(seed=2, rollouts=64, per_unit=2, faults=("http-*",), contracts=("faults/*",))


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head without processors of its own and three nodes of one each."""
    pytest.importorskip("ray", reason="needs the ray extra")
    from ray import cluster_utils

    made: Any = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        for _ in range(3):
            made.add_node(num_cpus=1)
        made.wait_for_nodes()
        yield made
    finally:
        made.shutdown()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_a_cluster_that_loses_a_node_midway_stores_the_same_bytes(cluster: Any, tmp_path: Path) -> None:
    run(SETTINGS, tmp_path / "home", local(1))
    nodes = list(cluster.worker_nodes)

    def kill(tally: Tally) -> None:
        if tally.scenarios == 8 and nodes:
            cluster.remove_node(nodes.pop(), allow_graceful=False)

    summary = run(SETTINGS, tmp_path / "away", on_ray(cluster.address), progress=kill)
    assert len(nodes) == 2
    assert summary.rollouts == 64
    assert (tmp_path / "away/units.jsonl").read_bytes() == (tmp_path / "home/units.jsonl").read_bytes()


def test_no_cluster_there_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the ray extra")
    with pytest.raises(CampaignError, match="ray: no cluster at 'nonsense'"):
        run(SETTINGS, tmp_path, on_ray("nonsense"))
