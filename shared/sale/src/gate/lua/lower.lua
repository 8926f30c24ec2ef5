#!lua flags=allow-oom
-- Takes units out of an offer, if they are for sale, for a row that is about to be written. Until the row is, or for as
-- long as its writer may live, a mark keeps sync from taking the difference for a mistake.
--
-- KEYS     1 book
-- ARGV     1 units, at least 1   2 the version that the row is to have   3 for how long the mark holds, in ms
-- Returns  DONE · INSUFFICIENT <available> · CONTENDED (another one is under way) · NOT_READY (missing or being loaded)
-- Why atomic: the units may be sold between looking and taking them out.
local call = redis.call
local book, units = KEYS[1], ARGV[1]
local read = call('HMGET', book, 'gate', 'total', 'avail', 'lowering')
if not read[1] or read[1] == 'NOT_READY' then return 'NOT_READY' end
if read[4] then return 'CONTENDED' end
if read[3] - units < 0 then return 'INSUFFICIENT ' .. read[3] end
local time = call('TIME')
local until_ms = string.format('%d', time[1] * 1000 + ARGV[3])
call('HSET', book, 'total', string.format('%d', read[2] - units), 'avail', string.format('%d', read[3] - units),
  'lowering', units .. ' ' .. ARGV[2] .. ' ' .. until_ms)
return 'DONE'
