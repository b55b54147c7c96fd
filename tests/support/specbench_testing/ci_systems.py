"""Runs the composite action and the GitLab template as their CI systems do, with an emulated API for comments.

Each script is executed by its shell, in order, with the variables and files of the system. Expressions are replaced as
far as the two files use them; any other one fails the test.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import yaml

ROOT = Path(__file__).resolve().parents[3]
ACTION = ROOT / "examples/github/action.yml"
TEMPLATE = ROOT / "examples/gitlab/specbench.gitlab-ci.yml"
_EXPRESSION = re.compile(r"\$\{\{ ([\w.-]+) \}\}")
_CONDITION = re.compile(r"([\w.-]+) (==|!=) '([^']*)'")
_INPUT = re.compile(r"\$\[\[ inputs\.([\w-]+) \]\]")
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
"""GitHub's `shell: bash`. GitLab sets the same options."""
TOKEN = "a-token"
PULL_REQUEST = 7
"""Number of the pull request and of the merge request."""
OURS = {"user": {"type": "Bot"}, "author": {"id": 1}}
THEIRS = {"user": {"type": "User"}, "author": {"id": 2}}
"""Authors of comments, in the fields of both systems."""


@dataclass
class CommentApi:
    """The comments of one pull request and the answers of both systems' APIs. `refuses`: every change gets a 403."""

    comments: list[dict[str, Any]] = field(default_factory=list)
    refuses: bool = False
    changes: list[str] = field(default_factory=list)
    """Methods of the requests that changed something."""

    def answer(self, method: str, path: str, body: str) -> tuple[int, Any]:
        """Return status and document of a request."""
        parts, last = urlsplit(path), urlsplit(path).path.rpartition("/")[2]
        if method == "GET" and last == "user":
            return 200, OURS["author"]
        if method == "GET":
            query = {name: int(values[0]) for name, values in parse_qs(parts.query).items()}
            first = (query["page"] - 1) * query["per_page"]
            return 200, self.comments[first : first + query["per_page"]]
        if self.refuses:
            return 403, {"message": "Resource not accessible by integration"}
        self.changes.append(method)
        if method == "POST":
            self.comments.append({"id": 1000 + len(self.comments), "body": body, **OURS})
            return 201, self.comments[-1]
        (found,) = [each for each in self.comments if str(each["id"]) == last]
        found["body"] = body
        return 200, found

    def server(self) -> ThreadingHTTPServer:
        """Return a server of this API, not started."""
        api = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                data = self.rfile.read(int(self.headers.get("content-length", 0)))
                given = self.headers.get("authorization", "").removeprefix("Bearer ") or self.headers["private-token"]
                text = json.loads(data)["body"] if data else ""
                status, document = api.answer(self.command, self.path, text) if given == TOKEN else (401, {})
                answer = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the base class's name
                """Log nothing."""

        for method in ("GET", "POST", "PATCH", "PUT"):
            setattr(Handler, f"do_{method}", Handler.handle_any)
        return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


@dataclass(frozen=True)
class JobResult:
    """How a job ended. `outputs`: speedup, trustworthy; `shown`: its log, and GitHub's job summary."""

    code: int
    outputs: Mapping[str, str]
    shown: str
    files: Path
    """The folder of report.html and comment.md, each with the system's own prefix."""


class CiSystem(Protocol):
    """Runs the benchmark job in a folder, with inputs."""

    def run(self, folder: Path, api_url: str, inputs: Mapping[str, str], token: str = "") -> JobResult: ...


def _filled(text: str, contexts: Mapping[str, str]) -> str:
    return _EXPRESSION.sub(lambda found: contexts[found[1]], text)


def _variables(folder: Path) -> dict[str, str]:
    """Return the variables of every process: specbench is found in folder/bin, else as in this test."""
    passed = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PIP_")
    here = {name: value for name, value in os.environ.items() if name.startswith(passed)}
    return {**here, "PATH": f"{folder / 'bin'}:{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(folder)}


def _executed(
    shell: tuple[str, ...], script: Path, cwd: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*shell, str(script)], cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=800, check=False,
    )  # fmt: skip


