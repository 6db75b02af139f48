"""A real service as a child process, a client, two hundred users, and the service's explanation.

Of four pages about "jaguar", most users want the cat. The search engine does not know that; the service learns it.
"""

import contextlib
import json
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import swerve

CONFIG = """
[policy]
arms = 8
grace_seconds = 0.05   # seconds before a play without a click counts as a skip; here clicks come at once

[signals.numbers]
news = "count"
"""
PAGES = {"car-maker": 0.15, "big-cat": 0.60, "guitar": 0.05, "old-computer": 0.02}  # id → click probability on top
USERS = 200


@contextlib.contextmanager
def service(config: str) -> Iterator[str]:
    """Run `swerve serve` on a free port with a temporary store; yield its address when it is ready."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "swerve.toml")
        file.write_text(config, encoding="utf-8")
        store = f"sqlite:///{folder}/swerve.db"
        command = [sys.executable, "-m", "swerve", "serve", "--config", str(file), "--port", "0", "--store", store]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert child.stdout is not None
            ready = next((line for line in child.stdout if line.startswith("ready: ")), "")
            if not ready:
                raise SystemExit(f"the service did not start: {' '.join(command)}")
            yield ready.split()[1]
        finally:
            child.send_signal(signal.SIGTERM)  # answers requests in progress, writes everything, and exits
            child.communicate()


def main() -> None:
    users = random.Random(0)
    print("starting a service (the first start compiles, for a minute)")
    with service(CONFIG) as address, swerve.Client(address, timeout=2.0) as client:
        first = client.rank("jaguar", list(PAGES), session="user-0")
        print("first ranking:", first.ranking, "with probability", first.probability)
        for user in range(1, USERS):
            answer = client.rank("jaguar", list(PAGES), session=f"user-{user}")
            top = answer.ranking[0]
            client.feedback(answer.decision, top if users.random() < PAGES[top] else None)

        state = client.state("jaguar")
        print(f"after {state.requests} requests, phase {state.phase}:")
        for arm in state.arms:
            print(f"  {arm.id:<14}{arm.plays:>4} times on top, {arm.clicks:>3} clicks")
        print("signals of the last request:", json.dumps(state.signals))

        print("an operator reports a shift: phase", client.shift("jaguar"))
        alarm = client.state("jaguar").alarms[0]
        print(f"the last alarm: signal {alarm.signal}, verdict {alarm.verdict}, phase {alarm.phase}")
    print("stopped; everything was written")


if __name__ == "__main__":
    main()
