#!lua
-- Loads some holds. One that is loaded already stays as it is, so a chunk may be sent again.
--
-- KEYS     1 book   2 pending
-- ARGV     1 epoch, then four for each hold: order number, u:<user>, hold, 1 if pending else 0
-- Returns  GOING · STALE (another load is going, or none)
-- Why atomic: the sums must count what was loaded, no more and no less.
local call = redis.call
local book = KEYS[1]
if call('HGET', book, 'loading') ~= ARGV[1] then return 'STALE' end

local sums = { H = 0, S = 0, R = 0 }
for i = 2, #ARGV, 4 do
  local order, user_field, hold, pending = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if call('HSETNX', book, order, hold) == 1 then
    local state, second, quantity = string.match(hold, '^(%u)(%d%d%d%d%d%d%d%d%d%d)%x+|(%d+)')
    sums[state] = sums[state] + quantity
    if state ~= 'R' then call('HINCRBY', book, user_field, quantity) end
    if pending == '1' then call('ZADD', KEYS[2], second, order) end
  end
end
call('HINCRBY', book, 'held', sums.H)
call('HINCRBY', book, 'sold', sums.S)
return 'GOING'
