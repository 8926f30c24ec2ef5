#!lua flags=allow-oom
-- Puts units back that were taken out for a row that was not written.
--
-- KEYS     1 book
-- ARGV     1 the version that the row was to have
-- Returns  DONE · UNCHANGED (they are back already, or the row was written)
-- Why atomic: sync may do the same at this moment, and only one may.
local call = redis.call
local book = KEYS[1]
local read = call('HMGET', book, 'lowering', 'total', 'avail')
local units, version = string.match(read[1] or '', '(%d+) (%d+)')
if version ~= ARGV[1] then return 'UNCHANGED' end
call('HSET', book, 'total', string.format('%d', read[2] + units), 'avail', string.format('%d', read[3] + units))
call('HDEL', book, 'lowering')
return 'DONE'
