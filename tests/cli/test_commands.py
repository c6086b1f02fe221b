"""The command line: exit codes, one clear line where something is impossible, nothing left running."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx
import pytest
from typer.testing import CliRunner

import miles_sim
from miles_sim.cli import app, choices
from miles_sim.cli.commands import IN_ORDER
from miles_sim.engine.settings import EngineSettings
from miles_sim.exits import BROKEN, HOLDS, IMPOSSIBLE, INTERRUPTED, UNREAD, VIOLATED
from miles_sim.resources import CONTRACTS
from miles_sim.verify.pack import load_pack

README = Path(__file__).parents[2] / "README.md"
COMMANDS = ("verify", "run", "scenarios", "contracts", "profiles", "schemas", "serve", "session")
NEVER = '''
from miles_sim.verify import rule


@rule("house/never", level="meaning", reason="To see one fail.", source="this test")
def never(case, see):
    """No case is ever right."""
    see.that(False, "it never is", expected="this", found="that")
'''

HANGING = """
import asyncio


class Target:
    async def describe(self):
        names = ["session.v1", "session.v2"]
        return dict(name="hanging", version="1", python="", optimize=0, capabilities=names, absent={}, stand_ins=[])

    async def play(self, job, agent):
        print("playing", flush=True)
        await asyncio.Event().wait()

    async def close(self):
        print("closed", flush=True)
