#!lua flags=allow-oom
-- Makes the gate equal to the offer's row, unless the gate knows a later one.
--
-- KEYS     1 book
-- ARGV     1 epoch   2 version   3 total   4 gate (see admit)   5 terms
-- Returns  APPLIED · UNCHANGED (it was equal) · STALE (the gate knows a later version) · EPOCH_DIFFERS · NOT_READY
--          (missing or being loaded)
-- Why atomic: a sale between reading the stock and writing it would be lost.
local call = redis.call
local book, epoch, version, total, gate, terms = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local read = call('HMGET', book, 'gate', 'epoch', 'version', 'total', 'terms', 'avail', 'lowering')
if not read[1] or read[1] == 'NOT_READY' then return 'NOT_READY' end
if read[2] ~= epoch then return 'EPOCH_DIFFERS' end
if version + 0 < read[3] + 0 then return 'STALE' end

-- Units taken out for a row that this one is not yet (see lower): they stay out while its writer may be alive.
local known = read[4] + 0
if read[7] then
  local units, of_version, until_ms = string.match(read[7], '(%d+) (%d+) (%d+)')
  local time = call('TIME')
  if version - of_version < 0 and time[1] * 1000 < until_ms + 0 then
    known = known + units
  else
    call('HDEL', book, 'lowering')
  end
end
if read[1] == gate and read[3] == version and known == total + 0 and read[5] == terms then return 'UNCHANGED' end

-- What is sold and held stays so; it is the stock that gives.
local change = total - known
local new_total, available = string.format('%d', read[4] + change), string.format('%d', read[6] + change)
call('HSET', book, 'gate', gate, 'version', version, 'total', new_total, 'terms', terms, 'avail', available)
return 'APPLIED'
