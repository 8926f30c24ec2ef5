#!lua flags=allow-oom
-- These orders are paid: HELD becomes SOLD, for good. Anything else stays as it is.
--
-- KEYS     1 book   2 pending
-- ARGV     order numbers, at least one
-- Returns  one word for each, blanks between: CHANGED · UNCHANGED · or for all NOT_READY (missing or being loaded:
--          nothing is done, since the load reads the rows)
-- Why atomic: a hold's state and the count of sold units change together or not at all.
local call = redis.call
local book = KEYS[1]
local read = call('HMGET', book, 'gate', 'sold', unpack(ARGV))
local gate, sold = read[1], read[2]
if not gate or gate == 'NOT_READY' then return 'NOT_READY' end

local answers, seen = {}, {}
for i = 1, #ARGV do
  local order, hold = ARGV[i], read[i + 2]
  answers[i] = 'UNCHANGED'
  -- 72 is H.
  if hold and string.byte(hold) == 72 and not seen[order] then
    seen[order] = true
    sold = sold + string.match(hold, '|(%d+)', 28)
    call('HSET', book, 'sold', string.format('%d', sold), order, 'S' .. string.sub(hold, 2))
    answers[i] = 'CHANGED'
  end
end
call('ZREM', KEYS[2], unpack(ARGV))
return table.concat(answers, ' ')