"""


def _run(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


@contextmanager
def _process(*words: str, cwd: Path | None = None) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.path.remove(''); from miles_sim.cli import main; main()", *words],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _serving_url(stream: IO[str] | None) -> str:
    assert stream is not None
    found = re.search(r"http://\S+?(?=[;\s])", stream.readline())
    assert found
    return found[0]


def test_help_teaches_every_command_with_an_example() -> None:
    text = _run("--help").output
    assert "miles-sim verify --target miles --python" in text
    for command in COMMANDS:
        assert command in text
    for command in ("verify", "run", "serve"):
        assert f"miles-sim {command} " in _run(command, "--help").output


@pytest.mark.parametrize("place", ["help", "README"])
def test_every_exit_code_is_told(place: str) -> None:
    text = _run("--help").output if place == "help" else README.read_text(encoding="utf-8")
    told = re.search(r"Exit code:? 0.*?\.\n", text, re.DOTALL)
    assert told
    codes = [HOLDS, VIOLATED, IMPOSSIBLE, BROKEN, INTERRUPTED, UNREAD]
    assert re.findall(r"\d+", told[0]) == list(map(str, codes))


def test_the_version_is_the_packages() -> None:
    assert _run("--version").output == f"miles-sim {miles_sim.__version__}\n"


def test_help_loads_nothing_heavy() -> None:
    code = "import sys, miles_sim.cli, miles_sim.pytest_plugin; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "starlette", "uvicorn", "httpx", "faker", "safetensors", "jinja2"} & set(loaded)


def test_help_says_of_each_command_what_it_does_uncut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = _run("--help").output.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == [*IN_ORDER, "bench"]
    assert [line for line in listed if line.endswith("...")] == []


@pytest.mark.parametrize("command", ["scenarios", "contracts", "profiles"])
def test_a_list_is_one_line_an_entry_and_the_same_as_json(command: str) -> None:
    lines = _run(command).output.splitlines()
    document = json.loads(_run(command, "--json").output)
    assert len(lines) == len(document) > 0
    names = list(document) if isinstance(document, dict) else [entry.get("id") or entry["name"] for entry in document]
    assert [line.split()[0] for line in lines] == names


def test_profiles_are_listed_in_short_lines_that_say_which_one_serve_speaks_and_one_tells_its_source() -> None:
    listed = _run("profiles").output.splitlines()
    assert max(map(len, listed)) <= 100
    (default,) = (line for line in listed if "default of serve" in line)
    assert default.split()[0] == EngineSettings().profile
    assert not any("srt/" in line for line in listed)
    told = " ".join(_run("profiles", "sglang-0.5.23").output.split())
    assert json.loads(_run("profiles", "sglang-0.5.23", "--json").output)["source"] in told


def test_a_profile_is_given_whole_whatever_it_differs_from() -> None:
    document = json.loads(_run("profiles", "sglang-0.5.23", "--json").output)
    assert (document["name"], document["sglang"]) == ("sglang-0.5.23", "0.5.23")
    assert "base" not in document
    assert {"meta_info", "generate", "chat", "completions", "usage", "source"} <= set(document)
    assert document in json.loads(_run("profiles", "--json").output)


def test_schemas_lists_the_documents_and_prints_one() -> None:
    names = _run("schemas").output.split()
    assert "scenario" in names
    assert json.loads(_run("schemas", "scenario").output)["title"] == "Scenario"
    assert json.loads(_run("schemas", "engine-sglang-0.5.16").output)["properties"].keys() == {
        "/v1/chat/completions",
        "/generate",
    }
    published = (CONTRACTS / "schemas" / "versions.txt").read_text(encoding="utf-8")
    assert set(_run("schemas", "--versions").output.splitlines()) <= set(published.splitlines())  # and earlier ones


def test_run_shows_a_case_and_gives_it_as_json() -> None:
    text = _run("run", "subagent-fork-after").output
    assert text.startswith("miles-sim case/1\nsubagent-fork-after: ")
    document = json.loads(_run("run", "subagent-fork-after", "--json").output)
    assert set(document) == {"scenario", "ledger", "observation"}
    assert document["observation"]["session"] == "v2"


def test_run_plays_the_session_that_is_asked_for() -> None:
    assert "session v1," in _run("run", "tools", "--session", "v1").output
    assert _run("run", "tools/v1").output == _run("run", "tools", "--session", "v1").output


@pytest.fixture
def _foreign(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example target is found: it has linear sessions only."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "examples"))
    yield
    sys.modules.pop("foreign_target", None)


@pytest.mark.usefixtures("_foreign")
def test_run_takes_the_latest_session_that_the_target_has_and_refuses_what_it_has_not() -> None:
    words = ["run", "--target", "foreign_target:ForeignTarget"]
    latest = _run(*words, "linear")
    assert (latest.exit_code, "session v1," in latest.output) == (0, True), latest.output
    why = "it needs session.v2: a recorder keeps one line of history"
    for asked in (["linear", "--session", "v2"], ["linear/v2"], ["subagent-fork-after"]):
        refused = _run(*words, *asked)
        told = f"miles-sim: target: foreign cannot play {asked[0].partition('/')[0]}/v2: {why}"
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr.startswith(told)
    shrunk = _run("shrink", *words[1:], "linear/v2")
    assert (shrunk.exit_code, shrunk.stdout, why in shrunk.stderr) == (2, "", True)


def test_the_same_run_gives_the_same_text_and_another_seed_another() -> None:
    assert _run("run", "tools").output == _run("run", "tools").output != _run("run", "tools", "--seed", "1").output


def test_verify_exits_0_where_all_holds() -> None:
    result = _run("verify", "--scenario", "tools", "--contract", "identity/*")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1].startswith("reference holds: ")


def test_verify_exits_1_where_something_is_violated_and_says_how_to_see_it(tmp_path: Path) -> None:
    (tmp_path / "house.py").write_text(NEVER, encoding="utf-8")
    result = _run("verify", "--contracts", str(tmp_path), "--contract", "house/*", "--scenario", "tools/v2")
    assert result.exit_code == 1
    (repro,) = (line.split() for line in result.output.splitlines() if line.startswith("    miles-sim verify"))
    assert _run(*repro[1:]).output == result.output


@pytest.mark.parametrize("name", ["own", "linear"])
def test_a_violation_in_a_scenario_file_is_shown_again_from_that_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "never.py").write_text(NEVER.replace("False", "case.scenario.title != 'My own'"), encoding="utf-8")
    file = tmp_path / "my file.yaml"
    file.write_text(f"name: {name}\ntitle: My own\nplan: {{steps: [{{do: say}}]}}\n", encoding="utf-8")
    words = ["verify", "--contracts", str(tmp_path), "--scenario", str(file), "--contract", "house/never"]
    (repro,) = {result["repro"] for result in json.loads(_run(*words, "--json", "-").stdout)["results"]}
    again = _run(*shlex.split(repro)[1:])
    assert again.exit_code == 1, again.output
    assert repro in again.output


def test_two_scenarios_of_one_name_are_refused(tmp_path: Path) -> None:
    files = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for file in files:
        file.write_text("name: linear\ntitle: My own\nplan: {steps: [{do: say}]}\n", encoding="utf-8")
    both = _run("verify", *(f"--scenario={file}" for file in files))
    assert (both.exit_code, both.stdout) == (2, "")
    assert f"scenario: {files[0]} and {files[1]} are both named 'linear'" in both.stderr
    beside = _run("verify", f"--scenario={files[0]}", "--scenario=lin*")
    assert (beside.exit_code, beside.stdout) == (2, "")
    assert f"scenario: {files[0]} and a built-in one are both named 'linear'" in beside.stderr


@pytest.mark.parametrize("words", [["contracts"], ["verify", "--scenario", "tools/v2"]])
def test_output_whose_reader_is_gone_is_told_by_a_code_of_its_own(words: list[str]) -> None:
    with _process(*words) as process:
        assert process.stdout is not None
        process.stdout.close()
        code = process.wait(60)
        assert process.stderr is not None
        assert (code, process.stderr.read()) == (141, "")


def test_a_scenario_file_is_judged_like_a_named_one(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("name: own\ntitle: My own\nplan: {steps: [{do: say}]}\n", encoding="utf-8")
    result = _run("verify", "--scenario", str(file), "--contract", "tokens/*")
    assert result.exit_code == 0, result.output
    assert "1 case:" in result.output


@pytest.mark.parametrize(
    ("skip", "left"),
    [
        ("fault-*", {"tools/v1", "tools/v2", "own/v2"}),
        ("tools/v1", {"tools/v2", "own/v2"}),
        ("own", {"tools/v1", "tools/v2"}),
        ("linear", {"tools/v1", "tools/v2", "own/v2"}),
    ],
)
def test_skip_leaves_out_what_it_matches_and_may_name_what_was_not_chosen(
    tmp_path: Path, skip: str, left: set[str]
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("name: own\ntitle: My own\nplan: {steps: [{do: say}]}\n", encoding="utf-8")
    chosen = choices.chosen_cases(["tools", str(file)], [skip])
    assert {f"{scenario.name}/{session}" for scenario, session in chosen} == left


def test_the_json_report_is_the_same_bytes_each_time_in_a_file_or_on_stdout(tmp_path: Path) -> None:
    words = ["verify", "--scenario", "twins", "--contract", "tokens/*", "--json"]
    _run(*words, str(tmp_path / "report.json"))
    with _process(*words, "-") as process:
        stdout, stderr = process.communicate()
    assert stdout == (tmp_path / "report.json").read_text(encoding="utf-8")
    assert json.loads(stdout)["schema"] == "miles-sim/report/3"
    assert "reference holds" in stderr


def test_each_kind_of_report_is_written_the_same_each_time(tmp_path: Path) -> None:
    kinds = ("json", "junit", "markdown", "html")
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        words = [word for kind in kinds for word in (f"--{kind}", str(tmp_path / name / kind))]
        assert _run("verify", "--scenario", "twins", "--contract", "tokens/*", *words).exit_code == 0
    for kind in kinds:
        first, second = ((tmp_path / name / kind).read_bytes() for name in ("first", "second"))
        assert first == second != b""


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["run", "no-such"], "no-such"),
        (["run", "no-such.yaml"], "no-such.yaml"),
        (["run", "tools", "--session", "v9"], "v9"),
        (["run", "twins", "--session", "v1"], "v1"),
        (["verify", "--scenario", "no-such-*"], "no-such-*"),
        (["verify", "--contract", "no-such/*"], "no-such/*"),
        (["verify", "--contracts", "no-such-folder"], "no-such-folder"),
        (["verify", "--baseline", "no-such.yaml"], "no-such.yaml"),
        (["verify", "--target", "no-such"], "no-such"),
        (["verify", "--target", "no_such:factory"], "no_such"),
        (["verify", "--python", "/no/such/python"], "/no/such/python"),
        (["serve", "--profile", "no-such"], "no-such"),
        (["serve", "--speculative", "MAGIC"], "MAGIC"),
        (["serve", "--acceptance", "much"], "much"),
        (["serve", "--acceptance", "0.5", "--accept-length", "2"], "exclude each other"),
        (["serve", "--clock", "sundial"], "sundial"),
        (["serve", "--max-running-requests", "2"], "latency.clock"),
        (["serve", "--spool", "/no/such/folder/l.jsonl"], "spool: /no/such/folder"),
        (["serve", "--engines", "3", "--port", "1", "--port", "2"], "2 ports for 3 engines"),
        (["serve", "--settings", "no-such.yaml"], "no-such.yaml"),
        (["schemas", "no-such"], "no-such"),
        (["verify", "--seed", "-1"], "--seed"),
        (["verify", "--nonsense"], "--nonsense"),
        (["verify", "--skip", "no-such"], "skip: 'no-such' matches none of the "),
        (["verify", "--scenario", "tools", "--skip", "zzz*"], "skip: 'zzz*' matches none of the "),
        (["verify", "--scenario", "tools", "--skip", "tools"], "skip: nothing is left to play"),
        (["verify", "--target", "json:loads"], "'json:loads', called without arguments, raised TypeError"),
        (["verify", "--target", "builtins:list"], "gave a list without describe, play, close"),
        (["verify", "--json", "r", "--junit", "./r", "--scenario", "linear"], "junit: r is written by --json too"),
        (["run", "tools/v9"], "session: 'v9' cannot serve tools; it has v1, v2"),
        (["run", "no-such/v2"], "scenario: 'no-such' is not built in"),
        (["run", "tools/v1", "--session", "v2"], "session: 'v2' is asked for, and tools/v1"),
        (["run", "linear", "--faults-out", "/no/such/f.yaml"], "faults_out: /no/such/f.yaml: there is no folder"),
        (["chaos", "--upstream", "http://x", "--journal", "/no/such/j"], "journal: /no/such/j: there is no folder"),
        (["bench", "merge", "--checkout", "m"], "checkout: m: --miles-python is due beside it"),
        (["bench", "engine", "--checkout", "m"], "checkout: m: --miles-python is due beside it"),
        (["campaign", "--ray", "auto", "--workers", "2"], "workers: 2 beside --ray"),
        (["faults", "--session", "v1"], "session: v1: of use with --write alone"),
        (["faults", "http-503", "--layer", "http"], "layer: 'http' beside the kind 'http-503'"),
        (["rows", "rows.json", "--date", "2026-01-01"], "date: 2026-01-01: of use with --report alone"),
        (["verdicts", "no-such"], "no-such: there is no such folder"),
        (["faults", "--page", "no-such"], "no-such: there is no such folder"),
        (["digest", "r.json", "--label", "x", "--date", "2026-13-01"], "date: '2026-13-01' is no day"),
        (["verify", "--json", "/proc/foo", "--scenario", "linear"], "json: /proc/foo: No such file or directory"),
        (["run", "linear", "--faults-out", "/proc/foo"], "faults_out: /proc/foo: No such file or directory"),
        (["campaign", "--out", "/proc/foo"], "out: /proc/foo: No such file or directory"),
        (["campaign", "--out", __file__], f"out: {__file__} is no folder"),
        (["campaign", "--out", f"{__file__}/x"], f"out: {__file__}/x: Not a directory"),
        (["search", "--out", __file__], f"out: {__file__} is no folder"),
        (["faults", "--write", "/proc/foo"], "write: /proc/foo: No such file or directory"),
        (["verify", "--html", "/", "--scenario", "linear"], "html: /"),
        (["verify", "--junit", "/no/such/folder/j.xml", "--scenario", "linear"], "junit: /no/such/folder"),
        (["verify", "--json", "/no/such/folder/report.json", "--scenario", "linear"], "/no/such/folder"),
    ],
)
def test_what_is_impossible_exits_2_and_names_it(words: list[str], named: str) -> None:
    result = _run(*words)
    assert result.exit_code == 2, result.output
    assert named in result.stderr
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) <= 4


def test_a_file_or_folder_that_is_only_tried_is_left_as_it_was(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("as it was", encoding="utf-8")
    before = there.stat().st_mtime_ns
    choices.chosen_files(json=there, html=tmp_path / "html", junit=Path("/dev/null"), markdown=Path("-"))
    choices.chosen_folder(out=tmp_path / "a" / "b")
    choices.chosen_folder(out=tmp_path)
    assert list(tmp_path.iterdir()) == [there]
    assert (there.read_text(encoding="utf-8"), there.stat().st_mtime_ns) == ("as it was", before)


def test_a_fault_of_ones_own_is_no_violation() -> None:
    code = "import sys, miles_sim.cli as c, miles_sim.cli.commands; c.commands._serve = None; c.main()"
    done = subprocess.run([sys.executable, "-c", code, "serve", "--port", "0"], capture_output=True, text=True)
    assert done.returncode == 3
    assert "Traceback" in done.stderr


LOADING = """
import os, signal, sys
from miles_sim.cli import main


