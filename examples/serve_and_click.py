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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import swerve

CONFIG = """
[policy]
arms = 8
grace_seconds = 0.05   # seconds before a play without a click counts as a skip; here clicks come at once

[signals.numbers]
news = "count"
"""
LIKES = {"car-maker": 0.15, "guitar": 0.05, "big-cat": 0.60, "old-computer": 0.02}  # id → probability of a click when seen
LOOK_ON = 0.8  # probability that a user looks at one more result
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


def clicked(users: random.Random, ranking: Sequence[str], likes: Mapping[str, float]) -> str | None:
    """Let a user go down the page and click the first result that pleases; return it, or None."""
    for result in ranking:
        if users.random() < likes[result]:
            return result
        if users.random() > LOOK_ON:
            break
    return None


def main() -> None:
    users, tops = random.Random(0), Counter[str]()
    print("starting a service (the first start compiles, for a minute)")
    with service(CONFIG) as address, swerve.Client(address, timeout=2.0) as client:
        for user in range(USERS):
            answer = client.rank("jaguar", list(LIKES), session=f"user-{user}")
            if user == 0:
                print("first ranking:", answer.ranking, "with propensities", answer.propensities)
            tops[answer.ranking[0]] += 1
            client.feedback(answer.decision, clicked(users, answer.ranking, LIKES))
        print("last ranking: ", answer.ranking, "with propensities", answer.propensities)

        state = client.state("jaguar")
        print(f"after {state.requests} requests, phase {state.phase}:")
        for arm in state.arms:
            print(f"  {arm.id:<14}{tops[arm.id]:>4} times on top, {arm.clicks:>3} clicks at any position")
        print("signals of the last request:", json.dumps(state.signals))

        print("an operator reports a shift: phase", client.shift("jaguar"))
        alarm = client.state("jaguar").alarms[0]
        print(f"the last alarm: signal {alarm.signal}, verdict {alarm.verdict}, phase {alarm.phase}")
    print("stopped; everything was written")


if __name__ == "__main__":
    main()
