"""Forms of names, hosts and addresses in the configuration, and the words that errors and docs use for them."""

from __future__ import annotations

from typing import Annotated

from swerve.service.config.fields import about

DAY = 86_400  # seconds
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z"
NAMED = "a name of up to 64 letters, digits, '_', '.' or '-'"
OPEN_NAME = r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,63})?\Z"
OPEN_NAMED = f"empty, or {NAMED}"
SPACE_NAME = r"^(\*|[A-Za-z0-9][A-Za-z0-9_.-]{0,63})\Z"
HOST = r"^(\*|[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})|\[?[0-9A-Fa-f:.]{2,45}\]?)\Z"
HOSTED = "a name or an address without a port, or '*' for any"
ORIGIN = r"^https?://([A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?\Z"
ORIGINATED = "an origin such as 'https://search.example.com', without a path"
CREW = r"^(([A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5})?\Z"
CREWED = "empty, or an address and a port such as '10.0.0.1:8351'"
UPSTREAM = r"^(https?://([A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?(/[A-Za-z0-9_./-]*)?)?\Z"
RATE = "Requests a second on average, each entry of a batch counted; more are refused with 429 and `Retry-After`."
BURST = "Requests that may come at once after a pause; 0: those of two seconds at `rate`."
#: The names under which callers reach a listening server: a field of [server] and of [proxy].
Hosts = Annotated[
    tuple[Annotated[str, about("", pattern=HOST, allowed=HOSTED)], ...],
    about(
        "Names that requests may have in `Host`, besides those of the loopback and the address it listens on; `*`: any name.",
        allowed=f"a list in which each entry is {HOSTED}",
    ),
]