class GitHub:
    """GitHub's runner, as far as the action needs it. The specbench of this environment is used, unless installed."""

    def run(self, folder: Path, api_url: str, inputs: Mapping[str, str], token: str = "") -> JobResult:
        """Run every step whose condition holds, until one fails."""
        action = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
        temp = folder / "temp"
        temp.mkdir(exist_ok=True)
        given = {"install": "false", "token": token, "pull-request": str(PULL_REQUEST), **inputs}
        assert set(given) <= set(action["inputs"])
        contexts = {f"inputs.{name}": given.get(name, row.get("default")) for name, row in action["inputs"].items()}
        tag = temp / "v9.8.7"  # GitHub's runner has the action in a folder OWNER/NAME/REF
        if not tag.exists():
            tag.symlink_to(ROOT)
        contexts |= {"github.action_path": str(tag / "examples/github"), "github.run_id": "1"}
        contexts |= {"github.server_url": "https://forge", "github.repository": "o/r"}
        env = {**_variables(folder), "RUNNER_TEMP": str(temp), "GITHUB_API_URL": api_url, "GITHUB_REPOSITORY": "o/r"}
        env |= {"GITHUB_WORKFLOW": "bench", "GITHUB_JOB": "gate"}
        files = {name: temp / name.lower() for name in ("GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY")}
        summary, shown, code = "", "", 0
        for number, step in enumerate(action["runs"]["steps"]):
            if code or not self._holds(step.get("if", ""), contexts):
                continue
            for file in files.values():
                file.write_text("")
            script = temp / f"step-{number}"
            script.write_text(step["run"])
            shell = BASH if step["shell"] == "bash" else (step["shell"].removesuffix(" {0}"),)
            own = {name: _filled(text, contexts) for name, text in step.get("env", {}).items()}
            done = _executed(shell, script, folder, {**env, **own, **{name: str(file) for name, file in files.items()}})
            code, shown = done.returncode, f"{shown}{done.stdout}"
            summary += files["GITHUB_STEP_SUMMARY"].read_text()
            rows = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
            contexts |= {f"steps.{step['id']}.outputs.{name}": value for name, value in rows.items()} if rows else {}
            env["PATH"] = ":".join([*files["GITHUB_PATH"].read_text().split(), env["PATH"]])
        values = {name: row["value"] for name, row in action["outputs"].items()}
        outputs = {name: _filled(text, {text[4:-3]: "", **contexts}) for name, text in values.items()}
        return JobResult(code, outputs, shown + summary, temp)

    @staticmethod
    def _holds(condition: str, contexts: Mapping[str, str]) -> bool:
        parts = condition.split(" && ") if condition else []
        terms = [_CONDITION.fullmatch(part) for part in parts]
        assert all(terms), condition
        return all((contexts[term[1]] == term[3]) == (term[2] == "==") for term in terms if term)


class GitLab:
    """GitLab's runner, as far as the template needs it."""

    def run(self, folder: Path, api_url: str, inputs: Mapping[str, str], token: str = "") -> JobResult:
        """Run the script of the job."""
        header, jobs = yaml.safe_load_all(TEMPLATE.read_text(encoding="utf-8"))
        rows, job = header["spec"]["inputs"], jobs["specbench"]
        given = {"image": "none", **inputs}
        assert set(given) <= set(rows)
        allowed = [given[name] in row["options"] for name, row in rows.items() if name in given and "options" in row]
        if not all(allowed):
            return JobResult(2, {}, "", folder)  # GitLab rejects the configuration
        own = {
            name: _INPUT.sub(lambda found: given.get(found[1], rows[found[1]].get("default")), text)
            for name, text in job["variables"].items()
        }
        env = {**_variables(folder), "CI_API_V4_URL": api_url, "CI_PROJECT_ID": "1", "CI_JOB_NAME": "specbench"}
        env |= {"CI_MERGE_REQUEST_IID": str(PULL_REQUEST), "CI_JOB_URL": "https://forge/1", "SPECBENCH_TOKEN": token}
        script = folder / "script"
        script.write_text("\n".join(job["script"]))
        done = _executed(BASH, script, folder, {**env, **own})
        (dotenv,) = {job["artifacts"]["reports"]["dotenv"]}
        lines = (folder / dotenv).read_text().splitlines() if (folder / dotenv).exists() else []
        outputs = {
            name.removeprefix("SPECBENCH_").lower(): value for name, _, value in (line.partition("=") for line in lines)
        }
        return JobResult(done.returncode, outputs, done.stdout, folder / "specbench-report")
