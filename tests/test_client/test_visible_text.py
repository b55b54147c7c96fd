"""Texts of strangers neither control a terminal nor a page, a comment or a spreadsheet that shows them."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from pathlib import Path

import pytest
from rich.text import Text

from specbench_api.outcome.layout import PLAN, SUMMARY
from specbench_api.plan.plan import Plan
from specbench_client.cli import exit_code, streams
from specbench_client.cli.output import ProgressConsole, ResultConsole
from specbench_client.cli.streams import echo, echo_json
from specbench_client.documents.summary import RunSummary
from specbench_client.report.table_renderers import markdown_code, markdown_report, markdown_sentence, spreadsheet
from specbench_client.report.text.text_table import Report, TextTable, Topic
from specbench_client.visible_text import spreadsheet_text, visible
from specbench_testing.hostile_documents import with_hostile_texts
from specbench_testing.local_results import store_results
from specbench_testing.synthetic_records import SyntheticRun

INVISIBLE = "\x1b\x07\r\x08\x7f\x9b\u202e\u2066\u200b\u200d\u2028\ufeff\xad\U000e0041"
PAYLOAD = f"{INVISIBLE}\n# Passed\n<script>alert(1)</script>`|](javascript:x)![x](http://x/y.png)$\\frac$"


@pytest.mark.parametrize("character", INVISIBLE, ids=ascii)
def test_an_invisible_character_is_shown_as_its_escape(character: str) -> None:
    assert visible(f"a{character}b") == f"a{ascii(character)[1:-1]}b"


def test_visible_text_of_any_language_and_line_breaks_are_unchanged() -> None:
    text = "naïve 日本語 عربى \t– 1.83× 👩 é\nnext"
    assert visible(text) == text


def as_line(console: ResultConsole | ProgressConsole) -> None:
    console.print(PAYLOAD)


def as_styled_text(console: ResultConsole | ProgressConsole) -> None:
    console.print(Text.assemble((PAYLOAD, "red"), "b"))


@pytest.mark.parametrize("write", [as_line, as_styled_text], ids=lambda write: write.__name__)
@pytest.mark.parametrize("kind", [partial(ResultConsole, width=200, markup=False), ProgressConsole])
def test_consoles_print_no_invisible_character(
    write: Callable[[ResultConsole | ProgressConsole], None], kind: Callable[..., ResultConsole | ProgressConsole]
) -> None:
    console = kind(file=io.StringIO())
    write(console)
    assert not set(console.file.getvalue()) & set(INVISIBLE)  # type: ignore[attr-defined]


def test_a_terminals_table_keeps_its_frame_around_escaped_names() -> None:
    console = ResultConsole(file=io.StringIO(), width=200)
    console.print_table(TextTable("t", ["Arm", "x"], [[f"a{INVISIBLE}", "1"], ["b", "2"]], words=["Arm"]))
    lines = console.file.getvalue().splitlines()[1:]  # type: ignore[attr-defined]
    assert len({len(line) for line in lines}) == 1
    assert "\\x1b" in lines[3] or "\\x1b" in lines[2]


def test_printed_lines_are_escaped_and_json_keeps_every_character(capsys: pytest.CaptureFixture[str]) -> None:
    echo(f"error: {PAYLOAD}", err=True)
    echo_json(json.dumps({"name": PAYLOAD}, ensure_ascii=False))
    printed = capsys.readouterr()
    assert not set(printed.err + printed.out) & set(INVISIBLE)
    assert json.loads(printed.out) == {"name": PAYLOAD}


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("# Passed", "\\# Passed"),
        ("- [x] done", "\\- [x] done"),
        ("1. first", "1\\. first"),
        ("1.83x faster", "1.83x faster"),
        ("-0.5 and 2*3", "-0.5 and 2\\*3"),
        ("--- x", "\\--- x"),
        ("> quoted", "\\> quoted"),
        ("a\n\n# Passed", "a # Passed"),
        ("<img src=x onerror=alert(1)>", "&lt;img src=x onerror=alert(1)>"),
        ("[x](javascript:alert(1))", "\\[x\\](javascript:alert(1))"),
        ("![x](http://x/y.png)", "!\\[x\\](http://x/y.png)"),
        ("give `--set a=1` to it", "give `--set a=1` to it"),
        ("give `<b>` and *this*", "give `<b>` and \\*this\\*"),
        ("a ` b", "a \\` b"),
        ("a\x1b[2Jb", "a\\\\x1b[2Jb"),
    ],
)
def test_a_sentence_of_a_stranger_is_one_line_of_plain_markdown(text: str, markdown: str) -> None:
    shown = markdown_sentence(text).replace("\\\\x1b", "\\x1b").replace("\\x1b", "\\\\x1b")
    assert shown == markdown


def test_code_in_markdown_cannot_be_ended_by_its_content() -> None:
    assert markdown_code("a`<b>\n`c") == "`a'<b> 'c`"


def test_cells_of_a_markdown_table_stay_in_their_cells() -> None:
    section = markdown_report(Report([Topic("", [TextTable("a|b", ["x"], [["1 | 2 |\n| 3 | `4"]], words=["x"])])]))
    assert section.splitlines()[-1] == "| 1 \\| 2 \\| \\| 3 \\| \\`4 |"


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ('=HYPERLINK("http://x")', '\'=HYPERLINK("http://x")'),
        ("+1+1", "'+1+1"),
        ("-1+1", "'-1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("\r=1", "\\r=1"),
        ("-1.5", "-1.5"),
        ("+2e3", "+2e3"),
        ("-", "'-"),
        ("eagle3", "eagle3"),
    ],
)
def test_a_spreadsheet_shows_a_strangers_text_and_does_not_evaluate_it(text: str, cell: str) -> None:
    assert spreadsheet_text(text) == cell


def test_numbers_of_a_spreadsheet_stay_numbers() -> None:
    text = spreadsheet([{"=name": "=1", "speedup": -1.5, "missing": None, "not a number": float("nan")}])
    (row,) = csv.DictReader(io.StringIO(text))
    assert row == {"'=name": "'=1", "speedup": "-1.5", "missing": "", "not a number": ""}


WORLD = SyntheticRun(prompts=8, concurrency=(1, 2), repeats=2)
KEPT = {"arm", "workload", "uid", "hash", "load", "unit", "name", "points"}


@pytest.fixture(scope="module")
def hostile_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results whose plan and summary contain the payload in every text that may be any text."""
    results = tmp_path_factory.mktemp("hostile") / "out"
    store_results(WORLD, results, "0190a000-0000-7000-8000-000000000000")
    exit_code(["report", str(results), "--to", str(results / "ignored.json")])
    (root,) = (path.parent for path in results.rglob(PLAN))
    for name, model in ((PLAN, Plan), (SUMMARY, RunSummary)):
        document = json.loads((root / name).read_text())
        changed = with_hostile_texts(document, model, PAYLOAD, KEPT)
        assert changed != document
        (root / name).write_text(json.dumps(changed))
    return root


