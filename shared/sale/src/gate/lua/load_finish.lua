#!lua
-- Ends a load: derives the stock from what was loaded and opens the gate as the row says.
--
-- KEYS     1 book
-- ARGV     1 epoch   2 version   3 total   4 gate (see admit)   5 terms
-- Returns  GOING (also when this load is finished already) · STALE (another load is going, or came after)
-- Why atomic: nobody may meet an open gate without its stock.
local call = redis.call
local book, epoch, version, total, gate, terms = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local read = call('HMGET', book, 'loading', 'epoch', 'held', 'sold')
if read[1] ~= epoch then
  if not read[1] and read[2] == epoch then return 'GOING' end
  return 'STALE'
end
local available = string.format('%d', total - read[3] - read[4])
call('HSET', book, 'epoch', epoch, 'version', version, 'total', total, 'avail', available)
call('HSET', book, 'gate', gate, 'terms', terms)
call('HDEL', book, 'loading', 'held')
return 'GOING'
