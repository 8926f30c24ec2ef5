#!lua flags=allow-oom
-- The rows of these orders stand: nothing is left to be settled about their holds.
--
-- KEYS     1 book   2 pending
-- ARGV     order numbers, at least one
-- Returns  OK · NOT_READY (missing or being loaded: nothing is done, since the load brings what is pending)
-- Why atomic: a load may not begin between looking and removing.
local gate = redis.call('HGET', KEYS[1], 'gate')
if not gate or gate == 'NOT_READY' then return 'NOT_READY' end
redis.call('ZREM', KEYS[2], unpack(ARGV))
return 'OK'
