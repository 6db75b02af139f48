"""A Ray cluster: joining it, shipping tasks to its nodes, and playing runs there. This is the only module that names `ray`.

A task is a function of its arguments, so that one whose node is lost is repeated elsewhere with the same result. Policies and
environments travel as text, the user's own files as their source. A node that has other code refuses to play.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import importlib
import importlib.util
import logging
import os
import platform
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from swerve.core.cache import cache_root
from swerve.core.digest import VERSIONS
from swerve.core.errors import SwerveError
from swerve.core.loading import MODULES, load_file, sources
from swerve.core.spec import Spec, walk
from swerve.environments.catalog import environment
from swerve.environments.hurricane import VARIABLE
from swerve.policies.catalog import policy
from swerve.simulate.results import Plan, Run
from swerve.simulate.worlds import Worlds
from swerve.version import __version__

#: The device of tasks on Ray; `ray:ADDRESS` names the cluster.
RAY = "ray"
#: The addresses of Ray's client, which joins a cluster from outside.
CLIENT = "ray://"
#: Times that a task is repeated whose node or process is lost. An error of the task itself is not repeated.
REPEATS = 20
#: Seconds between two looks at what is done, and at Ctrl-C; and until an address counts as unreachable.
LOOK, REACH = 0.2, 5.0
#: Bytes for objects of a Ray that is started here. Results are small, and what does not fit is spilled to the disk.
STORE = 256 << 20
#: Bytes of instances that a process of a node keeps.
ROOM = 1 << 28

#: Sentences of a message of Ray about its nodes that are passed on.
SENTENCES = 2
#: The variables in which Ray looks for an address, and for whether it may listen beyond this machine.
ADDRESS, BEYOND = "RAY_ADDRESS", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"

log = logging.getLogger("swerve.ray")
_joining = threading.RLock()
_joined: list[str] = []  # the address that this process has joined, if any


def is_ray(device: str) -> bool:
    """Return whether a device is a Ray cluster."""
    return device.partition(":")[0] == RAY


def address_of(device: str) -> str:
    """Return the address in a device; it is empty for the Ray of this machine.

    >>> address_of("ray"), address_of("ray:10.0.0.1:6379"), address_of("ray://head:10001"), address_of("ray:ray://head:10001")
    ('', '10.0.0.1:6379', 'ray://head:10001', 'ray://head:10001')
    """
    return device if device.startswith(CLIENT) else device.partition(":")[2]


def need_ray(asked: str) -> None:
    """Refuse what was asked for if Ray is not installed. Nothing is started yet."""
    if importlib.util.find_spec("ray") is None:
        raise SwerveError(f"{asked} needs the package ray; install Swerve with its extra `ray`, here and on every node")


# ---------------------------------------------------------------- joining


def join(device: str) -> Any:
    """Join the cluster of a device once, and return the module `ray`. Without an address: the Ray that runs here, or a new one."""
    need_ray(f'device="{device}"')
    address = address_of(device) or os.environ.get(ADDRESS, "")
    with _joining:
        ray = importlib.import_module("ray")
        vars(importlib.import_module("ray._private.worker"))["print_to_stdstream"] = note
        os.environ.setdefault(
            "RAY_IGNORE_UNHANDLED_ERRORS", "1"
        )  # the first error of several tasks is raised; Ray prints the others
        if ray.is_initialized():  # by an earlier call, or by the caller's own code
            if address and _joined != [address]:
                there = (_joined or ["its own"])[0] or "that of this machine"
                raise SwerveError(f"{device} cannot be joined: this process has joined another Ray ({there})")
            return ray
        quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
        try:
            found = found_at(address)
            if found is None:
                start(ray, quiet)
            else:
                ray.init(address=found, **quiet)
        except Exception as error:
            with contextlib.suppress(Exception):
                ray.shutdown()
            reason = " ".join(str(error).split()) or type(error).__name__
            raise SwerveError(f"{device} cannot be joined: {reason}") from None
        _joined[:] = [address]
        atexit.register(leave)
        return ray


def found_at(address: str) -> str | None:
    """Return the address to join: one at which somebody answers. None, for an empty one: no Ray was started on this machine.

    Ray itself would try to reach an address for minutes.
    """
    found = address
    if not address.startswith(CLIENT):
        services = importlib.import_module("ray._private.services")
        found = services.canonicalize_bootstrap_address(address or None)  # for auto, and for none, what Ray has noted here
    if found is None:
        return None
    host, _, port = found.removeprefix(CLIENT).rpartition(":")
    if not port.isdigit():
        raise SwerveError(f"{found} has no port; an address is auto, HOST:PORT or {CLIENT}HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH).close()
    except (OSError, OverflowError) as error:
        if not address:  # what is noted is of a Ray that has ended
            return None
        raise SwerveError(f"nobody answers at {host}:{port} ({error})") from None
    return found


def start(ray: Any, quiet: dict[str, Any]) -> None:
    """Start a Ray for this process, which nobody can reach from another machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray sends no statistics of use
    constants: Any = importlib.import_module("ray._private.ray_constants")
    # Ray reads both when it starts, and decides by them where it listens
    allowed, before = constants.ENABLE_RAY_CLUSTER, os.environ.get(BEYOND)
    constants.ENABLE_RAY_CLUSTER, os.environ[BEYOND] = False, "0"
    try:
        ray.init(address="local", object_store_memory=STORE, include_dashboard=False, **quiet)
    finally:
        constants.ENABLE_RAY_CLUSTER = allowed
        if before is None:
            del os.environ[BEYOND]
        else:
            os.environ[BEYOND] = before


