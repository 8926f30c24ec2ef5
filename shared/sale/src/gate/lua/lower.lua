#!lua flags=allow-oom
-- Takes units out of an offer, if they are for sale.
--
-- KEYS     1 book
-- ARGV     1 units, at least 1
-- Returns  DONE · INSUFFICIENT <available> · NOT_READY (missing or being loaded)
-- Why atomic: the units may be sold between looking and taking them out.
local book, units = KEYS[1], ARGV[1]
local read = redis.call('HMGET', book, 'gate', 'total', 'avail')
if not read[1] or read[1] == 'NOT_READY' then return 'NOT_READY' end
if read[3] - units < 0 then return 'INSUFFICIENT ' .. read[3] end
redis.call('HSET', book, 'total', string.format('%d', read[2] - units), 'avail', string.format('%d', read[3] - units))
return 'DONE'
