#!lua flags=allow-oom
-- Keeps a user from being admitted until an instant. Units and rate mark stay.
--
-- KEYS     1 book
-- ARGV     1 u:<user>   2 until when, in ms
-- Returns  OK · NOT_READY (missing or being loaded: a cool-down does not outlive its gate)
-- Why atomic: the user may be buying, and units counted in between would be lost.
local call, match = redis.call, string.match
local book, user_field = KEYS[1], ARGV[1]
local read = call('HMGET', book, 'gate', user_field)
if not read[1] or read[1] == 'NOT_READY' then return 'NOT_READY' end
local units, mark = match(read[2] or '0', '^(%d+) ?(%d*)')
if mark == '' then mark = '0' end
call('HSET', book, user_field, units .. ' ' .. mark .. ' ' .. ARGV[2])
return 'OK'