def note(data: dict[str, Any], ignore_prefix: bool = False) -> None:
    """Log the first sentences of what Ray tells of its nodes. Ray would print pages of it to standard output, where results are."""
    for text in data["lines"]:
        log.warning("%s", ". ".join(" ".join(str(text).split()).split(". ")[:SENTENCES]))


def leave() -> None:
    """Leave the cluster that was joined; a Ray that was started here ends."""
    with _joining:
        if _joined:
            _joined.clear()
            importlib.import_module("ray").shutdown()


# ---------------------------------------------------------------- shipping


def ship(
    device: str, what: str, function: Callable[..., Any], orders: Sequence[tuple[Any, ...]], stop: threading.Event | None = None
) -> Iterator[tuple[int, Any]]:
    """Call a function of this package for each order on the nodes; yield the order's number and its result, as they come.

    An error of a task is raised here; then, and when `stop` is set, the others are cancelled. `what` names the tasks.
    """
    ray = join(device)
    task = ray.remote(swerve_task).options(num_cpus=1, max_retries=REPEATS, retry_exceptions=False, name=f"swerve {what}")
    name = f"{function.__module__}:{function.__qualname__}"
    numbers = {task.remote(versions(), name, *order): number for number, order in enumerate(orders)}
    try:
        while numbers and not (stop is not None and stop.is_set()):
            ready, _ = ray.wait(list(numbers), num_returns=len(numbers), timeout=LOOK)
            for each in ready:
                result = fetched(ray, each, what)
                yield numbers.pop(each), result
    finally:
        for each in numbers:
            with contextlib.suppress(Exception):
                ray.cancel(each, force=True)


def swerve_task(code: str, name: str, *order: Any) -> Any:
    """Call a function by its name, on a node. Errors about input travel as their text: their classes need more to be made again."""
    if code != versions():
        raise SwerveError(f"the node {platform.node()} has other code ({versions()}) than this machine ({code})")
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)(*order)
    except SwerveError as error:
        raise SwerveError(str(error)) from None


def fetched(ray: Any, result: Any, what: str) -> Any:
    """Return the result of a task; raise its own error, or one line about what became of its nodes."""
    try:
        return ray.get(result)
    except ray.exceptions.RayTaskError as error:
        if "failed to import" in str(error):
            raise SwerveError(f"a node of the cluster cannot import Swerve; install Swerve {__version__} there") from error
        raise error.cause from error
    except ray.exceptions.RayError as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SwerveError(f"{what} is lost on the cluster, and was repeated {REPEATS} times: {reason}") from error