class Finder:
    def find_spec(name, path=None, target=None):
        if name == WHEN:
            os.kill(os.getpid(), signal.SIGINT)


sys.meta_path.insert(0, Finder)
main()
"""


@pytest.mark.parametrize("when", ["typer", "miles_sim.cli.run", "miles_sim.verify.play", "miles_sim.report.case"])
def test_ctrl_c_while_a_command_is_loading_ends_it_quietly(when: str) -> None:
    code = LOADING.replace("WHEN", repr(when))
    done = subprocess.run([sys.executable, "-c", code, "run", "linear"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_serve_answers_until_it_is_stopped_and_leaves_nothing(sent: signal.Signals, code: int) -> None:
    with _process("serve", "--port", "0", "--speculative", "EAGLE") as process:
        url = _serving_url(process.stdout)
        body = {"model": "sim", "messages": [{"role": "user", "content": "hello"}], "return_meta_info": True}
        reply = httpx.post(f"{url}/v1/chat/completions", json=body).json()
        assert reply["usage"]["completion_tokens"] > 0
        process.send_signal(sent)
        _, stderr = process.communicate()
    assert (process.returncode, stderr) == (code, "")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")


def test_serve_has_several_engines_say_the_same_under_ids_of_their_own_and_stops_them_together() -> None:
    with _process("serve", "--port", "0", "--engines", "2") as process:
        assert process.stdout is not None
        urls = re.findall(r"http://[^ ;]+", process.stdout.readline())
        body = {"model": "sim", "messages": [{"role": "user", "content": "hello"}]}
        replies = [httpx.post(f"{url}/v1/chat/completions", json=body).json() for url in urls]
        process.send_signal(signal.SIGTERM)
        process.communicate()
    first, second = replies
    assert first["choices"] == second["choices"]
    assert first["id"] != second["id"]
    for url in urls:
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/health")


def test_ctrl_c_ends_a_run_that_hangs_and_closes_the_target_of_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(HANGING, encoding="utf-8")
    with _process("verify", "--target", "own:Target", "--scenario", "linear", cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "playing\n"
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate()
    assert (process.returncode, stdout, stderr) == (130, "closed\n", "")


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = _run("serve", "--port", port)
    assert result.exit_code == 2
    assert port in result.stderr


def test_the_pack_listed_is_the_one_in_use() -> None:
    listed = {entry["id"] for entry in json.loads(_run("contracts", "--json").output)}
    assert listed == {rule.id for rule in load_pack(CONTRACTS)}
