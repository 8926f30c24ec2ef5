#!lua
-- Begins to make the gate anew, from rows. Until it is finished the gate answers NOT_READY, and no other script changes
-- it.
--
-- KEYS     1 book   2 pending
-- ARGV     1 epoch   2 a member that keeps pending from being packed
-- Returns  GOING (also when this load has begun already) · STALE (this epoch is there, or a later one)
-- Why atomic: of two loads the later one must win, whole.
local call = redis.call
local book, epoch = KEYS[1], ARGV[1]
local read = call('HMGET', book, 'epoch', 'loading')
if read[2] == epoch then return 'GOING' end
if read[1] and read[1] - epoch >= 0 or read[2] and read[2] - epoch > 0 then return 'STALE' end

-- Frees in the background: the old book may hold a million fields.
call('UNLINK', book, KEYS[2])
call('HSET', book, 'gate', 'NOT_READY', 'loading', epoch, 'held', '0', 'sold', '0')
call('ZADD', KEYS[2], '+inf', ARGV[2])
return 'GOING'