# ---------------------------------------------------------------- runs


class Order(NamedTuple):
    """What a node is told of a plan: plain data."""

    policy: str
    environment: str
    pooling: str | int | tuple[int, ...]
    points: int
    spacing: str
    digest: str  # of the plan and of the code that plays it
    code: str  # of the driver: versions, for a message
    files: tuple[tuple[str, bytes], ...]  # the user's own: names and content
    folder: str  # where the command runs, and the folder of recorded data: a node reads files there
    data: str | None


def play_on_ray(plan: Plan, seeds: Sequence[int], device: str, stop: threading.Event) -> Iterator[Run]:
    """Play the runs of a plan on the nodes of a cluster, a task each; yield them as they end."""
    order = order_of(plan)
    for _, (seed, rounds, regret, clicks, counts, facts) in ship(device, "run", play_one, [(order, seed) for seed in seeds], stop):
        yield Run(seed, rounds.copy(), regret.copy(), clicks.copy(), counts, facts)  # those of Ray cannot be written to


def order_of(plan: Plan) -> Order:
    """Return a plan as plain data; refuse one whose classes a node would not know."""
    for part in (*walk(plan.policy), *walk(plan.environment)):
        module = type(part).__module__
        if not module.startswith(("swerve.", MODULES)):
            raise SwerveError(
                f"{type(part).__name__} of {module} is not allowed on Ray: the nodes do not know it; "
                "put it into a file and load that (--load FILE, or swerve.core.loading.load_file)"
            )
    text = plan.as_text()
    if policy(text["policy"]) != plan.policy or environment(text["environment"]) != plan.environment:
        raise SwerveError(f"{text['policy']} on {text['environment']} is not allowed on Ray: its text does not say all of it")
    data = os.environ.get(VARIABLE)
    return Order(
        text["policy"], text["environment"], plan.pooling, plan.points, plan.spacing, plan.digest, versions(), tuple(sources()),
        str(Path.cwd()), None if data is None else str(Path(data).resolve()),
    )  # fmt: skip


def versions() -> str:
    """Return what the bytes of a result depend on, as text."""
    numba, numpy, python, machine = VERSIONS.split()[1:]
    return f"Swerve {__version__}, Python {python}, numba {numba}, NumPy {numpy}, {machine}"


def play_one(order: Order, seed: int) -> tuple[Any, ...]:
    """Play one run, on a node; return the fields of `Run`."""
    from swerve.simulate.runner import play_run

    plan, worlds = understood(order)
    run = play_run(plan, worlds[seed])
    assert run is not None, "nobody stops it"
    return run.seed, run.rounds, run.regret, run.clicks, run.counts, run.facts


@functools.lru_cache(1)
def understood(order: Order) -> tuple[Plan, Worlds]:
    """Return the plan of an order, and the instances that it plays in; refuse to play with other code than the driver's."""
    for name, content in order.files:
        load_file(stored(name, content), f"on the node {platform.node()}: --load")
    with contextlib.suppress(OSError):  # a folder that is not there concerns only those who read files in it
        os.chdir(order.folder)
    if order.data is not None:
        os.environ[VARIABLE] = order.data
    spec = environment(order.environment)
    plan = Plan(policy(order.policy), spec, order.pooling, order.points, order.spacing)
    if plan.digest != order.digest:
        raise SwerveError(f"the node {platform.node()} has other code ({versions()}) than this machine ({order.code})")
    return plan, worlds_of(spec)


@functools.lru_cache(1)
def worlds_of(spec: Spec) -> Worlds:
    """Return the instances of an environment, kept for the next policy that plays in it."""
    return Worlds(spec, ROOM)


def stored(name: str, content: bytes) -> Path:
    """Return the path of a copy of the user's file on this node: one for all processes, in the folder of compiled code."""
    root = cache_root() or Path(tempfile.gettempdir())
    path = root / f"loaded-{hashlib.sha256(content).hexdigest()[:16]}" / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{os.getpid()}-{np.random.default_rng().integers(1 << 32)}.part")
        part.write_bytes(content)
        part.replace(path)
    return path
