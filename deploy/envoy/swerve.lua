-- Which worker of Swerve has the query of a request: partition p of 64 belongs to worker p mod N. A wrong guess costs a detour
-- between workers, and nothing else; so does a worker that is down.

-- The workers, as their addresses are in envoy.yaml, worker 0 first.
local WORKERS = { "127.0.0.1:8360", "127.0.0.1:8361", "127.0.0.1:8362", "127.0.0.1:8363" }
-- Queries whose partition each thread of Envoy remembers, and bytes of the longest; when there are more, all are forgotten.
local MOST, LONGEST = 65536, 512
-- What makes a query besides its text.
local PARTS = { "query", "locale", "filter", "segment", "namespace" }
local DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

local known, count = {}, 0

-- The first string of this name in JSON, as it is written there; nil if there is none.
local function text_of(body, name)
  local _, at = body:find('"' .. name .. '"%s*:%s*"')
  if at == nil then
    return nil
  end
  local from = at + 1
  while true do
    at = body:find('["\\]', at + 1)
    if at == nil then
      return nil
    elseif body:sub(at, at) == '"' then
      return body:sub(from, at - 1)
    end
    at = at + 1
  end
end

-- A decision names its partition: its eighth character, as base64 counts.
local function partition_in(decision)
  if decision == nil or #decision < 8 then
    return nil
  end
  local found = DIGITS:find(decision:sub(8, 8), 1, true)
  return found and found - 1
end

-- The key of a query in `known`; nil if it is too long.
local function key_of(body)
  local parts = {}
  for number, name in ipairs(PARTS) do
    parts[number] = text_of(body, name) or ""
  end
  local key = table.concat(parts, "\n")
  return #key <= LONGEST and key or nil
end

local function body_of(handle)
  local body = handle:body()
  return body and body:getBytes(0, body:length()) or ""
end

function envoy_on_request(handle)
  local headers = handle:headers()
  local path, partition = headers:get(":path"), nil
  -- a client may say the partition that an earlier answer has told
  local said = headers:get("swerve-partition")
  if said ~= nil and said:match("^%d%d?$") then
    partition = tonumber(said)
  elseif path == "/v1/feedback" then
    partition = partition_in(text_of(body_of(handle), "decision"))
  elseif path == "/v1/rank" then
    local key = key_of(body_of(handle))
    if key ~= nil then
      partition = known[key]
      handle:streamInfo():dynamicMetadata():set("swerve", "key", key)
    end
  end
  if partition ~= nil then
    -- another worker gets the request if this one is down
    handle:setUpstreamOverrideHost(WORKERS[partition % #WORKERS + 1], false)
  end
end

function envoy_on_response(handle)
  local noted = handle:streamInfo():dynamicMetadata():get("swerve")
  local told = handle:headers():get("swerve-partition")
  if noted == nil or told == nil then
    return
  end
  local key, partition = noted["key"], tonumber(told)
  if partition ~= nil and known[key] ~= partition then
    if known[key] == nil then
      if count >= MOST then
        known, count = {}, 0
      end
      count = count + 1
    end
    known[key] = partition
  end
end
