"""The scripts that the Valkey engine runs in the server: each is carried out as a whole, or refused before it changes anything.

Every script that writes first compares the epoch in the store with its caller's, so that a previous owner changes nothing.
The head `#!lua` makes the server refuse a script as a whole while its memory is full; those with `allow-oom` free memory.

A store has these keys, each behind its prefix:

    meta        hash: `store`, `form`, `epoch`, `begin`, `end`, `writes`, `owner`, `bytes`, `logged`, and counters
    lease       who owns it, until it expires
    log:0       sorted set: the blocks of the log of seat 0, by the number of their first entry
    begins:0    sorted set: numbers of entries with which a generation of that log begins
    rows        hash: a row by its key, see `swerve.store.valkey_rows`
    ids         sorted set: keys of rows by their ids
    level:N     sorted set: keys of rows of that level, by day
    shifted     sorted set: keys of rows that have shifted, by the time of their last shift
    used        sorted set: the buckets of used decisions; used:N has the outcomes of one, by the low bits of the decision's id
    groups      hash: pooled records; `layouts`, `lives`: hashes
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

#: Levels of rows: the logarithm of a number of requests is below 64.
LEVELS = 64
#: Blocks that one call of `DROP` removes at most, so that others get their turn.
DROPPED_AT_ONCE = 2000
#: The first value of a result when the caller has another epoch; the epoch in the store follows, empty if there is no store.
OTHER_OWNER = -1


class Script(NamedTuple):
    """A script, and the hash under which the server knows it once it was sent."""

    text: bytes
    sha: bytes


def script_of(body: str, flags: str = "") -> Script:
    """Return a script; `p` in it is the prefix of the store."""
    text = f"#!lua{' flags=' + flags if flags else ''}\nlocal p = KEYS[1]\n{body}".encode()
    return Script(text, hashlib.sha1(text).hexdigest().encode())


_FENCED = """
local meta = p .. 'meta'
local epoch = redis.call('HGET', meta, 'epoch')
if epoch ~= ARGV[1] then return {-1, epoch or ''} end
"""

_ROWS = """
local rows, ids, shifts = p .. 'rows', p .. 'ids', p .. 'shifted'
local bytes = 0
local function unlevel(key, level)
  if redis.call('ZREM', p .. 'level:' .. level, key) == 0 then  -- a damaged row names another level
    for each = 0, 63 do redis.call('ZREM', p .. 'level:' .. each, key) end
  end
end
local function put(key, value, level, day, shifted)
  local old = redis.call('HGET', rows, key)
  redis.call('HSET', rows, key, value)
  bytes = bytes + #value - (old and #old or 0)
  if old and string.byte(old, 1) ~= tonumber(level) then unlevel(key, string.byte(old, 1) or 0) end
  redis.call('ZADD', p .. 'level:' .. level, day, key)
  if shifted ~= '' then
    redis.call('ZADD', shifts, shifted, key)
  elseif old then
    redis.call('ZREM', shifts, key)
  end
  if old then return 0 end
  redis.call('ZADD', ids, redis.call('HINCRBY', meta, 'ids', 1), key)
  return 1
end
local function remove(key)
  local old = redis.call('HGET', rows, key)
  if not old then return 0 end
  bytes = bytes - #old
  unlevel(key, string.byte(old, 1) or 0)
  redis.call('HDEL', rows, key)
  redis.call('ZREM', ids, key)
  redis.call('ZREM', shifts, key)
  return 1
end
local function written()
  if bytes ~= 0 then redis.call('HINCRBY', meta, 'bytes', bytes) end
  return redis.call('HINCRBY', meta, 'writes', 1)
end
"""

#: ARGV: store, form. Returns whether a store was made.
CREATE = script_of("""
if redis.call('EXISTS', p .. 'meta') == 1 then return 0 end
redis.call('HSET', p .. 'meta', 'store', ARGV[1], 'form', ARGV[2], 'epoch', '0', 'begin', '0', 'end', '0', 'writes', '0')
return 1
""")

#: ARGV: milliseconds of the lease, owner. Returns {1, epoch}, or {0, owner, milliseconds left} when another one owns the store.
OWN = script_of(
    """