@pytest.mark.runs
@pytest.mark.parametrize(
    "arguments",
    [
        *(["report", "--output", kind] for kind in ("text", "markdown", "csv", "json", "html")),
        ["report", "--all"],
        *(["decide", "--output", kind] for kind in ("text", "markdown", "json")),
        *(["analyze", "breakdown", "--output", kind] for kind in ("text", "markdown", "json")),
        *(["compare", "--output", kind] for kind in ("text", "markdown", "json")),
        *(["gate", "--output", kind] for kind in ("text", "markdown", "json")),
        ["recover", "--into", "s3://bench"],
    ],
    ids=" ".join,
)
def test_no_command_prints_an_invisible_character_or_markup_of_a_stranger(
    hostile_results: Path, arguments: list[str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    where = str(hostile_results)
    both = {"compare": [where, where], "gate": [where, "--baseline", where]}
    words = [
        word
        for word in arguments
        if not word.startswith("-") and word not in ("text", "markdown", "csv", "json", "html", "s3://bench")
    ]
    code = exit_code([*words, *both.get(words[0], [where]), *arguments[len(words) :]])
    printed = b"".join(capfdbinary.readouterr()).decode()
    assert code in (0, 2, 3), printed
    assert printed
    # A comment breaks mentions with a space of no width, and its own line breaks are no payload.
    assert not set(printed) & set(INVISIBLE) - ({"\u200b"} if "markdown" in arguments else set())
    if "markdown" in arguments:
        assert "\n# Passed" not in printed
        outside_code = re.sub("`[^`\n]*`", "", printed.replace("\\`", ""))
        assert not re.search(r"<script|(?<!\\)\]\((javascript|http)", outside_code)
    if "html" in arguments:
        (script,) = re.findall("<script>(.*?)</script>", printed, flags=re.DOTALL)
        assert printed.count("<script") == 1
        assert script.strip() == (files("specbench_client.report") / "chart.js").read_text(encoding="utf-8").strip()


@pytest.mark.runs
def test_a_picture_of_a_strangers_results_is_drawn(hostile_results: Path, tmp_path: Path) -> None:
    assert exit_code(["report", str(hostile_results), "--to", str(tmp_path / "report.png")]) in (0, 3)
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


def test_commands_print_only_through_the_functions_that_escape() -> None:
    folder = Path(streams.__file__).parent
    direct = [
        file.name
        for file in folder.glob("*.py")
        if re.search(r"click\.(s?echo|secho)\(|(?<![\w.])print\(", file.read_text())
    ]
    assert direct == ["streams.py"]
