"""What is wrong, grouped: by contract and shape of message, the gravest first, the most telling shown."""

from miles_sim.report.groups import groups, shape
from miles_sim.verify.report import ContractView, Finding, Report, Result, TargetView, Verdict, summarise
from miles_sim.verify.rule import Case


def _report(*found: tuple[str, str, str, Finding]) -> Report:
    """(contract, severity, case, finding) each as one violated result."""
    results = tuple(
        Result(scenario=case, contract=contract, verdict=Verdict.VIOLATION, findings=(finding,))
        for contract, _, case, finding in found
    )
    severities = {contract: severity for contract, severity, _, _ in found}
    contracts = tuple(
        ContractView(id=id, statement="s", severity=severity, level="meaning", witnesses=1, verdict=Verdict.VIOLATION)
        for id, severity in severities.items()
    )
    return Report(
        target=TargetView(name="t", version="1", python="3"),
        seed=0,
        summary=summarise(results, contracts),
        contracts=contracts,
        results=results,
    )


def _finding(message: str, **more: object) -> Finding:
    return Finding.model_validate({"where": "case", "message": message, **more})


def test_messages_that_differ_in_figures_alone_are_one_group() -> None:
    report = _report(
        ("a/x", "must", "one/v1", _finding("3 of 4 ids")), ("a/x", "must", "two/v1", _finding("17 of 20.5 ids"))
    )
    (group,) = groups(report)
    assert (group.shape, group.cases) == ("# of # ids", ("one/v1", "two/v1"))
    assert shape("no figure") == "no figure"


def test_the_gravest_and_most_frequent_come_first() -> None:
    report = _report(
        ("a/often-but-mild", "should", "one/v1", _finding("m")),
        ("a/often-but-mild", "should", "two/v1", _finding("m")),
        ("b/once", "must", "one/v1", _finding("m")),
        ("c/twice", "must", "one/v1", _finding("m")),
        ("c/twice", "must", "two/v1", _finding("m")),
    )
    assert [group.contract.id for group in groups(report)] == ["c/twice", "b/once", "a/often-but-mild"]


def test_the_hit_shown_names_tokens_and_stands_in_the_shortest_sample(case: Case) -> None:
    places = [{"rollout": 0, "sample": sample, "tokens": ((1, 2),)} for sample in (0, 2)]
    report = _report(
        ("a/x", "must", case.name, _finding("m")),
        *(("a/x", "must", case.name, _finding("m", **place)) for place in places),
    )
    (group,) = groups(report)
    lengths = [len(sample.tokens) for sample in case.observation.rollouts[0].samples]
    assert lengths[2] < lengths[0]
    assert group.telling({case.name: case}).finding.sample == 2
