"""A Dockerfile carried out without a container engine: every step in an overlay of this machine's root, with `chroot`.

A stage begins with this machine's files in place of its base image, and with this Python as `python`. Nothing that a step writes
reaches the machine: it lands in the upper folder of the overlay. Needs root, `unshare`, `nsenter` and overlay file systems.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: PATH of the official Python images, where this machine's Python comes first.
PATH = f"{sys.base_prefix}/bin:/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
#: What pip needs to reach the index of this machine.
PASSED = re.compile(r"(PIP_(?!REQUIRE|USER|TARGET)\w+|SSL_CERT_\w+|\w+_proxy|\w+_PROXY)\Z")
#: Seconds of one step.
PATIENCE = 1200


def steps(text: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile and their arguments."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(line.split(None, 1)[0].upper(), line.split(None, 1)[1]) for line in joined.splitlines() if line.strip()]


def context_files(root: Path = ROOT) -> list[str]:
    """Return the files of the repository that .dockerignore lets into the build: of its patterns, the last that fits holds."""
    asked = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split("\n")
    patterns = [line for line in (root / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]

    def wanted(name: str) -> bool:
        parts = Path(name).parts
        above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        out = False
        for pattern in patterns:
            plain = pattern.removeprefix("!")
            whole = [plain, plain.removeprefix("**/")]
            if any(fnmatch.fnmatchcase(path, one) for path in above for one in whole):
                out = not pattern.startswith("!")
        return not out

    return sorted(name for name in names if name and (root / name).is_file() and wanted(name))


@dataclass
class Stage:
    """One stage: a root of its own, the settings that later steps see, and the process that holds its mounts."""

    folder: Path
    name: str
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PATH, "HOME": "/root"})
    shell: list[str] = field(default_factory=lambda: ["/bin/sh", "-c"])
    user: str = "0:0"
    workdir: str = "/"
    holder: subprocess.Popen[str] | None = None

    @property
    def root(self) -> Path:
        return self.folder / "merged"

    def open(self) -> Stage:
        """Mount the overlay in a mount namespace of its own."""
        for name in ("upper", "work", "merged"):
            (self.folder / name).mkdir(parents=True)
        made = (
            "mount --make-rprivate / && mount -t overlay overlay "
            f"-o lowerdir=/,upperdir={self.folder}/upper,workdir={self.folder}/work {self.root} "
            f"&& mount --rbind /dev {self.root}/dev && mount -t proc proc {self.root}/proc && mount -t tmpfs tmpfs {self.root}/tmp "
            "&& echo up && exec sleep infinity"
        )
        self.holder = subprocess.Popen(["unshare", "--mount", "sh", "-c", made], stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout is not None
        assert self.holder.stdout.readline() == "up\n"
        base = Path(sys.base_prefix)
        opened = " ".join(shlex.quote(str(part)) for part in [base, *base.parents])
        self.execute(["/bin/sh", "-c", f"chmod o+x {opened}"], user="0:0", workdir="/")  # other users than ours must reach it
        return self

    def command(self, argv: list[str], user: str = "", workdir: str = "", more: dict[str, str] | None = None) -> list[str]:
        """Return the command that runs `argv` inside the stage."""
        assert self.holder is not None
        passed = {name: value for name, value in os.environ.items() if PASSED.match(name)}
        variables = [f"{name}={value}" for name, value in {**passed, **self.environment, **(more or {})}.items()]
        inside = ["sh", "-c", 'cd "$0" && exec "$@"', workdir or self.workdir, *argv]
        entered = [
            "nsenter",
            "--target",
            str(self.holder.pid),
            "--mount",
            "chroot",
            f"--userspec={user or self.user}",
            str(self.root),
        ]
        return [*entered, "env", "-i", *variables, *inside]

    def execute(self, argv: list[str], **where: str) -> str:
        """Run a command to its end; return what it said."""
        done = subprocess.run(
            self.command(argv, **where), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, f"{argv}: {done.stdout[-3000:]}"
        return done.stdout

    def copy(self, sources: list[tuple[str, str]], target: str, mode: str = "") -> None:
        """Copy (path in this stage's view or below /tmp/from, its name) as COPY does: the content of folders, files by name."""
        into = target if target.startswith("/") else os.path.join(self.workdir, target)
        for path, name in sources:
            last = into if os.path.basename(name) == os.path.basename(into.rstrip("/")) or len(sources) == 1 else ""
            script = (
                'if [ -d "$0" ]; then mkdir -p "$1" && cp -a "$0/." "$1/"; '
                'elif [ "${1%/}" != "$1" ]; then mkdir -p "$1" && cp -a "$0" "$1"; '
                'else mkdir -p "$(dirname "$1")" && cp -a "$0" "$1"; fi'
            )
            self.execute(["sh", "-c", script, path, last or into], user="0:0", workdir="/")
        if mode:
            self.execute(["chmod", mode, into], user="0:0", workdir="/")

    def lend(self, outside: Path) -> str:
        """Bind a folder of the machine at /tmp/from; return that path."""
        assert self.holder is not None
        seen = self.root / "tmp" / "from"
        bound = f"mkdir -p {seen} && mount --bind {shlex.quote(str(outside))} {seen}"
        subprocess.run(["nsenter", "--target", str(self.holder.pid), "--mount", "sh", "-c", bound], check=True)
        return "/tmp/from"

    def close(self) -> None:
        """End the holder; its mounts go with it."""
        if self.holder is not None:
            self.holder.kill()
            self.holder.wait()
            assert self.holder.stdout is not None
            self.holder.stdout.close()


@dataclass
class Image:
    """What the last stage came to."""

    stage: Stage
    entrypoint: list[str]
    command: list[str]
    health: list[str]
    volumes: list[str]
    stop: str
    said: list[str]


def build(folder: Path, dockerfile: str, stages: list[Stage]) -> Image:
    """Carry out a Dockerfile. `stages` receives each stage as it begins, so that the caller can close all of them."""
    context = folder / "context"
    for name in context_files():
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, context / name)
    image = Image(Stage(folder, ""), [], [], [], [], "", [])
    by_name: dict[str, Stage] = {}
    for word, rest in steps(dockerfile):
        if word == "ARG":
            continue
        if word == "FROM":
            name = rest.split(" AS ")[-1] if " AS " in rest else f"stage{len(stages)}"
            stage = by_name[name] = image.stage = Stage(folder / name, name)
            stages.append(stage)
            stage.open()
            continue
        stage = image.stage
        if word == "RUN":
            image.said.append(stage.execute([*stage.shell, rest]))
        elif word == "COPY":
            options = dict(re.findall(r"--(\w+)=(\S+)", rest))
            *sources, target = re.sub(r"--\w+=\S+\s+", "", rest).split()
            origin = by_name[options["from"]] if "from" in options else None
            # a stage that ended shows its files in its upper folder: what COPY --from takes was written there
            seen = stage.lend(context if origin is None else origin.folder / "upper")
            stage.copy([(f"{seen}/{source.lstrip('/')}", source) for source in sources], target, options.get("chmod", ""))
        elif word == "ENV":
            stage.environment.update(part.split("=", 1) for part in shlex.split(rest))
        elif word == "SHELL":
            stage.shell = json.loads(rest)
        elif word == "WORKDIR":
            stage.workdir = rest
            stage.execute(["mkdir", "-p", rest], user="0:0", workdir="/")
        elif word == "USER":
            stage.user = rest
        elif word == "HEALTHCHECK":
            image.health = json.loads(rest.partition(" CMD ")[2])
        elif word in ("ENTRYPOINT", "CMD"):
            setattr(image, "entrypoint" if word == "ENTRYPOINT" else "command", json.loads(rest))
        elif word == "VOLUME":
            image.volumes.append(rest)
        elif word == "STOPSIGNAL":
            image.stop = rest
        elif word != "EXPOSE":
            raise AssertionError(f"{word}: this step is not known here")
    return image