local lease = p .. 'lease'
local owner = redis.call('GET', lease)
if owner and owner ~= ARGV[2] then return {0, owner, redis.call('PTTL', lease)} end
local epoch = redis.call('HINCRBY', p .. 'meta', 'epoch', 1)
redis.call('SET', lease, ARGV[2], 'PX', ARGV[1])
return {1, epoch}
""",
    "allow-oom",
)

#: ARGV: epoch, milliseconds of the lease, owner. Renews the lease.
BEAT = script_of(_FENCED + "redis.call('SET', p .. 'lease', ARGV[3], 'PX', ARGV[2])\nreturn {0}", "allow-oom")

#: ARGV: epoch. Gives the lease up.
LEAVE = script_of(_FENCED + "redis.call('DEL', p .. 'lease')\nreturn {0}", "allow-oom")

#: ARGV: epoch, number of the first entry of a block, number after its last one, the block, whether a generation begins with it.
#: Returns {1} once the block is there, also when it was there already, or {0, end} when the log ends elsewhere.
APPEND = script_of(
    _FENCED
    + """
local first, after, block = ARGV[2], ARGV[3], ARGV[4]
local last = redis.call('HGET', meta, 'end')
if last == first then
  redis.call('ZADD', p .. 'log:0', first, block)
  if ARGV[5] == '1' then redis.call('ZADD', p .. 'begins:0', first, first) end
  redis.call('HSET', meta, 'end', after)
  redis.call('HINCRBY', meta, 'logged', #block)
  return {1}
end
if last == after and redis.call('ZSCORE', p .. 'log:0', block) then
  redis.call('HINCRBY', meta, 'again', 1)  -- a write, so that WAITAOF waits for the replicas
  return {1}
end
return {0, last}
"""
)

#: ARGV: epoch, begin of the log or '', count of rows and five values of each (key, row, level, day, shifted or ''), count of pooled
#: records and two values of each, then of each bucket of decisions its number, count, and two values of each outcome.
#: Returns {1, writes}.
CHECKPOINT = script_of(
    _FENCED
    + _ROWS
    + """
local at = 3
local function take()
  local value = ARGV[at]
  at = at + 1
  return value
end
for _ = 1, tonumber(take()) do
  put(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
  at = at + 5
end
for _ = 1, tonumber(take()) do
  redis.call('HSET', p .. 'groups', ARGV[at], ARGV[at + 1])
  at = at + 2
end
while at <= #ARGV do
  local bucket, count = take(), tonumber(take())
  for _ = 1, count do
    redis.call('HSET', p .. 'used:' .. bucket, ARGV[at], ARGV[at + 1])
    at = at + 2
  end
  redis.call('ZADD', p .. 'used', bucket, bucket)
end
if ARGV[2] ~= '' then redis.call('HSET', meta, 'begin', ARGV[2]) end
return {1, written()}
"""
)

#: ARGV: epoch, keys. Returns {rows that were removed, writes}.
REMOVE = script_of(
    _FENCED
    + _ROWS
    + """
local gone = 0
for at = 2, #ARGV do gone = gone + remove(ARGV[at]) end
return {gone, written()}
""",
    "allow-oom",
)

#: ARGV: epoch, count of keys and keys of rows to remove, then as `CHECKPOINT` from the count of rows on, without decisions.
#: Returns {rows that were removed, writes}.
ERASE = script_of(
    _FENCED
    + _ROWS
    + """
local at, gone = 3, 0
for _ = 1, tonumber(ARGV[2]) do
  gone = gone + remove(ARGV[at])
  at = at + 1
end
local count = tonumber(ARGV[at])
at = at + 1
for _ = 1, count do
  put(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
  at = at + 5
end
count = tonumber(ARGV[at])
at = at + 1
for _ = 1, count do
  redis.call('HSET', p .. 'groups', ARGV[at], ARGV[at + 1])
  at = at + 2
end
return {gone, written()}
"""
)

#: ARGV: epoch, bucket and low bits of the first id that stays, how many to remove at most. Returns {ids that were removed, writes}.
FORGET_USED = script_of(
    _FENCED
    + """
local last, rest, most, gone = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), 0
while gone < most do
  local bucket = redis.call('ZRANGE', p .. 'used', 0, 0)[1]
  if not bucket or tonumber(bucket) > last then break end
  local key, fields = p .. 'used:' .. bucket, {}
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if tonumber(bucket) < last or tonumber(field) < rest then fields[#fields + 1] = tonumber(field) end
  end
  if #fields == 0 then break end
  table.sort(fields)
  for at = 1, math.min(#fields, most - gone) do
    redis.call('HDEL', key, fields[at])
    gone = gone + 1
  end
  if redis.call('EXISTS', key) == 0 then redis.call('ZREM', p .. 'used', bucket) end
end
return {gone, redis.call('HINCRBY', meta, 'writes', 1)}
""",
    "allow-oom",
)

#: ARGV: epoch, number of the first entry that stays. Returns {blocks that were removed, writes}.
DROP = script_of(
    _FENCED
    + f"""
local log, below = p .. 'log:0', '(' .. ARGV[2]
local blocks, bytes = redis.call('ZRANGE', log, '-inf', below, 'BYSCORE', 'LIMIT', 0, {DROPPED_AT_ONCE}), 0
for _, block in ipairs(blocks) do bytes = bytes + #block end
if #blocks > 0 then redis.call('ZREMRANGEBYRANK', log, 0, #blocks - 1) end
redis.call('ZREMRANGEBYSCORE', p .. 'begins:0', '-inf', below)
redis.call('HINCRBY', meta, 'logged', -bytes)
return {{#blocks, redis.call('HINCRBY', meta, 'writes', 1)}}
""",
    "allow-oom",
)

#: ARGV: epoch, number of the first entry, number after the last one, a block that takes the place of those between them, how far
#: the log is compressed or ''. Returns {1, writes}, or {0, 0} where no block ends there.
REPLACE = script_of(
    _FENCED
    + """
local log, below, bytes = p .. 'log:0', '(' .. ARGV[3], 0
local following = redis.call('ZRANGE', log, ARGV[3], '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
if tonumber(following or redis.call('HGET', meta, 'end')) ~= tonumber(ARGV[3]) then return {0, 0} end
for _, block in ipairs(redis.call('ZRANGE', log, ARGV[2], below, 'BYSCORE')) do bytes = bytes - #block end
redis.call('ZREMRANGEBYSCORE', log, ARGV[2], below)
redis.call('ZADD', log, ARGV[2], ARGV[4])
redis.call('HINCRBY', meta, 'logged', bytes + #ARGV[4])
if ARGV[5] ~= '' then redis.call('HSET', meta, 'sealed', ARGV[5]) end
return {1, redis.call('HINCRBY', meta, 'writes', 1)}
"""
)

#: ARGV: epoch, which the keys of the earlier log get as a suffix. Returns {1, writes}.
NEW_LOG = script_of(
    _FENCED
    + """
for _, name in ipairs({'log:0', 'begins:0'}) do
  if redis.call('EXISTS', p .. name) == 1 then redis.call('RENAME', p .. name, p .. name .. ':' .. ARGV[2]) end
end
redis.call('HSET', meta, 'begin', redis.call('HGET', meta, 'end'), 'logged', 0)
redis.call('HDEL', meta, 'sealed')
return {1, redis.call('HINCRBY', meta, 'writes', 1)}
"""
)

#: ARGV: epoch, name of a hash, a field, name of a counter. Returns {the number of this field, writes}; gives it one if it has none.
NUMBERED = script_of(
    _FENCED
    + """
local found = redis.call('HGET', p .. ARGV[2], ARGV[3])
if found then return {tonumber(found), 0} end
found = redis.call('HINCRBY', meta, ARGV[4], 1)
redis.call('HSET', p .. ARGV[2], ARGV[3], found)
return {found, redis.call('HINCRBY', meta, 'writes', 1)}
"""
)

#: ARGV: epoch, fingerprint of secrets. Returns {1, writes}, or {0, 0} when the rows are stored under other secrets.
CLAIM = script_of(
    _FENCED
    + """
local known = redis.call('HGET', meta, 'owner')
if known and known ~= '' and known ~= ARGV[2] and redis.call('HLEN', p .. 'rows') > 0 then return {0, 0} end
redis.call('HSET', meta, 'owner', ARGV[2])
return {1, redis.call('HINCRBY', meta, 'writes', 1)}
"""
)

#: ARGV: epoch, bytes. Writes them, and removes them again.
PROBE = script_of(
    _FENCED
    + """
redis.call('SET', p .. 'room', string.rep('\\0', tonumber(ARGV[2])))
redis.call('DEL', p .. 'room')
return {1, redis.call('HINCRBY', meta, 'writes', 1)}
"""
)

#: ARGV: 'day' or 'worth', the value that they must be below or '', a limit. Returns keys of rows in this order, the least first.
OLDEST = script_of(
    f"""
local found, limit, below = {{}}, tonumber(ARGV[3]), ARGV[2] == '' and '+inf' or '(' .. ARGV[2]
for level = 0, {LEVELS - 1} do
  local some = redis.call('ZRANGE', p .. 'level:' .. level, '-inf', below, 'BYSCORE', 'LIMIT', 0, limit, 'WITHSCORES')
  for at = 1, #some, 2 do
    found[#found + 1] = {{some[at], tonumber(some[at + 1]) + (ARGV[1] == 'worth' and 8 * level or 0)}}
  end
end
table.sort(found, function(one, other) return one[2] < other[2] end)
local keys = {{}}
for at = 1, math.min(#found, limit) do keys[at] = found[at][1] end
return keys
""",
    "no-writes",
)

#: ARGV: level, or '' for the order of shifts; how many to leave out; a limit. Returns keys and rows, in turn.
RANKED = script_of(
    """
local index = ARGV[1] == '' and p .. 'shifted' or p .. 'level:' .. ARGV[1]
local found = {}
for at, key in ipairs(redis.call('ZREVRANGE', index, ARGV[2], ARGV[2] + ARGV[3] - 1)) do
  found[2 * at - 1], found[2 * at] = key, redis.call('HGET', p .. 'rows', key)
end
return found
""",
    "no-writes",
)

#: ARGV: a row id, a limit. Returns the next rows after it: id, key, row, in turn.
PAGE = script_of(
    """
local found, some = {}, redis.call('ZRANGE', p .. 'ids', '(' .. ARGV[1], '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[2], 'WITHSCORES')
for at = 1, #some, 2 do
  found[#found + 1] = some[at + 1]
  found[#found + 1] = some[at]
  found[#found + 1] = redis.call('HGET', p .. 'rows', some[at])
end
return found
""",
    "no-writes",
)

#: ARGV: a row id, a limit, bytes, the bytes before a row's names and those before their length. Returns the last id that was looked
#: at, or '' at the end, and the keys of rows whose names contain these bytes.
NAMING = script_of(
    """
local some = redis.call('ZRANGE', p .. 'ids', '(' .. ARGV[1], '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[2], 'WITHSCORES')
local found, head = {some[#some] or ''}, tonumber(ARGV[4])
for at = 1, #some, 2 do
  local row = redis.call('HGET', p .. 'rows', some[at])
  if row and #row >= head then
    local names = string.sub(row, head + 1, head + struct.unpack('<I4', row, ARGV[5] + 1))
    if string.find(names, ARGV[3], 1, true) then found[#found + 1] = some[at] end
  end
end
return found
""",
    "no-writes",
)
