"""The directory of a store in a Valkey server: three hashes behind the prefix of share 0.

directory   hash: `shares`, `secrets`
machines    hash: a machine by its address, as JSON
owners      hash: the owner of a share by its number, as JSON
"""

from __future__ import annotations

import msgspec

from swerve.store.directory import Closing, Machine, Owner, Seen, Shares
from swerve.store.valkey_link import Link
from swerve.store.valkey_scripts import script_of
from swerve.store.valkey_server import promise_of, wait_for_replicas
from swerve.store.valkey_urls import address_of

#: Seconds that a call may take.
SECONDS = 2.0

#: ARGV: shares, fingerprint. Returns what is known.
BEGIN = script_of("""
if redis.call('EXISTS', p .. 'directory') == 0 then redis.call('HSET', p .. 'directory', 'shares', ARGV[1], 'secrets', ARGV[2]) end
return redis.call('HMGET', p .. 'directory', 'shares', 'secrets')
""")
#: ARGV: address, machine.
BEAT = script_of("redis.call('HSET', p .. 'machines', ARGV[1], ARGV[2])\nreturn 1", "allow-oom")
#: ARGV: address, boot.
LEAVE = script_of(
    """
local machine = redis.call('HGET', p .. 'machines', ARGV[1])
if machine and cjson.decode(machine)[2] == ARGV[2] then redis.call('HDEL', p .. 'machines', ARGV[1]) end
return 1
""",
    "allow-oom",
)
#: ARGV: share, epoch, owner. Returns 0 if one of a later epoch is known.
OWN = script_of(
    """
local owner = redis.call('HGET', p .. 'owners', ARGV[1])
if owner and cjson.decode(owner)[2] > tonumber(ARGV[2]) then return 0 end
redis.call('HSET', p .. 'owners', ARGV[1], ARGV[3])
return 1
""",
    "allow-oom",
)
#: ARGV: share, epoch.
LET_GO = script_of(
    """
local owner = redis.call('HGET', p .. 'owners', ARGV[1])
local told = owner and cjson.decode(owner)
if told and told[2] == tonumber(ARGV[2]) then
  told[3] = false
  redis.call('HSET', p .. 'owners', ARGV[1], cjson.encode(told))
end
return 1
""",
    "allow-oom",
)

_machine, _owner = msgspec.json.Decoder(Machine), msgspec.json.Decoder(Owner)


class ValkeyDirectory(Closing):
    """A `Directory` in a Valkey server."""

    def __init__(self, url: str) -> None:
        self.address = address_of(url)
        self._link = Link(self.address, str(self.address), SECONDS)

    def _key(self, name: str) -> str:
        return f"{self.address.keys}{name}"

    def shares(self) -> Shares | None:
        count, secrets = self._link.call("HMGET", self._key("directory"), "shares", "secrets")
        return None if count is None else Shares(int(count), secrets)

    def begin(self, shares: Shares) -> Shares:
        count, secrets = self._link.run(BEGIN, *shares)
        if replicas := promise_of(self._link).replicas:
            wait_for_replicas(self._link, replicas)
        return Shares(int(count), secrets)

    def look(self) -> Seen:
        found = [iter(reply) for reply in self._link.calls([("HGETALL", self._key(name)) for name in ("machines", "owners")])]
        machines, owners = (dict(zip(flat, flat, strict=True)) for flat in found)
        return Seen(
            {address.decode(): _machine.decode(told) for address, told in machines.items()},
            {int(share): _owner.decode(told) for share, told in owners.items()},
        )

    def beat(self, machine: Machine) -> None:
        self._link.run(BEAT, machine.address, msgspec.json.encode(machine))

    def leave(self, address: str, boot: str) -> None:
        self._link.run(LEAVE, address, boot)

    def own(self, share: int, owner: Owner) -> bool:
        return bool(self._link.run(OWN, share, owner.epoch, msgspec.json.encode(owner)))

    def let_go(self, share: int, epoch: int) -> None:
        self._link.run(LET_GO, share, epoch)

    def close(self) -> None:
        self._link.close()


#: Opens a directory, as every engine's module names it.
opened = ValkeyDirectory
